"""Pods of a cluster -> servers to watch.

Rules of this file (pure):

1. A pod is a target while it runs and has an address: not before its containers start, and not
   when it is being deleted or done. One that is not ready still is: that is what a monitor is for.
   A pod whose node is lost (phase Unknown) is one too.
2. Its port is one that a container declares, by name or by number. By number only, a pod that
   declares no port at all is one too, if `label_selector` chose the pods.
3. What a pod says of itself (annotations `floorwatch.io/...`) are facts of a server: GPU, model,
   precision, role, sizes. How it is asked (headers, credentials, TLS) is never the pod's to say.

Labels and annotations have the names that Prometheus' service discovery gives them
(`__meta_kubernetes_pod_label_app`), to be used in `name_label` and `label_names`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from monitor.config.discovery import KubernetesConfig
from monitor.config.errors import quoted
from monitor.config.target import LONGEST_NAME
from monitor.model import FoundServer
from monitor.sources.kubernetes_objects import Container, Metadata, Owner, Pod, Port, Spec, State

ANNOTATIONS = "floorwatch.io/"
IGNORE = ANNOTATIONS + "ignore"
SETTINGS = (
    "gpu",
    "gpu_count",
    "model",
    "precision",
    "role",
    "tensor_parallel",
    "pipeline_parallel",
    "data_parallel",
    "intended_max_running",
    "backlog_tokens",
    "maintenance",
)
"""Keys of a target that a pod may set: `floorwatch.io/tensor-parallel: "8"`."""

LONGEST_VALUE = 200
LONGEST_SETTING = 500
_GONE = frozenset({"Pending", "Succeeded", "Failed"})
_YES = frozenset({"true", "yes", "on", "1"})
_OBJECT_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_NOT_A_LABEL = re.compile(r"[^a-zA-Z0-9_]")
_META = "__meta_kubernetes_"
_WHERE = {
    "namespace": f"{_META}namespace",
    "pod": f"{_META}pod_name",
    "node": f"{_META}pod_node_name",
}


@dataclass(frozen=True, slots=True)
class Served:
    """What one pod comes to: servers to watch, and remarks.

    `chosen`: it runs and has an address, so that it ought to have the port.
    """

    servers: tuple[FoundServer, ...] = ()
    notes: tuple[str, ...] = ()
    chosen: bool = False


def served_by(pod: Pod, config: KubernetesConfig, own: tuple[str, str] | None = None) -> Served:
    """The servers of a pod. `own`: namespace and name of the pod that this daemon is in."""
    of, state = pod.metadata or Metadata(), pod.status or State()
    address = _host(state.pod_ip)
    if (
        not all(_OBJECT_NAME.fullmatch(name) for name in pod.key)
        or address is None
        or of.deleted is not None
        or state.phase in _GONE
        or of.annotations.get(IGNORE, "").strip().lower() in _YES
    ):
        return Served()
    ports = tuple(_ports(pod, config))
    said, notes = _said(of)
    ours = pod.key == own
    alone = len(ports) == 1
    servers = []
    for container, port in ports:
        meta = _meta(pod, container, port)
        labels, faults = _labels(meta, config)
        notes += faults
        gpus = sum(one.gpus for one in (pod.containers if alone else (container,)))
        host = "127.0.0.1" if ours else address
        servers.append(
            FoundServer(
                url=f"{config.scheme}://{host}:{port.number}{_path(config.path)}",
                name=_name(meta, config, None if alone else container.name),
                how=_how(pod, container, port),
                labels=labels,
                settings={**({"gpu_count": str(gpus)} if gpus else {}), **said},
                local=ours,
            )
        )
    where = "/".join(pod.key)
    every = tuple(dict.fromkeys(f"{where}: {note}" for note in notes))
    return Served(tuple(servers), every, chosen=True)


def _host(text: str | None) -> str | None:
    try:
        address = ipaddress.ip_address(text or "")
    except ValueError:
        return None
    return f"[{address}]" if address.version == 6 else str(address)


def _path(text: str) -> str:
    return text if text.startswith("/") else f"/{text}"


def _ports(pod: Pod, config: KubernetesConfig) -> Iterator[tuple[Container, Port]]:
    """Each port that is meant, once, and whose it is."""
    wanted, seen = config.port, set()
    containers = pod.containers
    for container in containers:
        for port in container.tcp_ports:
            if wanted in (port.name, port.number) and port.number not in seen:
                seen.add(port.number)
                yield container, port
    silent = not any(container.ports for container in containers)
    if isinstance(wanted, int) and silent and config.label_selector is not None and containers:
        yield containers[0], Port(containerPort=wanted)


def _said(of: Metadata) -> tuple[dict[str, str], list[str]]:
    """What the pod says of its server, and what of that is not understood."""
    told: dict[str, str] = {}
    notes = []
    for name, text in sorted(of.annotations.items()):
        if not name.startswith(ANNOTATIONS) or name == IGNORE:
            continue
        key = name.removeprefix(ANNOTATIONS).replace("-", "_")
        if key not in SETTINGS:
            known = ", ".join(one.replace("_", "-") for one in SETTINGS)
            notes.append(f"annotation {quoted(name[:80])} is not known; known are {known}")
        elif not text.strip() or not text.isprintable() or len(text) > LONGEST_SETTING:
            notes.append(f"annotation {name}: expected one line of text")
        else:
            told[key] = text.strip()
    return told, notes


def _meta(pod: Pod, container: Container, port: Port) -> dict[str, str]:
    """The labels that Prometheus' discovery gives this port of this pod."""
    of, spec, state = pod.metadata or Metadata(), pod.spec or Spec(), pod.status or State()
    ready = next((one.status for one in state.conditions or () if one and one.type == "Ready"), "")
    owner = next((one for one in of.owners or () if one and one.controller), Owner())
    sidecar = container in ((pod.spec and pod.spec.init_containers) or ())
    told = {
        "namespace": of.namespace,
        "pod_name": of.name,
        "pod_ip": state.pod_ip,
        "pod_ready": (ready or "unknown").lower(),
        "pod_phase": state.phase,
        "pod_node_name": spec.node,
        "pod_host_ip": state.host_ip,
        "pod_uid": of.uid,
        "pod_controller_kind": owner.kind,
        "pod_controller_name": owner.name,
        "pod_container_name": container.name,
        "pod_container_init": "true" if sidecar else "false",
        "pod_container_port_name": port.name,
        "pod_container_port_number": str(port.number),
        "pod_container_port_protocol": port.protocol or "TCP",
    }
    meta = {f"{_META}{key}": text for key, text in told.items() if text}
    for kind, pairs in (("label", of.labels), ("annotation", of.annotations)):
        for key, text in pairs.items():
            clean = _NOT_A_LABEL.sub("_", key)
            meta[f"{_META}pod_{kind}_{clean}"] = text
            meta[f"{_META}pod_{kind}present_{clean}"] = "true"
    return meta


def _labels(meta: Mapping[str, str], config: KubernetesConfig) -> tuple[dict[str, str], list[str]]:
    """Labels of the series: where it is, the operator's, those asked for; later ones win."""
    labels: dict[str, str] = {}
    notes = []
    for sources in (_WHERE, config.label_names):
        for ours, source in sources.items():
            text = meta.get(source, "")
            if len(text) > LONGEST_VALUE or not text.isprintable():
                notes.append(
                    f"label {ours}: expected one line of at most {LONGEST_VALUE} characters"
                )
            elif text.strip():
                labels[ours] = text
        if sources is _WHERE:
            labels |= config.labels
    return labels, notes


def _name(meta: Mapping[str, str], config: KubernetesConfig, container: str | None) -> str | None:
    """What to call the server; None, its address, where no name fits."""
    after = f".{container}" if container else ""
    pod, namespace = meta[f"{_META}pod_name"], meta[f"{_META}namespace"]
    given = meta.get(config.name_label or "", "").replace("/", ".").strip(" .")
    for name in (given and f"{given}{after}", f"{namespace}.{pod}{after}", f"{pod}{after}"):
        if name and name.isprintable() and len(name) <= LONGEST_NAME:
            return name
    return None


def _how(pod: Pod, container: Container, port: Port) -> str:
    named = f" {port.name}" if port.name else ""
    return f"pod {'/'.join(pod.key)}, container {container.name or '?'}, port{named} {port.number}"
