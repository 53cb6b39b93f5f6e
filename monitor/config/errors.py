"""The words for what is wrong in a configuration.

Rules of this file:

1. One fault, one line: where (file and dotted path, or the environment variable), what was
   expected, what was given.
2. What stands under a secret-bearing key is never shown, nor anything before an `@`.
3. A key that is not known is answered with the nearest that is.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from monitor.config.addresses import without_credentials

Place = tuple[int | str, ...]

_SECRET_BEARING = frozenset({"authorization", "headers", "header_files"})
_INLINE_SECRETS = {
    "bearer": "bearer_file or bearer_env",
    "bearer_token": "bearer_file or bearer_env",
    "token": "bearer_file or bearer_env",
    "password": "password_file or password_env",
}
_EXPECTED = {
    "model_type": "a map of keys",
    "tuple_type": "a list",
    "none_required": "nothing",
}


class ConfigInvalid(Exception):
    """A configuration that cannot be used. `messages`: one line for each fault."""

    def __init__(self, messages: Sequence[str]) -> None:
        self.messages = tuple(messages)
        super().__init__("\n".join(self.messages))


def quoted(text: str) -> str:
    """The text in quotes: on one line, printable, without credentials, 60 characters at most."""
    plain = without_credentials(text)
    short = plain if len(plain) <= 60 else plain[:57] + "..."
    return json.dumps(short, ensure_ascii=not short.isprintable())


def shown(value: object) -> str:
    """A value of the file as a person would recognise it."""
    if isinstance(value, str):
        return quoted(value)
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, Mapping):
        return "a map"
    if isinstance(value, (list, tuple)):
        return "a list" if value else "an empty list"
    return type(value).__name__


class Expected(ValueError):
    """A value that is not what its key takes. `what` says what the key takes."""

    def __init__(self, what: str, given: object) -> None:
        self.what = what
        super().__init__(f"expected {what}, got {shown(given)}")


def dotted(place: Place) -> str:
    """A place in the file as people write it: `targets[0].labels`."""
    path = ""
    for part in place:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier() and len(part) <= 60:
            path += f".{part}" if path else part
        else:
            path += f"[{quoted(part)}]"
    return path


def lines(
    error: ValidationError, model: type[BaseModel], name_place: Callable[[Place], str]
) -> list[str]:
    """Every fault that pydantic found, one line each; `name_place` says where a place stands."""
    return [
        f"{name_place(_named(detail))}: {_message(detail, model)}"
        for detail in error.errors(include_url=False)
    ]


def _named(detail: ErrorDetails) -> Place:
    return detail["loc"][:-1] if detail["type"] == "invalid_key" else detail["loc"]


def _message(detail: ErrorDetails, model: type[BaseModel]) -> str:
    place = detail["loc"]
    match detail["type"]:
        case "extra_forbidden":
            return _unknown_key(place, model)
        case "invalid_key":
            return f"the key {shown(place[-1])} is not text; put it in quotes"
        case "missing":
            return "missing; this key is required"
        case "value_error":
            fault = detail["ctx"]["error"]
        case kind:
            fault = Expected(_EXPECTED.get(kind, detail["msg"]), detail["input"])
    if isinstance(fault, Expected) and _SECRET_BEARING.intersection(place):
        return f"expected {fault.what}"
    return str(fault)


def _unknown_key(place: Place, model: type[BaseModel]) -> str:
    key = str(place[-1])
    if "authorization" in place and key in _INLINE_SECRETS:
        return f"secrets are not written in this file; use {_INLINE_SECRETS[key]}"
    if place[0] == "defaults" and key in ("name", "url"):
        return "belongs to one target, defaults cannot give it"
    return f"unknown key; {nearest(key, known_keys(section(model, place[:-1])))}"


def nearest(given: str, known: Sequence[str]) -> str:
    """`did you mean "..."?`, or what is known where nothing is near."""
    plain = given.lower().replace("-", "_")
    close = difflib.get_close_matches(plain, known, n=1, cutoff=0.55)
    if close:
        return f'did you mean "{close[0]}"?'
    return f"known here: {', '.join(known)}"


def known_keys(model: type[BaseModel]) -> list[str]:
    """The keys of a section as the file spells them."""
    return [field.alias or name for name, field in model.model_fields.items()]


def section(model: type[BaseModel], place: Place) -> type[BaseModel]:
    """The model that reads the section at `place`."""
    for part in place:
        for name, field in model.model_fields.items():
            if part == (field.alias or name):
                sections = [leaf for leaf in leaves(field.annotation) if is_section(leaf)]
                model = sections[0] if sections else model
    return model


def leaves(annotation: object) -> Iterator[Any]:
    """The plain types inside an annotation."""
    inner = get_args(annotation)
    if inner:
        for part in inner:
            yield from leaves(part)
    else:
        yield annotation


def is_section(leaf: object) -> bool:
    """Whether a type is a map of the file, with keys of its own."""
    return isinstance(leaf, type) and issubclass(leaf, BaseModel)
