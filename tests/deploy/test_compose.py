"""The Compose files: what they mount is there, locked down, and taken by the real programs."""

from __future__ import annotations

import http.client
import importlib.util
import json
import re
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from monitor.cli import app
from tests.deploy.promtool import promtool, told_by
from tests.docs.documents import ROOT

FOLDER = ROOT / "deploy" / "compose"
GRAFANA = ROOT / "deploy" / "grafana"
OVERRIDES = ("compose.own.yaml", "compose.gpu.yaml")

Service = dict[str, Any]


def read(name: str) -> dict[str, Any]:
    told: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    return told


def services() -> dict[str, Service]:
    return dict(read("compose.yaml")["services"])


def mounts(service: Service) -> dict[str, Path]:
    """Where in the container -> which file or folder of this project."""
    return {
        volume["target"]: (FOLDER / volume["source"]).resolve()
        for volume in service["volumes"]
        if volume["type"] == "bind"
    }


def option(service: Service, name: str) -> str:
    (value,) = (
        word.partition("=")[2] for word in service["command"] if word.startswith(f"{name}=")
    )
    return str(value)


SERVICES = sorted(services())


def test_all_five_are_there() -> None:
    assert SERVICES == ["alertmanager", "floorwatch", "grafana", "prometheus", "receiver"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_locked_down_and_its_health_is_asked(name: str) -> None:
    service = services()[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service
    assert service["healthcheck"].get("interval") == "10s"
    # The daemon's image has a health check of its own.
    assert "test" in service["healthcheck"] or name == "floorwatch"
    for needed in service.get("depends_on", []):
        assert needed in SERVICES


@pytest.mark.parametrize("name", SERVICES)
def test_a_page_is_on_this_hosts_loopback_alone(name: str) -> None:
    service = services()[name]
    if name == "receiver":
        assert service["network_mode"] == "service:alertmanager"
        assert "ports" not in service
        return
    (port,) = service["ports"]
    assert re.fullmatch(r"127\.0\.0\.1:(\d+):\1", port)
    assert "network_mode" not in service


def test_images_are_pinned_or_built_here() -> None:
    for name, service in services().items():
        if "build" in service:
            assert (FOLDER / service["build"]["context"] / "Dockerfile").resolve() == (
                ROOT / "Dockerfile"
            )
        else:
            assert re.fullmatch(r"[a-z]+/[a-z]+:v?\d+\.\d+\.\d+", service["image"]), name


def test_what_is_mounted_is_there_and_read_only() -> None:
    declared, used = set(read("compose.yaml")["volumes"]), set()
    for service in services().values():
        for volume in service.get("volumes", []):
            if volume["type"] == "volume":
                used.add(volume["source"])
            else:
                assert (FOLDER / volume["source"]).exists(), volume["source"]
                assert volume["read_only"] is True
                assert volume["bind"] == {"create_host_path": False}
    assert used == declared


def test_promtool_takes_prometheus_and_the_rules_where_they_are_mounted(tmp_path: Path) -> None:
    prometheus = services()["prometheus"]
    for target, source in mounts(prometheus).items():
        assert Path(target).parent == Path("/etc/prometheus")
        shutil.copy(source, tmp_path / Path(target).name)
    config = option(prometheus, "--config.file")
    assert config in mounts(prometheus)
    told = promtool("check", "config", tmp_path / Path(config).name)
    assert "SUCCESS" in told
    assert "1 rule files found" in told


def test_prometheus_asks_and_tells_services_that_exist() -> None:
    config = read("prometheus.yaml")
    (job,) = config["scrape_configs"]
    (told,) = config["alerting"]["alertmanagers"]
    assert job["job_name"] == "floorwatch"
    listens = services()["floorwatch"]["command"]
    assert listens == ["demo", "--listen", "0.0.0.0:9838"]
    for static, port in ((job["static_configs"], 9838), (told["static_configs"], 9093)):
        ((address,),) = (one["targets"] for one in static)
        service, _, asked = address.partition(":")
        assert services()[service]["ports"] == [f"127.0.0.1:{port}:{asked}"]


@pytest.mark.parametrize(
    ("service", "program"),
    [("prometheus", "prometheus"), ("alertmanager", "prometheus-alertmanager")],
)
def test_the_programs_know_their_options(service: str, program: str) -> None:
    known = told_by(program, program, "--help")
    for word in services()[service]["command"]:
        assert f"{word.partition('=')[0]}=" in known


def test_the_daemon_knows_its_commands() -> None:
    known = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    own = read("compose.own.yaml")["services"]["floorwatch"]
    for command in (services()["floorwatch"]["command"], own["command"]):
        options = {one for parameter in known[command[0]].params for one in parameter.opts}
        assert {word for word in command if word.startswith("--")} <= options


def test_alertmanager_runs_the_shipped_file_and_the_receiver_is_who_it_calls() -> None:
    alertmanager = services()["alertmanager"]
    assert mounts(alertmanager) == {"/etc/alertmanager": ROOT / "deploy" / "alertmanager"}
    config = Path(option(alertmanager, "--config.file"))
    here = mounts(alertmanager)[str(config.parent)] / config.name
    assert "SUCCESS" in told_by("amtool", "prometheus-alertmanager", "check-config", here)
    urls = re.findall(r"url: http://([\d.]+):(\d+)/", here.read_text(encoding="utf-8"))
    assert set(urls) == {("127.0.0.1", "9094")}
    # Alertmanager's own cluster would take that port.
    assert option(alertmanager, "--cluster.listen-address") == ""
    assert receiver().ADDRESS == ("127.0.0.1", 9094)
    assert mounts(services()["receiver"]) == {
        services()["receiver"]["entrypoint"][1]: FOLDER / "receiver.py"
    }


def test_grafana_finds_the_shipped_dashboards_and_this_prometheus() -> None:
    grafana = services()["grafana"]
    provisioning = "/etc/grafana/provisioning"
    there = mounts(grafana)
    assert there[f"{provisioning}/dashboards"] == GRAFANA / "provisioning" / "dashboards"
    (file,) = (GRAFANA / "provisioning" / "dashboards").iterdir()
    (provider,) = yaml.safe_load(file.read_text(encoding="utf-8"))["providers"]
    dashboards = provider["options"]["path"]
    assert there[dashboards] == GRAFANA / "dashboards"
    home = Path(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert str(home.parent) == dashboards
    assert (GRAFANA / "dashboards" / home.name).exists()
    assert there[f"{provisioning}/datasources/floorwatch.yaml"] == FOLDER / "datasource.yaml"
    (file,) = (GRAFANA / "provisioning" / "datasources").iterdir()
    (shipped,) = yaml.safe_load(file.read_text(encoding="utf-8"))["datasources"]
    (own,) = read("datasource.yaml")["datasources"]
    assert own == {**shipped, "url": "http://prometheus:9090"}


@pytest.mark.parametrize("name", OVERRIDES)
def test_an_override_is_of_services_that_exist(name: str) -> None:
    told = read(name)
    assert set(told["services"]) == {"floorwatch"}
    of_volumes = {
        volume["source"]
        for volume in told["services"]["floorwatch"].get("volumes", [])
        if volume["type"] == "volume"
    }
    assert of_volumes == set(told.get("volumes", {}))


def test_own_servers_are_watched_by_a_mounted_file_and_alarms_are_kept() -> None:
    own = read("compose.own.yaml")["services"]["floorwatch"]
    config, state = own["volumes"]
    assert own["command"] == ["run", "--config", config["target"]]
    assert config["read_only"] is True
    assert own["environment"] == {
        "FLOORWATCH_LISTEN_ADDRESS": "0.0.0.0:9838",
        "STATE_DIRECTORY": state["target"],
    }
    # A new volume takes its owner from the folder of the image.
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert f"install -d -o 65532 -g 65532 -m 0700 {state['target']}\n" in dockerfile


def receiver() -> Any:
    spec = importlib.util.spec_from_file_location("receiver", FOLDER / "receiver.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_receiver_writes_down_what_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    module = receiver()
    server = module.ThreadingHTTPServer(("127.0.0.1", 0), module.Receiver)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    serving.start()

    def post(body: str) -> int:
        one = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=5)
        try:
            one.request("POST", "/page", body)
            return one.getresponse().status
        finally:
            one.close()

    alert = {
        "status": "firing",
        "labels": {"alertname": "FloorwatchBelowFloor"},
        "annotations": {"summary": "a makes fewer tokens/s per GPU than its floor"},
    }
    try:
        assert post(json.dumps({"alerts": [alert, {**alert, "status": "resolved"}]})) == 200
        assert post("{}") == 400
        assert post("[1]") == 400
        assert post(json.dumps({"alerts": [{**alert, "labels": {"alertname": "a\x1b[2J"}}]})) == 200
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
    told = "FloorwatchBelowFloor: a makes fewer tokens/s per GPU than its floor\n"
    lines = capsys.readouterr().out.splitlines(keepends=True)
    assert lines[:2] == [f"/page firing {told}", f"/page resolved {told}"]
    assert lines[2].startswith(r"'/page firing a\x1b[2J")
    assert len(lines) == 3
