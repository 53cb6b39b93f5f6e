"""Hold the load model against every published and measured row: `python -m tests.bench.validate`.

Prints measured/expected (E_obs of healthy rows) per group, and which healthy rows the floor
would call faulty and which faults it would miss. `--write` puts the table between the markers
of expectations/README.md; a scatter goes to `--png PATH` where matplotlib is at hand.
"""

from __future__ import annotations

import argparse
import importlib
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from monitor.expectation.step_time import StepFit
from tests.bench.cases import EXPECTATIONS, Case, fits, read_cases, worst

FLOOR_SHARE = 0.5
_BEGIN, _END = "<!-- validation: begin -->", "<!-- validation: end -->"


@dataclass(frozen=True, slots=True)
class Spread:
    """How measured/expected lies over rows."""

    n: int
    p5: float
    p10: float
    median: float
    p90: float
    p95: float
    least: float
    most: float
    mean_absolute_log: float


def percentile(values: Iterable[float], share: float) -> float:
    """Give a percentile, linear between neighbours."""
    ranked = sorted(values)
    at = (len(ranked) - 1) * share
    low = math.floor(at)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (ranked[high] - ranked[low]) * (at - low)


def spread(values: Sequence[float]) -> Spread:
    """Summarise measured/expected."""
    p5, p10, median, p90, p95 = (percentile(values, share) for share in (0.05, 0.1, 0.5, 0.9, 0.95))
    error = sum(abs(math.log(value)) for value in values) / len(values)
    return Spread(len(values), p5, p10, median, p90, p95, min(values), max(values), error)


def observed(cases: Iterable[Case], fit: StepFit) -> list[float]:
    """Give E_obs of the healthy rows."""
    return [case.of(fit).efficiency_observed for case in cases if case.healthy]


def table(cases: Sequence[Case], fit: StepFit) -> list[str]:
    """Give the Markdown table of one fit."""
    lines = [
        "| healthy rows | n | p5 | p10 | median | p90 | p95 |",
        "|---|---|---|---|---|---|---|",
    ]
    published = [case for case in cases if not case.measured_here]
    here = [case for case in cases if case.measured_here]
    groups = {"**published, all**": published}
    for case in sorted(published, key=lambda case: case.group):
        groups.setdefault(case.group, []).append(case)
    groups["**H200, all**"] = here
    for case in here:
        groups.setdefault(case.group, []).append(case)
    for name, members in groups.items():
        values = observed(members, fit)
        if values:
            s = spread(values)
            row = (s.p5, s.p10, s.median, s.p90, s.p95)
            lines.append(f"| {name} | {s.n} | " + " | ".join(f"{v:.2f}" for v in row) + " |")
    return lines


def faults(cases: Sequence[Case], fit: StepFit) -> list[str]:
    """Give the Markdown lines about the floor: false and missed faults, row by row."""
    healthy = [case for case in cases if case.healthy]
    false = [case for case in healthy if worst(case.of(fit)) < FLOOR_SHARE]
    bad = [case for case in cases if case.fault]
    missed = [case for case in bad if worst(case.of(fit)) >= FLOOR_SHARE]
    verdict = (
        f"At a floor of {FLOOR_SHARE:g} x expected: {len(false)} of {len(healthy)} healthy rows"
        f" below it, {len(missed)} of {len(bad)} faults missed."
    )
    lines = [
        verdict,
        "",
        "| row that is not healthy | labelled | E_obs | E_dem |",
        "|---|---|---|---|",
    ]
    for case in cases:
        if not case.healthy:
            expected = case.of(fit)
            demand = expected.efficiency_demand
            shown = "-" if demand is None else f"{demand:.2f}"
            lines.append(
                f"| {case.name} | {case.status} | {expected.efficiency_observed:.2f} | {shown} |"
            )
    return lines


def report(cases: Sequence[Case]) -> str:
    """Give the whole report: the fit in force in full, the others in one table each."""
    lines: list[str] = []
    for number, (name, fit) in enumerate(fits().items()):
        kind = "in force" if number == 0 else "not in force"
        lines += [f"Fit `{name}` ({kind}), measured/expected:", "", *table(cases, fit), ""]
        if number == 0:
            lines += [*faults(cases, fit), ""]
    return "\n".join(lines).rstrip()


def write_table(readme: Path, text: str) -> None:
    """Replace what stands between the markers of the README."""
    before, begin, rest = readme.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise SystemExit(f"{readme}: expected the markers {_BEGIN} and {_END}: add both")
    readme.write_text(f"{before}{_BEGIN}\n{text}\n{_END}{after}", encoding="utf-8")


def draw(cases: Sequence[Case], fit: StepFit, path: Path) -> str:
    """Draw measured against expected tokens/s, one point a row; say what was done."""
    try:
        matplotlib = importlib.import_module("matplotlib")
        matplotlib.use("Agg")
        pyplot = importlib.import_module("matplotlib.pyplot")
    except ImportError:
        return "no scatter: matplotlib is not installed"
    figure, axes = pyplot.subplots(figsize=(7, 7))
    colours = {"healthy": "tab:green", "suspect": "tab:orange", "symptom": "tab:orange"}
    for status in sorted({case.status for case in cases}):
        rows = [case for case in cases if case.status == status]
        measured = [case.load.generation_tokens_per_second or 0.0 for case in rows]
        expected = [rate / worst(case.of(fit)) for rate, case in zip(measured, rows, strict=True)]
        axes.scatter(expected, measured, s=14, label=status, color=colours.get(status, "tab:red"))
    ends = [1.0, 1e5]
    axes.plot(ends, ends, linewidth=0.8, color="black")
    axes.plot(ends, [FLOOR_SHARE * end for end in ends], linewidth=0.8, linestyle="--", color="red")
    axes.set(xscale="log", yscale="log", xlabel="expected tokens/s", ylabel="measured tokens/s")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return f"scatter written to {path}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the validation."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.validate", description=__doc__)
    parser.add_argument("--write", action="store_true", help="update expectations/README.md")
    parser.add_argument(
        "--png", type=Path, default=Path("build/validation.png"), help="the scatter's file"
    )
    options = parser.parse_args(arguments)
    cases = read_cases()
    text = report(cases)
    sys.stdout.write(text + "\n")
    if options.write:
        write_table(EXPECTATIONS / "README.md", text)
    sys.stdout.write(draw(cases, next(iter(fits().values())), options.png) + "\n")


if __name__ == "__main__":
    main()
