"""The text of a list of targets, JSON or YAML, as plain values.

Rules of this file (pure):

1. Bytes, values and depth are bounded, aliases counted as what they stand for.
2. In YAML every scalar is text, as it is for Prometheus where text is meant: `port: 8000` is the
   label "8000", `no` is no false. Only null (`~`, nothing) is none.
3. A fault is one line with line and column, and shows nothing of the text.

YAML is built from the parser's events, libyaml's where PyYAML has it: no recursion, no tags.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import yaml

MOST_BYTES = 32 * 2**20
MOST_VALUES = 1_000_000
MOST_DEPTH = 20

_Loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_TEXT_TAGS = frozenset({None, "!", "tag:yaml.org,2002:str"})
_MERGE = "<<"


class ListUnreadable(Exception):
    """A list that cannot be used at all. One line: what is wrong; where is the caller's to say."""


def too_large() -> ListUnreadable:
    """Make the exception for a list that is too long to be read."""
    return ListUnreadable(f"larger than {MOST_BYTES // 2**20} MiB; no list of targets is")


def read_json(data: bytes) -> Any:
    """The value of a JSON text. Raises ListUnreadable."""
    text = _text(data)
    # Cheap, and before anything is built: each value but the first has one of these before it.
    if sum(map(text.count, ",[{")) > MOST_VALUES:
        raise _too_many()
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ListUnreadable(
            f"line {error.lineno}, column {error.colno}: no JSON ({error.msg})"
        ) from None
    except RecursionError:
        raise ListUnreadable("no list of targets: nested too deep") from None
    except ValueError:
        raise ListUnreadable("a number in it is too long to be read") from None


def read_yaml(data: bytes) -> Any:
    """The value of a YAML text, all scalars as text. Raises ListUnreadable."""
    try:
        return _built(yaml.parse(_text(data), Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        mark: Any = error.problem_mark or error.context_mark
        problem = " ".join((error.problem or error.context or "no YAML").split())
        raise ListUnreadable(f"{_place(mark)}: no YAML ({problem})") from None
    except yaml.YAMLError:
        raise ListUnreadable("a character in it is none that YAML allows") from None


def _text(data: bytes) -> str:
    if len(data) > MOST_BYTES:
        raise too_large()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ListUnreadable(f"not UTF-8 at byte {error.start}") from None
    if not text.strip():
        raise ListUnreadable("empty; a list without servers is written []")
    return text


def _too_many() -> ListUnreadable:
    return ListUnreadable(f"more than {MOST_VALUES} values; no list of targets has")


def _place(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}" if mark else "the text"


def _fault(problem: str, event: yaml.Event) -> ListUnreadable:
    return ListUnreadable(f"{_place(event.start_mark)}: {problem}")


@dataclass(slots=True)
class _Open:
    """A list or map whose end has not come. `values`: how many it holds, aliases expanded."""

    value: list[Any] | dict[str, Any]
    anchor: str | None = None
    values: int = 1
    key: str | None = None
    merging: bool = False
    merged: dict[str, Any] = field(default_factory=dict)

    def whole(self) -> Any:
        return {**self.merged, **self.value} if isinstance(self.value, dict) else self.value

    def put(self, value: Any, values: int, event: yaml.Event) -> None:
        """Take what comes next: an item, or a key and then its value."""
        self.values += values
        if self.values > MOST_VALUES:
            raise _too_many()
        if isinstance(self.value, list):
            self.value.append(value)
        elif self.merging:
            self._merge(value, event)
        elif self.key is not None:
            self.value[self.key] = value
            self.key = None
        else:
            self._take_key(event)

    def _take_key(self, event: yaml.Event) -> None:
        if not isinstance(event, yaml.ScalarEvent):
            raise _fault("a key is plain text, no list, map or alias", event)
        if event.value == _MERGE and event.implicit[0]:
            self.merging = True
        elif event.value in self.value:
            raise _fault("a key that stands in this map already", event)
        else:
            self.key = event.value

    def _merge(self, value: Any, event: yaml.Event) -> None:
        """`<<: *other`: the other's pairs, where this map (or one merged before) lacks them."""
        self.merging = False
        others = value if isinstance(value, list) else [value]
        for other in others:
            if not isinstance(other, dict):
                raise _fault("<< takes a map or a list of maps", event)
            self.merged = {**other, **self.merged}


def _built(events: Iterable[yaml.Event]) -> Any:
    """The value of the one document that the events tell of."""
    documents: list[Any] = []
    open_ones = [_Open(documents)]
    anchors: dict[str, tuple[Any, int]] = {}
    for event in events:
        value: Any
        if isinstance(event, yaml.ScalarEvent):
            value, values, anchor = _scalar(event), 1, event.anchor
        elif isinstance(event, yaml.CollectionStartEvent):
            _check_start(event, len(open_ones))
            mapping = isinstance(event, yaml.MappingStartEvent)
            open_ones.append(_Open({} if mapping else [], event.anchor))
            continue
        elif isinstance(event, yaml.CollectionEndEvent):
            one = open_ones.pop()
            value, values, anchor = one.whole(), one.values, one.anchor
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in anchors:
                raise _fault("an alias (*...) that stands for nothing that ended before it", event)
            (value, values), anchor = anchors[event.anchor], None
        else:
            if isinstance(event, yaml.DocumentStartEvent) and documents:
                raise _fault("a second document (---); one file holds one list", event)
            continue
        if anchor is not None:
            anchors[anchor] = value, values
        open_ones[-1].put(value, values, event)
    return documents[0] if documents else None


def _scalar(event: yaml.ScalarEvent) -> str | None:
    if event.tag not in _TEXT_TAGS:
        raise _fault("a tag (!...) is not supported; leave it out", event)
    value: str = event.value
    return None if event.implicit[0] and value in _NULLS else value


def _check_start(event: yaml.CollectionStartEvent, depth: int) -> None:
    if event.tag not in (None, "!"):
        raise _fault("a tag (!...) is not supported; leave it out", event)
    if depth > MOST_DEPTH:
        raise _fault(f"nested more than {MOST_DEPTH} deep", event)
