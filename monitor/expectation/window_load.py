"""From a window's rates to the load of one replica, as the load model takes it.

Rules of this file:

1. Rates, requests and drafts are the window's own means. Where no request finished in it, the
   lengths are those of the longest window in which one did.
2. What is missing is an `Unknown`; no length and no load is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable

from monitor.expectation.load_model import Load, Role, mean_context_tokens, per_replica
from monitor.expectation.step_time import NO_SPECULATION, Speculation
from monitor.model import Rates, Unknown


def load_of(rates: Rates, others: Iterable[Rates], replicas: int, role: Role) -> Load | Unknown:
    """Give the load of the mean replica. `others`: every window, for the lengths of requests."""
    prefills = role is Role.PREFILL
    if not prefills and rates.generation_tokens_per_second is not None and not rates.trusted:
        return Unknown("load", "the token counter moves in lumps, and too few requests finished")
    longest_first = sorted(others, key=lambda other: -other.window_seconds)
    lengths = [
        (window.mean_prompt_tokens, window.mean_output_tokens)
        for window in (rates, *longest_first)
        if window.mean_prompt_tokens is not None
        and (prefills or window.mean_output_tokens is not None)
    ]
    if not lengths:
        return Unknown("load", "no request finished yet, so their length is not known")
    prompt, output = lengths[0]
    running, busy = rates.running_mean, rates.busy_share
    load = Load(
        generation_tokens_per_second=rates.generation_tokens_per_second,
        prompt_tokens_per_second=rates.prompt_tokens_per_second,
        running=running,
        waiting=rates.waiting_mean,
        context_tokens=mean_context_tokens(prompt, output or 0.0),
        prompt_tokens=prompt,
        output_tokens=output,
        running_active=running / busy if running is not None and busy else None,
    )
    return per_replica(load, replicas)


def speculation_of(rates: Rates) -> Speculation:
    """Give what speculative decoding adds to a step; nothing where no draft was seen.

    A step emits the sequence's own token and the accepted ones [alpha], and verifies as many as
    were drafted and one more [q]. Drafts that are not told were at least the accepted ones. What
    the draft itself reads is not known, so small batches are expected 10 to 30 % too fast.
    """
    accepted, drafted = rates.tokens_per_draft, rates.drafted_tokens_per_draft
    if accepted is None:
        return NO_SPECULATION
    return Speculation(
        accepted_per_step=1.0 + accepted,
        verify_width=1.0 + (accepted if drafted is None else max(accepted, drafted)),
    )
