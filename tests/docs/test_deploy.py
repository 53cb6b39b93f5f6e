"""What `deploy/` and the Dockerfile promise: files described, units and images as they say."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import tomllib

import pytest

from tests.deploy.promtool import alert_rules, shipped
from tests.docs.documents import ROOT, document


def dockerfile() -> str:
    return (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")


def instruction(name: str) -> str:
    """The last instruction of that name."""
    found: list[str] = re.findall(rf"^{name} +(.+)$", dockerfile(), re.MULTILINE)
    return found[-1].strip()


def test_every_file_is_described_and_there() -> None:
    linked = set(document("deploy/README.md").links())
    files = {
        path.relative_to(ROOT / "deploy").as_posix()
        for path in (ROOT / "deploy").rglob("*")
        if path.is_file() and path.name != "README.md"
    }
    assert files <= linked


def test_the_image_runs_floorwatch_as_nobody() -> None:
    assert json.loads(instruction("ENTRYPOINT")) == ["floorwatch"]
    assert json.loads(instruction("CMD")) == ["run"]
    assert instruction("USER") == "65532:65532"
    assert dockerfile().count("\nFROM ") == 2


def test_the_image_installs_nothing_without_a_hash() -> None:
    for line in re.findall(r"pip [^&\n]*install [^&\n]*", dockerfile()):
        assert "--require-hashes" in line or "--no-deps --no-index" in line
    for name in ("requirements.txt", "requirements-build.txt"):
        text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
        pins = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
        assert pins
        assert all(re.match(r"[\w.-]+==\S+ .*--hash=sha256:", pin) for pin in pins)


def test_what_builds_the_package_is_what_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    pins = (ROOT / "requirements-build.txt").read_text(encoding="utf-8")
    for needed in project["build-system"]["requires"]:
        assert f"\n{re.split(r'[<>=~]', needed)[0]}==" in f"\n{pins}"


def test_the_build_context_has_what_the_image_copies() -> None:
    kept = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    }
    copied = {
        word.removeprefix("./")
        for line in re.findall(r"^COPY (?!--from)(.+)$", dockerfile(), re.MULTILINE)
        for word in line.split()[:-1]
    }
    assert copied == kept
    assert all((ROOT / name).exists() for name in copied)


def test_the_health_check_is_a_program_that_asks_the_daemon() -> None:
    found = re.search(r"HEALTHCHECK .*? CMD (\[.*\])", dockerfile())
    assert found is not None
    python, option, program = json.loads(found[1])
    assert (python, option) == ("python", "-c")
    compile(program, "HEALTHCHECK", "exec")
    assert "http://127.0.0.1:9838/-/healthy" in program


def test_the_unit_starts_the_daemon_and_is_watched() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(ROOT / "deploy" / "systemd" / "floorwatch.service", encoding="utf-8")
    service = unit["Service"]
    assert service["Type"] == "notify"
    assert service["ExecStart"].split()[1:] == ["run", "--config", "/etc/floorwatch/config.yaml"]
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert int(service["WatchdogSec"]) >= 20
    assert service["DynamicUser"] == "yes"
    assert "PrivateDevices" not in service


def promtool(*arguments: str) -> str:
    """What `promtool` says of a file, which must be that all is well."""
    program = shutil.which("promtool")
    if program is None:
        pytest.fail("promtool is not on PATH: install Debian's package prometheus")
    checked = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    return checked.stdout


def test_prometheus_takes_the_scrape_file() -> None:
    path = ROOT / "deploy" / "prometheus" / "scrape.yaml"
    assert "SUCCESS" in promtool("check", "config", str(path))
    assert "127.0.0.1:9838" in path.read_text(encoding="utf-8")


def test_the_table_of_alerts_is_that_of_the_rules() -> None:
    table = document("deploy/README.md").section("Prometheus")
    rows = re.findall(r"^\| \[(\w+)\]\(runbooks/\1\.md\) \| (\w+) \|", table, re.MULTILINE)
    rules = alert_rules(shipped())
    assert rows == [(name, rule["labels"]["severity"]) for name, rule in rules.items()]
