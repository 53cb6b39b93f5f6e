"""Single keys from the environment: `FLOORWATCH_POLL_INTERVAL`, `FLOORWATCH_JUDGEMENT_WARM_UP`.

Rules of this file:

1. A variable is `FLOORWATCH_` and the key; for a key inside a top-level map, the map's name, an
   underscore and the key. Lists (`targets`) and free maps (`alert_labels`) stay in the file.
2. A variable that sets nothing is an error, but for those with another reader.
3. The value of a variable is never part of an error about its name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_origin

from pydantic import BaseModel

from monitor.config.errors import Place, is_section, known_keys, leaves

PREFIX = "FLOORWATCH_"

_NOT_SETTINGS = frozenset({"FLOORWATCH_CONFIG", "FLOORWATCH_REVISION"})
_NUMBER = re.compile(r"[-+]?[0-9]{1,18}(\.[0-9]+)?")
# Kubernetes puts these into every pod beside a Service whose name begins with floorwatch
# (kubernetes.io/docs/concepts/services-networking/service, "Environment variables").
_OF_A_SERVICE = re.compile(
    r"FLOORWATCH(_[A-Z0-9_]+)?_"
    r"(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://")


@dataclass(frozen=True, slots=True)
class _Variable:
    place: Place
    is_number: bool


def overrides(
    environment: Mapping[str, str], model: type[BaseModel]
) -> tuple[dict[Place, tuple[str, str | int | float]], list[str]]:
    """What the environment sets: place -> (variable, value). And faults, one line each."""
    known = _variables(model)
    found: dict[Place, tuple[str, str | int | float]] = {}
    faults = []
    for name, text in environment.items():
        if name not in known:
            continue
        if not text:
            faults.append(f"{name}: is empty; unset it or give it a value")
        else:
            variable = known[name]
            found[variable.place] = (name, _value(text) if variable.is_number else text)
    return found, faults


def unknown(
    environment: Mapping[str, str], model: type[BaseModel], data: Mapping[str, Any]
) -> list[str]:
    """The variables that nobody reads, one line each. `data` may name some that hold secrets."""
    known = _variables(model)
    secrets = set(_secret_variables(data))
    faults = []
    for name, text in environment.items():
        if not name.startswith(PREFIX) or name in known or name in secrets:
            continue
        if name in _NOT_SETTINGS or name.startswith("FLOORWATCH_LOG_"):
            continue
        if _OF_A_SERVICE.fullmatch(name) or (
            name.endswith("_PORT") and _SERVICE_ADDRESS.match(text)
        ):
            continue
        faults.append(f"{name}: {_unknown(name, known, model)}")
    return faults


def _unknown(name: str, known: Iterable[str], model: type[BaseModel]) -> str:
    key = name.removeprefix(PREFIX).lower()
    if key in known_keys(model):
        return f"{key} is set in the file only"
    bare = {variable.removeprefix(PREFIX).lower(): variable for variable in known}
    close = difflib.get_close_matches(key, bare, n=1)
    if close:
        return f"unknown variable; did you mean {bare[close[0]]}?"
    return "unknown variable; no key of the configuration has this name"


def _variables(model: type[BaseModel], place: Place = ()) -> dict[str, _Variable]:
    found: dict[str, _Variable] = {}
    for name, field in model.model_fields.items():
        here = (*place, field.alias or name)
        kinds = list(leaves(field.annotation))
        if any(is_section(kind) for kind in kinds):
            if not place and is_section(field.annotation):
                found |= _variables(kinds[0], here)
        elif get_origin(field.annotation) is not dict:
            variable = PREFIX + "_".join(str(part) for part in here).upper()
            found[variable] = _Variable(here, int in kinds or float in kinds)
    return found


def _value(text: str) -> str | int | float:
    if not _NUMBER.fullmatch(text):
        return text
    return float(text) if "." in text else int(text)


def _secret_variables(data: object) -> Iterator[str]:
    if isinstance(data, Mapping):
        for key, value in data.items():
            if key in ("bearer_env", "password_env") and isinstance(value, str):
                yield value
            else:
                yield from _secret_variables(value)
    elif isinstance(data, list):
        for item in data:
            yield from _secret_variables(item)
