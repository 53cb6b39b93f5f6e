"""`targets:` and `defaults:`: the servers to watch.

Rules of this file:

1. `auto` and a key that is left out are None: find out.
2. No secret stands in the file: authorization names the file or variable that holds it, and
   the scraper reads it at each use. Credentials in a URL are the one exception; they are
   taken out of it at once (see `monitor.config.addresses`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, PlainValidator, ValidationInfo, model_validator

from monitor.config import addresses
from monitor.config.errors import Expected, quoted
from monitor.config.floor import PRECISIONS, FloorConfig
from monitor.config.values import (
    GpuId,
    PathText,
    Section,
    Switch,
    Text,
    VariableName,
    auto,
    choice,
    count,
    duration,
    gpu_list,
    label_map,
    resolved,
    size,
    text_value,
)
from monitor.model import TargetSpec

LONGEST_NAME = 100
RESERVED_NAMES = frozenset({"nvml"})
OWN_LABELS = frozenset(
    {
        "target",
        "engine",
        "model",
        "gpu",
        "uuid",
        "gpu_name",
        "phase",
        "replica",
        "verdict",
        "reason",
        "rule",
        "cause",
        "basis",
        "severity",
        "alertname",
        "finding",
        "engine_version",
        "precision",
        "kv_cache_dtype",
        "tensor_parallel",
        "pipeline_parallel",
        "data_parallel",
        "gpus",
    }
)

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie"})
# The request's own framing and the formats that the reader of pages understands.
_OWN_HEADERS = frozenset(
    {"accept", "accept-encoding", "connection", "content-length", "transfer-encoding"}
)


class BasicConfig(Section):
    """User name and where the password is."""

    username: Text
    password_file: PathText | None = None
    password_env: VariableName | None = None

    @model_validator(mode="after")
    def _has_one_password(self) -> Self:
        if (self.password_file is None) == (self.password_env is None):
            raise ValueError("expected exactly one of password_file and password_env")
        return self


class AuthorizationConfig(Section):
    """How to log in: where the token is, or basic authentication."""

    bearer_file: PathText | None = None
    bearer_env: VariableName | None = None
    basic: BasicConfig | None = None

    @model_validator(mode="after")
    def _has_one_form(self) -> Self:
        if [self.bearer_file, self.bearer_env, self.basic].count(None) != 2:
            raise ValueError("expected exactly one of bearer_file, bearer_env and basic")
        return self


class TlsConfig(Section):
    """Certificates for https. A certificate file may hold its key too."""

    ca_file: PathText | None = None
    certificate_file: PathText | None = None
    key_file: PathText | None = None
    server_name: Text | None = None
    insecure_skip_verify: Switch = False

    @model_validator(mode="after")
    def _key_has_certificate(self) -> Self:
        if self.key_file is not None and self.certificate_file is None:
            raise ValueError("key_file without certificate_file")
        return self


def _address(value: object) -> addresses.Address:
    if isinstance(value, addresses.Address):
        return value
    if not isinstance(value, str):
        raise Expected("an address such as http://127.0.0.1:30000", value)
    return addresses.parse(value)


def _name(value: object) -> str:
    name = text_value(value, LONGEST_NAME)
    if name in RESERVED_NAMES:
        raise ValueError(f"{quoted(name)} is reserved; choose another name")
    # The name is a folder of a recording and a part of a URL.
    if "/" in name or name.startswith(".") or name != name.strip():
        raise ValueError(f"expected no /, no leading dot and no outer spaces, got {quoted(name)}")
    return name


def _gpus(value: object) -> tuple[int | str, ...] | None:
    if value == "auto":
        return None
    if value == "all":
        return ("all",)
    if not isinstance(value, (list, tuple)):
        raise Expected("auto, all or a list of GPUs such as [0, 1]", value)
    return gpu_list(value)


def _replica_gpus(value: object) -> dict[str, tuple[int | str, ...]]:
    if not isinstance(value, Mapping):
        raise Expected('a map of replicas to GPUs such as {"0": [0, 1], "1": [2, 3]}', value)
    return {text_value(str(replica), 20): gpu_list(gpus) for replica, gpus in value.items()}


def _model(value: object, info: ValidationInfo) -> str | dict[str, Any]:
    if isinstance(value, Mapping) and value and all(isinstance(key, str) for key in value):
        return dict(value)
    if not isinstance(value, str):
        raise Expected("auto, the path of a config.json or model folder, or a map", value)
    return "auto" if value.lower() == "auto" else resolved(text_value(value, 4000), info)


def _header_pairs(value: object) -> dict[str, str]:
    """Header names and their text."""
    if not isinstance(value, Mapping):
        raise Expected("a map of header names to text", value)
    for name, text in value.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise Expected("names of HTTP headers, put in quotes", name)
        if name.lower() in _OWN_HEADERS:
            raise ValueError(f"{name}: this header is the scraper's own")
        if not isinstance(text, str) or not text or not text.isprintable():
            raise Expected(f"printable text for {name}; put it in quotes", text)
    return dict(value)


def _headers(value: object) -> dict[str, str]:
    pairs = _header_pairs(value)
    for name in pairs:
        if name.lower() in _SECRET_HEADERS:
            raise ValueError(
                f"{name}: secrets are not written in this file; use authorization or header_files"
            )
    return pairs


def _header_files(value: object, info: ValidationInfo) -> dict[str, Path]:
    return {name: Path(resolved(path, info)) for name, path in _header_pairs(value).items()}


_Parallel = Annotated[int | None, PlainValidator(auto(count(1, 4096)))]


class TargetDefaults(Section):
    """What every target may say, and `defaults:` for all of them."""

    gpus: Annotated[tuple[int | str, ...] | None, PlainValidator(_gpus)] = None
    gpu_count: Annotated[int, PlainValidator(count(1, 100_000))] | None = None
    gpu: GpuId | None = None
    model: Annotated[str | dict[str, Any], PlainValidator(_model)] = "auto"
    precision: Annotated[str | None, PlainValidator(auto(choice(*PRECISIONS)))] = None
    role: Annotated[str | None, PlainValidator(auto(choice("unified", "prefill", "decode")))] = None
    tensor_parallel: _Parallel = None
    pipeline_parallel: _Parallel = None
    data_parallel: _Parallel = None
    replica_gpus: Annotated[dict[str, tuple[int | str, ...]], PlainValidator(_replica_gpus)] = (
        Field(default_factory=dict)
    )
    intended_max_running: Annotated[int, PlainValidator(count(1, 1_000_000))] | None = None
    floor: FloorConfig | None = None
    labels: Annotated[dict[str, str], PlainValidator(label_map(OWN_LABELS))] = Field(
        default_factory=dict
    )
    timeout_seconds: Annotated[float, PlainValidator(duration(0.1, 300.0))] = Field(
        default=5.0, alias="timeout"
    )
    max_page_bytes: Annotated[int, PlainValidator(size(1024, 1024**3))] = 16 * 1024**2
    authorization: AuthorizationConfig | None = None
    headers: Annotated[dict[str, str], PlainValidator(_headers)] = Field(default_factory=dict)
    header_files: Annotated[dict[str, Path], PlainValidator(_header_files)] = Field(
        default_factory=dict
    )
    tls: TlsConfig = TlsConfig()
    backlog_tokens: Annotated[int, PlainValidator(count(1, 10**15))] | None = None
    maintenance: Switch = False


class TargetConfig(TargetDefaults):
    """One server to watch. `name` is the address' short form where none is given."""

    name: Annotated[str, PlainValidator(_name)] = ""
    address: Annotated[addresses.Address, PlainValidator(_address)] = Field(alias="url")

    @property
    def url(self) -> str:
        """The address in full, without credentials."""
        return self.address.url

    @property
    def shown(self) -> str:
        """Name and address for messages; without the query, which may hold a token."""
        display = self.address.display
        return self.name if self.name == display else f"{self.name} ({display})"

    @model_validator(mode="before")
    @classmethod
    def _named_after_address(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and data.get("name") is None and "url" in data:
            try:
                return {**data, "name": _address(data["url"]).display}
            except ValueError:
                return data  # The url is at fault, and its own check says so.
        return data

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.authorization is not None and self.address.username is not None:
            raise ValueError("authorization and credentials in the url are both given; keep one")
        names = [name.lower() for name in (*self.headers, *self.header_files)]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"the header {repeated[0]} is given twice")
        if self.authorization is not None and "authorization" in names:
            raise ValueError("authorization is given, and as a header file too; keep one")
        listed = 0 if self.gpus in (None, ("all",)) else len(self.gpus or ())
        if self.gpu_count is not None and self.gpu_count < listed:
            raise ValueError(f"gpu_count is {self.gpu_count}, but gpus lists {listed}")
        return self

    def spec(self) -> TargetSpec:
        """The target as the core takes it."""
        return TargetSpec(
            name=self.name,
            url=self.url,
            gpus=self.gpus,
            gpu_count=self.gpu_count,
            gpu=self.gpu,
            role=self.role,
            precision=self.precision,
            tensor_parallel=self.tensor_parallel,
            pipeline_parallel=self.pipeline_parallel,
            data_parallel=self.data_parallel,
            replica_gpus=self.replica_gpus,
            intended_max_running=self.intended_max_running,
            floor=self.floor.spec() if self.floor is not None else None,
            labels=self.labels,
            backlog_tokens=self.backlog_tokens,
            maintenance=self.maintenance,
        )
