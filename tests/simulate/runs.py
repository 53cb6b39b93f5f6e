"""The lives that are simulated, and what each rule made of them.

Rules of this file:

1. A life begins with `LEARNING_SECONDS` in which nothing pages. A seed is text: kind, load or
   fault, number; so that a life can be run again alone.
2. A false page is one in a healthy life. Pages a month are given with the upper end of the 95 %
   interval of a Poisson count (one-sided; 3.0 over the months where there was none).
3. A fault begins after the learning, and the rules have been running for an hour by then. The
   delay runs until the alarm goes on. An alarm that was on already finds nothing: it is counted
   apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from tests.simulate.rules import Key, compared, judge, swept
from tests.simulate.server import DAY, LOADS, Fault, simulate

LEARNING_SECONDS = 36.0 * 3600.0
SETTLING_SECONDS = 3600.0
SEARCH_SECONDS = 6.0 * 3600.0
MONTH_DAYS = 30.0

HEALTHY_LOADS = ("diurnal", "low", "mid", "saturated", "lumpy")


@dataclass(frozen=True, slots=True)
class FaultCase:
    """A fault under a load; `slower` and `cap` as in `Fault`."""

    name: str
    load: str
    slower: float = 1.0
    cap: int = 64


FAULTS = (
    FaultCase("2x slow, saturated", "saturated", slower=2.0),
    FaultCase("2x slow, mid", "mid", slower=2.0),
    FaultCase("2x slow, low", "low", slower=2.0),
    FaultCase("cap 64 to 16, queue", "saturated", cap=16),
    FaultCase("2x slow, lumpy saturated", "lumpy saturated", slower=2.0),
    FaultCase("1.33x slow, saturated", "saturated", slower=4.0 / 3.0),
)


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is simulated; of the healthy lives of a load `swept_lives` run the sweep too."""

    lives: int
    days: float
    swept_lives: int
    fault_lives: int

    @property
    def months(self) -> float:
        """Replica-months of each load."""
        return self.lives * self.days / MONTH_DAYS

    @property
    def swept_months(self) -> float:
        """Replica-months of each load under the sweep."""
        return self.swept_lives * self.days / MONTH_DAYS


FULL = Extent(lives=6, days=15.0, swept_lives=2, fault_lives=20)
QUICK = Extent(lives=1, days=3.0, swept_lives=1, fault_lives=4)


@dataclass(frozen=True, slots=True)
class Life:
    """One job: a healthy life of `days`, or one with a fault."""

    seed: str
    load: str
    days: float = 0.0
    fault: FaultCase | None = None
    sweep: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """What one rule made of one life: pages of a healthy one; seconds until a fault is found.

    `delay`: infinite where it was not found. `before`: the alarm was on when the fault began.
    """

    pages: int = 0
    delay: float = math.inf
    before: bool = False


def lives(extent: Extent) -> list[Life]:
    """Every life, the long ones first."""
    healthy = [
        Life(f"healthy/{load}/{number}", load, extent.days, sweep=number < extent.swept_lives)
        for number in range(extent.lives)
        for load in HEALTHY_LOADS
    ]
    faulty = [
        Life(f"{fault.name}/{number}", fault.load, fault=fault, sweep=True)
        for fault in FAULTS
        for number in range(extent.fault_lives)
    ]
    return healthy + faulty


def live(life: Life) -> dict[Key, Found]:
    """Simulate one life and judge it."""
    load, case = LOADS[life.load], life.fault
    rules = compared() + (swept() if life.sweep else [])
    if case is None:
        series = simulate(load, LEARNING_SECONDS + life.days * DAY, life.seed)
        outcomes = judge(series, load, rules, LEARNING_SECONDS)
        return {key: Found(pages=len(outcome.spans)) for key, outcome in outcomes.items()}
    at = LEARNING_SECONDS + SETTLING_SECONDS
    fault = Fault(case.name, at, case.slower, case.cap)
    series = simulate(load, at + SEARCH_SECONDS, life.seed, fault)
    outcomes = judge(series, load, rules, LEARNING_SECONDS, learn_until=at)
    return {
        key: Found(delay=outcome.first_on(at) - at, before=outcome.on_at(at))
        for key, outcome in outcomes.items()
    }


class Results:
    """What all lives gave, by rule and by load or fault."""

    def __init__(self, extent: Extent) -> None:
        self.extent = extent
        self._found: dict[tuple[Key, str], list[Found]] = {}

    def add(self, life: Life, found: dict[Key, Found]) -> None:
        """Note one life."""
        where = life.load if life.fault is None else life.fault.name
        for key, one in found.items():
            self._found.setdefault((key, where), []).append(one)

    def pages(self, key: Key, load: str) -> int:
        """False pages under a healthy load."""
        return sum(one.pages for one in self._found[key, load])

    def all_pages(self, key: Key) -> int:
        """False pages under all loads."""
        return sum(self.pages(key, load) for load in HEALTHY_LOADS)

    def weeks(self, key: Key, load: str) -> float:
        """Replica-weeks under a healthy load."""
        return len(self._found[key, load]) * self.extent.days / 7.0

    def pages_a_week(self, key: Key, load: str | None = None) -> float:
        """False pages a replica-week under one load, or under all."""
        loads = HEALTHY_LOADS if load is None else (load,)
        pages = sum(self.pages(key, one) for one in loads)
        return pages / sum(self.weeks(key, one) for one in loads)

    def before(self, key: Key, fault: FaultCase) -> int:
        """Lives in which the alarm was on before the fault."""
        return sum(one.before for one in self._found[key, fault.name])

    def delays(self, key: Key, fault: FaultCase) -> list[float]:
        """Seconds until the fault was found, ascending; lives with the alarm on are left out."""
        return sorted(one.delay for one in self._found[key, fault.name] if not one.before)


def run(extent: Extent, processes: int) -> Results:
    """Simulate all lives."""
    results = Results(extent)
    every = lives(extent)
    with ProcessPoolExecutor(processes) as pool:
        for life, found in zip(every, pool.map(live, every), strict=True):
            results.add(life, found)
    return results


def median(ranked: Sequence[float]) -> float:
    """The middle of ascending values (the later one of two); infinite where there are none."""
    return ranked[len(ranked) // 2] if ranked else math.inf


def poisson_upper(count: int) -> float:
    """The mean under which so few events have a chance of 5 %: 3.00 for none, 4.74 for one."""
    low, high = 0.0, 20.0 + 3.0 * count
    for _ in range(60):
        mean = (low + high) / 2.0
        term = total = math.exp(-mean)
        for number in range(1, count + 1):
            term *= mean / number
            total += term
        low, high = (mean, high) if total > 0.05 else (low, mean)
    return high
