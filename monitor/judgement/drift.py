"""A slow loss of speed: a one-sided CUSUM over what this very server reaches when it is well.

Rules of this file (performance model, section 5):

1. Every `drift_every_seconds` the efficiency is noted; the mean of the last
   `drift_mean_seconds` gives x = -ln(mean), at most `drift_step_cap` either way, so that one
   pause trips nothing. A mean of fewer than half of its notes says nothing.
2. sum = max(0, sum + x - `drift_slack`), never more than 0.5 above `drift_threshold`, so that a
   server that recovered is soon rid of it.
3. Found from the threshold on, and given up at half of it. It is a ticket, never a page.
4. Times are wall clock: what was summed survives a restart. Time that was not seen adds nothing;
   a clock that was set back forgets the notes, not the sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from monitor.model import JudgementSettings

_ABOVE_THRESHOLD = 0.5
"""How far the sum may pass the threshold."""

_GIVEN_UP_RATIO = 0.5
_LEAST_EFFICIENCY = 1e-6


@dataclass(frozen=True, slots=True)
class Drift:
    """The sum, the notes of the last mean as (Unix seconds, efficiency), and since when found."""

    total: float = 0.0
    notes: tuple[tuple[float, float], ...] = ()
    noted_at: float | None = None
    found_since: float | None = None

    def found(self, settings: JudgementSettings) -> str | None:
        """The evidence in words; None: no drift."""
        if self.found_since is None:
            return None
        mean = sum(value for _, value in self.notes) / len(self.notes) if self.notes else None
        lately = "not known" if mean is None else f"{mean:.2f}"
        return (
            f"efficiency {lately} of this server's own usual over the last "
            f"{settings.drift_mean_seconds / 60.0:.0f} min; CUSUM {self.total:.1f} (found at "
            f"{settings.drift_threshold:.1f})"
        )


def drift_after(
    before: Drift, relative_efficiency: float | None, now_wall: float, settings: JudgementSettings
) -> Drift:
    """The drift after a tick. `relative_efficiency`: 1 is as usual; None: not judged now."""
    noted_at, notes = before.noted_at, before.notes
    if noted_at is not None and now_wall < noted_at:
        noted_at, notes = None, ()
    if noted_at is not None and now_wall - noted_at < settings.drift_every_seconds:
        return before
    oldest = now_wall - settings.drift_mean_seconds
    kept = tuple(note for note in notes if note[0] > oldest)
    if relative_efficiency is None:
        # Not judged: look again at the next tick.
        return Drift(before.total, kept, noted_at, before.found_since)
    kept = (*kept, (now_wall, relative_efficiency))
    total = before.total
    if 2.0 * len(kept) * settings.drift_every_seconds >= settings.drift_mean_seconds:
        mean = sum(value for _, value in kept) / len(kept)
        cap = settings.drift_step_cap
        step = min(cap, max(-cap, -math.log(max(mean, _LEAST_EFFICIENCY))))
        most = settings.drift_threshold + _ABOVE_THRESHOLD
        total = min(most, max(0.0, total + step - settings.drift_slack))
    return Drift(total, kept, now_wall, _found_since(before, total, now_wall, settings))


def _found_since(
    before: Drift, total: float, now_wall: float, settings: JudgementSettings
) -> float | None:
    if before.found_since is not None:
        given_up = total <= _GIVEN_UP_RATIO * settings.drift_threshold
        return None if given_up else before.found_since
    return now_wall if total >= settings.drift_threshold else None
