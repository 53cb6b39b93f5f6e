"""The validation rows, as machine and load: what the model is held against.

Published rows carry no rate of computed prompt tokens: it is the answer rate times
prompt/answer, since their lengths are fixed, and 0 where the prompts were cached. A row whose
running requests are `inferred` (all that the KV cache holds) or an `upper_bound` measures less
than it seems to: the true batch was smaller, so E errs low.
"""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from monitor.expectation.load_model import Load, LoadExpectation, expect
from monitor.expectation.step_time import (
    Hardware,
    Machine,
    Parallel,
    Speculation,
    StepFit,
    StepForm,
)
from monitor.model import GpuSpec, Unknown
from monitor.sources.expectations import load_catalogue
from monitor.sources.fit_file import FitRecord, load_fits
from tests.bench.shapes import draft_bytes, model_shape, read_dimensions

EXPECTATIONS = Path(__file__).parents[2] / "expectations"
_VALIDATION = EXPECTATIONS / "validation"
_FAULTS = ("fault", "slot_cap", "eager", "one_core")
_TERA = 1e12
_OVERLAPPED = {"true": True, "false": False, "unknown": None}


@dataclass(frozen=True, slots=True)
class Case:
    """One row. `machine.fit` is a placeholder until `of` puts a fit in."""

    name: str
    source: str
    group: str
    status: str
    machine: Machine
    load: Load
    dram_active: float | None = None

    @property
    def healthy(self) -> bool:
        return self.status == "healthy"

    @property
    def fault(self) -> bool:
        """Whether an efficiency must find this row below the floor."""
        return self.status in _FAULTS

    @property
    def measured_here(self) -> bool:
        return self.source.endswith("-h200")

    def of(self, fit: StepFit) -> LoadExpectation:
        """Hold the row against the model with one fit."""
        expected = expect(replace(self.machine, fit=fit), self.load)
        assert not isinstance(expected, Unknown), f"{self.name}: {expected}"
        return expected


def step_fit(record: FitRecord) -> StepFit:
    """Give a fit of the data file as the model takes it."""
    return StepFit(name=record.name, form=StepForm(record.form), **record.constants)


def fits() -> dict[str, StepFit]:
    """Give every fit of the data file; the one in force first."""
    file = load_fits(EXPECTATIONS)
    names = sorted(file.fits, key=lambda name: name != file.in_force.name)
    return {name: step_fit(file.fits[name]) for name in names}


def worst(expected: LoadExpectation) -> float:
    """Give what is judged: min(E_obs, E_dem)."""
    demand = expected.efficiency_demand
    observed = expected.efficiency_observed
    return observed if demand is None else min(observed, demand)


def read_cases() -> list[Case]:
    """Give the published rows, then those measured on an H200."""
    machine_of = _machines()
    with (_VALIDATION / "published.csv").open(encoding="utf-8", newline="") as lines:
        published = [_published(row, machine_of) for row in csv.DictReader(lines)]
    measured = tomllib.loads((_VALIDATION / "h200.toml").read_text(encoding="utf-8"))
    return published + list(_measured(measured, machine_of))


_MachineOf = Callable[[Mapping[str, Any], str, float | None], Machine]


def _machines() -> _MachineOf:
    models = read_dimensions(_VALIDATION / "models.toml")
    gpus = {spec.id: spec for spec in load_catalogue(EXPECTATIONS)}
    placeholder = next(iter(fits().values()))

    def machine_of(row: Mapping[str, Any], gpu: str, memory: float | None) -> Machine:
        dimensions, quantisation = models[row["model"]], row["quantisation"]
        shape = model_shape(dimensions, quantisation, row["math"], float(row.get("kv_bytes", 2)))
        verify = float(row.get("verify_width", 1))
        drafts = int(verify) - 1
        speculation = Speculation(
            accepted_per_step=float(row.get("accepted", 1)),
            verify_width=verify,
            draft_bytes=draft_bytes(dimensions, quantisation, drafts) if drafts else 0.0,
        )
        overlapped = row["overlapped"]
        return Machine(
            shape=shape,
            hardware=_hardware(gpus[gpu], memory),
            parallel=Parallel(
                tensor=int(row["tensor_parallel"]),
                overlapped=_OVERLAPPED.get(overlapped)
                if isinstance(overlapped, str)
                else overlapped,
            ),
            fit=placeholder,
            speculation=speculation,
        )

    return machine_of


def _hardware(spec: GpuSpec, memory: float | None) -> Hardware:
    assert spec.memory_bandwidth_gb_per_second is not None
    assert spec.memory_gb is not None
    return Hardware(
        bandwidth_bytes_per_second=spec.memory_bandwidth_gb_per_second.value * 1e9,
        dense_peaks={name: peak.value * _TERA for name, peak in spec.dense_peaks.items()},
        memory_bytes=spec.memory_gb.value * 1e9 if memory is None else memory,
    )


def _published(row: Mapping[str, str], machine_of: _MachineOf) -> Case:
    rate = float(row["tokens_per_second"])
    prompt, answer = float(row["prompt_tokens"]), float(row["output_tokens"])
    cached = row["prompt_cached"] == "true"
    load = Load(
        generation_tokens_per_second=rate,
        prompt_tokens_per_second=0.0 if cached else rate * prompt / answer,
        running=float(row["running"]),
        waiting=float(row["waiting"]),
        context_tokens=prompt + answer / 2.0,
        prompt_tokens=prompt,
        output_tokens=answer,
    )
    machine = machine_of(row, row["gpu"], None)
    name = "/".join(
        (
            row["model"],
            row["quantisation"],
            f"{row['gpu']}x{row['tensor_parallel']}",
            f"{prompt:g}/{answer:g}",
            f"B{float(row['running']):.4g}",
        )
    )
    return Case(
        name,
        row["source"],
        _group(machine, load, row["quantisation"]),
        row["status"],
        machine,
        load,
    )


def _group(machine: Machine, load: Load, quantisation: str) -> str:
    if machine.speculation.verify_width > 1:
        return "speculative (MTP)"
    if (load.context_tokens or 0.0) > 60_000:
        return "64k context, cached"
    kind = "MoE" if machine.shape.moe else "dense"
    width = "4 bit" if quantisation in ("nvfp4", "mxfp4") else "bf16, fp8, int4"
    return f"{kind} {width}, {'TP 1' if machine.parallel.tensor == 1 else 'TP > 1'}"


def _measured(file: Mapping[str, Any], machine_of: _MachineOf) -> Iterator[Case]:
    memory = file["gpu"]["memory_mib"] * 2.0**20
    for row in file["rows"]:
        prompt, answer = float(row["prompt_tokens"]), float(row["output_tokens"])
        load = Load(
            generation_tokens_per_second=row["generation_tokens_per_second"],
            prompt_tokens_per_second=row["prompt_tokens_per_second"],
            running=row["running"],
            waiting=row["waiting"],
            context_tokens=prompt + answer / 2.0,
            prompt_tokens=prompt,
            output_tokens=answer,
        )
        engine = "vLLM" if row["source"].startswith("vllm") else "SGLang"
        yield Case(
            row["id"],
            row["source"],
            f"H200, {engine}",
            row["status"],
            machine_of(row, file["gpu"]["id"], memory),
            load,
            row.get("dram_active"),
        )
