"""`discovery:` and `gpu_source:`: where servers come from that `targets:` does not name.

Rules of this file:

1. What a list of Prometheus' service discovery says here, it says in the same words: `files`,
   `url`, `refresh_interval`, `namespaces`, `label_selector`, `modulus`.
2. A server that `targets:` names is never found a second time: what the file says of it wins.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, PlainValidator, ValidationInfo, model_validator

from monitor.config import addresses
from monitor.config.errors import Expected, quoted
from monitor.config.target import OWN_LABELS, AuthorizationConfig, TlsConfig
from monitor.config.values import (
    PathText,
    Section,
    Switch,
    Text,
    choice,
    count,
    duration,
    label_map,
    resolved,
    text_value,
)

DEFAULT_PORTS = (8000, 8001, 8080, 30000, 30001)
"""Usual ports of vLLM and SGLang, asked where the owner of a listening port cannot be seen."""

_SD_FILE = re.compile(r".*\.(json|yml|yaml)", re.IGNORECASE)
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

_Labels = Annotated[dict[str, str], PlainValidator(label_map(OWN_LABELS))]
_Interval = Annotated[float, PlainValidator(duration(1.0, 86_400.0))]


def _ports(value: object) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple)):
        raise Expected("a list of ports such as [8000, 30000]", value)
    return tuple(dict.fromkeys(count(1, 65535)(port) for port in value))


def _files(value: object, info: ValidationInfo) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not value:
        raise Expected('a list of files such as ["/etc/floorwatch/targets/*.json"]', value)
    patterns = tuple(resolved(text_value(one, 4000), info) for one in value)
    for pattern in patterns:
        if not _SD_FILE.fullmatch(pattern):
            raise ValueError(
                f"{quoted(pattern)}: expected a name that ends in .json, .yml or .yaml"
            )
        if "*" in Path(pattern).parent.as_posix():
            raise ValueError(f"{quoted(pattern)}: expected a * in the last part of the path only")
    return patterns


def _label_names(value: object) -> dict[str, str]:
    """Our label names, each with the discovered label that it takes its value from."""
    if not isinstance(value, dict):
        raise Expected("a map such as {pod: __meta_kubernetes_pod_name}", value)
    for source in value.values():
        if not isinstance(source, str) or not _LABEL_NAME.fullmatch(source):
            raise Expected("names of discovered labels such as __meta_kubernetes_pod_name", source)
    label_map(OWN_LABELS)(dict.fromkeys(value, "text"))
    return dict(value)


def _list_address(value: object) -> addresses.Address:
    if not isinstance(value, str):
        raise Expected("an address such as http://127.0.0.1:8080/targets", value)
    address = addresses.parse(value, default_path="/")
    if address.unix_socket is not None:
        raise Expected("an http or https address", value)
    return address


class FromLists(Section):
    """What every kind of list has: which of the discovered labels go on, and labels for all.

    `name_label`: the discovered label that names a target; without it (or where a server lacks
    it) the address does. `label_names`: our labels, each with the discovered one it comes from;
    discovered labels that do not begin with `__` are kept without being named here.
    """

    labels: _Labels = Field(default_factory=dict)
    name_label: Text | None = None
    label_names: Annotated[dict[str, str], PlainValidator(_label_names)] = Field(
        default_factory=dict
    )


class FileSdConfig(FromLists):
    """Files of Prometheus' file_sd form, read again when they change and every so often."""

    files: Annotated[tuple[str, ...], PlainValidator(_files)]
    refresh_interval_seconds: _Interval = Field(default=300.0, alias="refresh_interval")


class HttpSdConfig(FromLists):
    """A list of Prometheus' http_sd form."""

    address: Annotated[addresses.Address, PlainValidator(_list_address)] = Field(alias="url")
    refresh_interval_seconds: _Interval = Field(default=60.0, alias="refresh_interval")
    timeout_seconds: Annotated[float, PlainValidator(duration(0.1, 300.0))] = Field(
        default=10.0, alias="timeout"
    )
    authorization: AuthorizationConfig | None = None
    tls: TlsConfig = TlsConfig()


def _pod_port(value: object) -> int | str:
    if isinstance(value, str) and not value.isdecimal():
        return text_value(value, 63)
    return count(1, 65535)(value)


def _namespaces(value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        raise Expected("a list of namespaces such as [inference]; [] is every one", value)
    return tuple(text_value(one, 63) for one in value)


class KubernetesConfig(FromLists):
    """Pods of a cluster, by its API. Without `api_server`: the cluster that this pod is in.

    `port`: the number or the name of the containers' port that serves metrics. `own_node`: only
    the pods of the node that NODE_NAME names, for a daemon per node.
    """

    namespaces: Annotated[tuple[str, ...], PlainValidator(_namespaces)] = ()
    label_selector: Text | None = None
    field_selector: Text | None = None
    own_node: Switch = False
    port: Annotated[int | str, PlainValidator(_pod_port)] = "metrics"
    path: Text = "/metrics"
    scheme: Annotated[str, PlainValidator(choice("http", "https"))] = "http"
    api_server: Annotated[addresses.Address, PlainValidator(_list_address)] | None = None
    bearer_file: PathText | None = None
    tls: TlsConfig = TlsConfig()


class ShardConfig(Section):
    """Which part of the discovered servers is this daemon's, as Prometheus' `hashmod` parts them.

    Of the servers of the lists (not of this host's own, and not of `targets:`) those are watched
    whose address hashes to `index`.
    """

    modulus: Annotated[int, PlainValidator(count(1, 10_000))] = 1
    index: Annotated[int, PlainValidator(count(0, 9_999))] = 0

    @model_validator(mode="after")
    def _index_is_a_rest(self) -> Self:
        if self.index >= self.modulus:
            raise ValueError(
                f"index is {self.index}, but with modulus {self.modulus} it is 0 to "
                f"{self.modulus - 1}"
            )
        return self


class DiscoveryConfig(Section):
    """Where servers come from that the file does not name.

    `local`: the servers of this host. `ports`: asked where a port's owner cannot be seen.
    `interval`: how often this host is looked at. `forget`: how long a server of this host that is
    gone keeps its alarm; 0 is for ever.
    """

    local: Switch = True
    ports: Annotated[tuple[int, ...], PlainValidator(_ports)] = DEFAULT_PORTS
    interval_seconds: Annotated[float, PlainValidator(duration(1.0, 3600.0))] = Field(
        default=5.0, alias="interval"
    )
    forget_seconds: Annotated[float, PlainValidator(duration(0.0, 366 * 86_400.0))] = Field(
        default=86_400.0, alias="forget"
    )
    file_sd: tuple[FileSdConfig, ...] = ()
    http_sd: tuple[HttpSdConfig, ...] = ()
    kubernetes: tuple[KubernetesConfig, ...] = ()
    shard: ShardConfig = ShardConfig()

    @property
    def nothing(self) -> bool:
        """Whether no server can ever be found."""
        return not (self.local or self.file_sd or self.http_sd or self.kubernetes)


def _dcgm_address(value: object) -> addresses.Address:
    if not isinstance(value, str):
        raise Expected("the address of dcgm-exporter such as http://127.0.0.1:9400", value)
    return addresses.parse(value)


class GpuSourceConfig(Section):
    """Where facts about GPUs come from: NVML, dcgm-exporter's page, or nowhere.

    Written `nvml` (the default), `none`, or a map with `dcgm:`. `hostname`: only the GPUs whose
    `Hostname` label is this, where the page holds several nodes'.
    """

    nvml: Switch = True
    dcgm: Annotated[addresses.Address, PlainValidator(_dcgm_address)] | None = None
    hostname: Text | None = None
    timeout_seconds: Annotated[float, PlainValidator(duration(0.1, 60.0))] = Field(
        default=5.0, alias="timeout"
    )
    authorization: AuthorizationConfig | None = None
    tls: TlsConfig = TlsConfig()

    @model_validator(mode="before")
    @classmethod
    def _words(cls, data: Any) -> Any:
        if data == "nvml":
            return {}
        if data == "none":
            return {"nvml": False}
        if not isinstance(data, (dict, cls)):
            raise Expected("nvml, none or {dcgm: http://127.0.0.1:9400}", data)
        return data
