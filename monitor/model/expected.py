"""Figures with provenance, GPUs of the catalogue, floors and their derivation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from monitor.model.seen import Unknown


class Density(StrEnum):
    """Whether a compute peak assumes 2:4 structured sparsity. Serving is dense."""

    DENSE = "dense"
    SPARSE = "sparse"


class Confidence(StrEnum):
    """How far a figure is to be trusted, best first."""

    MEASURED = "measured"
    DATASHEET = "datasheet"
    WHITEPAPER = "whitepaper"
    VENDOR_REPO = "vendor-repo"
    DERIVED = "derived"
    SECONDARY = "secondary"
    OPERATOR = "operator"
    UNVERIFIED = "memory, not verified"


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with its provenance; without it no number becomes a floor."""

    value: float
    unit: str
    sources: tuple[str, ...]
    confidence: Confidence
    precision: str | None = None
    density: Density | None = None
    disagreement: str | None = None


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """One GPU of the catalogue. Peaks: precision -> dense figure in TFLOPS (TOPS for int8).

    `boost_clock_mhz` is the rated clock, `max_sm_clock_mhz` the highest that NVML tells, where
    that is another. `measured_peaks` (precision -> TFLOPS or TOPS) and `measured_bandwidth`
    (`copy`, `read` -> GB/s) are what kernels reached on the card: ceilings to compare with,
    never denominators.
    """

    id: str
    vendor: str
    names: tuple[str, ...]
    pci_device_ids: tuple[str, ...]
    compute_capability: str | None
    memory_gb: Figure | None
    memory_bandwidth_gb_per_second: Figure | None
    dense_peaks: Mapping[str, Figure]
    sparse_peaks: Mapping[str, Figure]
    tdp_w: Figure | None
    multiprocessors: Figure | None
    boost_clock_mhz: Figure | None = None
    nvml_memory_mib: int | None = None
    notes: tuple[str, ...] = ()
    max_sm_clock_mhz: Figure | None = None
    measured_peaks: Mapping[str, Figure] = field(default_factory=dict)
    measured_bandwidth: Mapping[str, Figure] = field(default_factory=dict)


class FloorRule(StrEnum):
    """How a floor came about; `Expectation.in_force` follows this order."""

    FIXED = "fixed"
    FRACTION = "fraction"
    MODEL = "model"
    REFERENCE = "reference"
    BASELINE = "baseline"


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a floor's derivation, e.g. `bandwidth ratio`, 0.224, "", because..."""

    what: str
    value: float
    unit: str
    because: str


@dataclass(frozen=True, slots=True)
class Floor:
    """A least throughput per GPU, and the way to it.

    `prompt_tokens_per_second` is the floor of computed prompt tokens per GPU, where the
    operator gave one: then work is judged as the sum of both shares.
    """

    rule: FloorRule
    tokens_per_second: float
    steps: tuple[Step, ...]
    prompt_tokens_per_second: float | None = None
    may_gate: bool = True
    why_not: str | None = None


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Measured over expected in one window: at the batch that ran, and at the demanded one."""

    observed: float | None = None
    demand: float | None = None


@dataclass(frozen=True, slots=True)
class Expectation:
    """Every known floor of a target (per GPU), the one in force, and what the load model says.

    `expected_tokens_per_second` is per GPU, at the present demand. Efficiencies are measured
    over expected (1.0: as fast as expected), at the batch that runs and at the batch that the
    demand asks for. `mbu`, `mfu`: shares of memory bandwidth and dense peak that the work
    comes to. Batches are requests of one replica: demanded, and what the memory could hold.
    `expectation_check_ratio`: `mbu` over the bandwidth that the GPU itself counts, None unless
    it decoded all through the window. `efficiency_relative` is the lesser efficiency over
    `calibration_ratio`, what this very server reaches when it is well (None: not learned yet).
    `prefill_share`: the part of the expected time that goes to prompts. The `_long` and `_main`
    ones are of the long and the main window; everything else is of the short one.
    """

    floors: tuple[Floor, ...] = ()
    in_force: Floor | None = None
    expected_tokens_per_second: float | None = None
    unknown: tuple[Unknown, ...] = ()
    efficiency_observed: float | None = None
    efficiency_demand: float | None = None
    mbu: float | None = None
    mfu: float | None = None
    batch_demand: float | None = None
    batch_memory_cap: float | None = None
    expectation_check_ratio: float | None = None
    efficiency_relative: float | None = None
    calibration_ratio: float | None = None
    prefill_share: float | None = None
    efficiency_observed_long: float | None = None
    efficiency_demand_long: float | None = None
    efficiency_observed_main: float | None = None
    efficiency_demand_main: float | None = None
