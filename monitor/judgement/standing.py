"""How a target's work stands to its floor, window by window: the shares that verdicts rest on.

Rules of this file:

1. Each window is judged by its own load alone. `share` is work over the floor; 1 is at it.
2. With enough work (saturated) the floor in force judges. Where that is the load model's, the
   share is the lesser of the two efficiencies over the floor's part of the expectation.
3. With less work only the load model judges, by the efficiency at the batch that runs, from
   `min_running` requests on: a step that takes too long is slow at any load.
4. A server that has enough work half of the time owes half of the floor (`share_of_time`).
5. Servers on one GPU share its time: their shares add up.
"""

from __future__ import annotations

from dataclasses import dataclass

from monitor.judgement.evidence import Evidence
from monitor.judgement.floor_share import figure, floor_share, pair
from monitor.judgement.saturation import Saturation, saturation
from monitor.model import Efficiency, Floor, FloorRule, JudgementSettings, Rates, Unknown


@dataclass(frozen=True, slots=True)
class Standing:
    """One window; `efficiency` is of that window.

    `share` None: there was not enough work to judge by, or `why` says what is not known. `floor`
    is the one that it is a share of.
    """

    load: Saturation
    efficiency: Efficiency
    floor: Floor | None = None
    share: float | None = None
    why: str | None = None

    @property
    def below(self) -> bool:
        """Whether the work is known to be below the floor."""
        return self.share is not None and self.share < 1.0


def standing(
    evidence: Evidence,
    rates: Rates,
    efficiency: Efficiency,
    others: float | None,
    waiting_share: float,
    settings: JudgementSettings,
) -> Standing:
    """How one window stands; `others`: the floor share of the servers on the same GPU."""
    load = saturation(rates, evidence.cap, waiting_share, settings)
    model = model_floor(evidence)
    if not load.holds:
        running = rates.running_mean or 0.0
        observed = efficiency.observed
        if load.holds is None or model is None or observed is None:
            return Standing(load, efficiency)
        if running < settings.min_running or _uncounted(rates):
            return Standing(load, efficiency)
        return _with_others(load, efficiency, model, observed / _part(evidence, model), 0.0)
    floor = evidence.floor
    if floor is not None and floor is model:
        if evidence.gpu_count is None:
            return Standing(load, efficiency, why=evidence.no_gpus_reason)
        if _uncounted(rates):
            return Standing(load, efficiency, why=f"the rate is not known ({rates.reason})")
        if evidence.still_seconds is None:
            return Standing(load, efficiency, why="the page tells no token counter")
        least = _least(efficiency)
        if least is None:
            return Standing(load, efficiency, why="the load model gives no efficiency now")
        return _with_others(load, efficiency, model, least / _part(evidence, model), others)
    share = floor_share(evidence, rates, settings)
    if isinstance(share, Unknown):
        return Standing(load, efficiency, why=share.reason)
    return _with_others(load, efficiency, floor, share / load.share_of_time, others)


def _with_others(
    load: Saturation,
    efficiency: Efficiency,
    floor: Floor | None,
    share: float,
    others: float | None,
) -> Standing:
    if others is None:
        return Standing(load, efficiency, floor, why="others")
    return Standing(load, efficiency, floor, share + others)


def model_floor(evidence: Evidence) -> Floor | None:
    """The load model's floor, where it may judge."""
    for floor in evidence.expectation.floors:
        if floor.rule is FloorRule.MODEL and floor.may_gate:
            return floor
    return None


def _part(evidence: Evidence, floor: Floor) -> float:
    """The efficiency at which the model's floor lies."""
    expected = evidence.expectation.expected_tokens_per_second
    return 1.0 if not expected else floor.tokens_per_second / expected


def _least(efficiency: Efficiency) -> float | None:
    known = [one for one in (efficiency.observed, efficiency.demand) if one is not None]
    return min(known, default=None)


def _uncounted(rates: Rates) -> bool:
    return rates.generation_tokens_per_second is None and rates.prompt_tokens_per_second is None


def shown(evidence: Evidence, rates: Rates, stands: Standing) -> str:
    """The figures behind a share: `485 of 875 tokens/s per GPU (0.55 of the fixed floor) ...`."""
    floor, share = stands.floor, stands.share
    assert floor is not None
    assert share is not None
    gpus = evidence.gpu_count or 1
    if stands.load.holds:
        measured = pair(rates.generation_tokens_per_second, gpus, floor.tokens_per_second)
        if floor.prompt_tokens_per_second is not None and evidence.role != "decode":
            prompt = pair(rates.prompt_tokens_per_second, gpus, floor.prompt_tokens_per_second)
            measured += f" generated and {prompt} prompt"
        part = f"{share:.2f} of the {floor.rule.value} floor"
    else:
        measured = figure((rates.generation_tokens_per_second or 0.0) / gpus)
        part = (
            f"{stands.efficiency.observed or 0.0:.2f} of what is expected at this load, "
            f"{share:.2f} of the {floor.rule.value} floor"
        )
    if evidence.shared_with:
        part += f" with {', '.join(evidence.shared_with)} on the same GPU"
    if stands.load.share_of_time < 0.995:
        part += f" for the {stands.load.share_of_time:.0%} of the time with a queue"
    return (
        f"{measured} tokens/s per GPU ({part}) over {rates.span_seconds:.0f} s, {stands.load.how}"
    )
