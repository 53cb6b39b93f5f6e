"""Pods of a cluster -> servers to watch."""

from __future__ import annotations

from typing import Any

import pytest

from monitor.config.discovery import KubernetesConfig
from monitor.config.target import TargetConfig
from monitor.model import FoundServer
from monitor.sources.kubernetes_objects import Pod
from monitor.sources.kubernetes_pods import SETTINGS, Served, served_by
from tests.sources.fake_kubernetes import pod


def served(data: Any, own: tuple[str, str] | None = None, **config: Any) -> Served:
    return served_by(Pod.model_validate(data), KubernetesConfig.model_validate(config), own)


def only(data: Any, **config: Any) -> FoundServer:
    (server,) = served(data, **config).servers
    return server


def target_of(server: FoundServer) -> TargetConfig:
    """The target that the server's words make."""
    settings = {
        key: int(text) if text.isdecimal() else text for key, text in server.settings.items()
    }
    name = {} if server.name is None else {"name": server.name}
    return TargetConfig.model_validate(
        {**settings, **name, "url": server.url, "labels": dict(server.labels)}
    )


def container(name: str, *ports: Any, gpus: int | None = None, **more: Any) -> dict[str, Any]:
    listed = [
        {"containerPort": number, **({"name": called} if called else {})}
        for called, number in ports
    ]
    limits = {} if gpus is None else {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return {"name": name, "ports": listed, **limits, **more}


def test_a_pod_that_runs_is_a_server() -> None:
    assert served(pod(gpus="8")) == Served(
        servers=(
            FoundServer(
                url="http://10.1.2.3:8000/metrics",
                name="inference.vllm-0",
                how="pod inference/vllm-0, container vllm, port metrics 8000",
                labels={"namespace": "inference", "pod": "vllm-0", "node": "node-a"},
                settings={"gpu_count": "8"},
            ),
        ),
        chosen=True,
    )


def test_the_server_is_a_target_with_its_settings() -> None:
    annotations = {
        "floorwatch.io/gpu": "h200-sxm-141gb",
        "floorwatch.io/tensor-parallel": "16",
        "floorwatch.io/gpu-count": "16",
        "floorwatch.io/precision": " fp8 ",
        "floorwatch.io/role": "decode",
        "floorwatch.io/maintenance": "true",
    }
    target = target_of(only(pod(gpus=8, annotations=annotations), scheme="https"))
    assert (target.name, target.url) == ("inference.vllm-0", "https://10.1.2.3:8000/metrics")
    assert (target.gpu, target.gpu_count, target.tensor_parallel) == ("h200-sxm-141gb", 16, 16)
    assert (target.precision, target.role, target.maintenance) == ("fp8", "decode", True)
    assert target.labels == {"namespace": "inference", "pod": "vllm-0", "node": "node-a"}


def test_every_setting_of_a_pod_is_a_key_of_a_target() -> None:
    assert set(SETTINGS) <= set(TargetConfig.model_fields)


@pytest.mark.parametrize(
    "more",
    [
        {"ip": None},
        {"ip": ""},
        {"ip": "not an address"},
        {"deleted": "2026-11-30T10:00:00Z"},
        {"phase": "Pending"},
        {"phase": "Succeeded"},
        {"phase": "Failed"},
        {"annotations": {"floorwatch.io/ignore": "true"}},
        {"annotations": {"floorwatch.io/ignore": " Yes"}},
        {"name": "evil\nname"},
        {"name": ""},
        {"name": "a/b"},
        {"namespace": ""},
    ],
)
def test_a_pod_that_is_no_target(more: dict[str, Any]) -> None:
    assert served(pod(**more)) == Served()


@pytest.mark.parametrize(
    "more",
    [
        {"ready": "False"},
        {"ready": "Unknown", "phase": "Unknown"},
        {"annotations": {"floorwatch.io/ignore": "false"}},
    ],
)
def test_a_pod_that_is_not_ready_still_is_one(more: dict[str, Any]) -> None:
    assert only(pod(**more)).url == "http://10.1.2.3:8000/metrics"


@pytest.mark.parametrize(
    "data", [{}, {"metadata": 1, "spec": [], "status": "x"}, pod() | {"spec": 3}]
)
def test_what_is_no_pod_brings_no_server(data: Any) -> None:
    assert served(data).servers == ()


def test_a_field_of_the_wrong_form_spoils_no_other() -> None:
    data = pod(gpus=[8], labels={"app": 3, "tier": "a"})
    data["metadata"]["uid"] = {"x": 1}
    data["spec"]["containers"].append("no container")
    data["spec"]["containers"][0]["ports"] += [None, {"name": "metrics", "containerPort": "high"}]
    data["spec"]["nodeName"] = ["node"]
    server = only(data, label_names={"tier": "__meta_kubernetes_pod_label_tier"})
    assert server.url == "http://10.1.2.3:8000/metrics"
    assert server.settings == {}
    assert server.labels == {"namespace": "inference", "pod": "vllm-0", "tier": "a"}


def test_an_ipv6_address_stands_in_brackets() -> None:
    server = only(pod(ip="fd00:10::1f"), path="stats/metrics")
    assert server.url == "http://[fd00:10::1f]:8000/stats/metrics"
    assert target_of(server).url == server.url


@pytest.mark.parametrize(
    ("port", "ports", "url"),
    [
        ("metrics", [{"name": "http", "containerPort": 8000}], None),
        ("http", [{"name": "http", "containerPort": 8000}], "http://10.1.2.3:8000/metrics"),
        (30000, [{"containerPort": 30000}], "http://10.1.2.3:30000/metrics"),
        (30000, [{"containerPort": 30001}], None),
        (30000, [], None),
        ("metrics", [{"name": "metrics", "containerPort": 9, "protocol": "UDP"}], None),
        ("metrics", [{"name": "metrics", "containerPort": 0}], None),
        ("metrics", None, None),
    ],
)
def test_the_port_is_one_that_is_declared(port: int | str, ports: Any, url: str | None) -> None:
    found = served(pod(ports=ports), port=port)
    assert [server.url for server in found.servers] == ([] if url is None else [url])
    assert found.chosen


def test_a_number_is_enough_where_the_selector_chose_the_pods() -> None:
    silent = pod(ports=[], gpus=4)
    server = only(silent, port=8000, label_selector="app=vllm")
    assert server.url == "http://10.1.2.3:8000/metrics"
    assert server.how == "pod inference/vllm-0, container vllm, port 8000"
    assert server.settings == {"gpu_count": "4"}
    assert served(silent, port="metrics", label_selector="app=vllm").servers == ()
    other = pod(ports=[{"containerPort": 9}])
    assert served(other, port=8000, label_selector="app=vllm").servers == ()


def test_sidecars_count_and_init_containers_do_not() -> None:
    data = pod(
        containers=[container("vllm", gpus=2)],
        init=[
            container("load", ("metrics", 9001), gpus=8),
            container("proxy", ("metrics", 9002), gpus=1, restartPolicy="Always"),
        ],
    )
    server = only(data, label_names={"side": "__meta_kubernetes_pod_container_init"})
    assert server.url == "http://10.1.2.3:9002/metrics"
    assert server.settings == {"gpu_count": "3"}
    assert server.labels["side"] == "true"


def test_several_servers_in_a_pod_are_told_apart() -> None:
    data = pod(
        containers=[
            container("prefill", ("metrics", 8000), gpus=4),
            container("decode", ("metrics", 8001), gpus=2),
            container("logs", ("metrics", 8001), ("other", 7)),
        ]
    )
    found = served(data).servers
    assert [(server.name, server.url, server.settings) for server in found] == [
        ("inference.vllm-0.prefill", "http://10.1.2.3:8000/metrics", {"gpu_count": "4"}),
        ("inference.vllm-0.decode", "http://10.1.2.3:8001/metrics", {"gpu_count": "2"}),
    ]
    named = served(data, name_label="__meta_kubernetes_pod_label_app").servers
    assert [server.name for server in named] == ["vllm.prefill", "vllm.decode"]


@pytest.mark.parametrize("limit", ["0", "-1", "1.5", "8k", "٣", "123456", True])
def test_a_limit_that_is_no_number_of_gpus(limit: object) -> None:
    assert only(pod(gpus=limit)).settings == ({"gpu_count": "1"} if limit is True else {})


def test_names_fit_or_give_way() -> None:
    # "inference." and 90 characters are the 100 that a name may have.
    fits, too_long = "p" * 90, "p" * 91
    assert only(pod(name=fits)).name == f"inference.{fits}"
    assert only(pod(name=too_long)).name == too_long
    endless = only(pod(name="p" * 200))
    assert endless.name is None
    target = target_of(endless)
    assert target.name == "10.1.2.3:8000"


def test_the_name_may_be_a_label() -> None:
    called = {"name_label": "__meta_kubernetes_pod_label_app_kubernetes_io_instance"}
    labels = {"app.kubernetes.io/instance": "qwen3"}
    assert only(pod(labels=labels), **called).name == "qwen3"
    assert only(pod(), **called).name == "inference.vllm-0"
    slashed = {"app.kubernetes.io/instance": "/team/qwen3"}
    assert only(pod(labels=slashed), **called).name == "team.qwen3"


def test_labels_are_where_it_is_the_operators_and_those_asked_for() -> None:
    data = pod(labels={"team": "search"}, annotations={"cost/centre": "42", "note": "x" * 201})
    data["metadata"]["ownerReferences"] = [
        {"kind": "Other", "name": "x"},
        {"kind": "StatefulSet", "name": "vllm", "controller": True},
    ]
    found = served(
        data,
        labels={"cluster": "eu", "node": "none", "team": "nobody"},
        label_names={
            "team": "__meta_kubernetes_pod_label_team",
            "centre": "__meta_kubernetes_pod_annotation_cost_centre",
            "owner": "__meta_kubernetes_pod_controller_name",
            "ready": "__meta_kubernetes_pod_ready",
            "port": "__meta_kubernetes_pod_container_port_number",
            "absent": "__meta_kubernetes_pod_label_absent",
            "note": "__meta_kubernetes_pod_annotation_note",
            "has": "__meta_kubernetes_pod_labelpresent_team",
        },
    )
    (server,) = found.servers
    assert server.labels == {
        "namespace": "inference",
        "pod": "vllm-0",
        "node": "none",
        "cluster": "eu",
        "team": "search",
        "centre": "42",
        "owner": "vllm",
        "ready": "true",
        "port": "8000",
        "has": "true",
    }
    assert found.notes == (
        "inference/vllm-0: label note: expected one line of at most 200 characters",
    )
    assert target_of(server).labels == server.labels


def test_what_a_pod_says_and_is_not_understood_is_told() -> None:
    annotations = {
        "floorwatch.io/gpus": "0,1",
        "floorwatch.io/headers": "Cookie: x",
        "floorwatch.io/bad\x1b": "y",
        "floorwatch.io/gpu": "a\nb",
        "floorwatch.io/model": "m" * 501,
        "floorwatch.io/precision": "  ",
        "kubectl.kubernetes.io/last-applied-configuration": "z" * 100_000,
        "other.io/gpu": "b200",
    }
    found = served(pod(annotations=annotations))
    assert found.servers[0].settings == {}
    assert len(found.notes) == 6
    text = "\n".join(found.notes)
    assert '"floorwatch.io/gpus" is not known; known are gpu, gpu-count, model' in text
    assert '"floorwatch.io/headers" is not known' in text
    assert "annotation floorwatch.io/gpu: expected one line of text" in text
    assert "\x1b" not in text


def test_our_own_pod_is_on_this_host() -> None:
    own = served(pod(), own=("inference", "vllm-0")).servers[0]
    assert (own.local, own.url) == (True, "http://127.0.0.1:8000/metrics")
    namesake = served(pod(namespace="other"), own=("inference", "vllm-0")).servers[0]
    assert (namesake.local, namesake.url) == (False, "http://10.1.2.3:8000/metrics")
