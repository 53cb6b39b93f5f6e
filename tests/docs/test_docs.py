"""The documents are true: what they show is run, what they list is held against the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from monitor import __version__, config
from monitor.cli import app
from monitor.config import Config, environment
from monitor.config.errors import is_section, leaves
from monitor.expectation.matching import Catalogue
from monitor.expectation.peaks import share_of_peak
from monitor.expectation.reference import Reference, reference_floor
from monitor.judgement import alarms, causes, verdict
from monitor.model import Floor, GpuSpec, JudgementSettings, Step, Verdict
from monitor.outputs.board import Board
from monitor.outputs.exposition import SelfStats
from monitor.outputs.http import HttpOptions, make_app
from monitor.outputs.metric_table import METRICS
from monitor.sources.expectations import default_directory, load_catalogue
from tests.deploy.promtool import alert_rules, shipped
from tests.docs.documents import (
    ROOT,
    Block,
    Document,
    as_pattern,
    document,
    documents,
    first_column,
    floorwatch_arguments,
)
from tests.docs.generated import PARTS, parts_of

README = document("README.md")
CONTRIBUTING = document("CONTRIBUTING.md")
OURS = (
    README,
    CONTRIBUTING,
    document("CHANGELOG.md"),
    document("SECURITY.md"),
    document("deploy/README.md"),
    document("tests/README.md"),
)
RUN_BLOCKS = [
    (f"{one.name}-{number}", block)
    for one in (README, CONTRIBUTING)
    for number, block in enumerate(one.blocks())
    if block.mark.startswith("run")
]


# ------------------------------------------------------------------------ commands


def environment_of_a_reader() -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("FLOORWATCH_")}
    return {**kept, "PYTHONPATH": str(ROOT), "TZ": "UTC"}


@pytest.mark.parametrize("block", [block for _, block in RUN_BLOCKS], ids=dict(RUN_BLOCKS))
def test_commands_print_what_is_shown(
    block: Block, workplace: Path, request: pytest.FixtureRequest
) -> None:
    mark = re.fullmatch(r"run(?P<demo> with demo)?(?: exit (?P<code>\d))?", block.mark)
    assert mark is not None, f"no such mark: {block.mark!r}"
    if mark["demo"]:
        request.getfixturevalue("demo_servers")
    for line, expected in block.commands():
        arguments = floorwatch_arguments(line)
        assert arguments is not None, f"only floorwatch is run here: {line}"
        done = subprocess.run(
            [sys.executable, "-m", "monitor", *arguments],
            cwd=workplace,
            env=environment_of_a_reader(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=30,
        )
        assert as_pattern(expected).fullmatch(done.stdout), f"{line} printed:\n{done.stdout}"
        assert done.returncode == int(mark["code"] or 0)


def test_a_pattern_is_the_text_but_for_the_dots() -> None:
    shown = as_pattern("one\n...\nfour ... (six)\n")
    assert shown.fullmatch("one\ntwo\nthree\nfour five (six)\n")
    assert shown.fullmatch("one\nfour  (six)\n")
    assert not shown.fullmatch("one\ntwo\nfour five (seven)\n")
    assert not shown.fullmatch("one\nfour five (six)\nseven\n")


def test_the_first_lines_run_it_and_test_it() -> None:
    first = README.blocks()[0]
    assert [line.split("  ")[0] for line, _ in first.commands()] == ["make demo", "make test"]
    assert README.text.index("make demo") < 40


def test_every_command_has_its_row() -> None:
    known = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    rows = first_column(README.section("Commands"))
    assert rows == [f"floorwatch {name}" for name in known]


@pytest.mark.parametrize("one", OURS, ids=lambda one: one.name)
def test_commands_and_options_exist(one: Document) -> None:
    known = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for line in one.command_lines():
        arguments = floorwatch_arguments(line.split(" floorwatch floorwatch ")[-1])
        if not arguments:
            continue
        name, *rest = arguments
        assert name in known, f"{one.name}: {line}"
        options = {option for parameter in known[name].params for option in parameter.opts}
        for word in rest:
            if word.startswith("--"):
                assert word in options | {"--help"}, f"{one.name}: {line}"


def test_options_named_beside_a_command_are_its_own() -> None:
    known = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for row in re.findall(r"^\| `floorwatch (\w+)` \| (.*) \|$", README.text, re.MULTILINE):
        options = {option for parameter in known[row[0]].params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", row[1])) <= options


@pytest.mark.parametrize("one", documents(), ids=lambda one: one.name)
def test_make_targets_exist(one: Document) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for line in one.command_lines():
        words = line.split()
        if words[:1] == ["make"] and len(words) > 1:
            assert words[1] in targets, f"{one.name}: {line}"


def test_the_recording_is_made_as_the_readme_says(tmp_path: Path) -> None:
    (line,) = (code for code in README.codes() if "tests.docs.incident" in code)
    program, *arguments = line.split()
    assert program == ".venv/bin/python"
    for code, told in ((0, ""), (1, "incident is there already; remove it first\n")):
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=environment_of_a_reader(),
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        assert (done.returncode, done.stdout, done.stderr) == (code, "", told)
    assert {path.name for path in tmp_path.iterdir()} == {"incident", "incident.tar.gz"}
    assert len(list((tmp_path / "incident" / "vllm-healthy").glob("*.prom"))) == 21


# -------------------------------------------------------------------- configuration


def test_the_short_configuration_is_valid() -> None:
    (text,) = (block.body for block in README.blocks() if block.mark == "short config")
    (target,) = config.parse(text, "README.md", {}).targets
    assert target.url == "http://127.0.0.1:30000/metrics"


def readme_config() -> str:
    (text,) = (block.body for block in README.blocks() if block.mark == "config")
    return text


def keys_of(section: Any) -> set[str]:
    """Every key that a section of the file and the sections below it take."""
    keys = set()
    for name, field in section.model_fields.items():
        keys.add(field.alias or name)
        for kind in leaves(field.annotation):
            if is_section(kind):
                keys |= keys_of(kind)
    return keys


def test_the_configuration_is_valid() -> None:
    read = config.parse(readme_config(), "README.md", {})
    assert [target.name for target in read.targets] == ["qwen-a", "qwen-b", "far-away"]
    first, second, third = (target.spec().floor for target in read.targets)
    assert first is not None
    assert (first.at_least, first.of_tokens_per_second) == (0.25, 3500.0)
    assert second is not None
    assert (second.reference_gpu, second.reference_rule) == ("h200-sxm-141gb", "weighted")
    assert third is not None
    assert third.fixed_prompt_tokens_per_second == 9000.0
    # The block shows keys that have no effect yet; the start says so of each.
    assert all("yet" in doubt for doubt in read.doubts())


def test_the_configuration_names_catalogue_ids() -> None:
    catalogue = Catalogue(load_catalogue(default_directory()))
    for gpu in re.findall(r"[{ ]gpu: ([\w-]+)", readme_config()):
        assert isinstance(catalogue.by_id(gpu), GpuSpec), gpu


def test_the_configuration_shows_every_key() -> None:
    words = set(re.findall(r"\w+", readme_config()))
    assert keys_of(Config) - words == set()


def test_the_shown_judgement_is_the_default() -> None:
    read = config.parse(readme_config(), "README.md", {})
    assert read.settings() == JudgementSettings()
    assert read.listen.address == Config().listen.address
    assert read.poll_interval_seconds == Config().poll_interval_seconds


@pytest.mark.parametrize("one", OURS, ids=lambda one: one.name)
def test_variables_exist(one: Document) -> None:
    taken = {
        "FLOORWATCH_POLL_INTERVAL": "2s",
        "FLOORWATCH_LISTEN_ADDRESS": "127.0.0.1:9900",
        "FLOORWATCH_JUDGEMENT_WARM_UP": "1m",
    }
    others = {"FLOORWATCH_CONFIG", "FLOORWATCH_LOG_FORMAT", "FLOORWATCH_LOG_LEVEL"}
    found = set(re.findall(r"FLOORWATCH_[A-Z_]+", one.text))
    assert found <= taken.keys() | others
    assert environment.unknown(taken, Config, {}) == []
    assert config.parse("", "defaults", taken).settings().warm_up_seconds == 60.0


# --------------------------------------------------------------------------- tables


@pytest.mark.parametrize(("one", "part"), [(README, "metrics"), (CONTRIBUTING, "layers")])
def test_generated_parts_are_fresh(one: Document, part: str) -> None:
    assert parts_of(one.text)[part] == PARTS[part](), "run: python -m tests.docs.generated"


def test_every_metric_is_named_with_its_meaning() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| \w+ \| .* \| (.+) \|$", README.text, re.MULTILINE))
    assert rows == {metric.name: metric.help for metric in METRICS}


@pytest.mark.parametrize("one", OURS, ids=lambda one: one.name)
def test_named_metrics_exist(one: Document) -> None:
    known = {metric.name for metric in METRICS}
    assert set(re.findall(r"`(floorwatch_\w+)[`{ ]", one.text)) <= known


def test_verdicts_are_those_of_the_code() -> None:
    section = README.section("Verdicts")
    rows = [
        row.strip(" ,") for row in re.findall(r"^\| (\w+)", verdict.__doc__ or "", re.MULTILINE)
    ]
    given = set(rows) - {"verdict"}
    shown = first_column(section)
    assert len(shown) == len(set(shown))
    assert set(shown) == given
    assert given == set(Verdict)


def test_alarms_are_those_of_the_code() -> None:
    source = Path(alarms.__file__).read_text(encoding="utf-8")
    names = set(re.findall(r'"(Floorwatch\w+)"', source))
    assert set(first_column(README.section("Alarms"))[: len(names)]) == names
    names |= set(alert_rules(shipped()))
    for one in OURS:
        assert set(re.findall(r"\bFloorwatch[A-Z]\w+", one.text)) <= names


def test_causes_are_those_of_the_code() -> None:
    given = [*(cause.name for cause in causes.CAUSES), "unknown"]
    assert given == first_column(README.section("At 3 a.m."))


def test_paths_are_those_of_the_web_server() -> None:
    async def reload() -> str | None:
        return None

    own = SelfStats(version="", revision="", python="", start_wall_seconds=0.0)
    web_app = make_app(Board(own, 10.0), HttpOptions(reload=reload))
    served = [str(resource.canonical) for resource in web_app.router.resources()]
    assert sorted(first_column(README.section("HTTP"))) == sorted(served)


def test_engine_versions_are_those_of_their_heads() -> None:
    for engine in ("sglang", "vllm"):
        head = (ROOT / "monitor" / "engines" / f"{engine}.py").read_text(encoding="utf-8")
        versions = re.search(r'^"""(\w+), ([\d.]+ to [\d.]*\d)', head)
        assert versions is not None
        for one in ("README.md", "CHANGELOG.md"):
            plain = " ".join(document(one).text.split())
            assert f"{versions[1]} {versions[2]}" in plain


def test_changelog_speaks_of_this_version_and_catalogue() -> None:
    text = document("CHANGELOG.md").text
    versions = re.findall(r"^## \[([\d.]+)\]", text, re.MULTILINE)
    assert versions[0] == __version__
    assert f"A catalogue of {len(load_catalogue(default_directory()))} GPUs" in text


# -------------------------------------------------------------- the two stories


def scaled(rule: str) -> Floor:
    catalogue = Catalogue(load_catalogue(default_directory()))
    ours = catalogue.by_id("rtx-pro-6000-blackwell-ws")
    reference = Reference("b200-sxm-180gb", 3500.0, "bf16", rule, "")
    floor = reference_floor(reference, ours, "bf16", catalogue)
    assert isinstance(floor, Floor)
    return floor


def test_the_story_of_485_tokens_is_computed_so() -> None:
    story = " ".join(README.section("Where a floor comes from").split())
    steps = {step.what: step.value for step in scaled("min").steps}
    assert f"1792 / 7700 GB/s = {steps['bandwidth ratio']:.4f}" in story
    assert f"503.8 / 2250 TFLOPS = {steps['compute ratio']:.4f}" in story
    assert f"0.9 x 0.2239 x 3500 = {steps['floor']:.1f}" in story
    assert f"gives {steps['scaled by the product']:.1f} tokens/s" in story
    assert 485 / steps["scaled by the product"] > 2.0
    assert 485 < steps["floor"] < 0.25 * 3500 == 875
    assert scaled("min").may_gate
    assert not scaled("product").may_gate


def test_the_story_of_the_fp4_kernel_is_computed_so() -> None:
    story = " ".join(README.section("Where a floor comes from").split())
    catalogue = Catalogue(load_catalogue(default_directory()))
    ours = catalogue.by_id("rtx-pro-6000-blackwell-ws")
    assert isinstance(ours, GpuSpec)
    share = share_of_peak(1300.0, ours, "nvfp4")
    assert isinstance(share, Step)
    assert f"the dense fp4 peak is {ours.dense_peaks['fp4'].value:g}" in story
    assert f"The kernel did {share.value:.1%}".replace("%", " %") in story
    assert round(1300 / ours.sparse_peaks["fp4"].value, 2) == 0.32


# ---------------------------------------------------------------------- references


@pytest.mark.parametrize("one", documents(), ids=lambda one: one.name)
def test_links_lead_somewhere(one: Document) -> None:
    for link in one.links():
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        there = one.path if not path else (one.path.parent / path)
        assert there.exists(), f"{one.name}: {link}"
        if anchor:
            titles = re.findall(r"^#+ (.+)$", there.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-") for title in titles}
            assert anchor in slugs, f"{one.name}: {link}"


@pytest.mark.parametrize("one", OURS, ids=lambda one: one.name)
def test_named_files_exist(one: Document) -> None:
    tops = ("monitor/", "expectations/", "deploy/", "tests/", ".ci/")
    files = re.compile(r"[\w.-]+\.(md|toml|txt|py|service|yaml)|Makefile|Dockerfile|LICENSE")
    beside = {
        path.name
        for top in tops
        for path in (ROOT / top).rglob("*")
        if "__pycache__" not in path.parts
    }
    from_user = {"config.yaml", "wrong.yaml", "recording.json", "scrape.yaml"}
    for code in one.codes():
        if code.startswith(tops):
            assert (ROOT / code).exists(), f"{one.name}: {code}"
        elif files.fullmatch(code) and code not in from_user:
            assert (ROOT / code).exists() or code in beside, f"{one.name}: {code}"


@pytest.mark.parametrize("one", documents(), ids=lambda one: one.name)
def test_no_document_speaks_of_other_places(one: Document) -> None:
    assert not re.search(r"\bsessions?\b", one.text, re.IGNORECASE)
    assert not re.search(r"(?<![\w.])/(work|root|home|Users)/", one.text)
    registries = r"\b(pypi|pythonhosted|npmjs|crates|ghcr|quay|docker|gcr|nvcr)\.(org|io|com)\b"
    assert not re.search(registries, one.text)


@pytest.mark.parametrize("one", OURS, ids=lambda one: one.name)
def test_lines_are_short_outside_of_tables_and_blocks(one: Document) -> None:
    inside = False
    for number, line in enumerate(one.text.splitlines(), 1):
        inside ^= line.startswith("```")
        assert inside or line.startswith("|") or len(line) <= 100, f"{one.name}:{number}"


def test_every_folder_of_tests_is_described() -> None:
    rows = {row.strip("`/") for row in first_column(document("tests/README.md").text)}
    folders = {
        path.parent.relative_to(ROOT / "tests").parts[0]
        for path in (ROOT / "tests").rglob("*.py")
        if path.parent != ROOT / "tests"
    }
    assert folders <= rows, "describe it in tests/README.md"
