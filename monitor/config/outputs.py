"""Where the daemon's own words go: its address, the Alertmanagers it tells, the state it keeps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, PlainValidator, model_validator

from monitor.config import addresses
from monitor.config.errors import Expected
from monitor.config.target import AuthorizationConfig, TlsConfig
from monitor.config.values import Section, Switch, duration

STATE_FILE = "state.json"
"""What is kept over a restart, in the folder of `state:`."""

STATE_FORMAT = "floorwatch-state"

_LISTEN = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%\w-]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")


def _listen_address(value: object) -> str:
    found = _LISTEN.fullmatch(value) if isinstance(value, str) else None
    if found is None or int(found["port"]) > 65535:
        raise Expected("host:port such as 127.0.0.1:9838, or [::]:9838 for every interface", value)
    return found[0]


def _no_web_config(value: object) -> None:
    # Taken in silence, it would leave a port open that its owner believes to be guarded.
    if value is not None:
        raise ValueError(
            "TLS and logins of the daemon's own server are not there yet; "
            "leave it out and keep the address on loopback or behind a proxy"
        )


class ListenConfig(Section):
    """Where the daemon serves its metrics and status page. Port 0 takes any free port."""

    address: Annotated[str, PlainValidator(_listen_address)] = "127.0.0.1:9838"
    web_config: Annotated[None, PlainValidator(_no_web_config)] = None
    lifecycle: Switch = False

    @property
    def host(self) -> str:
        """The host to bind to, an IPv6 address without its brackets."""
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The port to bind to."""
        return int(self.address.rpartition(":")[2])


def _alertmanager_address(value: object) -> addresses.Address:
    if not isinstance(value, str):
        raise Expected("an address such as http://127.0.0.1:9093", value)
    address = addresses.parse(value, default_path="")
    if address.unix_socket is not None:
        raise Expected("an http or https address", value)
    if "?" in address.url:
        # It names the Alertmanager in metrics and logs, where no token may stand.
        raise ValueError("an Alertmanager's address has no query (?...); use authorization")
    return address


class AlertmanagerConfig(Section):
    """One Alertmanager. Its URL may have a path prefix; `/api/v2/alerts` is added to it.

    Every one of a cluster is listed, and told everything: they share no alerts.
    """

    address: Annotated[addresses.Address, PlainValidator(_alertmanager_address)] = Field(
        alias="url"
    )
    timeout_seconds: Annotated[float, PlainValidator(duration(0.1, 300.0))] = Field(
        default=5.0, alias="timeout"
    )
    authorization: AuthorizationConfig | None = None
    tls: TlsConfig = TlsConfig()

    @model_validator(mode="after")
    def _has_one_login(self) -> Self:
        if self.authorization is not None and self.address.username is not None:
            raise ValueError("authorization and credentials in the url are both given; keep one")
        return self

    @property
    def url(self) -> str:
        """The address without credentials and without a trailing slash."""
        return self.address.url.rstrip("/")


def state_directory(given: Path | None, environment: Mapping[str, str]) -> Path | None:
    """The folder that keeps the state: `state:`, else the service manager's; None: none is kept.

    systemd names the folders of `StateDirectory=` in STATE_DIRECTORY, separated by colons
    (systemd.exec(5)); the first is taken.
    """
    if given is not None:
        return given
    first = environment.get("STATE_DIRECTORY", "").partition(":")[0]
    return Path(first) if first else None
