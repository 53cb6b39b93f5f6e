"""A catalogue file to fill in, for a GPU that the catalogue lacks (`floorwatch gpus --missing`).

Rules of this file (pure):

1. What NVML tells stands there; what only a vendor's document tells is a line that begins with
   `#` and no blank: take the `#` off and write the figure. Remarks begin with `# `.
2. The file loads only once it is complete: what is missing yet is named by the loader.
3. No figure is guessed: NVML's bandwidth, power limit and multiprocessors are told as
   remarks, to check by.
"""

from __future__ import annotations

import datetime as dt
import json
import re

from monitor.model import GpuReading
from monitor.outputs.provenance import printable

_MIB = 1024 * 1024
_PEAKS = (("bf16", "TFLOPS"), ("fp16", "TFLOPS"), ("fp8", "TFLOPS"), ("fp4", "TFLOPS"))


def catalogue_entry(
    reading: GpuReading,
    *,
    pci_device_id: str | None,
    bandwidth_bytes_per_second: float | None,
    reason: str,
    today: dt.date,
    multiprocessors: int | None = None,
) -> str:
    """Write the file; `reason` says why the GPU fits no entry. `pci_device_id`: four hex digits."""
    name = printable(reading.name or "").strip()
    gpu_id = entry_id(name)
    lines = [
        f"# {name or 'a GPU without a name'}: {printable(reason)}",
        f"# Save as gpus/{gpu_id}.toml in the folder that `expectations:` of the config names.",
        "# Take the # off each line below that begins with #[ or #word and write what the vendor's",
        "# document says. Leave out peaks that the GPU lacks; every figure needs its source.",
        f"id = {_text(gpu_id)}",
        'vendor = "nvidia"',
        *_capability(reading),
        f"checked = {today.isoformat()}",
        "",
        "[match]",
        f"names = {_list(name)}",
        f"pci_device_ids = {_list(pci_device_id)}",
    ]
    if reading.memory_total_bytes:
        lines.append(f"memory_mib = {reading.memory_total_bytes // _MIB}")
    lines += ["", *_figure("memory", "GB")]
    if bandwidth_bytes_per_second is not None:
        lines += [
            "",
            f"# NVML reads {bandwidth_bytes_per_second / 1e9:.1f} GB/s: 2 x highest memory",
            "# clock x bus width / 8: a check on the document's figure, not its source.",
        ]
    else:
        lines.append("")
    lines += _figure("memory_bandwidth", "GB/s")
    if reading.default_power_limit_mw:
        watts = reading.default_power_limit_mw / 1000
        lines += [
            "",
            f"# NVML reads a default power limit of {watts:g} W.",
            *_figure("power_limit", "W"),
        ]
    if multiprocessors is not None:
        lines += [
            "",
            f"# NVML reads {multiprocessors} multiprocessors.",
            *_figure("multiprocessors", "SM"),
        ]
    lines += [
        "",
        "# Dense peaks at FP32 accumulation; sparse (2:4) figures are twice as high and no peaks.",
    ]
    for precision, unit in _PEAKS:
        lines += [
            *_figure(f"dense_peaks.{precision}", unit),
            f'#precision = "{precision}"',
            '#density = "dense"',
            "",
        ]
    lines += [
        "#[sources.vendor]",
        '#title = "the document: its title, number and table"',
        '#url = "https://"',
        '#kind = "datasheet"',
    ]
    return "\n".join(lines)


def entry_id(name: str) -> str:
    """Make an id of a name: lower case, digits and hyphens, without the vendor."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    if len(words) > 1 and words[0] == "nvidia":
        words = words[1:]
    return "-".join(words) or "unnamed-gpu"


def _capability(reading: GpuReading) -> list[str]:
    told = printable(reading.compute_capability or "").strip()
    return [f"compute_capability = {_text(told)}"] if told else []


def _figure(table: str, unit: str) -> list[str]:
    return [
        f"#[{table}]",
        "#value = 0",
        f"#unit = {_text(unit)}",
        '#confidence = "datasheet"',
        '#sources = ["vendor"]',
    ]


def _list(item: str | None) -> str:
    return f"[{_text(item)}]" if item else "[]"


def _text(text: str) -> str:
    """Write a TOML basic string: for printable text JSON's form is the same."""
    return json.dumps(text, ensure_ascii=False)
