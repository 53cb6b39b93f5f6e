"""What a window of the simulated page says: efficiencies, saturation, shares of the floor.

Rules of this file:

1. The formulas are the product's: E_obs = R_p p + R_g/B t(B), X = 1/(t(D)/D + R_p/R_g p) with
   D = min(B + W, 64), E_dem = R_g/X (`monitor/expectation/load_model.py`).
2. What judges is the product's too (`monitor/judgement/standing.py`): E_obs alone from three
   running requests on, the lesser of the two where requests wait for more of the window than
   asked. The cap is not told, so that running at it does not count as enough work.
3. A lumpy counter needs 100 finished requests, and its page cannot tell for how long it moved.
"""

from __future__ import annotations

from dataclasses import dataclass

from monitor.model import JudgementSettings
from tests.simulate.server import BATCH, PROMPT_SECONDS, STEP, Load, Series, step_seconds


@dataclass(frozen=True, slots=True)
class Window:
    """The means of a window and its efficiency, the expectation being exact.

    `efficiency`: None where it is not judged. `observed`: E_obs alone, for learning.
    """

    tokens_per_second: float
    running: float
    moving_share: float | None
    efficiency: float | None = None
    observed: float | None = None
    saturated: bool = False


def window(
    series: Series,
    load: Load,
    end: int,
    seconds: float,
    waiting_share: float,
    settings: JudgementSettings,
) -> Window:
    """The window of so many seconds that ends after step `end`."""
    steps = round(seconds / STEP)
    begin = end - steps
    rate = (series.tokens[end] - series.tokens[begin]) / seconds
    running = (series.running[end] - series.running[begin]) / steps
    moving = None if load.lumpy else (series.moving[end] - series.moving[begin]) / seconds
    finished = series.finished[end] - series.finished[begin]
    if running <= 0.0 or (load.lumpy and finished < settings.min_completions):
        return Window(rate, running, moving)
    prefill = (series.prompts[end] - series.prompts[begin]) / seconds * PROMPT_SECONDS
    observed = prefill + rate / running * step_seconds(running)
    efficiency = observed if running >= settings.min_running else None
    saturated = (series.queued[end] - series.queued[begin]) / seconds > waiting_share
    if saturated:
        waiting = (series.waiting[end] - series.waiting[begin]) / steps
        demand = min(running + waiting, BATCH)
        efficiency = min(observed, rate * step_seconds(demand) / demand + prefill)
    return Window(rate, running, moving, efficiency, observed, saturated)
