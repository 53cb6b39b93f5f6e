"""The selective scan, line by line: what is understood, what is an error, what is passed over."""

from __future__ import annotations

import math

import pytest

from monitor.engines import scan as scanning
from monitor.engines.scan import PageUnreadable, has_sample, scan, wanted_names
from tests.engines.pages import by_series, lines

WANTED = wanted_names("eng", ["tokens_total", "tokens", "running"], ["start_seconds"])


def one(line: str) -> tuple[object, float]:
    (sample,) = scan(line.encode() + b"\n", WANTED, by_series, {})
    return sample


# ------------------------------------------------------------------ lines, by hand


@pytest.mark.parametrize(
    ("line", "labels", "value"),
    [
        ("eng:running 3", {}, 3.0),
        ("eng_running 3", {}, 3.0),
        ("eng:running{} 3", {}, 3.0),
        ('eng:running{a="b"} 3.5', {"a": "b"}, 3.5),
        ('eng:running{a="b",} 3', {"a": "b"}, 3.0),
        ('eng:running { a = "b" , c="d" } 3 ', {"a": "b", "c": "d"}, 3.0),
        ('eng:running\t{a="b"}\t3\t1796000000000', {"a": "b"}, 3.0),
        ('eng:running   {a="b"}3', {"a": "b"}, 3.0),
        ('eng:running{a="b"} 3 1796000000000', {"a": "b"}, 3.0),
        ('eng:running{a="b"} 3\r', {"a": "b"}, 3.0),
        ('  eng:running{a="b"} 3', {"a": "b"}, 3.0),
        ('\ufeffeng:running{a="b"} 3', {"a": "b"}, 3.0),
        ('eng:running{a="x}y{z # 7 8,c=\\"d\\""} 3', {"a": 'x}y{z # 7 8,c="d"'}, 3.0),
        ('eng:running{a="\\\\n\\n\\q\\\\"} 3', {"a": "\\n\n\\q\\"}, 3.0),
        ('eng:running{a="模型 é\t"} 3', {"a": "模型 é\t"}, 3.0),
        ('eng:running{"a.b/c"="d"} 3', {"a.b/c": "d"}, 3.0),
        ('{"eng:running",a="b"} 3', {"a": "b"}, 3.0),
        ('{ "eng:running" } 3', {}, 3.0),
        ('eng:running{a="b"} 1e5', {"a": "b"}, 100_000.0),
        ('eng:running{a="b"} -Inf', {"a": "b"}, -math.inf),
        ('eng:running{a="b"} +Inf', {"a": "b"}, math.inf),
        ('eng:running{a="b"} 3 # {trace="x 1"} 9 1796000000.5', {"a": "b"}, 3.0),
        ('eng:running{a="b"} 3 17.5 # {trace="x"} 9', {"a": "b"}, 3.0),
        ('eng:running 3 # {trace="x"} 9', {}, 3.0),
        ("eng:running 3 # {} 9", {}, 3.0),
    ],
)
def test_a_line_is_understood(line: str, labels: dict[str, str], value: float) -> None:
    assert one(line) == (("running", tuple(sorted(labels.items()))), value)


def test_nan_is_a_value() -> None:
    assert math.isnan(one("eng:running NaN")[1])


@pytest.mark.parametrize(
    "line",
    [
        "eng:running",
        "eng:running ",
        "eng:running{",
        'eng:running{a="b"',
        'eng:running{a="b"}',
        'eng:running{a="b"} ',
        'eng:running{a="b} 3',
        'eng:running{a="b\\"} 3',
        "eng:running{a=b} 3",
        "eng:running{a} 3",
        'eng:running{a="b" c="d"} 3',
        'eng:running{a="b",,c="d"} 3',
        'eng:running{a="b",a="c"} 3',
        'eng:running{__name__="up"} 3',
        'eng:running{9="b"} 3',
        'eng:running{a="b"x} 3',
        "eng:running}3",
        "eng:running# 3",
        'eng:running{a="b"} 3x',
        'eng:running{a="b"} 1_000',
        'eng:running{a="b"} 0x1F',
        'eng:running{a="b"} 3 4 5',
        'eng:running{a="b"} 3 later',
        'eng:running{a="b"} 3# {trace="x"} 9',
        'eng:running{a="b"} 3 #{trace="x"} 9',
        'eng:running{a="b"} 3 # trace',
        'eng:running{a="b"} 3 # {trace="x} 9',
        'eng:running{a="b"} 3 # {trace="x"}',
        'eng:running{a="b"} 3 # {trace="x"} nine',
        'eng:running{a="b"} 3 # {trace="x"} 9 # {trace="y"} 9',
        "eng:running # 3",
        '{a="b","eng:running"} 3',
        '{"eng:running" a="b"} 3',
        '{"eng:running"="b"} 3',
    ],
)
def test_a_malformed_wanted_line_is_an_error_that_quotes_it(line: str) -> None:
    with pytest.raises(PageUnreadable) as raised:
        scan(line.encode() + b"\n", WANTED, by_series, {})
    assert repr(line.strip())[1:-1][:20] in str(raised.value)
    # The same with the series remembered from a healthy page.
    cache: dict[bytes, tuple[bytes, object]] = {}
    scan(b'eng:running 1\neng:running{a="b"} 1\n', WANTED, by_series, cache)
    with pytest.raises(PageUnreadable):
        scan(line.encode() + b"\n", WANTED, by_series, cache)


def test_labels_that_are_not_utf8_are_an_error() -> None:
    with pytest.raises(PageUnreadable, match="not UTF-8"):
        scan(b'eng:running{a="\xe9"} 3\n', WANTED, by_series, {})


def test_a_long_line_is_quoted_in_part() -> None:
    with pytest.raises(PageUnreadable) as raised:
        one(f'eng:running{{a="{"x" * 1000}"}} three')
    assert len(str(raised.value)) < 220
    assert str(raised.value).endswith("...")


@pytest.mark.parametrize(
    "line",
    [
        "",
        "#",
        "# EOF",
        "# HELP eng:running 3",
        "# eng:running 3",
        'eng:runningx{a="b"} 3',
        "xeng:running 3",
        "eng:running_created 3",
        "eng-running 3",
        "start_secondsx 3",
        "eng:start_seconds 3",
        "running 3",
        "up{",
        "up{a=b} x",
        '{"up",a="eng:running"} 3',
        '{"up"="eng:runner"',
        "  up 3",
        "\teng:runningx 3",
    ],
)
def test_other_lines_are_passed_over_whatever_they_hold(line: str) -> None:
    assert scan(lines(line, "eng:running 1"), WANTED, by_series, {}) == [(("running", ()), 1.0)]


def test_series_after_eof_count_as_in_the_classic_format() -> None:
    assert scan(b"# EOF\neng:running 1\n", WANTED, by_series, {}) == [(("running", ()), 1.0)]


@pytest.mark.parametrize(
    "again",
    [
        'eng:running{a="b",c="d"} 1.0',
        'eng:running{a="b",c="d"} 2.0',
        'eng:running{c="d",a="b"} 1.0',
        'eng:running {a="b", c="d"} 1.0 1796000000000',
        '{"eng:running",c="d",a="b"} 1.0',
    ],
)
def test_a_series_that_stands_twice_is_an_error_however_spelled(again: str) -> None:
    body = lines('eng:running{a="b",c="d"} 1.0', again)
    cache: dict[bytes, tuple[bytes, object]] = {}
    for _ in range(2):
        with pytest.raises(PageUnreadable, match="series appears twice"):
            scan(body, WANTED, by_series, cache)


def test_series_that_differ_only_in_escapes_are_not_confused() -> None:
    body = lines(r'eng:running{a="\\n"} 1', r'eng:running{a="\n"} 2', r'eng:running{a="n"} 3')
    assert [value for _, value in scan(body, WANTED, by_series, {})] == [1.0, 2.0, 3.0]


def test_the_page_order_is_kept_and_the_last_line_needs_no_newline() -> None:
    body = b'start_seconds 1.5\neng:tokens 2\nup 9\neng_running{a="b"} 4\neng:tokens_total 3'
    assert scan(body, WANTED, by_series, {}) == [
        (("start_seconds", ()), 1.5),
        (("tokens", ()), 2.0),
        (("running", (("a", "b"),)), 4.0),
        (("tokens_total", ()), 3.0),
    ]


def test_has_sample_looks_at_line_starts_only() -> None:
    assert has_sample(b"eng:running 1\n", b"eng:")
    assert has_sample(b"up 1\neng:running 1\n", b"eng:")
    assert not has_sample(b'# TYPE eng:running gauge\nup{a="eng:"} 1\n', b"eng:")


# ----------------------------------------------------------------------- the cache


def test_a_series_is_classified_once() -> None:
    calls: list[str] = []

    def classify(key: str, labels: dict[str, str]) -> str:
        calls.append(key)
        return key

    cache: dict[bytes, tuple[bytes, str]] = {}
    for value in (1, 2, 3):
        found = scan(lines(f'eng:running{{a="b"}} {value}'), WANTED, classify, cache)
        assert found == [("running", float(value))]
    assert calls == ["running"]


def test_the_cache_is_emptied_when_it_outgrew_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "CACHE_LIMIT", 50)
    cache: dict[bytes, tuple[bytes, object]] = {}
    for poll in range(40):
        body = lines(*(f'eng:running{{id="{poll}-{number}"}} 1' for number in range(20)))
        assert len(scan(body, WANTED, by_series, cache)) == 20
        assert len(cache) <= 50 + 20


def test_unwanted_and_cut_lines_are_not_remembered() -> None:
    cache: dict[bytes, tuple[bytes, object]] = {}
    scan(lines("up 1", " up 1", "eng:running 1 1796000000000"), WANTED, by_series, cache)
    assert set(cache) == {b"eng:running"}
