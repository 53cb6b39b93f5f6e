"""How long a below-floor alarm stays on: raised at once, given up slowly.

Rules of this file; each tick means one of these to the alarm (`Effect`):

- raise: it is on from now, or it stays with fresh figures;
- keep: what raised it is there, though not so as to raise it;
- well: at or above the clear margin, or not saturated: off after `clear_after_seconds` in a row;
- blind: not judged. It stays, for what is not seen may still be; but not for ever: after
  `long_window_seconds` nothing that raised it is within sight any more, and it goes off;
- floorless: there is no floor to be below, so off at once. But one that was recalled from before
  the daemon's start, with nothing judged since, is blind: what tells the floor (GPUs, server
  info) may still be to come;
- clear: off at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from monitor.model import JudgementSettings


class Effect(Enum):
    """What a tick means for a below-floor alarm."""

    RAISE = "raise"
    KEEP = "keep"
    WELL = "well"
    BLIND = "blind"
    FLOORLESS = "floorless"
    CLEAR = "clear"


@dataclass(frozen=True, slots=True)
class Raised:
    """A below-floor alarm that is on: since when, why, when last judged, since when well.

    `recalled`: it is from before the daemon's start, and nothing was judged since.
    """

    wall_seconds: float
    because: str
    judged_at: float
    well_since: float | None = None
    recalled: bool = False


def after(
    raised: Raised | None,
    effect: Effect,
    because: str,
    now: float,
    wall_seconds: float,
    settings: JudgementSettings,
) -> Raised | None:
    """The alarm after a tick at `now` (monotonic) that had this effect; None: it is off."""
    if effect is Effect.RAISE:
        since = wall_seconds if raised is None else raised.wall_seconds
        return Raised(since, because, now)
    if raised is None or effect is Effect.CLEAR:
        return None
    if effect is Effect.FLOORLESS and not raised.recalled:
        return None
    if effect in (Effect.BLIND, Effect.FLOORLESS):
        forgotten = now - raised.judged_at > settings.long_window_seconds
        return None if forgotten else replace(raised, well_since=None)
    if effect is Effect.KEEP:
        return replace(raised, judged_at=now, well_since=None, recalled=False)
    well_since = now if raised.well_since is None else raised.well_since
    if now - well_since >= settings.clear_after_seconds:
        return None
    return replace(raised, judged_at=now, well_since=well_since, recalled=False)
