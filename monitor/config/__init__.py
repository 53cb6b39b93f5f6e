"""The configuration: one YAML file, single keys from the environment, checked once at the door.

Rules of this file:

1. Whatever passes here is usable as it stands: no later stage asks "is this a number".
2. Every fault is reported at once, one line each, as `ConfigInvalid.messages`.
3. Secrets are not read here: `authorization` names where they are.

The parts: `target` (targets, defaults), `discovery`, `floor`,
`judgement`, `outputs`, `values` (durations, sizes, shares), `yaml_text`, `environment`,
`errors` (the wording).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    Field,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from monitor.config import environment as config_environment
from monitor.config import yaml_text
from monitor.config.discovery import DiscoveryConfig, GpuSourceConfig
from monitor.config.errors import ConfigInvalid, Place, dotted, lines, quoted
from monitor.config.floor import FloorConfig
from monitor.config.judgement import JudgementConfig
from monitor.config.outputs import AlertmanagerConfig, ListenConfig
from monitor.config.target import (
    AuthorizationConfig,
    TargetConfig,
    TargetDefaults,
    TlsConfig,
)
from monitor.config.values import (
    PathText,
    Section,
    duration,
    label_map,
    parse_duration,
)
from monitor.model import JudgementSettings

__all__ = [
    "AlertmanagerConfig",
    "AuthorizationConfig",
    "Config",
    "ConfigInvalid",
    "DiscoveryConfig",
    "FloorConfig",
    "GpuSourceConfig",
    "JudgementConfig",
    "ListenConfig",
    "TargetConfig",
    "TargetDefaults",
    "TlsConfig",
    "load",
    "parse",
    "parse_duration",
    "scaled",
]

ALERT_LABELS = frozenset({"alertname", "severity", "target", "gpu", "uuid"})


class Config(Section):
    """Everything an operator may set. `Config()` is the empty file: all defaults."""

    poll_interval_seconds: Annotated[float, PlainValidator(duration(0.1, 3600.0))] = Field(
        default=1.0, alias="poll_interval"
    )
    defaults: TargetDefaults = TargetDefaults()
    targets: tuple[TargetConfig, ...] = ()
    judgement: JudgementConfig = JudgementConfig()
    discovery: DiscoveryConfig = DiscoveryConfig()
    gpu_source: GpuSourceConfig = GpuSourceConfig()
    alertmanagers: tuple[AlertmanagerConfig, ...] = ()
    alert_labels: Annotated[dict[str, str], PlainValidator(label_map(ALERT_LABELS))] = Field(
        default_factory=dict
    )
    listen: ListenConfig = ListenConfig()
    state: PathText | None = None
    expectations: PathText | None = None

    @model_validator(mode="before")
    @classmethod
    def _defaults_into_targets(cls, data: Any, info: ValidationInfo) -> Any:
        if not isinstance(data, Mapping) or not isinstance(data.get("defaults"), Mapping):
            return data
        targets = data.get("targets")
        if not isinstance(targets, (list, tuple)):
            return data
        try:
            TargetDefaults.model_validate(data["defaults"], context=info.context)
        except ValidationError:
            return data  # Reported once, under `defaults`, and not again for every target.
        merged = [
            {**data["defaults"], **target} if isinstance(target, Mapping) else target
            for target in targets
        ]
        return {**data, "targets": merged}

    @field_validator("targets")
    @classmethod
    def _targets_differ(cls, targets: tuple[TargetConfig, ...]) -> tuple[TargetConfig, ...]:
        if same := _first_repeat(target.address.identity for target in targets):
            raise ValueError(
                f"targets[{same[0]}] and targets[{same[1]}] are one address "
                f"({targets[same[0]].url}); its tokens would count twice"
            )
        if same := _first_repeat(target.name for target in targets):
            raise ValueError(
                f"targets[{same[0]}] and targets[{same[1]}] are both named "
                f"{quoted(targets[same[0]].name)}; give each its own name"
            )
        return targets

    @field_validator("alertmanagers")
    @classmethod
    def _alertmanagers_differ(
        cls, alertmanagers: tuple[AlertmanagerConfig, ...]
    ) -> tuple[AlertmanagerConfig, ...]:
        if same := _first_repeat(one.address.identity for one in alertmanagers):
            raise ValueError(
                f"alertmanagers[{same[0]}] and alertmanagers[{same[1]}] are one address"
            )
        return alertmanagers

    @model_validator(mode="after")
    def _windows_hold_polls(self) -> Self:
        settings = self.settings()
        narrow = min(settings.main_window_seconds, settings.short_window_seconds)
        if narrow < 2 * self.poll_interval_seconds:
            raise ValueError(
                f"poll_interval is {self.poll_interval_seconds:g} s, so a window of {narrow:g} s "
                "never holds two intervals; poll more often or judge over longer windows"
            )
        if settings.no_data_seconds < 2 * self.poll_interval_seconds:
            raise ValueError(
                f"poll_interval is {self.poll_interval_seconds:g} s, so judgement.no_data "
                f"({settings.no_data_seconds:g} s) is under two polls; give it more"
            )
        return self

    def settings(self) -> JudgementSettings:
        """Windows and thresholds as the core takes them."""
        return self.judgement.settings(self.poll_interval_seconds)

    def doubts(self) -> tuple[str, ...]:
        """What is allowed but looks like a mistake, one line each, to be shown at start."""
        return tuple(
            f"{one.shown} and {other.shown} may be the same server; if they are, its tokens count "
            "twice"
            for one, other in combinations(self.targets, 2)
            if one.address.same_server_hint == other.address.same_server_hint
        )


def _first_repeat(values: Iterable[str]) -> tuple[int, int] | None:
    first: dict[str, int] = {}
    for position, value in enumerate(values):
        if value in first:
            return first[value], position
        first[value] = position
    return None


def load(path: Path, env: Mapping[str, str]) -> Config:
    """Read the file, with the environment's overrides. Relative paths start at its folder.

    Raises:
        ConfigInvalid: the file cannot be read, or what it says cannot be used.

    """
    try:
        with path.open("rb") as file:
            content = file.read(yaml_text.MOST_BYTES + 1)
    except OSError as error:
        raise ConfigInvalid([f"{path}: cannot be read: {error.strerror}"]) from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # A file cut at the limit may end inside a character; its size is then the fault.
        if len(content) <= yaml_text.MOST_BYTES:
            raise ConfigInvalid([f"{path}: not UTF-8 text (byte {error.start})"]) from None
        text = content.decode("utf-8-sig", errors="replace")
    return parse(text, str(path), env, folder=path.parent)


def parse(text: str, where: str, env: Mapping[str, str], *, folder: Path | None = None) -> Config:
    """Read a configuration's text; `where` names it in messages, `env` overrides single keys.

    Relative paths start at `folder`; without one they are kept as given.

    Raises:
        ConfigInvalid: it cannot be used; `messages` says everything that is wrong.

    """
    data = yaml_text.read(text, where)
    overrides, faults = config_environment.overrides(env, Config)
    faults += config_environment.unknown(env, Config, data)
    for place, (_, value) in overrides.items():
        data = _with_value(data, place, value)

    def name_place(place: Place) -> str:
        if place in overrides:
            return overrides[place][0]
        return f"{where}: {dotted(place)}" if place else where

    try:
        config = Config.model_validate(data, context={"folder": folder})
    except ValidationError as error:
        raise ConfigInvalid(lines(error, Config, name_place) + faults) from None
    if faults:
        raise ConfigInvalid(faults)
    return config


def _with_value(data: dict[str, Any], place: Place, value: object) -> dict[str, Any]:
    """The map with one value set; a map that is none stays as it is, to be reported as such."""
    key, *inner = place
    if not inner:
        return {**data, str(key): value}
    below = data.get(str(key))
    if below is not None and not isinstance(below, dict):
        return data
    return {**data, str(key): _with_value(below or {}, tuple(inner), value)}


def scaled(config: Config, windows: tuple[float, ...] | None, warm_up: float | None) -> Config:
    """The configuration judged over other windows (seconds), with another warm-up (seconds).

    Every judgement time scales with the short window; `warm_up` is taken as given.

    Raises:
        ConfigInvalid: these are no windows, or no warm-up.

    """
    judgement = config.judgement
    try:
        if windows is not None:
            judgement = judgement.with_windows(windows)
    except ValueError as error:
        raise ConfigInvalid([f"--windows: {error}"]) from None
    try:
        if warm_up is not None:
            judgement = judgement.with_warm_up(warm_up)
    except ValueError as error:
        raise ConfigInvalid([f"--warm-up: {error}"]) from None
    return config.model_copy(update={"judgement": judgement})
