"""The keys of a model's `config.json`, typed and within bounds.

Rules of this file:

1. A config is foreign text: any key may be absent, null, of another type or absurdly large.
   What cannot be used raises `ConfigUnusable`, which names the key; the functions that take
   configs turn it into an `Unknown`, so nothing raises towards the rest of the program.
2. Null is absent. A boolean is not a number. Numbers are bounded: a layer count of 10^9 would
   be looped over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from monitor.model import Unknown

MOST_LAYERS = 256
"""Twice the deepest model known (126)."""
MOST_ELEMENTS = 10_000_000
"""The largest size of one dimension (vocabularies are near 260 000, hidden sizes near 20 000)."""


class ConfigUnusable(Exception):
    """A config that leads to no number: one line that names the key."""


class Keys:
    """A table of the config; `defaults` are those of the model's own configuration class."""

    def __init__(
        self, table: Mapping[Any, Any], where: str = "", defaults: Mapping[str, Any] | None = None
    ) -> None:
        self._table = table
        self._where = where
        self._defaults = defaults or {}

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        return (str(key) for key, value in self._table.items() if value is not None)

    def get(self, key: str) -> Any:
        """The value, or its default; None where there is none."""
        value = self._table.get(key)
        return self._defaults.get(key) if value is None else value

    def with_defaults(self, defaults: Mapping[str, Any]) -> Keys:
        """The same table, with what holds where it is silent."""
        return Keys(self._table, self._where, defaults)

    def name(self, key: str) -> str:
        """The key as a person finds it in the file."""
        return f"{self._where}.{key}" if self._where else key

    def wrong(self, key: str, expected: str) -> ConfigUnusable:
        """The error for a key whose value does not serve."""
        value = self.get(key)
        if value is None:
            return ConfigUnusable(f"{self.name(key)} is missing; expected {expected}")
        return ConfigUnusable(f"{self.name(key)} is {_shown(value)}; expected {expected}")

    def count(
        self, key: str, default: int | None = None, *, least: int = 1, most: int = MOST_ELEMENTS
    ) -> int:
        """A whole number from `least` to `most`."""
        value = self.get(key)
        if value is None:
            value = default
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        raise self.wrong(key, f"a whole number from {least} to {most}")

    def first_count(self, *keys: str) -> int:
        """The count under the first key that is there; all must agree on its meaning."""
        return self.count(next((key for key in keys if key in self), keys[0]))

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false."""
        value = self.get(key)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        raise self.wrong(key, "true or false")

    def text(self, key: str) -> str | None:
        """A text, in lower case; None where it is absent."""
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, str):
            return value.strip().lower()
        raise self.wrong(key, "a text")

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; empty where it is absent."""
        value = self.get(key)
        if value is None:
            return ()
        if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            return tuple(value)
        raise self.wrong(key, "a list of texts")

    def indices(self, key: str) -> frozenset[int]:
        """A list of layer numbers; empty where it is absent."""
        value = self.get(key)
        if value is None:
            return frozenset()
        if isinstance(value, list | tuple) and all(type(item) is int for item in value):
            return frozenset(value)
        raise self.wrong(key, "a list of layer numbers")

    def table(self, key: str) -> Keys | None:
        """A table within this one; None where it is absent."""
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, Mapping):
            return Keys(value, self.name(key))
        raise self.wrong(key, "a table")

    def tables(self, key: str) -> tuple[tuple[str, Keys], ...]:
        """The tables of a table of tables, by name; empty where it is absent."""
        group = self.table(key)
        if group is None:
            return ()
        found = [(name, group.table(name)) for name in group]
        return tuple((name, table) for name, table in found if table is not None)


_TEXT_PARTS = ("text_config", "llm_config", "language_config")


def whole_config(config: object) -> Keys:
    """The whole config. Raises ConfigUnusable where it is no table at all."""
    if not isinstance(config, Mapping):
        raise ConfigUnusable(f"it is {_shown(config)}; expected a table")
    return Keys(config)


def language_model(config: object) -> Keys:
    """The table of the language model: `text_config` of a multimodal model, else the whole."""
    whole = whole_config(config)
    for key in _TEXT_PARTS:
        part = whole.table(key)
        if part is not None:
            return part
    return whole


def unknown_constants(what: str, unusable: ConfigUnusable) -> Unknown:
    """Say what is not known, why, and what the operator can do."""
    return Unknown(
        what,
        f"the model's config.json: {unusable}; set `model: {{active_parameters: ..., layers: ...}}`"
        " if the config cannot say it",
    )


def _shown(value: object) -> str:
    if isinstance(value, str | int | float):
        text = repr(value) if not isinstance(value, int) else _short_integer(value)
        return text if len(text) <= 40 else f"{text[:37]}..."
    return f"a {type(value).__name__}"


def _short_integer(value: int) -> str:
    # Python refuses to write out integers of more than 4300 digits.
    return str(value) if value.bit_length() < 100 else "a huge number"
