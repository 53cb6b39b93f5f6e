"""The page of dcgm-exporter -> GpuReading.

Rules of this file (pure):

1. A field that the page lacks, or tells as blank, is None; it is never 0.
2. Of several rows of one GPU and field the first counts: where pods share a GPU, the whole GPU's
   row stands before the pods'. Rows of MIG slices, links and switches are never taken for it.
3. Old and new names of a field are read: DCGM 4.6 renamed many, and the page has the name that
   the counters file has. So with the labels `UUID`/`uuid` and `Hostname`/`hostname`.
4. The counters of throttled time (`..._VIOLATION`, `..._NS`) are not read. They move in steps of
   the exporter's interval (30 s by default), so that a round would see none of it or too much.
   The bit mask of reasons says the same and holds over the step.

Units: DCGM tells watts, MiB, ratios 0 to 1 and bytes per second where NVML tells milliwatts, bytes,
percent and (GPM) MiB per second. Sources: NVIDIA/DCGM dcgmlib/dcgm_fields.h and dcgm_structs.h,
NVIDIA/dcgm-exporter etc/default-counters.csv and internal/pkg/rendermetrics.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from monitor.model import GpuReading

MOST_GPUS = 1024
LONGEST_ROW = 64 * 1024

_MIB = 1024 * 1024
_ROW = re.compile(r"(DCGM_FI_[A-Z0-9_]+)\{(.*)\}[ \t]+(\S+)(?:[ \t]+-?[0-9]+)?[ \t\r]*")
_LABEL = re.compile(r'(?<![A-Za-z0-9_])([A-Za-z_][A-Za-z0-9_]*)="([^"\\]*(?:\\.[^"\\]*)*)"')
_ESCAPE = re.compile(r'\\([\\"n])')
_INDEX = re.compile(r"[0-9]{1,4}")
_NOT_A_GPU = ("nvlink", "nvswitch", "cpu", "cpucore")
_BLANK_TEXT = re.compile(r"<<<.*>>>")

_BLANKS = ((0x7FFFFFF0, 0x7FFFFFFF), (2.0**47, 2.0**47 + 15), (2.0**63 - 16, math.inf))
"""Values that mean "not told" (blank, not found, not supported, no permission), as 32-bit, as
floating-point and as 64-bit numbers. Recent exporters leave such rows out."""

_WHOLE: Mapping[str, tuple[float, tuple[str, ...]]] = {
    "power_mw": (1000.0, ("POWER_USAGE", "BOARD_POWER_WATTS")),
    "power_instant_mw": (1000.0, ("POWER_USAGE_INSTANT", "BOARD_POWER_RAW_WATTS")),
    "energy_mj": (1.0, ("TOTAL_ENERGY_CONSUMPTION",)),
    "enforced_power_limit_mw": (
        1000.0,
        (
            "ENFORCED_POWER_LIMIT",
            "BOARD_POWER_LIMIT_ENFORCED_WATTS",
            "POWER_MGMT_LIMIT",
            "BOARD_POWER_LIMIT_REQUESTED_WATTS",
        ),
    ),
    "default_power_limit_mw": (
        1000.0,
        ("POWER_MGMT_LIMIT_DEF", "BOARD_POWER_LIMIT_DEFAULT_WATTS"),
    ),
    "sm_clock_mhz": (1.0, ("SM_CLOCK",)),
    "max_sm_clock_mhz": (1.0, ("MAX_SM_CLOCK",)),
    "mem_clock_mhz": (1.0, ("MEM_CLOCK",)),
    "max_mem_clock_mhz": (1.0, ("MAX_MEM_CLOCK",)),
    "clocks_event_reasons": (1.0, ("CLOCKS_EVENT_REASONS", "CLOCK_THROTTLE_REASONS")),
    "pcie_gen": (1.0, ("PCIE_LINK_GEN",)),
    "pcie_gen_max": (1.0, ("PCIE_MAX_LINK_GEN",)),
    "pcie_width": (1.0, ("PCIE_LINK_WIDTH",)),
    "pcie_width_max": (1.0, ("PCIE_MAX_LINK_WIDTH",)),
    "mig_mode": (1.0, ("MIG_MODE",)),
    "ecc_uncorrected": (1.0, ("ECC_DBE_VOL_TOTAL",)),
    "xid": (1.0, ("XID_ERRORS", "XID_ERROR")),
    "memory_used_bytes": (_MIB, ("FB_USED",)),
}
"""Whole numbers of a reading: what one of DCGM's units is of ours, and the fields in order of
preference, after `DCGM_FI_DEV_`. The XID stays on the page until another follows."""

_AMOUNTS: Mapping[str, tuple[str, ...]] = {
    "temperature_c": ("GPU_TEMP", "GPU_TEMP_CELSIUS"),
    "memory_temperature_c": ("MEMORY_TEMP", "MEMORY_TEMP_CELSIUS"),
    "utilization_gpu_pct": ("GPU_UTIL", "GPU_UTIL_RATIO"),
    "utilization_mem_pct": ("MEM_COPY_UTIL",),
}
"""In our units already; `GPU_UTIL_RATIO` is 0 to 100 in spite of its name."""

_RATIOS: Mapping[str, tuple[str, ...]] = {
    "graphics": ("GR_ENGINE_ACTIVE", "GR_ENGINE_UTIL_RATIO"),
    "sm": ("SM_ACTIVE", "SM_UTIL_RATIO"),
    "occ": ("SM_OCCUPANCY", "SM_OCCUPANCY_RATIO"),
    "tensor": ("PIPE_TENSOR_ACTIVE", "TENSOR_UTIL_RATIO"),
    "dram": ("DRAM_ACTIVE", "DRAM_UTIL_RATIO"),
    "fp64": ("PIPE_FP64_ACTIVE", "FP64_UTIL_RATIO"),
    "fp32": ("PIPE_FP32_ACTIVE", "FP32_UTIL_RATIO"),
    "fp16": ("PIPE_FP16_ACTIVE", "FP16_UTIL_RATIO"),
    "int": ("PIPE_INT_ACTIVE", "INT_UTIL_RATIO"),
    "imma": ("PIPE_TENSOR_IMMA_ACTIVE", "IMMA_UTIL_RATIO"),
    "hmma": ("PIPE_TENSOR_HMMA_ACTIVE", "HMMA_UTIL_RATIO"),
    "dfma": ("PIPE_TENSOR_DFMA_ACTIVE", "DFMA_UTIL_RATIO"),
}
"""Profiling fields, after `DCGM_FI_PROF_`, as the units of `GpuReading.gpm_pct`."""

_RATES: Mapping[str, tuple[str, ...]] = {
    "pcie_tx": ("PCIE_TX_BYTES",),
    "pcie_rx": ("PCIE_RX_BYTES",),
    "nvl_tx": ("NVLINK_TX_BYTES",),
    "nvl_rx": ("NVLINK_RX_BYTES",),
}
"""Bytes per second, as a gauge, whatever the name suggests."""

_REMAPPED = (
    ("UNCORRECTABLE_REMAPPED_ROWS", "ROW_REMAP_UNCORRECTABLE_TOTAL"),
    ("CORRECTABLE_REMAPPED_ROWS", "ROW_REMAP_CORRECTABLE_TOTAL"),
)


class PageUnusable(ValueError):
    """A page that tells of no GPU of this host, or of more than one host's; one line why."""


@dataclass(slots=True)
class _Rows:
    """All that the page tells of one GPU."""

    labels: Mapping[str, str]
    sliced: bool = False
    values: dict[str, float | None] = field(default_factory=dict)

    def first(self, kind: str, names: tuple[str, ...]) -> float | None:
        """The first of these fields that is told."""
        told = (self.values.get(f"DCGM_FI_{kind}_{name}") for name in names)
        return next((value for value in told if value is not None), None)


def read_page(text: str, hostname: str | None = None) -> tuple[GpuReading, ...]:
    """Read the GPUs of one host, in order of their index.

    `hostname`: only the rows whose host label is this. A GPU in MIG mode is told of by name
    alone (`mig_mode` 1), for its rows are its slices'. Raises PageUnusable.
    """
    gpus: dict[tuple[str, int], _Rows] = {}
    others: set[str] = set()
    for name, labels, value in _rows(text):
        host = labels.get("Hostname") or labels.get("hostname") or ""
        index = labels.get("gpu", "")
        if not _INDEX.fullmatch(index) or any(label in labels for label in _NOT_A_GPU):
            continue
        if hostname is not None and host != hostname:
            others.add(host)
            continue
        rows = gpus.setdefault((host, int(index)), _Rows(labels))
        if "GPU_I_ID" in labels:
            rows.sliced = True
        else:
            rows.values.setdefault(name, value)
    if not gpus:
        raise PageUnusable(_nothing(hostname, others))
    hosts = sorted({host for host, _ in gpus})
    if len(hosts) > 1:
        raise PageUnusable(
            f"the page holds GPUs of several hosts ({_named(hosts)}): set `hostname` to one"
        )
    if len(gpus) > MOST_GPUS:
        raise PageUnusable(f"the page holds more than {MOST_GPUS} GPUs")
    return tuple(_reading(index, rows) for (_, index), rows in sorted(gpus.items()))


def _rows(text: str) -> Iterator[tuple[str, dict[str, str], float | None]]:
    for line in text.split("\n"):
        found = _ROW.fullmatch(line) if len(line) <= LONGEST_ROW else None
        if found is not None:
            name, labels, value = found.groups()
            yield name, {key: _text(raw) for key, raw in _LABEL.findall(labels)}, _number(value)


def _nothing(hostname: str | None, others: set[str]) -> str:
    if hostname is None:
        return "the page has no rows of GPUs (DCGM_FI_...): is this dcgm-exporter, and up?"
    if others:
        return f"no GPU has the host name {hostname!r}; the page has {_named(sorted(others))}"
    return f"the page has no rows of GPUs (DCGM_FI_...), of {hostname!r} or any other host"


def _named(hosts: list[str]) -> str:
    more = "" if len(hosts) <= 3 else f" and {len(hosts) - 3} more"
    return ", ".join(ascii(host[:80]) for host in hosts[:3]) + more


def _text(raw: str) -> str:
    if "\\" not in raw:
        return raw
    return _ESCAPE.sub(lambda escape: "\n" if escape[1] == "n" else escape[1], raw)


def _number(text: str) -> float | None:
    """A value that is told; blank, negative and not finite ones are not."""
    try:
        value = float(text)
    except ValueError:
        return None
    blank = any(least <= value <= most for least, most in _BLANKS)
    return value if math.isfinite(value) and value >= 0.0 and not blank else None


def _reading(index: int, rows: _Rows) -> GpuReading:
    facts: dict[str, Any] = {}
    for name, (unit, fields) in _WHOLE.items():
        facts[name] = _rounded(rows.first("DEV", fields), unit)
    for name, fields in _AMOUNTS.items():
        facts[name] = rows.first("DEV", fields)
    # Boards without the sensor answer 0 here rather than "not supported".
    facts["memory_temperature_c"] = facts["memory_temperature_c"] or None
    if rows.sliced:
        facts["mig_mode"] = 1
    pending = rows.first("DEV", ("ROW_REMAP_PENDING",))
    return replace(
        GpuReading(
            index=index,
            uuid=_label(rows, "UUID", "uuid"),
            name=_label(rows, "modelName"),
            pci_bus_id=_label(rows, "pci_bus_id"),
            pci_device_id=_pci_device_id(rows),
            compute_capability=_compute_capability(rows),
            memory_total_bytes=_memory_total(rows),
            remapped_rows=_remapped(rows),
            row_remap_pending=None if pending is None else pending > 0.0,
            gpm_pct=_profile(rows),
        ),
        **facts,
    )


def _label(rows: _Rows, *names: str) -> str | None:
    told = (rows.labels.get(name, "").strip() for name in names)
    return next((text for text in told if text and not _BLANK_TEXT.fullmatch(text)), None)


def _rounded(value: float | None, unit: float = 1.0) -> int | None:
    return None if value is None else round(value * unit)


def _memory_total(rows: _Rows) -> int | None:
    """The total; where it is not told, the sum of its parts, of which old exporters lack one."""
    total = rows.first("DEV", ("FB_TOTAL",))
    used, free = rows.first("DEV", ("FB_USED",)), rows.first("DEV", ("FB_FREE",))
    if total is None and used is not None and free is not None:
        total = used + free + (rows.first("DEV", ("FB_RESERVED",)) or 0.0)
    return _rounded(total, _MIB)


def _pci_device_id(rows: _Rows) -> str | None:
    combined = _rounded(rows.first("DEV", ("PCI_COMBINED_ID",)))
    return f"0x{combined:08x}" if combined else None


def _compute_capability(rows: _Rows) -> str | None:
    names = ("DEV_CUDA_COMPUTE_CAPABILITY", "CUDA_GPU_COMPUTE_CAPABILITY")
    told = (_rounded(rows.values.get(f"DCGM_FI_{name}")) for name in names)
    both = next((value for value in told if value), None)
    return None if both is None else f"{both >> 16}.{both & 0xFFFF}"


def _remapped(rows: _Rows) -> int | None:
    told = [rows.first("DEV", names) for names in _REMAPPED]
    return None if None in told else _rounded(sum(value or 0.0 for value in told))


def _profile(rows: _Rows) -> dict[str, float]:
    shares = {unit: rows.first("PROF", names) for unit, names in _RATIOS.items()}
    rates = {unit: rows.first("PROF", names) for unit, names in _RATES.items()}
    return {
        **{unit: round(x * 100.0, 3) for unit, x in shares.items() if x is not None and x <= 1.0},
        **{unit: round(x / _MIB, 3) for unit, x in rates.items() if x is not None},
    }
