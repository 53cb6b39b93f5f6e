"""Shards part a list as Prometheus' hashmod parts it: exactly one has each address."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.sources.sharding import address_of, is_mine


# `printf %s 10.0.0.1:8000 | md5sum | cut -c17-32`, read as a number, modulo 2, 3 and 7.
@pytest.mark.parametrize(
    ("address", "rests"),
    [
        ("10.0.0.1:8000", (1, 0, 5)),
        ("gpu-1.example:30000", (1, 0, 6)),
        ("Host-A", (0, 2, 4)),
        ("[fd00::1]:8000", (1, 2, 5)),
    ],
)
def test_the_shard_is_the_hash_modulo_the_number_of_shards(
    address: str, rests: tuple[int, int, int]
) -> None:
    for modulus, rest in zip((2, 3, 7), rests, strict=True):
        mine = [index for index in range(modulus) if is_mine(address, modulus, index)]
        assert mine == [rest]


def test_one_shard_has_all() -> None:
    assert is_mine("10.0.0.1:8000", 1, 0)
    assert is_mine("", 1, 0)


@given(st.text(), st.integers(1, 50))
def test_each_address_is_in_one_shard(address: str, modulus: int) -> None:
    assert sum(is_mine(address, modulus, index) for index in range(modulus)) == 1


def test_shards_are_of_one_size() -> None:
    sizes = [0] * 8
    for number in range(8000):
        address = f"10.0.{number // 250}.{number % 250}:8000"
        sizes[next(index for index in range(8) if is_mine(address, 8, index))] += 1
    # 1000 each; the standard deviation of a fair draw is 30.
    assert all(850 < size < 1150 for size in sizes), sizes


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://10.0.0.1:8000/metrics", "10.0.0.1:8000"),
        ("https://Host-A/m?x=a%2Fb://c", "Host-A"),
        ("http://[fd00::1]:80/.", "[fd00::1]:80"),
    ],
)
def test_the_address_is_what_the_list_wrote(url: str, address: str) -> None:
    assert address_of(url) == address
