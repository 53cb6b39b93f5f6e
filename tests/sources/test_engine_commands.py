"""Command lines: which are an engine's, and what their options say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.sources.engine_commands import Command, Launch, Part, understood


def launch(line: str) -> Launch:
    command = understood(line.split())
    assert command.part is Part.LAUNCH
    assert command.launch is not None
    return command.launch


@pytest.mark.parametrize(
    ("line", "engine", "label"),
    [
        ("vllm serve m", "vllm", "vllm serve"),
        ("/usr/bin/python3 /opt/venv/bin/vllm serve m", "vllm", "vllm serve"),
        (
            "python -m vllm.entrypoints.openai.api_server",
            "vllm",
            "vllm.entrypoints.openai.api_server",
        ),
        (
            "python3.12 -u -X dev -m vllm.entrypoints.cli.main serve m",
            "vllm",
            "vllm.entrypoints.cli.main serve",
        ),
        ("python /src/vllm/entrypoints/openai/api_server.py", "vllm", "api_server.py"),
        ("python3 -m sglang.launch_server --port 1", "sglang", "sglang.launch_server"),
        ("python3 -m sglang serve m", "sglang", "sglang serve"),
        ("sglang serve --model-path m", "sglang", "sglang serve"),
        ("python3 /sgl/python/sglang/launch_server.py", "sglang", "launch_server.py"),
    ],
)
def test_what_is_started_as_a_server(line: str, engine: str, label: str) -> None:
    command = understood(line.split())
    assert (command.part, command.engine, command.label) == (Part.LAUNCH, engine, label)


@pytest.mark.parametrize(
    ("title", "part", "engine"),
    [
        ("VLLM::EngineCore", Part.INNER, "vllm"),
        ("VLLM::Worker_TP0", Part.INNER, "vllm"),
        ("VLLM::DPCoordinator", Part.INNER, "vllm"),
        ("vllm::APIServer_1", Part.FRONT, "vllm"),
        ("sglang::scheduler_TP1", Part.INNER, "sglang"),
        ("sglang::detokenizer", Part.INNER, "sglang"),
        ("sglang::tokenizer_worker:77", Part.FRONT, "sglang"),
    ],
)
def test_titles_that_engines_give_themselves(title: str, part: Part, engine: str) -> None:
    command = understood([title, "", ""])
    assert (command.part, command.engine, command.label) == (part, engine, title)


@pytest.mark.parametrize(
    "line",
    [
        "vllm bench serve --port 8000",
        "vllm",
        "python train.py vllm serve",
        "python -c vllm serve",
        "python",
        "python -m",
        "bash -c vllm",
        "grep -r vllm::x",
        "uv run vllm serve m",
    ],
)
def test_words_elsewhere_make_no_server(line: str) -> None:
    assert understood(line.split()) == Command()


def test_no_words_make_no_server() -> None:
    assert understood([]) == Command()
    assert understood([""]) == Command()


def test_a_title_written_over_the_command_line_is_one_word_with_blanks() -> None:
    assert understood(["vllm serve m --port 8123"]).launch == Launch("vllm", port=8123)


@pytest.mark.parametrize("line", ["python -m sglang_router.launch_router", "vllm-router --port 1"])
def test_routers_are_no_engines(line: str) -> None:
    command = understood(line.split())
    assert (command.part, command.engine) == (Part.ROUTER, None)


@pytest.mark.parametrize(
    ("options", "ports"),
    [
        ("", (8000,)),
        ("--port 8123", (8123,)),
        ("--port=8123", (8123,)),
        ("--port 1 --port 8124", (8124,)),
        ("--port 0", ()),
        ("--port eight", ()),
        ("--config c.yaml", ()),
        ("--config c.yaml --port 9000", (9000,)),
        ("--uds /run/v.sock", ()),
        ("--port", (8000,)),
        ("--port 9000 --data-parallel-multi-port-external-lb -dp 4 -dpl 2", (9000, 9001)),
    ],
)
def test_the_ports_that_vllm_serves_metrics_on(options: str, ports: tuple[int, ...]) -> None:
    assert launch(f"vllm serve m {options}").ports == ports


def test_sglang_has_its_own_default_port() -> None:
    assert launch("python -m sglang.launch_server").ports == (30000,)


@pytest.mark.parametrize(
    ("line", "ranks", "here"),
    [
        ("vllm serve m", 1, 1),
        ("vllm serve m -tp=4", 4, 4),
        ("vllm serve m --tensor_parallel_size 4 -pp 2", 8, 8),
        ("vllm serve m -tp 2 -dp 4 --data-parallel-size-local 2", 8, 4),
        ("vllm serve m -tp 2 -dp 4 --data-parallel-rank 1", 2, 2),
        ("vllm serve m -dp 4 -dpl 2 --data-parallel-hybrid-lb", 2, 2),
        ("vllm serve m -dp 4 -dph", None, None),
        ("vllm serve m -tp 8 --nnodes 2 --node-rank 0", 8, 4),
        ("vllm serve m --config c.yaml -tp 2", None, None),
        ("sglang serve --tp 16 --nnodes 2", 16, 8),
        ("sglang serve --tp-size 8 --dp-size 8 --enable-dp-attention", 8, 8),
        ("sglang serve --tp 2 --dp 2", 4, 4),
        ("sglang serve --tp many", 1, 1),
    ],
)
def test_how_many_gpus_one_page_speaks_for(line: str, ranks: int | None, here: int | None) -> None:
    told = launch(line)
    assert (told.ranks, told.ranks_here) == (ranks, here)


def test_further_hosts_have_no_page() -> None:
    assert launch("vllm serve m --headless").without_page
    assert launch("sglang serve --nnodes 2 --node-rank 1").without_page
    assert not launch("sglang serve --nnodes 2 --node-rank 0").without_page


@pytest.mark.parametrize(
    ("line", "role", "both"),
    [
        ("sglang serve --disaggregation-mode prefill", "prefill", False),
        ("sglang serve --disaggregation-mode null", None, False),
        ('vllm serve m --kv-transfer-config {"kv_role":"kv_consumer"}', "decode", False),
        ("vllm serve m --kv-transfer-config.kv_role kv_producer", "prefill", False),
        ('vllm serve m --kv-transfer-config={"kv_role":"kv_both"}', None, True),
    ],
)
def test_roles(line: str, role: str | None, both: bool) -> None:
    told = launch(line)
    assert (told.role, told.both_roles) == (role, both)


def test_metrics_that_the_options_switch_off() -> None:
    assert launch("sglang serve").silent
    assert not launch("sglang serve --enable-metrics").silent
    assert launch("vllm serve m --disable-log-stats").silent
    assert not launch("vllm serve m").silent


def test_nothing_of_a_key_is_kept() -> None:
    command = understood(["vllm", "serve", "m", "--api-key", "sk-secret", "--port", "8123"])
    assert "sk-secret" not in repr(command)
    assert command.launch == Launch("vllm", port=8123)


@given(st.lists(st.text(max_size=30), max_size=8))
def test_any_words_are_understood_or_left(words: list[str]) -> None:
    assert isinstance(understood(words), Command)
    assert isinstance(understood(["vllm", "serve", *words]).launch, Launch)
