"""The selective scan against prometheus_client's parser: the same samples, or an error."""

from __future__ import annotations

from collections import Counter as Multiset

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor import engines
from monitor.engines import scan as scanning
from monitor.engines.scan import PageUnreadable, scan, wanted_names
from tests.engines.pages import (
    NAMES,
    Sample,
    by_series,
    recorded,
    reference_line,
    reference_page,
    scanned,
)

WANTED = wanted_names("eng", ["tokens_total", "tokens", "running"], ["start_seconds"])
UNWANTED = ["eng:tokens_totals", "eng:token", "eng:tokens_total_sum", "eng:running_created", "up"]

_NAMES = [name.decode() for name in WANTED.keys]
_BLANK = st.sampled_from(["", "", " ", "  ", "\t"])
_GAP = st.sampled_from([" ", " ", " ", "  ", "\t"])
_TEXT = st.text(
    st.one_of(
        st.sampled_from(' {}#,="\\\n\t_x0'),
        st.characters(codec="utf-8", exclude_characters="\r", exclude_categories=["Cs", "Cc"]),
    ),
    max_size=12,
)
_LABEL = st.tuples(
    st.sampled_from(["a", "b", "le", "model_name", "engine", "tp_rank", "_x"]),
    _TEXT.map(lambda text: text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")),
)
_NUMBER = st.one_of(
    st.floats().map(repr),
    st.integers(-(10**20), 10**20).map(str),
    st.sampled_from(
        ["NaN", "Inf", "+Inf", "-Inf", "1e5", "1E-7", "+3", ".5", "7.", "infinity", "-0", "1" * 400]
    ),
)
_BROKEN = st.sampled_from(["0x1F", "1_0", "1,5", "", "--1", "1e", "one", "0b1", "3;", "5#", "½"])
_KIND = st.sampled_from(["gauge", "untyped", "summary", "histogram", "nonsense"])


@st.composite
def _sample_line(draw: st.DrawFn, names: list[str]) -> str:
    name = draw(st.sampled_from(names))
    pairs = draw(st.lists(_LABEL, max_size=4, unique_by=lambda pair: pair[0]))
    line = name
    braces: bool = draw(st.booleans())
    if pairs or braces:
        terms = [
            f'{draw(_BLANK)}{key}{draw(_BLANK)}={draw(_BLANK)}"{text}"{draw(_BLANK)}'
            for key, text in pairs
        ]
        comma: str = draw(st.sampled_from(["", "", ","])) if terms else ""
        line += f"{draw(_BLANK)}{{{','.join(terms)}{comma}}}"
    line += draw(_GAP) + draw(st.one_of(_NUMBER, _NUMBER, _NUMBER, _BROKEN))
    if draw(st.integers(0, 3)) == 0:
        line += f" {draw(st.integers(0, 2**62))}"
    if draw(st.integers(0, 5)) == 0:
        line += ' # {trace_id="a b}",span="\\"x\\""} 0.5 1796000000.5'
    return draw(_BLANK) + line + draw(_BLANK)


_COMMENT = st.one_of(
    st.tuples(st.sampled_from(_NAMES + UNWANTED), _KIND).map(lambda t: f"# TYPE {t[0]} {t[1]}"),
    st.tuples(st.sampled_from(_NAMES + UNWANTED), _TEXT).map(
        lambda t: "# HELP {} {}".format(t[0], t[1].replace("\\", "\\\\").replace("\n", "\\n"))
    ),
    st.sampled_from(["", "  ", "#", "# EOF", "# a comment {", "#eng:running 3"]),
)
_LINES = st.lists(
    st.one_of(_sample_line(_NAMES), _sample_line(_NAMES), _sample_line(UNWANTED), _COMMENT),
    max_size=12,
)


def _check_against_reference(body: bytes, wanted: scanning.Wanted) -> None:
    """`scan` gives what the reference gives line by line, or errs where that may be."""
    expected: Multiset[Sample] = Multiset()
    must_err = False
    for line in body.decode("utf-8", "surrogateescape").removeprefix("\ufeff").split("\n"):
        told = reference_line(line)
        if isinstance(told, ValueError):
            start = line.strip().encode("utf-8", "surrogateescape")
            name = start[: len(start) - len(start.lstrip(scanning._NAME_BYTES))]
            must_err = must_err or name in wanted.keys
        elif told is not None and told[0][0].encode("utf-8", "surrogateescape") in wanted.keys:
            (full_name, labels), value = told
            expected[(wanted.keys[full_name.encode()], labels), value] += 1
    try:
        found = scanned(body, wanted)
    except PageUnreadable:
        return
    assert not must_err
    assert found == expected


@given(_LINES, st.sampled_from(["\n", "\n", "\r\n"]), st.booleans())
@settings(max_examples=400, deadline=None)
def test_generated_pages_read_as_by_the_reference(
    page: list[str], newline: str, ends: bool
) -> None:
    body = (newline.join(page) + (newline if ends else "")).encode()
    _check_against_reference(body, WANTED)
    # An error is allowed only where the reference errs or a series stands twice.
    wanted_series = [
        told[0] if not isinstance(told, ValueError) else None
        for told in map(reference_line, page)
        if told is not None and (isinstance(told, ValueError) or told[0][0].encode() in WANTED.keys)
    ]
    if None not in wanted_series and len(set(wanted_series)) == len(wanted_series):
        scanned(body, WANTED)


def outcome(body: bytes, cache: dict[bytes, tuple[bytes, object]]) -> str:
    """What `scan` gives or says, as text."""
    try:
        return repr(scan(body, WANTED, by_series, cache))
    except PageUnreadable as error:
        return f"unreadable: {error}"


@given(_LINES)
@settings(max_examples=150, deadline=None)
def test_a_remembered_page_reads_as_a_new_one(page: list[str]) -> None:
    cache: dict[bytes, tuple[bytes, object]] = {}
    for line in page:
        assert outcome(line.encode(), cache) == outcome(line.encode(), {})


@pytest.mark.parametrize("name", NAMES)
def test_recorded_pages_read_as_by_the_reference(name: str) -> None:
    body = recorded(name)
    wanted = engines.ENGINES[name.partition("/")[0]].index
    assert scanned(body, wanted) == reference_page(
        body, wanted, is_open_metrics=body.endswith(b"\n# EOF\n")
    )


@pytest.mark.parametrize(
    "name", ["vllm/0.32.0-data_parallel_2", "vllm/0.32.0-rust_loaded", "sglang/0.5.23-dp2-load"]
)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_recordings_never_give_a_value_of_their_own(name: str, data: st.DataObject) -> None:
    body = bytearray(recorded(name))
    wanted = engines.ENGINES[name.partition("/")[0]].index
    starts = [match.start(1) for match in wanted.lines.finditer(b"\n" + bytes(body))]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.sampled_from(starts)) + data.draw(st.integers(0, 120))
        how = data.draw(st.sampled_from(["flip", "cut", "insert"]))
        if how == "flip":
            body[at : at + 1] = bytes([data.draw(st.integers(0, 255))])
        elif how == "cut":
            del body[at : at + data.draw(st.integers(1, 40))]
        else:
            body[at:at] = data.draw(
                st.sampled_from([b'"', b"{", b"}", b" ", b"\\", b"\n", b"#", b","])
            )
    _check_against_reference(bytes(body), wanted)


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_nothing_but_page_unreadable_is_raised(noise: bytes) -> None:
    for body in (noise, b"eng:running" + noise, b'eng:running{a="' + noise, b"{" + noise):
        assert outcome(body, {}).startswith(("[", "unreadable: "))
