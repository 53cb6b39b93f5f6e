"""Whether an engine schedules ahead: told, by version, by the age of its page, or not known."""

from __future__ import annotations

import pytest

from monitor.expectation.overlap import NOT_TOLD, Overlap, overlap_of
from monitor.model import ServerInfo

BY_SOURCE = "vllm:prompt_tokens_by_source_total"
UNLESS = "does so unless started with --no-async-scheduling or on Ray"


def vllm(
    version: str | None = None, prompt_source: str | None = None, *, speculates: bool = False
) -> Overlap:
    return overlap_of("vllm", ServerInfo(), version, prompt_source, speculates=speculates)


@pytest.mark.parametrize("engine", ["vllm", "sglang", None])
def test_what_the_server_tells_stands(engine: str | None) -> None:
    for disabled in (True, False):
        info = ServerInfo(overlap_disabled=disabled)
        told = overlap_of(engine, info, "0.10.0", None, speculates=True)
        assert told == Overlap(not disabled, "as the server tells")


def test_only_vllm_is_known_by_its_version() -> None:
    assert overlap_of("sglang", None, "0.5.16", BY_SOURCE, speculates=False) == NOT_TOLD
    assert overlap_of("vllm", None, None, None, speculates=False) == NOT_TOLD


@pytest.mark.parametrize("version", ["0.14.0", "0.14.1+cu128", "v0.26.0", "0.33.0rc1", "1.0"])
def test_vllm_schedules_ahead_since_0_14(version: str) -> None:
    assert vllm(version) == Overlap(True, f"vLLM {version} {UNLESS}")


@pytest.mark.parametrize("version", ["0.8.5", "0.13.0", "0.11.2.post1"])
def test_older_vllm_does_so_only_when_told(version: str) -> None:
    told = Overlap(False, f"vLLM {version} does so only when told to")
    assert vllm(version) == told
    assert vllm(version, BY_SOURCE) == told


@pytest.mark.parametrize(
    "version", [None, "", "main", "0.1.dev1+g0123abc", "0.14.0rc1", "0.13.1.dev12", "0.14.0.dev3"]
)
def test_a_build_that_names_no_release_is_as_old_as_its_page(version: str | None) -> None:
    assert vllm(version) == NOT_TOLD
    assert vllm(version, "vllm:prompt_tokens_total") == NOT_TOLD
    newer = Overlap(True, f"its page is of vLLM 0.15 or later, which {UNLESS}")
    assert vllm(version, BY_SOURCE) == newer


def test_with_speculation_it_depends_on_the_method() -> None:
    assert vllm("0.33.0", BY_SOURCE, speculates=True) == Overlap(
        None, "not told, and with speculation it depends on the method"
    )
