"""What being below the floor costs, and when the work that is left will be done.

Rules of this file (pure; rates are tokens per second of the whole server):

1. The yardstick is what is expected of the server; where no expectation is known, its floor,
   which counts less than was lost. `yardstick_of` says which of the two it is.
2. A tick counts only while the alarm condition holds, only with a rate that was measured, and
   only for time that was watched: after a gap longer than `no_data_seconds` nothing is guessed.
3. Lost tokens are (yardstick - made) x seconds; lost GPU-seconds are
   GPUs x seconds x (1 - made / yardstick): the GPU time that the yardstick would have saved.
4. The backlog is the operator's figure less what was made since it was first seen, else
   waiting x mean output + running x mean output / 2: who runs is half done on average.
   What is not known stays None: a floor is no pace that is expected.
"""

from __future__ import annotations

from dataclasses import dataclass

from monitor.model import Cost

HALF_DONE = 0.5
"""The part of its output that a running request has left on average."""


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What the server should make, and how that is known: `expectation` or `floor`."""

    tokens_per_second: float
    known_by: str


@dataclass(frozen=True, slots=True)
class Backlog:
    """The operator's `backlog_tokens` counted down.

    `given_tokens`: the figure; `made_tokens`: generated since it was first seen;
    `counted_tokens`: the target's total at the last tick, None before it was known.
    """

    given_tokens: float | None = None
    made_tokens: float = 0.0
    counted_tokens: float | None = None

    @property
    def left_tokens(self) -> float | None:
        """What is left of it, never below 0; None: no figure was given."""
        if self.given_tokens is None:
            return None
        return max(0.0, self.given_tokens - self.made_tokens)


def yardstick_of(
    expected_tokens_per_second: float | None, floor_tokens_per_second: float | None
) -> Yardstick | None:
    """What the shortfall is measured against; None: neither is known."""
    for rate, known_by in (
        (expected_tokens_per_second, "expectation"),
        (floor_tokens_per_second, "floor"),
    ):
        if rate is not None and rate > 0.0:
            return Yardstick(rate, known_by)
    return None


def backlog_after(
    before: Backlog, given_tokens: float | None, generated_total: float | None
) -> Backlog:
    """The operator's backlog after a tick.

    `generated_total`: tokens generated since the daemon began to watch; None: not known now.
    Another figure begins anew. A total that falls began at 0 (the daemon started anew), so all
    of it is new; what was made while no daemon ran is not counted.
    """
    if given_tokens is None:
        return Backlog()
    if given_tokens != before.given_tokens:
        return Backlog(given_tokens, 0.0, generated_total)
    if generated_total is None:
        return before
    new = 0.0 if before.counted_tokens is None else generated_total - before.counted_tokens
    made = generated_total if new < 0.0 else new
    return Backlog(given_tokens, before.made_tokens + made, generated_total)


def queue_tokens(
    requests_waiting: float | None,
    requests_running: float | None,
    mean_output_tokens: float | None,
) -> float | None:
    """Tokens that the requests in the server still ask for; None: load or length not known."""
    if requests_waiting is None or requests_running is None or mean_output_tokens is None:
        return None
    return (requests_waiting + HALF_DONE * requests_running) * mean_output_tokens


def cost_after(
    before: Cost,
    *,
    below_floor: bool,
    expected_tokens_per_second: float | None,
    floor_tokens_per_second: float | None,
    made_tokens_per_second: float | None,
    gpus: int | None,
    seconds: float | None,
    no_data_seconds: float,
    backlog_tokens: float | None,
) -> Cost:
    """The cost after a tick.

    `below_floor`: the alarm condition holds. `made_tokens_per_second`: of the main window, None
    when not known. `seconds`: since the last tick, None at the first one. `backlog_tokens`: what
    is left to do (`Backlog.left_tokens`, else `queue_tokens`).
    """
    yardstick = yardstick_of(expected_tokens_per_second, floor_tokens_per_second)
    made = made_tokens_per_second
    lost_tokens, lost_gpu_seconds = before.lost_tokens, before.lost_gpu_seconds
    counts = below_floor and seconds is not None and 0.0 < seconds <= no_data_seconds
    if counts and seconds and yardstick is not None and made is not None:
        missing = max(0.0, yardstick.tokens_per_second - made)
        lost_tokens += missing * seconds
        lost_gpu_seconds += (gpus or 0) * seconds * missing / yardstick.tokens_per_second
    return Cost(
        lost_tokens=lost_tokens,
        lost_gpu_seconds=lost_gpu_seconds,
        backlog_tokens=backlog_tokens,
        finish_seconds_now=_finish(backlog_tokens, made),
        finish_seconds_expected=_finish(backlog_tokens, expected_tokens_per_second),
    )


def in_words(cost: Cost) -> str | None:
    """What the fault cost so far, and when the work that is left will be done; None: nothing yet.

    Counted since the state was begun, over every fault of this target.
    """
    if cost.lost_gpu_seconds < 1.0:
        return None
    told = f"{cost.lost_tokens:.0f} tokens lost so far ({cost.lost_gpu_seconds:.0f} GPU-seconds)"
    now, expected = cost.finish_seconds_now, cost.finish_seconds_expected
    if cost.backlog_tokens and now is not None and expected is not None:
        told += (
            f"; {cost.backlog_tokens:.0f} tokens left take {now:.0f} s at this rate, "
            f"{expected:.0f} s as expected"
        )
    return told


def _finish(backlog_tokens: float | None, tokens_per_second: float | None) -> float | None:
    """How long the backlog takes; None: not known, or never at this rate."""
    if backlog_tokens is None:
        return None
    if backlog_tokens == 0.0:
        return 0.0
    return backlog_tokens / tokens_per_second if tokens_per_second else None
