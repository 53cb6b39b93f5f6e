"""`floorwatch explain`: how a target's floor comes about, or what rules make of a reference."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from monitor.assembly import catalogue_of
from monitor.commands.console import say, show, width
from monitor.commands.gpus import entry_of
from monitor.commands.loop import run_to_end
from monitor.commands.options import QuotedPeak, positive, quoted_peak, share_of
from monitor.commands.survey import found_at_once, survey
from monitor.config import Config
from monitor.config.errors import ConfigInvalid
from monitor.expectation.claims import density_of_claim, shares_of_peaks, sparse_peak
from monitor.expectation.floors import expectation_for
from monitor.expectation.matching import Catalogue
from monitor.expectation.peaks import canonical, dense_peak
from monitor.expectation.published import published
from monitor.model import Density, Figure, Floor, FloorSpec, GpuSpec, Unknown
from monitor.outputs.explanation import (
    Achieved,
    Against,
    Comparison,
    PeakClaim,
    RuleResult,
    comparison,
    comparison_to_json,
    explanation,
    explanation_to_json,
)

RULES = ("min", "bandwidth", "compute", "product")
"""The rules that two GPUs' figures are enough for; `weighted` needs time shares too."""

_NO_SHARES = (
    "it needs the parts of the reference's time: `rule: weighted` with `time_shares: {memory: 60%,"
    " compute: 30%, fixed: 10%}` in the floor of a target of --config that scales from this GPU"
)

SOURCE = "the command line"


@dataclass(frozen=True, slots=True)
class Question:
    """The options of `explain --gpu`, as given."""

    gpu: str
    reference: str | None = None
    reference_tokens_per_second: float | None = None
    precision: str | None = None
    reference_precision: str | None = None
    at_least: str | None = None
    measured: tuple[float, ...] = ()
    peak_claims: tuple[str, ...] = ()
    achieved: tuple[str, ...] = ()


def explain_target(config: Config, name: str, *, as_json: bool) -> int:
    """Look at the targets once and derive one's floors; 1: it gives no page."""
    catalogue = catalogue_of(config)
    names = [target.name for target in config.targets]
    if name not in names:
        names = [target.name for target in run_to_end(found_at_once(config)).targets]
    if name not in names:
        raise ConfigInvalid([_unknown_target(name, names)])
    status = run_to_end(survey(config, catalogue)).status
    (target,) = (one for one in status.targets if one.name == name)
    if as_json:
        show(json.dumps(explanation_to_json(target), allow_nan=False))
    else:
        show(explanation(target, width()))
    return 0 if target.up else 1


def _unknown_target(name: str, names: list[str]) -> str:
    if not names:
        return (
            "explain: no server was found, and none is configured: name them with --config FILE, "
            "or use --gpu"
        )
    near = difflib.get_close_matches(name, names, n=1)
    known = f"nearest: {near[0]}" if near else f"known: {', '.join(names)}"
    return f"explain: no target {name!r}; {known}"


def explain_rules(config: Config, question: Question, *, as_json: bool) -> int:
    """Say what each rule gives, what it makes of measured rates, and whose peaks are quoted."""
    catalogue = catalogue_of(config)
    ours = entry_of(question.gpu, catalogue, "--gpu")
    compared = _compared(question, ours, catalogue, config)
    if as_json:
        for claim in compared.claims:
            if claim.density is not Density.DENSE:
                say(f"--peak-claim {claim.claimed}: {claim.remark}")
        show(json.dumps(comparison_to_json(compared), allow_nan=False))
    else:
        show(comparison(compared, width()))
    return 0


def _compared(
    question: Question, ours: GpuSpec, catalogue: Catalogue, config: Config
) -> Comparison:
    shares = _time_shares(question, catalogue, config)
    rules = tuple(_rules(question, ours, catalogue, shares))
    claims = tuple(_claim(text, ours) for text in question.peak_claims)
    achieved = tuple(_achieved(text, ours) for text in question.achieved)
    if question.measured and not rules:
        raise ConfigInvalid(
            ["--measured: compared with what? give --reference and --reference-tokens-per-second"]
        )
    if not (rules or claims or achieved):
        wanted = "--reference with --reference-tokens-per-second, --peak-claim or --achieved"
        raise ConfigInvalid([f"explain --gpu: nothing to explain; give {wanted}"])
    rates = [_measured(rate) for rate in question.measured]
    theirs = question.reference and entry_of(question.reference, catalogue, "--reference").id
    no_weighted = bool(rules) and not isinstance(shares, Mapping)
    return Comparison(
        gpu=ours.id,
        reference=theirs,
        reference_tokens_per_second=question.reference_tokens_per_second,
        precision=question.precision,
        rules=rules,
        measured=tuple((rate, tuple(_against(rate, rules))) for rate in rates),
        claims=claims,
        achieved=achieved,
        not_shown=(("weighted", str(shares)),) if no_weighted else (),
    )


# --------------------------------------------------------------------------- rules


def _rules(
    question: Question, ours: GpuSpec, catalogue: Catalogue, shares: Mapping[str, float] | str
) -> Iterator[RuleResult]:
    if question.reference is None and question.reference_tokens_per_second is None:
        if question.at_least is not None:
            raise ConfigInvalid(["--at-least: a share of what? give --reference"])
        return
    if question.reference is None or question.reference_tokens_per_second is None:
        raise ConfigInvalid(["--reference and --reference-tokens-per-second belong together"])
    theirs = entry_of(question.reference, catalogue, "--reference").id
    rate = positive(question.reference_tokens_per_second, "--reference-tokens-per-second")
    _check_precision(question.precision, "--precision")
    _check_precision(question.reference_precision, "--reference-precision")
    if question.at_least is not None:
        spec = FloorSpec(
            at_least=share_of(question.at_least, "--at-least"),
            of_gpu=theirs,
            of_tokens_per_second=rate,
            source=SOURCE,
        )
        yield _result("fraction", spec, ours, question.precision, catalogue)
    weighted = () if isinstance(shares, str) else ("weighted",)
    for rule in (*RULES, *weighted):
        spec = FloorSpec(
            reference_gpu=theirs,
            reference_tokens_per_second=rate,
            reference_precision=question.reference_precision or question.precision,
            reference_rule=rule,
            reference_time_shares=None if isinstance(shares, str) else shares,
            source=SOURCE,
        )
        yield _result(rule, spec, ours, question.precision, catalogue)


def _time_shares(
    question: Question, catalogue: Catalogue, config: Config
) -> Mapping[str, float] | str:
    """The parts of the reference's time, as a target says that scales from it; else why not."""
    given = [
        spec.reference_time_shares
        for target in config.targets
        if target.floor is not None
        and (spec := target.floor.spec()).reference_time_shares is not None
        and _scales_from(spec, question.reference, catalogue)
    ]
    if not given:
        return _NO_SHARES
    if any(shares != given[0] for shares in given):
        return "the targets of --config that scale from this GPU give different `time_shares`"
    return given[0] or {}


def _scales_from(spec: FloorSpec, reference: str | None, catalogue: Catalogue) -> bool:
    gpu = spec.reference_gpu
    if spec.reference_id is not None:
        entry = published(spec.reference_id, catalogue.references)
        gpu = None if isinstance(entry, Unknown) else entry.gpu
    if gpu is None or reference is None:
        return False
    theirs = catalogue.by_id(gpu)
    return isinstance(theirs, GpuSpec) and theirs == catalogue.by_id(reference)


def _check_precision(precision: str | None, option: str) -> None:
    name = None if precision is None else canonical(precision)
    if isinstance(name, Unknown):
        raise ConfigInvalid([f"{option}: {name.reason}"])


def _result(
    rule: str, spec: FloorSpec, ours: GpuSpec, precision: str | None, catalogue: Catalogue
) -> RuleResult:
    derived = expectation_for(spec, ours, precision, catalogue)
    if not derived.floors:
        return RuleResult(rule, derived.unknown[0])
    floor = derived.floors[0]
    margin = next((step.value for step in floor.steps if step.what == "margin"), None)
    scaled = None if margin is None else floor.tokens_per_second / margin
    return RuleResult(rule, floor, scaled)


def _against(rate: float, rules: tuple[RuleResult, ...]) -> Iterator[Against]:
    for result in rules:
        floor = result.found
        if isinstance(floor, Floor):
            yield Against(result.rule, rate / floor.tokens_per_second, floor.may_gate)


def _measured(rate: float) -> float:
    if not math.isfinite(rate) or rate < 0:
        raise ConfigInvalid([f"--measured: expected tokens per second, 0 or more, got {rate:g}"])
    return rate


# --------------------------------------------------------------------------- peaks


def _claim(text: str, ours: GpuSpec) -> PeakClaim:
    claim = quoted_peak(text, "--peak-claim")
    dense, sparse = _of_peak(claim, ours, dense_peak), _of_peak(claim, ours, sparse_peak)
    density = density_of_claim(claim.tflops, ours, claim.precision)
    remark: str | None = None
    if isinstance(density, Unknown):
        remark = density.reason
    elif density is Density.SPARSE:
        remark = (
            f"{claim.tflops:g} {sparse.unit} is within 3 % of the sparse (2:4) {sparse.precision}"
            f" peak {sparse.value:g} {sparse.unit}; serving is dense: measure against the dense"
            f" peak {dense.value:g} {dense.unit}"
        )
    known = None if isinstance(density, Unknown) else density
    return PeakClaim(text, known, remark, dense, sparse)


def _of_peak(
    claim: QuotedPeak, ours: GpuSpec, peak: Callable[[GpuSpec, str], Figure | Unknown]
) -> Figure:
    figure = peak(ours, claim.precision)
    if isinstance(figure, Unknown):
        raise ConfigInvalid([f"--peak-claim: {figure.reason}"])
    return figure


def _achieved(text: str, ours: GpuSpec) -> Achieved:
    reached = quoted_peak(text, "--achieved")
    shares = shares_of_peaks(reached.tflops, ours, reached.precision)
    if isinstance(shares, Unknown):
        raise ConfigInvalid([f"--achieved: {shares.reason}"])
    return Achieved(text, shares)
