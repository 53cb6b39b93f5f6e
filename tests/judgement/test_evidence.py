"""What can be read off the evidence by itself."""

from __future__ import annotations

import pytest

from monitor.judgement.evidence import count
from tests.judgement.situations import NOW, over, seen


@pytest.mark.parametrize(
    ("role", "generation", "prompt", "dominated"),
    [
        (None, 702.0, 5616.0, True),  # 8.0 prompt tokens a generated one
        (None, 702.0, 5615.0, False),
        ("unified", 702.0, 5616.0, True),
        (None, 0.0, 1.0, True),
        (None, 0.0, 0.0, False),
        (None, 485.0, None, False),
        (None, None, 100.0, True),
        (None, None, None, False),
        ("prefill", 485.0, 0.0, True),
        ("decode", 1.0, 50_000.0, False),
    ],
)
def test_what_counts_as_mostly_prefill(
    role: str | None, generation: float | None, prompt: float | None, dominated: bool
) -> None:
    rates = over(300.0, generation_tokens_per_second=generation, prompt_tokens_per_second=prompt)
    assert seen(role=role).prefill_dominated(rates) is dominated


def test_how_long_nothing_was_seen() -> None:
    assert seen(last_success=NOW - 12.5).blind_seconds() == 12.5
    assert seen(last_success=None).blind_seconds() is None


def test_requests_as_people_count_them() -> None:
    assert count(19.4) == "19"
    assert count(0.0) == "0"
    assert count(None) == "an unknown number of"
