"""The recording format's GPU fact object: JSON to `GpuReading` and back.

Rules of this file:

1. The JSON names are the field names of `GpuReading`; an absent name is a fact that the driver
   did not tell. `clocks_event_reasons` alone changes form: a hex string there, a bit mask here.
2. A fact of the wrong type, negative or not finite is no fact: that field becomes `None` and
   the others stand. A GPU without an index is no GPU; the caller gets `None`.
3. What is not known is not written: no null, no NaN, no empty table. The one exception is
   `compute_procs`, where an empty list says "no process" and absence says "not told".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WrapValidator

from monitor.model import GpuProcess, GpuReading, GpuRound, Instant, MigDevice

# NVML's "value not available" for unsigned 64-bit facts is all ones; no real fact comes near.
_MAX_INT = 2**63 - 1


def _wrong_becomes_none(value: object, validate: Callable[[object], object]) -> object:
    try:
        return validate(value)
    except ValidationError:
        return None


def _mask_from_text(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return int(value, 16)
    except ValueError:
        return None


def _whole(value: object) -> object:
    """A whole number however JSON spells it (`7e5` is an integer to the person who wrote it)."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _entries(value: object) -> object:
    if not isinstance(value, dict):
        return []
    return [(name, number) for name, number in value.items() if isinstance(name, str)]


_FORGIVING = WrapValidator(_wrong_becomes_none)
_Text = Annotated[str | None, Field(strict=True), _FORGIVING]
_Count = Annotated[
    int | None, Field(strict=True, ge=0, le=_MAX_INT), BeforeValidator(_whole), _FORGIVING
]
_Amount = Annotated[float | None, Field(strict=True, ge=0, allow_inf_nan=False), _FORGIVING]
_Celsius = Annotated[float | None, Field(strict=True, allow_inf_nan=False), _FORGIVING]
_Mask = Annotated[
    int | None, Field(strict=True, ge=0, le=_MAX_INT), BeforeValidator(_mask_from_text), _FORGIVING
]
_Flag = Annotated[bool | None, Field(strict=True), _FORGIVING]
_Counts = Annotated[list[tuple[str, _Count]], BeforeValidator(_entries)]
_Amounts = Annotated[list[tuple[str, _Amount]], BeforeValidator(_entries)]


class _Facts(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _ProcessFacts(_Facts):
    pid: _Count = None
    used_memory_bytes: _Count = None
    name: _Text = None


_Processes = Annotated[
    list[Annotated[_ProcessFacts | None, _FORGIVING]] | None, Field(strict=True), _FORGIVING
]


class _MigFacts(_Facts):
    uuid: _Text = None
    index: _Count = None
    gpu_instance_id: _Count = None
    compute_instance_id: _Count = None
    memory_total_bytes: _Count = None
    multiprocessor_count: _Count = None
    compute_procs: _Processes = None


class _GpuFacts(_Facts):
    index: _Count = None
    uuid: _Text = None
    name: _Text = None
    pci_device_id: _Text = None
    pci_bus_id: _Text = None
    memory_total_bytes: _Count = None
    memory_used_bytes: _Count = None
    memory_bus_width_bits: _Count = None
    compute_capability: _Text = None
    cuda_cores: _Count = None
    utilization_gpu_pct: _Amount = None
    utilization_mem_pct: _Amount = None
    power_mw: _Count = None
    power_instant_mw: _Count = None
    energy_mj: _Count = None
    enforced_power_limit_mw: _Count = None
    default_power_limit_mw: _Count = None
    sm_clock_mhz: _Count = None
    max_sm_clock_mhz: _Count = None
    mem_clock_mhz: _Count = None
    max_mem_clock_mhz: _Count = None
    clocks_event_reasons: _Mask = None
    throttle_ns: _Counts = []
    temperature_c: _Celsius = None
    memory_temperature_c: _Celsius = None
    pcie_gen: _Count = None
    pcie_gen_max: _Count = None
    pcie_width: _Count = None
    pcie_width_max: _Count = None
    mig_mode: _Count = None
    mig_devices: Annotated[
        list[Annotated[_MigFacts | None, _FORGIVING]] | None, Field(strict=True), _FORGIVING
    ] = None
    ecc_uncorrected: _Count = None
    remapped_rows: _Count = None
    row_remap_pending: _Flag = None
    xid: _Count = None
    xid_count: _Count = None
    compute_procs: _Processes = None
    gpm_pct: _Amounts = []
    error: _Text = None


def reading_from_facts(facts: object) -> GpuReading | None:
    """One GPU from its fact object; None when this is no object or has no usable index."""
    try:
        told = _GpuFacts.model_validate(facts)
    except ValidationError:
        return None
    if told.index is None:
        return None
    values: dict[str, object] = {
        name: getattr(told, name) for name in _GpuFacts.model_fields if name not in _NESTED
    }
    return GpuReading(
        **values,  # type: ignore[arg-type]  # names and types are those of _GpuFacts, tested
        throttle_ns={reason: ns for reason, ns in told.throttle_ns if ns is not None},
        gpm_pct={metric: pct for metric, pct in told.gpm_pct if pct is not None},
        compute_procs=None if told.compute_procs is None else _processes(told.compute_procs),
        mig_devices=tuple(
            MigDevice(
                uuid=mig.uuid,
                index=mig.index,
                gpu_instance_id=mig.gpu_instance_id,
                compute_instance_id=mig.compute_instance_id,
                memory_total_bytes=mig.memory_total_bytes,
                multiprocessor_count=mig.multiprocessor_count,
                compute_procs=_processes(mig.compute_procs or ()),
            )
            for mig in told.mig_devices or ()
            if mig is not None and mig.uuid is not None and mig.index is not None
        ),
    )


_NESTED = frozenset({"throttle_ns", "gpm_pct", "compute_procs", "mig_devices"})


def _processes(told: Sequence[_ProcessFacts | None]) -> tuple[GpuProcess, ...]:
    return tuple(
        GpuProcess(process.pid, process.used_memory_bytes, process.name)
        for process in told
        if process is not None and process.pid is not None
    )


def facts_from_reading(reading: GpuReading) -> dict[str, object]:
    """One GPU as its fact object, ready for JSON: only what is known and finite."""
    facts = _known(reading)
    if reading.clocks_event_reasons is not None:
        facts["clocks_event_reasons"] = hex(reading.clocks_event_reasons)
    if reading.compute_procs is not None:
        facts["compute_procs"] = [_known(process) for process in reading.compute_procs]
    if reading.mig_devices:
        facts["mig_devices"] = [
            _known(mig) | {"compute_procs": [_known(process) for process in mig.compute_procs]}
            for mig in reading.mig_devices
        ]
    return facts


def _known(value: GpuReading | GpuProcess | MigDevice) -> dict[str, object]:
    """The plain fields of a dataclass that hold something; tuples are the caller's."""
    facts: dict[str, object] = {}
    for field in fields(value):
        fact = getattr(value, field.name)
        if isinstance(fact, Mapping):
            fact = {name: number for name, number in fact.items() if _is_told(number)} or None
        if _is_told(fact) and not isinstance(fact, tuple):
            facts[field.name] = fact
    return facts


def _is_told(fact: object) -> bool:
    return fact is not None and not (isinstance(fact, float) and not math.isfinite(fact))


def round_from_json(data: object, at: Instant) -> tuple[GpuRound | None, tuple[str, ...]]:
    """A round from `nvml/<unix_ms>.json`, and remarks on entries that are no GPU.

    The document is a list of fact objects, or `{"error": text}` when NVML itself failed.
    None: it is neither.
    """
    if isinstance(data, dict) and isinstance(data.get("error"), str):
        return GpuRound(at, error=data["error"]), ()
    if not isinstance(data, list):
        return None, ("expected a list of GPU facts or an object with an error text",)
    readings = [reading_from_facts(facts) for facts in data]
    gpus = tuple(reading for reading in readings if reading is not None)
    if len(gpus) < len(readings):
        return GpuRound(at, gpus), ("a GPU entry without a whole-number index was left out",)
    return GpuRound(at, gpus), ()


def round_to_json(gpu_round: GpuRound) -> list[dict[str, object]] | dict[str, object]:
    """The document of `nvml/<unix_ms>.json` for a round."""
    if gpu_round.error is not None and not gpu_round.gpus:
        return {"error": gpu_round.error}
    return [facts_from_reading(reading) for reading in gpu_round.gpus]
