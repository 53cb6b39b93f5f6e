"""When being below the floor becomes an alarm: two rules, either of which raises it.

Rules of this file:

1. Fast: how far below, times how long. Twice a main window that window's share of the floor is
   looked at, and -ln(share), at most `fast_step_cap` either way, is added for each main window
   (a minute) that went by; the sum is never below 0. From `fast_shortfall` on the alarm is
   raised, if the newest look was below. So 18 % below the floor or worse raises after two
   minutes, 10 % below after four, and one bad minute raises nothing.
2. A window in which tokens stood still for more than a little while (`min_moving_share`) is
   not looked at: a pause is no slowness. After eight main windows without a look the sum is
   forgotten.
3. Slow: the short and the long window are both below, at every tick of `slow_for_seconds`.
   Pauses count here: it finds the server that pauses again and again, and it is the only rule
   where a pause cannot be told (a counter that moves when requests finish).
4. Either raises only while tokens move: a server that makes none is idle or stalled.

The settings are those that a simulation found (`tests/simulate/RESULTS.md`): how many false
alarms each choice costs and how soon it finds each fault. The fast rule is a one-sided CUSUM
(Page 1954): for a change of known size nothing that cries as seldom is sooner.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from monitor.model import JudgementSettings

_LOOKS_A_WINDOW = 2.0
_FORGOTTEN_WINDOWS = 8.0
_LEAST_SHARE = 1e-6
_ROUNDING = 1e-9
"""Sums of equal steps may fall short of the threshold by so much."""


class TimingRule(StrEnum):
    """Which rule raised the alarm."""

    FAST = "fast"
    SLOW = "slow"


@dataclass(frozen=True, slots=True)
class Span:
    """What one window says.

    `share`: work over the floor, of the time in which there was enough work; 1 is at the floor.
    None: the window is not judged (not complete, not enough work, not known). It must rest on
    this window's own load. `moving_share`: the share of the window in which tokens kept coming;
    None: not told.
    """

    share: float | None = None
    moving_share: float | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """What is seen at one tick. `moved`: the last page counted more tokens than the one before."""

    main: Span
    short: Span
    long: Span
    moved: bool


@dataclass(frozen=True, slots=True)
class Watched:
    """What is remembered between two ticks. Times are monotonic seconds.

    `shortfall`: the fast rule's sum; `looked_at`, `was_below`: its newest look. `agreed_since`:
    since when the short and the long window are both below.
    """

    shortfall: float = 0.0
    looked_at: float | None = None
    was_below: bool = False
    agreed_since: float | None = None


def raises(
    before: Watched, look: Look, now: float, settings: JudgementSettings
) -> tuple[Watched, TimingRule | None]:
    """What to remember, and the rule by which the alarm is raised now; None: by neither."""
    agreed_since = None
    if _below(look.short.share) and _below(look.long.share):
        agreed_since = now if before.agreed_since is None else before.agreed_since
    watched = _looked(before, look.main, now, agreed_since, settings)
    if not look.moved:
        return watched, None
    if watched.was_below and watched.shortfall >= settings.fast_shortfall - _ROUNDING:
        return watched, TimingRule.FAST
    if agreed_since is not None and now - agreed_since >= settings.slow_for_seconds:
        return watched, TimingRule.SLOW
    return watched, None


def _below(share: float | None) -> bool:
    return share is not None and share < 1.0


def _looked(
    before: Watched,
    main: Span,
    now: float,
    agreed_since: float | None,
    settings: JudgementSettings,
) -> Watched:
    """The fast rule's sum after this tick; a tick between two looks leaves it as it is."""
    window, last, shortfall = settings.main_window_seconds, before.looked_at, before.shortfall
    if last is not None and now - last > _FORGOTTEN_WINDOWS * window:
        last, shortfall = None, 0.0
    if last is not None and now - last < window / _LOOKS_A_WINDOW:
        return Watched(shortfall, last, before.was_below, agreed_since)
    share, moving = main.share, main.moving_share
    if share is None or not moving or moving < settings.min_moving_share:
        return Watched(shortfall, last, before.was_below and last is not None, agreed_since)
    share /= moving
    windows = 1.0 / _LOOKS_A_WINDOW if last is None else min(1.0, (now - last) / window)
    cap = settings.fast_step_cap
    step = min(cap, max(-cap, -math.log(max(share, _LEAST_SHARE))))
    shortfall = min(settings.fast_shortfall, max(0.0, shortfall + step * windows))
    return Watched(shortfall, now, share < 1.0, agreed_since)
