"""One replica of a server, simulated: requests in, tokens out, and what its page tells.

Rules of this file:

1. 27B in bf16 on a 96 GB card, at most 64 running: a step of B requests takes
   36.3 + 0.2715 B ms (1000 tokens of context: 51.248 GB of weights and 0.3734 GB a request over
   0.9 of 1.792 TB/s, 4.48 ms of launches, 0.04 ms a request), a prompt token 1/5200 s.
2. Requests come at random (Poisson); 500 prompt and 500 generated tokens in the mean; answers
   end at random, so that their lengths vary (cv 1 for the batch, 0.9 in a lumpy counter).
3. Time goes in steps of `STEP` seconds. Admission first (prefill), then decoding.
4. Noise, all of it at once: pauses of 20 to 360 s, 12 a day, in which requests pile up; a
   drift of the speed by +-15 % over 10 to 40 h; 5 % of fast noise; a gauge of running requests
   that is 15 % off, correlated over a minute.
5. A fault is a change of speed or of the cap from one moment on.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

STEP = 5.0
DAY = 86400.0
BATCH = 64
MEAN_TOKENS = 500.0
LENGTH_SPREAD = 0.9
PROMPT_SECONDS = 1.0 / 5200.0
PAUSES_A_DAY = 12
PAUSE_SECONDS = (20.0, 360.0)
DRIFT = 0.15
DRIFT_HOURS = (10.0, 40.0)
SPEED_NOISE, GAUGE_NOISE, NOISE_SECONDS = 0.05, 0.15, 60.0


def step_seconds(batch: float) -> float:
    """Seconds of one decoding step (rule 1)."""
    return 0.03625556 + 0.0002715 * batch


CAPACITY = 1.0 / (MEAN_TOKENS * (step_seconds(BATCH) / BATCH + PROMPT_SECONDS))
"""Requests a second that the server can serve: 1.94."""


@dataclass(frozen=True, slots=True)
class Load:
    """Demand over capacity, as a function of seconds. `lumpy`: tokens counted at a request's end."""

    name: str
    at: Callable[[float], float]
    lumpy: bool = False


def _diurnal(seconds: float) -> float:
    return 0.6 - 0.55 * math.cos(2.0 * math.pi * seconds / DAY)


LOADS = {
    load.name: load
    for load in (
        Load("diurnal", _diurnal),
        Load("low", lambda _: 0.12),
        Load("mid", lambda _: 0.5),
        Load("saturated", lambda _: 1.3),
        Load("lumpy", _diurnal, lumpy=True),
        Load("lumpy saturated", lambda _: 1.3, lumpy=True),
    )
}


@dataclass(frozen=True, slots=True)
class Fault:
    """From `at` seconds on the speed is divided by `slower` and at most `cap` requests run."""

    name: str
    at: float
    slower: float = 1.0
    cap: int = BATCH


@dataclass(frozen=True, slots=True)
class Series:
    """Running sums, one a step, beginning with 0: what a window is the difference of."""

    tokens: array[float]
    prompts: array[float]
    running: array[float]
    waiting: array[float]
    queued: array[float]
    """Seconds with somebody waiting."""
    moving: array[float]
    """Seconds in which tokens came."""
    finished: array[float]
    pauses: tuple[float, ...]
    """Seconds of each pause."""


def poisson(random: Random, mean: float) -> int:
    """A Poisson number; a normal one where the mean is large."""
    if mean > 12.0:
        return max(0, round(random.gauss(mean, math.sqrt(mean))))
    count, product, least = 0, random.random(), math.exp(-mean)
    while product > least:
        count += 1
        product *= random.random()
    return count


class _Noise:
    """Noise that is correlated over `NOISE_SECONDS` (AR(1))."""

    def __init__(self, random: Random, spread: float) -> None:
        self._gauss = random.gauss
        self._keep = math.exp(-STEP / NOISE_SECONDS)
        self._fresh = spread * math.sqrt(1.0 - self._keep * self._keep)
        self._value = 0.0

    def factor(self) -> float:
        self._value = self._keep * self._value + self._gauss(0.0, self._fresh)
        return math.exp(self._value)


class _Replica:
    """The state of a server between two steps."""

    def __init__(self, load: Load, random: Random, fault: Fault | None) -> None:
        self.load, self.random, self.fault = load, random, fault
        self.run = self.wait = 0
        self.pause_left = 0.0
        self.pauses: list[float] = []
        self.speed_noise = _Noise(random, SPEED_NOISE)
        self.gauge_noise = _Noise(random, GAUGE_NOISE)
        self.phase = random.uniform(0.0, 2.0 * math.pi)
        self.turn = 2.0 * math.pi / (random.uniform(*DRIFT_HOURS) * 3600.0)

    def step(self, now: float) -> tuple[float, float, float, float, float]:
        """Tokens, prompt tokens, running as told, seconds in which it moved, requests finished."""
        self.wait += poisson(self.random, self.load.at(now) * CAPACITY * STEP)
        gauge, noise = self.gauge_noise.factor(), self.speed_noise.factor()
        if self._pauses():
            return 0.0, 0.0, self.run * gauge, 0.0, 0.0
        fault = self.fault if self.fault is not None and now >= self.fault.at else None
        speed = noise * (1.0 + DRIFT * math.sin(self.phase + self.turn * now))
        cap = BATCH
        if fault is not None:
            speed, cap = speed / fault.slower, fault.cap
        each = MEAN_TOKENS * PROMPT_SECONDS / speed
        admitted = max(0, min(self.wait, cap - self.run, int(STEP / each)))
        self.wait -= admitted
        self.run += admitted
        made = self.run * (STEP - admitted * each) * speed / step_seconds(self.run)
        ended = min(self.run, poisson(self.random, made / MEAN_TOKENS))
        told = self.run * gauge
        self.run -= ended
        prompts = MEAN_TOKENS * (ended if self.load.lumpy else admitted)
        if self.load.lumpy:
            spread = LENGTH_SPREAD * MEAN_TOKENS * math.sqrt(ended)
            made = max(0.0, self.random.gauss(MEAN_TOKENS * ended, spread))
        return made, prompts, told, STEP, float(ended)

    def _pauses(self) -> bool:
        if self.pause_left <= 0.0:
            if self.random.random() >= PAUSES_A_DAY * STEP / DAY:
                return False
            self.pauses.append(self.random.uniform(*PAUSE_SECONDS))
            self.pause_left = self.pauses[-1]
        self.pause_left -= STEP
        return True


def simulate(load: Load, seconds: float, seed: str, fault: Fault | None = None) -> Series:
    """A replica's life of that many seconds; the same seed gives the same life."""
    replica = _Replica(load, Random(seed), fault)
    columns = [array("d", [0.0]) for _ in range(7)]
    sums = [0.0] * 7
    for number in range(round(seconds / STEP)):
        made, prompted, told, moved, ended = replica.step(number * STEP)
        wait = replica.wait
        amounts = (made, prompted, told, float(wait), STEP if wait else 0.0, moved, ended)
        for at, amount in enumerate(amounts):
            sums[at] += amount
            columns[at].append(sums[at])
    tokens, prompts, running, waiting, queued, moving, finished = columns
    return Series(
        tokens, prompts, running, waiting, queued, moving, finished, tuple(replica.pauses)
    )
