"""Which of several that do the same work falls behind: servers of one kind, replicas of one server.

Rules of this file (performance model, section 4.3):

1. Efficiencies over each one's own usual are compared, not tokens/s: load may differ.
2. A member is slow in a window when it lies further below the median than
   max(`straggler_deviations` x 1.4826 x MAD, `straggler_share` x median), and a straggler when it
   was slow in `straggler_windows` windows in a row. It stays one until a window in which it is
   not slow ends. One window alone is wrong in 0.5 to 4.6 % of cases, three in a row in 0.01 %.
3. Four are needed: of two or three nobody can tell which is the odd one.
4. A window's value is the mean of the ticks that told it; a member that told fewer than half of
   them is not compared, and its run of windows ends.
5. Time that was not seen (a gap of two windows, a clock that went back) begins everything anew.
6. The replicas of one server share its work: there the rates themselves are compared, over the
   short window, while there is work for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from monitor.judgement.calibration import percentile
from monitor.model import JudgementSettings, Rates

LEAST_MEMBERS = 4

NORMAL_DEVIATION = 1.4826
"""Standard deviation over median absolute deviation, of a normal distribution."""

_GAP_WINDOWS = 2.0


@dataclass(frozen=True, slots=True)
class Slow:
    """A member that was slow in the last `windows` windows; `evidence` is of the last of them."""

    windows: int
    evidence: str


@dataclass(frozen=True, slots=True)
class Straggling:
    """What is remembered of a group between two ticks. Times are monotonic seconds.

    `gathered`: member -> (ticks that told its efficiency, their sum), of the open window.
    """

    began_at: float | None = None
    seen_at: float = 0.0
    ticks: int = 0
    gathered: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    slow: Mapping[str, Slow] = field(default_factory=dict)


def compare(
    before: Straggling, members: Mapping[str, float], now: float, settings: JudgementSettings
) -> tuple[Straggling, Mapping[str, str]]:
    """What to remember, and the stragglers with the evidence in words.

    `members`: name, as people are to read it -> efficiency over its own usual now; those of whom
    it is not known are left out. `now`: monotonic seconds.
    """
    window = settings.straggler_window_seconds
    if before.began_at is None or not 0.0 <= now - before.seen_at <= _GAP_WINDOWS * window:
        before = Straggling(began_at=now)
    began, ticks, gathered, slow = before.began_at, before.ticks, before.gathered, before.slow
    assert began is not None
    if now - began >= window:
        slow = _slow(before, settings)
        began, ticks, gathered = now, 0, {}
    after = Straggling(began, now, ticks + 1, _with(gathered, members), slow)
    found = {
        name: f"{one.evidence}, for {one.windows} windows in a row"
        for name, one in slow.items()
        if one.windows >= settings.straggler_windows
    }
    return after, found


def why_not_compared(members: Collection[str]) -> str | None:
    """Why nobody of a group can be called a straggler; None where somebody can."""
    if len(members) >= LEAST_MEMBERS:
        return None
    return f"{len(members)} to compare: which is the odd one shows from {LEAST_MEMBERS} on"


def _with(
    gathered: Mapping[str, tuple[int, float]], members: Mapping[str, float]
) -> Mapping[str, tuple[int, float]]:
    together = dict(gathered)
    for name, efficiency in members.items():
        if math.isfinite(efficiency):
            ticks, total = together.get(name, (0, 0.0))
            together[name] = (ticks + 1, total + efficiency)
    return together


def _slow(window: Straggling, settings: JudgementSettings) -> Mapping[str, Slow]:
    """Who was slow in the window that ends, with the windows in a row."""
    means = {
        name: total / ticks
        for name, (ticks, total) in sorted(window.gathered.items())
        if 2 * ticks >= window.ticks
    }
    if len(means) < LEAST_MEMBERS:
        return {}
    median = percentile(tuple(means.values()), 0.5)
    deviation = percentile([abs(mean - median) for mean in means.values()], 0.5)
    allowed = max(
        settings.straggler_deviations * NORMAL_DEVIATION * deviation,
        settings.straggler_share * median,
    )
    minutes = settings.straggler_window_seconds / 60.0
    found = {}
    for name, mean in means.items():
        if median - mean > allowed:
            earlier = window.slow.get(name)
            evidence = (
                f"{name} has an efficiency of {mean:.2f}, the median of {len(means)} is "
                f"{median:.2f} (allowed {allowed:.2f} below it), over {minutes:g} min"
            )
            found[name] = Slow(1 if earlier is None else earlier.windows + 1, evidence)
    return found


def imbalance(
    rates: Rates, running: Mapping[str, float], settings: JudgementSettings
) -> str | None:
    """The replica that makes far more, or far fewer, tokens than the others do on average.

    Far: `imbalance_ratio` times. A group of two is compared as well: the slower one is named.
    `running`: replica -> its running requests now, where told; they show whether it is slow or
    has other work. None: no imbalance, or not enough work or pages to tell.
    """
    made = rates.replicas
    load = rates.running_mean
    if len(made) < 2 or not rates.complete or not rates.trusted:
        return None
    if load is None or load < settings.min_running * len(made):
        return None
    others = {name: (sum(made.values()) - made[name]) / (len(made) - 1) for name in made}
    odd = max(sorted(made), key=lambda name: (_times(made[name], others[name]), -made[name]))
    if _times(made[odd], others[odd]) <= settings.imbalance_ratio:
        return None
    told = (
        f"replica {odd} makes {made[odd]:.0f} tokens/s, "
        f"{_the_others(len(made) - 1)} {others[odd]:.0f}, over {rates.span_seconds:.0f} s"
    )
    beside = [count for name, count in running.items() if name != odd]
    if odd not in running or not beside:
        return told
    return f"{told}; it runs {running[odd]:.0f} requests now, {_mean_told(beside)}"


def _times(one: float, other: float) -> float:
    """How many times the lesser of two rates the greater one is; two of nothing are alike."""
    least, most = sorted((max(one, 0.0), max(other, 0.0)))
    if most == 0.0:
        return 1.0
    return math.inf if least == 0.0 else most / least


def _the_others(others: int) -> str:
    return "the other one" if others == 1 else f"the other {others} on average"


def _mean_told(counts: list[float]) -> str:
    return f"{_the_others(len(counts))} {sum(counts) / len(counts):.0f}"
