"""Durations and sizes, from text to seconds and bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.config import parse_duration
from monitor.config.values import parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("1s", 1.0),
        ("1.5s", 1.5),
        ("5m", 300.0),
        ("1h", 3600.0),
        ("2h30m", 9000.0),
        ("1d", 86400.0),
        ("1h0m1s1ms", 3601.001),
        ("90", 90.0),
        ("0", 0.0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "5 s", "-5s", "+5s", "5S", "1m1h", "1s1s", "1e3s", "5s ", "٥s", "nan", "1:00"]
)
def test_texts_that_are_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        parse_duration(text)


@given(st.integers(0, 999), st.integers(0, 999), st.integers(0, 999), st.integers(0, 999))
def test_durations_are_the_sum_of_their_parts(hours: int, minutes: int, s: int, ms: int) -> None:
    text = f"{hours}h{minutes}m{s}s{ms}ms"
    milliseconds = ((hours * 60 + minutes) * 60 + s) * 1000 + ms
    assert parse_duration(text) == pytest.approx(milliseconds / 1000, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16MiB", 16_777_216),
        ("64KiB", 65_536),
        ("1MB", 1_000_000),
        ("1GiB", 1_073_741_824),
        ("1.5 kib", 1536),
        ("4096", 4096),
        ("4096B", 4096),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MiB", "16M", "-1MiB", "1e3", "16 MiB s", "9" * 400])
def test_texts_that_are_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="expected a size"):
        parse_size(text)


@given(st.integers(0, 2**40), st.sampled_from([("B", 1), ("KiB", 1024), ("MB", 10**6)]))
def test_sizes_are_number_times_unit(number: int, unit: tuple[str, int]) -> None:
    assert parse_size(f"{number}{unit[0]}") == number * unit[1] or number * unit[1] > 2**53
