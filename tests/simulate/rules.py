"""The rules that are compared, run over a simulated life by the product's own functions.

Rules of this file:

1. A tick every `TICK` seconds (the product: every second, so it is up to `TICK` sooner). Alarms
   go on and off by `hysteresis.after`; a page is an alarm that goes on. While no token moves
   nothing is raised: that is the business of `stalled`.
2. Three expectations: exact and 30 % too high with nothing learned (floor 0.5 of it), and
   learned by the product's `learn` (floor 0.6 of it). A model error within the bounds is gone
   once it is learned, so one learned expectation stands for both.
3. The product's rules are `timing.raises` and `drift.drift_after`. The others are what they are
   compared with: `naive` (under 500 tokens/s over 5 min) and `single` (one 5-min window below).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from monitor.judgement.drift import Drift, drift_after
from monitor.judgement.hysteresis import Effect, Raised, after
from monitor.judgement.learning import Learned, Lesson, learn
from monitor.judgement.timing import Look, Span, Watched, raises
from monitor.model import Instant, JudgementSettings
from tests.simulate.server import STEP, Load, Series
from tests.simulate.windows import Window, window

TICK = 15.0
LESSON_SECONDS = 60.0
NAIVE_TOKENS_PER_SECOND = 500.0
NEVER = math.inf
"""Never reached: as `fast_shortfall` it switches the fast rule off, as time the slow one."""

CHOSEN = replace(JudgementSettings(), fast_step_cap=0.2, fast_shortfall=0.4, slow_for_seconds=600.0)
"""The settings that the simulation found; `RESULTS.md` says why."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What the server is held against. `too_high`: expected over true."""

    name: str
    too_high: float = 1.0
    learned: bool = False

    def divisor(self, kappa: float | None, settings: JudgementSettings) -> float:
        """What an exact efficiency is divided by to give a share of the floor."""
        if not self.learned or kappa is None:
            return self.too_high * settings.floor_share
        return kappa * settings.floor_share_calibrated


EXACT = Expected("exact, not learned")
TOO_HIGH = Expected("30 % too high, not learned", too_high=1.3)
LEARNED = Expected("learned", learned=True)
EXPECTED = (EXACT, TOO_HIGH, LEARNED)


@dataclass(frozen=True, slots=True)
class Tick:
    """The windows of one tick. `kappa`: what was learned so far; None: not enough hours yet."""

    now: float
    main: Window
    short: Window
    long: Window
    moved: bool
    kappa: float | None


class Rule:
    """A rule under one expectation: whether it raises at a tick."""

    def __init__(self, name: str, expected: Expected, settings: JudgementSettings) -> None:
        self.name, self.expected, self.settings = name, expected, settings

    def raises(self, tick: Tick) -> bool:
        raise NotImplementedError

    def share(self, of: Window, tick: Tick) -> float | None:
        """The share of the floor over a window."""
        if of.efficiency is None:
            return None
        return of.efficiency / self.expected.divisor(tick.kappa, self.settings)


class Naive(Rule):
    """Fewer tokens/s than a fixed number over the short window, whatever the load."""

    def raises(self, tick: Tick) -> bool:
        return tick.short.tokens_per_second < NAIVE_TOKENS_PER_SECOND


class Single(Rule):
    """The short window alone."""

    def raises(self, tick: Tick) -> bool:
        share = self.share(tick.short, tick)
        return tick.moved and share is not None and share < 1.0


class Timed(Rule):
    """The product's `timing.raises`: its two rules, or one where the other is switched off."""

    def __init__(self, name: str, expected: Expected, settings: JudgementSettings) -> None:
        super().__init__(name, expected, settings)
        self._watched = Watched()

    def raises(self, tick: Tick) -> bool:
        look = Look(
            main=Span(self.share(tick.main, tick), tick.main.moving_share),
            short=Span(self.share(tick.short, tick), tick.short.moving_share),
            long=Span(self.share(tick.long, tick), tick.long.moving_share),
            moved=tick.moved,
        )
        self._watched, rule = raises(self._watched, look, tick.now, self.settings)
        return rule is not None


class Cusum(Rule):
    """The product's `drift_after` on the short window's efficiency over what was learned.

    As in the product (`monitor/consequences.py`) it looks only while the verdict is a good one or
    the page is out, and from three running requests on.
    """

    def __init__(self, name: str, expected: Expected, settings: JudgementSettings) -> None:
        super().__init__(name, expected, settings)
        self._drift = Drift()
        self._page = Timed(name, expected, settings)
        self._paged: Raised | None = None

    def raises(self, tick: Tick) -> bool:
        page, now, settings = self._page, tick.now, self.settings
        effect = _effect(page, tick, raised=page.raises(tick))
        self._paged = after(self._paged, effect, "", now, now, settings)
        efficiency, share = tick.short.efficiency, self.share(tick.short, tick)
        told = share is not None and (share >= 1.0 or self._paged is not None)
        relative = None
        if told and efficiency and tick.kappa and tick.short.running >= settings.min_running:
            relative = efficiency / tick.kappa
        self._drift = drift_after(self._drift, relative, now, settings)
        return self._drift.found_since is not None


def timed(
    name: str,
    expected: Expected,
    fast_shortfall: float,
    slow_for_seconds: float,
    fast_step_cap: float = CHOSEN.fast_step_cap,
) -> Timed:
    """The product's timing with these settings."""
    settings = replace(
        CHOSEN,
        fast_step_cap=fast_step_cap,
        fast_shortfall=fast_shortfall,
        slow_for_seconds=slow_for_seconds,
    )
    return Timed(name, expected, settings)


NAIVE, SINGLE, TWO_WINDOWS = "naive: 500 tokens/s, 5 min", "single 5 min", "5 min and 1 h"
CHOSEN_NAME, CUSUM = "chosen", "drift CUSUM (ticket)"


def compared() -> list[Rule]:
    """Every rule of the table under every expectation that it knows."""
    rules: list[Rule] = [Naive(NAIVE, EXACT, CHOSEN)]
    rules.extend(Single(SINGLE, expected, CHOSEN) for expected in EXPECTED)
    rules.extend(timed(TWO_WINDOWS, expected, NEVER, 0.0) for expected in EXPECTED)
    rules.append(Cusum(CUSUM, LEARNED, CHOSEN))
    rules.extend(Timed(CHOSEN_NAME, expected, CHOSEN) for expected in EXPECTED)
    return rules


FAST_SHORTFALLS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
FAST_STEP_CAPS = (0.1, 0.3)
SLOW_SECONDS = (0.0, 300.0, 600.0, 900.0)


def fast_name(shortfall: float, step_cap: float = CHOSEN.fast_step_cap) -> str:
    """The fast rule alone, in words."""
    return f"fast alone, cap {step_cap:g}, shortfall {shortfall:g}"


def slow_name(seconds: float) -> str:
    """The slow rule alone, in words."""
    return f"slow alone, for {seconds:g} s"


def swept() -> list[Rule]:
    """The product's two rules, each alone, over a range of its setting."""
    rules: list[Rule] = []
    for expected in (TOO_HIGH, LEARNED):
        rules += [timed(fast_name(h), expected, h, NEVER) for h in FAST_SHORTFALLS]
        for cap in FAST_STEP_CAPS:
            h = CHOSEN.fast_shortfall
            rules.append(timed(fast_name(h, cap), expected, h, NEVER, cap))
        rules += [timed(slow_name(seconds), expected, NEVER, seconds) for seconds in SLOW_SECONDS]
    return rules


Key = tuple[str, str]
"""The names of a rule and of its expectation."""


@dataclass(slots=True)
class Outcome:
    """When a rule's alarm was on: pairs of seconds; the end of the last may be `NEVER`."""

    spans: list[tuple[float, float]] = field(default_factory=list)

    def on_at(self, seconds: float) -> bool:
        """Whether the alarm was on then."""
        return any(begin <= seconds < end for begin, end in self.spans)

    def first_on(self, seconds: float) -> float:
        """When it was raised for the first time after that; `NEVER`: it was not."""
        return min((begin for begin, _ in self.spans if begin > seconds), default=NEVER)


def judge(
    series: Series, load: Load, rules: Sequence[Rule], begin: float, learn_until: float = NEVER
) -> Mapping[Key, Outcome]:
    """Run the rules from `begin` on; what is usual is learned from the hours before and since.

    `begin` leaves time to learn 24 hours of load. After `learn_until` nothing more is learned.
    """
    outcomes = {(rule.name, rule.expected.name): Outcome() for rule in rules}
    raised: list[Raised | None] = [None] * len(rules)
    for tick in _ticks(series, load, begin, learn_until):
        for at, rule in enumerate(rules):
            before, spans = raised[at], outcomes[rule.name, rule.expected.name].spans
            effect = _effect(rule, tick, raised=rule.raises(tick))
            raised[at] = after(before, effect, "", tick.now, tick.now, rule.settings)
            if before is None and raised[at] is not None:
                spans.append((tick.now, NEVER))
            elif before is not None and raised[at] is None:
                spans[-1] = (spans[-1][0], tick.now)
    return outcomes


def _ticks(series: Series, load: Load, begin: float, learn_until: float) -> Iterator[Tick]:
    learned, settings, every = Learned(), CHOSEN, round(TICK / STEP)
    lookback = round(settings.long_window_seconds / STEP)
    for end in range(lookback, len(series.tokens), every):
        now = end * STEP
        if now < begin and now % LESSON_SECONDS:
            continue
        tick = _tick(series, load, end, learned.calibration(settings))
        if now <= learn_until and not now % LESSON_SECONDS:
            learned = learn(learned, _lesson(tick, settings), Instant(now, now), settings)
        if now >= begin:
            yield tick


def _lesson(tick: Tick, settings: JudgementSettings) -> Lesson:
    """As the product is taught: only while it is judged and not below its floor."""
    short = tick.short
    floor = LEARNED.divisor(tick.kappa, settings)
    well = tick.moved and short.efficiency is not None and short.efficiency >= floor
    return Lesson("simulated", well, short.observed, short.running)


def _tick(series: Series, load: Load, end: int, kappa: float | None) -> Tick:
    def over(seconds: float, waiting_share: float) -> Window:
        return window(series, load, end, seconds, waiting_share, CHOSEN)

    return Tick(
        now=end * STEP,
        main=over(CHOSEN.main_window_seconds, CHOSEN.waiting_share_short),
        short=over(CHOSEN.short_window_seconds, CHOSEN.waiting_share_short),
        long=over(CHOSEN.long_window_seconds, CHOSEN.waiting_share_long),
        moved=series.tokens[end] > series.tokens[end - 1],
        kappa=kappa,
    )


def _effect(rule: Rule, tick: Tick, *, raised: bool) -> Effect:
    if raised:
        return Effect.RAISE
    if isinstance(rule, Naive):
        return Effect.WELL
    if isinstance(rule, Cusum):
        return Effect.CLEAR
    if not tick.moved:
        return Effect.KEEP
    share = rule.share(tick.short, tick)
    margin = rule.settings.clear_margin_ratio if tick.short.saturated else 0.0
    well = share is None or share >= 1.0 + margin
    return Effect.WELL if well else Effect.KEEP
