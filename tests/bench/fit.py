"""Fit the constants of the overlapped step anew: `python -m tests.bench.fit`.

Coordinate descent from a fixed start (nothing random, nothing beyond the standard library) on
the squared ln(measured/expected) of the healthy rows. Each source is weighted by 1/sqrt(its
rows), since rows of one source err together. It aims at 1.02, not 1: an expectation a little
low is the better error for a floor. Memory and compute efficiency are not fitted; they are the
measured ceilings of the data file.

Then each source is left out in turn, the constants are fitted on the others, and the rows left
out are held against that fit: the honest figures. The two engines on the H200 count as one
source, since they share the machine. The choice of the formula itself is not refitted.
Nothing is written; to adopt a fit, round it into `expectations/model_constants.toml`.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from monitor.expectation.step_time import (
    StepFit,
    StepForm,
    StepParts,
    fitted_prompt_seconds,
    fitted_step_seconds,
    prompt_roofline_seconds,
    step_parts,
)
from monitor.sources.fit_file import load_fits
from tests.bench.cases import EXPECTATIONS, Case, read_cases
from tests.bench.validate import FLOOR_SHARE, spread

_AIM = 1.02
_START_STEP, _LAST_STEP = 0.25, 0.003  # of each constant's range
_RANGES = {
    "prefill_efficiency": (0.25, 0.67),
    "moe_prefill_efficiency": (0.15, 0.67),
    "layer_microseconds": (5.0, 120.0),
    "tensor_parallel_layer_microseconds": (0.0, 80.0),
    "moe_layer_microseconds": (0.0, 150.0),
    "moe_sequence_microseconds": (0.0, 150.0),
    "token_layer_microseconds": (0.0, 2.0),
    "prompt_token_layer_microseconds": (0.0, 1.0),
    "host_microseconds": (0.0, 8000.0),
    "host_sequence_microseconds": (0.0, 60.0),
}


@dataclass(frozen=True, slots=True)
class _Row:
    """A healthy row with everything that no constant changes worked out."""

    case: Case
    parts: StepParts
    prompt_roofline: float
    steps: float
    prompts: float
    running: float

    def log_ratio(self, fit: StepFit) -> float:
        """Give ln E_obs."""
        machine = replace(self.case.machine, fit=fit)
        seconds = self.steps * fitted_step_seconds(machine, self.parts, self.running)
        if self.prompts:
            seconds += self.prompts * fitted_prompt_seconds(machine, self.prompt_roofline)
        return math.log(seconds)


def _row(case: Case) -> _Row:
    load, machine = case.load, case.machine
    running, rate = load.running or 0.0, load.generation_tokens_per_second or 0.0
    context, prompt = load.context_tokens or 0.0, load.prompt_tokens or 0.0
    return _Row(
        case=case,
        parts=step_parts(machine, running, context),
        prompt_roofline=prompt_roofline_seconds(machine, prompt),
        steps=rate / (running * machine.speculation.accepted_per_step),
        prompts=load.prompt_tokens_per_second or 0.0,
        running=running,
    )


def _source(row: _Row) -> str:
    return "H200" if row.case.measured_here else row.case.source


def start() -> StepFit:
    """Give the start: every fitted constant in the middle of its range."""
    ceilings = load_fits(EXPECTATIONS).ceilings
    middle = {name: (low + high) / 2.0 for name, (low, high) in _RANGES.items()}
    return StepFit(
        name="start",
        form=StepForm.OVERLAPPED,
        memory_efficiency=ceilings["memory_read"].value,
        compute_efficiency=ceilings["compute_bf16"].value,
        **middle,
    )


def fit_rows(rows: Sequence[_Row], begin: StepFit) -> StepFit:
    """Give the constants of least loss on `rows`."""
    count = Counter(row.case.source for row in rows)
    weights = [1.0 / math.sqrt(count[row.case.source]) for row in rows]

    def loss(fit: StepFit) -> float:
        off = (row.log_ratio(fit) - math.log(_AIM) for row in rows)
        return sum(weight * x * x for weight, x in zip(weights, off, strict=True))

    best, least, step = begin, loss(begin), _START_STEP
    while step > _LAST_STEP:
        improved = False
        for name, (low, high) in _RANGES.items():
            for direction in (1.0, -1.0):
                value = getattr(best, name) + direction * step * (high - low)
                tried = _with(best, name, min(high, max(low, value)))
                found = loss(tried)
                if found < least - 1e-9:
                    best, least, improved = tried, found, True
                    break
        if not improved:
            step /= 2.0
    return best


def _with(fit: StepFit, name: str, value: float) -> StepFit:
    values = {field.name: getattr(fit, field.name) for field in fields(fit)}
    return StepFit(**{**values, name: value})


def _words(what: str, logs: Sequence[float]) -> str:
    values = [math.exp(x) for x in logs]
    s = spread(values)
    below = sum(value < FLOOR_SHARE for value in values)
    return (
        f"{what}: n {s.n}, p5 {s.p5:.2f}, p10 {s.p10:.2f}, median {s.median:.2f}, p90 {s.p90:.2f},"
        f" p95 {s.p95:.2f}, least {s.least:.2f}, most {s.most:.2f}, below the floor {below}"
    )


def main() -> None:
    """Fit on all rows, then leave each source out in turn."""
    rows = [_row(case) for case in read_cases() if case.healthy]
    best = fit_rows(rows, start())
    for name in ("memory_efficiency", "compute_efficiency", *_RANGES):
        sys.stdout.write(f"{name} = {getattr(best, name):.3g}\n")
    left_out: dict[bool, list[float]] = {True: [], False: []}
    for source in sorted({_source(row) for row in rows}):
        fit = fit_rows([row for row in rows if _source(row) != source], start())
        logs = [row.log_ratio(fit) for row in rows if _source(row) == source]
        left_out[source == "H200"] += logs
        sys.stdout.write(_words(f"left out {source}", logs) + "\n")
    for here, what in ((False, "published"), (True, "H200")):
        logs = [row.log_ratio(best) for row in rows if row.case.measured_here == here]
        sys.stdout.write(_words(f"{what}, in the fit", logs) + "\n")
        sys.stdout.write(_words(f"{what}, each source left out", left_out[here]) + "\n")


if __name__ == "__main__":
    main()
