"""YAML, read strictly.

Rules of this file:

1. Plain scalars follow the core schema of YAML 1.2 (yaml.org/spec/1.2.2, 10.3.2), not
   PyYAML's 1.1: `no` and `2026-11-30` are text, `1e3` and `27e9` are numbers, `22:30` is text
   and not 1350. A number with a leading zero is text (neither octal nor decimal by surprise).
2. A key that stands twice in a map is an error, and so are tags (`!!int`).
3. Size, depth and the number of values that aliases expand to are bounded.
4. A fault says its line and column, and never shows the text around it.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from yaml.reader import ReaderError

from monitor.config.errors import ConfigInvalid, quoted, shown

MOST_BYTES = 1024 * 1024
MOST_VALUES = 100_000
MOST_DEPTH = 40

_TAG = "tag:yaml.org,2002:"


class _StrictLoader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  (PyYAML's own protocol)

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._values_below: dict[yaml.Node, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            return self._compose_alias(event, parent, index)
        if getattr(event, "tag", None) is not None:
            raise _fault("a tag (!...) is not supported; leave it out", event)
        if self._depth >= MOST_DEPTH:
            raise _fault(f"nested more than {MOST_DEPTH} deep", event)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if node is not None:
            self._count(node)
        return node

    def _compose_alias(
        self, event: yaml.AliasEvent, parent: yaml.Node | None, index: Any
    ) -> yaml.Node | None:
        if event.anchor not in self.anchors:
            raise _fault("an alias (*...) without its anchor; put text with * in quotes", event)
        node = super().compose_node(parent, index)
        if node not in self._values_below:
            raise _fault("an alias (*...) inside the value that it stands for", event)
        return node

    def _count(self, node: yaml.Node) -> None:
        below = 1
        if isinstance(node, yaml.SequenceNode):
            below += sum(self._values_below[item] for item in node.value)
        elif isinstance(node, yaml.MappingNode):
            below += sum(self._values_below[item] for pair in node.value for item in pair)
        # The first stops at once what is long, the second what aliases make long.
        if max(len(self._values_below), below) >= MOST_VALUES:
            raise _fault(f"more than {MOST_VALUES} values, with aliases expanded", node)
        self._values_below[node] = below

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # Here, once per map, and not at construction: merge keys (<<) change the pairs later.
        node = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _fault("a key is plain text, not a list or a map", key)
            spelt = (key.tag, key.value)
            if spelt in lines:
                raise _fault(f"{quoted(key.value)} stands twice, first on line {lines[spelt]}", key)
            lines[spelt] = key.start_mark.line + 1
        return node


_RESOLVERS = (
    ("merge", r"<<", "<"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    # Eighteen digits at most: beyond them nothing is meant as a number here.
    ("int", r"[-+]?(?:0|[1-9][0-9]{0,17})", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|\.(?i:inf|nan))",
        "-+0123456789.",
    ),
)
for _kind, _pattern, _first in _RESOLVERS:
    _StrictLoader.add_implicit_resolver(
        _TAG + _kind, re.compile(rf"(?:{_pattern})\Z"), list(_first)
    )


# What PyYAML says (a part of it), and what it means to somebody who wrote a configuration.
_PLAINLY = {
    "'\\t'": "a tab; YAML is indented with spaces",
    "another document": "a second document (---); one file holds one configuration",
    "second occurrence": "an anchor (&...) whose name is already taken",
}


def _fault(problem: str, at: yaml.Node | yaml.Event) -> yaml.MarkedYAMLError:
    mark: Any = at.start_mark
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def read(text: str, where: str) -> dict[str, Any]:
    """The map that a YAML text holds; an empty text is an empty map.

    Raises:
        ConfigInvalid: it is not YAML, too large, or not a map. `where` names the text.

    """
    if len(text.encode(errors="surrogatepass")) > MOST_BYTES:
        raise ConfigInvalid([f"{where}: larger than 1 MiB; this cannot be a configuration"])
    try:
        loader = _StrictLoader(text)
        try:
            value = loader.get_single_data()
        finally:
            loader.dispose()
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigInvalid(
            [f"{where}: line {line}: a character that YAML does not allow (control character?)"]
        ) from None
    except yaml.MarkedYAMLError as error:
        raise ConfigInvalid([f"{where}: {_described(error)}"]) from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigInvalid(
            [f"{where}: expected a map of keys such as `targets:`, got {shown(value)}"]
        )
    return value


def _described(error: yaml.MarkedYAMLError) -> str:
    problem = " ".join((error.problem or error.context or "not YAML").split())
    for sign, plainly in _PLAINLY.items():
        if sign in problem:
            problem = plainly
    if problem.startswith("expected") and "<stream end>" not in problem:
        problem += " (text with [ ] { } in it stands in quotes)"
    mark: Any = error.problem_mark or error.context_mark
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else problem
