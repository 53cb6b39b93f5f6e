"""Texts of lists: what they come to, and the line that says why one cannot be read."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from monitor.sources import list_text
from monitor.sources.list_text import ListUnreadable, read_json, read_yaml

GROUPS = [
    {"targets": ["10.0.0.1:8000", "10.0.0.2:8000"], "labels": {"pod": "a", "zone": "1"}},
    {"targets": []},
]


def fault_of(read: Any, data: bytes) -> str:
    with pytest.raises(ListUnreadable) as caught:
        read(data)
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_json_and_yaml_say_the_same() -> None:
    written = """\
# engines
- targets: [10.0.0.1:8000, '10.0.0.2:8000']
  labels: {pod: a, zone: 1}
- targets: []
"""
    assert read_yaml(written.encode()) == GROUPS
    assert read_json(json.dumps(GROUPS).encode()) == GROUPS
    assert read_yaml(json.dumps(GROUPS).encode()) == GROUPS
    assert read_json(b"\xef\xbb\xbf[]") == []


def test_scalars_of_yaml_are_text_but_for_null() -> None:
    written = (
        b"{a: 8000, b: no, c: 1.50, d: ~, e: null, f: '', g: , h: '~', i: 2026-01-01, j: !!str ~}"
    )
    assert read_yaml(written) == {
        "a": "8000", "b": "no", "c": "1.50", "d": None, "e": None, "f": "", "g": None,
        "h": "~", "i": "2026-01-01", "j": "~",
    }  # fmt: skip


def test_aliases_and_merge_keys() -> None:
    written = b"""\
- labels: &base {team: search, zone: a}
- labels: {<<: *base, zone: b}
- labels: {zone: c, <<: [{zone: x, rack: r1}, *base]}
- labels: *base
- '<<': text
"""
    assert read_yaml(written) == [
        {"labels": {"team": "search", "zone": "a"}},
        {"labels": {"team": "search", "zone": "b"}},
        {"labels": {"zone": "c", "rack": "r1", "team": "search"}},
        {"labels": {"team": "search", "zone": "a"}},
        {"<<": "text"},
    ]


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "empty; a list without servers is written []"),
        (b" \n", "empty; a list without servers is written []"),
        (b"\xff\xfe[\x00", "not UTF-8 at byte 0"),
        (b'[\n {"targets": [}]', "line 2, column 15: no JSON (Expecting value)"),
        (b"[" * 100_000, "no list of targets: nested too deep"),
        (b"[" + b"9" * 5000 + b"]", "a number in it is too long to be read"),
        (b"[" + b"[]," * 500_001 + b"[]]", "more than 1000000 values; no list of targets has"),
    ],
)
def test_json_that_cannot_be_read(data: bytes, fault: str) -> None:
    assert fault_of(read_json, data) == fault


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"\n", "empty; a list without servers is written []"),
        (b"- a\n- b: [\n", "line 3, column 1: no YAML (did not find expected node content)"),
        (b"- a\n---\n- b\n", "line 2, column 1: a second document (---); one file holds one list"),
        (b"- a: 1\n  a: 2\n", "line 2, column 3: a key that stands in this map already"),
        (b"- *x\n", "line 1, column 3: an alias (*...) that stands for nothing that ended before it"),
        (b"&x [*x]\n", "line 1, column 5: an alias (*...) that stands for nothing that ended before it"),
        (b"- !!int 5\n", "line 1, column 3: a tag (!...) is not supported; leave it out"),
        (b"- !new {a: b}\n", "line 1, column 3: a tag (!...) is not supported; leave it out"),
        (b"- {[a]: b}\n", "line 1, column 6: a key is plain text, no list, map or alias"),
        (b"- {<<: text}\n", "line 1, column 8: << takes a map or a list of maps"),
        (b"[" * 500 + b"]" * 500, "line 1, column 21: nested more than 20 deep"),
        (b"- \x01\n", "a character in it is none that YAML allows"),
    ],
)  # fmt: skip
def test_yaml_that_cannot_be_read(data: bytes, fault: str) -> None:
    assert fault_of(read_yaml, data) == fault


@pytest.mark.parametrize("piece", [b"[", b"{a: ", b"- ", b"? ", b"a:\n", b"[]", b"!", b"&a ["])
def test_what_is_nested_or_repeated_without_end_is_stopped(piece: bytes) -> None:
    assert fault_of(read_yaml, b"- " + piece * 200_000)


def test_comments_alone_are_no_list_but_no_fault_of_the_text() -> None:
    assert read_yaml(b"# nothing yet\n") is None


def test_a_bomb_of_aliases_is_stopped_before_it_grows() -> None:
    levels = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        levels.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]")
    assert fault_of(read_yaml, "\n".join(levels).encode()).startswith("more than 1000000 values")


def test_the_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_text, "MOST_BYTES", 2**20)
    fault = "larger than 1 MiB; no list of targets is"
    assert fault_of(read_json, b" " * 2**20 + b"[]") == fault
    assert fault_of(read_yaml, b" " * 2**20 + b"[]") == fault


def test_without_libyaml_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_text, "_Loader", yaml.BaseLoader)
    assert read_yaml(b"- {targets: [a:1], labels: {b: ~, c: !!str 1}}") == [
        {"targets": ["a:1"], "labels": {"b": None, "c": "1"}}
    ]
    assert fault_of(read_yaml, b"- \x01\n") == "a character in it is none that YAML allows"


@given(st.binary(max_size=200) | st.text("[]{}:,-*&!<'\"#~ \nab", max_size=60).map(str.encode))
def test_no_bytes_do_harm(data: bytes) -> None:
    for read in (read_json, read_yaml):
        faults = []
        try:
            read(data)
        except ListUnreadable as unreadable:
            faults.append(str(unreadable))
        assert all("\n" not in line and len(line) < 300 for line in faults)


def test_deep_json_leaves_the_recursion_limit_alone() -> None:
    limit = sys.getrecursionlimit()
    fault_of(read_json, b'{"a":' * 50_000)
    assert sys.getrecursionlimit() == limit
