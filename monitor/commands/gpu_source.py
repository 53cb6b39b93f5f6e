"""Where a command's facts about GPUs come from, by the configuration."""

from __future__ import annotations

import time
from typing import Protocol

from monitor.config import GpuSourceConfig
from monitor.model import GpuRound, Instant


class GpuSource(Protocol):
    """Something that tells of all GPUs once a round."""

    @property
    def last_read_seconds(self) -> float | None:
        """What the last round cost."""

    async def read(self) -> GpuRound:
        """Read every GPU; what fails is in the round."""

    async def close(self) -> None:
        """Free what it holds."""


class NoGpus:
    """The operator wants no GPU facts."""

    last_read_seconds: float | None = None

    async def read(self) -> GpuRound:
        """Say so."""
        at = Instant(time.monotonic(), time.time())
        return GpuRound(at, error="`gpu_source: none` in the configuration")

    async def close(self) -> None:
        """Nothing to free."""


def gpu_source(config: GpuSourceConfig) -> GpuSource:
    """NVML, dcgm-exporter's page, or none."""
    # Each is loaded only where it is used: a start shall not pay for the others.
    if config.dcgm is not None:
        from monitor.sources.dcgm import DcgmSource

        return DcgmSource(config)
    if not config.nvml:
        return NoGpus()
    from monitor.sources.nvml import Nvml, NvmlPoller

    return NvmlPoller(Nvml())
