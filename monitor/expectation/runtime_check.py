"""Whether a GPU is what its catalogue entry says, by what the driver tells of its memory.

Rules of this file:

1. NVML's bandwidth (2 x highest memory clock x bus width / 8) against the entry's. Data sheets
   and NVML differ by up to 6.3 % on healthy cards (B200: 8184 against 7700 GB/s printed), so only
   more than 8 % is worth a remark.
2. It is a remark and never a verdict: the entry stays, the operator looks.
3. Nothing is said of a GPU that gives no facts or whose driver does not tell.
"""

from __future__ import annotations

from monitor.expectation.matching import bandwidth_check, bandwidth_from_nvml
from monitor.model import GpuReading, GpuSpec

TOLERANCE_RATIO = 0.08


def bandwidth_note(reading: GpuReading, spec: GpuSpec) -> str | None:
    """Give a remark where NVML's bandwidth is not the catalogue's; None where they agree."""
    ratio, told = bandwidth_check(reading, spec), bandwidth_from_nvml(reading)
    figure = spec.memory_bandwidth_gb_per_second
    if ratio is None or told is None or figure is None or abs(ratio - 1) <= TOLERANCE_RATIO:
        return None
    return (
        f"bandwidth by NVML {told / 1e9:.1f} {figure.unit} differs from the catalogue's"
        f" {figure.value:g} {figure.unit} ({spec.id}) by {abs(ratio - 1):.1%}: Workstation or"
        " Server edition, a MIG slice or capped clocks?"
    )
