"""How a floor of the load model comes about, number by number.

Rules of this file:

1. One line a number, in the order in which a person would work it out: the model, the GPU, the
   load, the demand, the times, the expectation, the floor. Each says where it comes from.
2. It repeats what the model computed and computes nothing of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from monitor.expectation.constants import ModelConstants
from monitor.expectation.load_model import Load, LoadExpectation
from monitor.expectation.machine import Layout
from monitor.expectation.overlap import Overlap
from monitor.expectation.precision import RunPrecision
from monitor.expectation.reference import RATE
from monitor.expectation.served import Served
from monitor.expectation.share import FloorShare
from monitor.expectation.step_time import NO_SPECULATION, Machine, Speculation
from monitor.model import Step

_GIGA, _MILLI, _MICRO = 1e9, 1e-3, 1e-6
_OVERLAP = {True: "overlapped", False: "not overlapped", None: "taken as not overlapped"}
_WINDOW = "mean over the window that judges, one replica"


@dataclass(frozen=True, slots=True)
class Way:
    """Everything that a floor of the load model rests on. `told` knows an expectation."""

    model: Served
    constants: ModelConstants
    machine: Machine
    hardware: tuple[Step, ...]
    layout: Layout
    overlap: Overlap
    load: Load
    told: LoadExpectation
    share: FloorShare


def derivation(way: Way) -> tuple[Step, ...]:
    """Give the lines."""
    return (
        *_model(way.model, way.constants),
        *way.hardware,
        Step("GPUs of a replica", way.layout.tensor, "", way.layout.because),
        *_load(way.load),
        *_speculation(way.machine.speculation),
        *_demand(way.machine, way.load, way.told),
        *_result(way),
    )


def _model(model: Served, constants: ModelConstants) -> Iterator[Step]:
    because = constants.because
    who = constants.architecture
    if model.source is not None:
        who += f" of {model.source}"
    if isinstance(model.precision, RunPrecision):
        who += f", {model.precision.precision} ({model.precision.how})"
    told = f"{who}: {because.get('weight_bytes_per_step', 'as declared')}"
    yield Step("weights read by each step", constants.weight_bytes_per_step / _GIGA, "GB", told)
    if constants.experts:
        yield Step(
            "one expert",
            constants.expert_bytes / _GIGA,
            "GB",
            f"{constants.experts_per_token} of {constants.experts} a token:"
            f" {because.get('expert_bytes', 'as declared')}",
        )
    told = because.get("kv_bytes_per_token", "as declared")
    yield Step("KV cache of a token", constants.kv_bytes_per_token or 0.0, "bytes", told)
    if constants.state_bytes_per_sequence:
        told = because.get("state_bytes_per_sequence", "as declared")
        size = constants.state_bytes_per_sequence / _GIGA
        yield Step("recurrent state of a request", size, "GB", told)


def _load(load: Load) -> Iterator[Step]:
    lengths = "mean of the requests that finished"
    yield Step("prompt of a request", load.prompt_tokens or 0.0, "tokens", lengths)
    yield Step("answer of a request", load.output_tokens or 0.0, "tokens", lengths)
    context = "prompt + half of the answer"
    yield Step("context of a running request", load.context_tokens or 0.0, "tokens", context)
    yield Step("requests running", load.running or 0.0, "", _WINDOW)
    yield Step("requests waiting", load.waiting or 0.0, "", _WINDOW)


def _speculation(speculation: Speculation) -> Iterator[Step]:
    if speculation == NO_SPECULATION:
        return
    accepted = "1 + accepted tokens of a draft; what the draft itself reads is left out"
    yield Step("tokens of a request and step", speculation.accepted_per_step, "", accepted)
    drafted = "1 + drafted tokens, at least the accepted ones"
    yield Step("tokens verified of a request and step", speculation.verify_width, "", drafted)


def _demand(machine: Machine, load: Load, told: LoadExpectation) -> Iterator[Step]:
    if told.batch_memory is not None:
        weights = (machine.shape.resident_bytes or 0.0) / _GIGA
        yield Step(
            "requests that the memory holds",
            told.batch_memory,
            "",
            f"(0.9 x total memory - weights of {weights:.1f} GB) / cache of a whole request with"
            " one slot of state",
        )
    asked = (load.running or 0.0) + (load.waiting or 0.0)
    because = f"min of {asked:.1f} running and waiting, what the memory holds, and an intended cap"
    yield Step("requests to run at once", told.batch_demand or 0.0, "", because)


def _result(way: Way) -> Iterator[Step]:
    machine, load, told = way.machine, way.load, way.told
    step, batch = told.demand_step_seconds or 0.0, told.batch_demand or 0.0
    overlap = f"scheduling {_OVERLAP[way.overlap.overlapped]}: {way.overlap.because}"
    fit = f"fit {machine.fit.name} ({machine.fit.form.value}, {overlap})"
    yield Step(f"step with {batch:.1f} requests", step / _MILLI, "ms", fit)
    prompt = told.prompt_seconds or 0.0
    yield Step("a computed prompt token", prompt / _MICRO, "us", fit)
    generated = load.generation_tokens_per_second or 1.0
    ratio = (load.prompt_tokens_per_second or 0.0) / generated
    yield Step("computed prompt tokens per generated one", ratio, "", _WINDOW)
    expected = told.expected_tokens_per_second or 0.0
    emitted = batch * machine.speculation.accepted_per_step
    yield Step(
        "expected of a replica",
        expected,
        "tokens/s",
        f"1 / ({step / _MILLI:.4g} ms / {emitted:.1f} + {ratio:.4g} x {prompt / _MICRO:.4g} us)",
    )
    per_gpu = told.expected_tokens_per_second_per_gpu or 0.0
    yield Step("expected of a GPU", per_gpu, RATE, f"{expected:.1f} / {way.layout.tensor}")
    share = way.share.value
    yield Step("floor share", share, "", way.share.because)
    yield Step("floor", share * per_gpu, RATE, f"{share:.4g} x {per_gpu:.1f}")
