# Every target is one line of the README or CONTRIBUTING; `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo test test-stack lint format types contracts coverage bench validate simulate check requirements clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or later is needed; try: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "cannot make a virtual environment (Debian: apt-get install python3-venv)" >&2; exit 1; }

$(VENV)/.run-installed: requirements.txt pyproject.toml | $(VENV)/bin/python
	$(PIP) install --quiet --require-hashes -r requirements.txt
	$(PIP) install --quiet --no-deps --editable .
	@touch $@

$(VENV)/.dev-installed: requirements-dev.txt $(VENV)/.run-installed
	$(PIP) install --quiet --require-hashes -r requirements-dev.txt
	@touch $@

demo: $(VENV)/.run-installed ## run the daemon over simulated servers, one of them faulty
	$(BIN)/floorwatch demo $(ARGS)

test: $(VENV)/.dev-installed ## run all tests
	$(BIN)/python -m pytest -q $(ARGS)

test-stack: $(VENV)/.dev-installed ## fault to webhook with real Prometheus and Alertmanagers: minutes
	$(BIN)/python -m pytest -q tests/stack $(ARGS)

lint: $(VENV)/.dev-installed ## style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.dev-installed ## rewrite files in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.dev-installed ## mypy, strict
	$(BIN)/mypy

contracts: $(VENV)/.dev-installed ## which module may import which
	$(BIN)/lint-imports

CORE := monitor/model/*,monitor/engines/*,monitor/throughput/*,monitor/expectation/*,monitor/judgement/*,monitor/memory.py,monitor/pipeline.py,monitor/viewing.py,monitor/consequences.py,monitor/expecting.py,monitor/fleet.py,monitor/reporting.py,monitor/target_state.py,monitor/known_servers.py

coverage: $(VENV)/.dev-installed ## all tests with branch coverage: core 100 %, all at least 90 %
	rm -f .coverage .coverage.*
	$(BIN)/coverage run -m pytest -q $(ARGS)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --fail-under=100 --include="$(CORE)"
	$(BIN)/coverage report --fail-under=90

bench: $(VENV)/.dev-installed ## measure cost, as ratios to peers in the same run
	$(BIN)/python -m tests.bench

validate: $(VENV)/.dev-installed ## hold the load model against every published and measured row
	$(BIN)/python -m tests.bench.validate $(ARGS)

simulate: $(VENV)/.dev-installed ## false alarms and delays of the timing rules, simulated: minutes
	$(BIN)/python -m tests.simulate $(ARGS)

check: lint types contracts coverage ## all that CI does

requirements: $(VENV)/.dev-installed ## pin the dependencies anew, with hashes
	$(BIN)/pip-compile --quiet --upgrade --generate-hashes --strip-extras --no-header \
	  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
	  --output-file requirements.txt pyproject.toml
	$(BIN)/pip-compile --quiet --upgrade --generate-hashes --strip-extras --allow-unsafe --no-header \
	  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --extra dev \
	  --constraint requirements.txt --output-file requirements-dev.txt pyproject.toml

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) build dist *.egg-info .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
