"""Computed prompt tokens: told by the engine, or all prompts less the cached ones.

A cached hit is counted when its request is scheduled, its prompt when the prefill ends, so the
difference may dip for a while: the total waits for it rather than fall.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from monitor.model import Counter
from monitor.throughput.counters import Advance


@dataclass(frozen=True, slots=True)
class Prompt:
    """Prompt tokens since the first page.

    `raw` is what the counters add up to, `counted` the same without its dips; `known`: a counter
    told it.
    """

    raw: float = 0.0
    counted: float = 0.0
    known: bool = False

    @property
    def known_total(self) -> float | None:
        """The computed prompt tokens, None while no counter told them."""
        return self.counted if self.known else None


def add_prompts(
    before: Prompt, steps: Mapping[Counter, Advance], *, afresh: bool, switched: bool
) -> Prompt:
    """The prompt tokens after one more page.

    `afresh`: another process counts, a dip of the old one will not be made up for. `switched`:
    the engine did not tell the computed ones before this page.
    """
    computed, every = steps[Counter.PROMPT_COMPUTED], steps[Counter.PROMPT_ALL]
    main = every if computed.track is None else computed
    if main.track is None:
        return before
    gain = main.added
    if main is every:
        gain -= steps[Counter.PROMPT_CACHED].added
    elif switched and before.counted > 0.0:
        # A better source starts with a baseline: the worse one has counted these already.
        gain = 0.0
    raw = gain + (before.counted if afresh else before.raw)
    counted = max(raw, before.counted) if prompt_told(steps) else before.counted
    return Prompt(raw, counted, before.known or main.track.known_total is not None)


def prompt_told(steps: Mapping[Counter, Advance]) -> bool:
    """Whether the page tells all that the prompt total is made of."""
    computed, cached = steps[Counter.PROMPT_COMPUTED], steps[Counter.PROMPT_CACHED]
    if computed.track is not None:
        return computed.told
    nothing_cached = cached.track is None or not cached.track.last
    return steps[Counter.PROMPT_ALL].told and (nothing_cached or cached.told)
