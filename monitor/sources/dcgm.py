"""GPUs by dcgm-exporter's page, where NVML is out of reach (a container without the GPUs).

Rules of this file:

1. One GET per round. A page that cannot be had, or tells of no GPU, is a round with an error in one
   line: nothing is then known of any GPU, and none is called lost for it.
2. What the page lacks is not known. Which process is on which GPU it never tells; of MIG slices
   nothing is read.
3. The page is as old as the exporter's interval, 30 s unless set: run it with
   `--collect-interval 5000` (or DCGM_EXPORTER_INTERVAL=5000).

The exporter's default counters lack what tells a throttled or narrow GPU from a sound one. Lines to
add to its counters file (`-f FILE`):

    DCGM_FI_DEV_MAX_SM_CLOCK, gauge, Highest SM clock (in MHz).
    DCGM_FI_DEV_MAX_MEM_CLOCK, gauge, Highest memory clock (in MHz).
    DCGM_FI_DEV_CLOCK_THROTTLE_REASONS, gauge, Why clocks are held down (bit mask).
    DCGM_FI_DEV_ENFORCED_POWER_LIMIT, gauge, Power limit in force (in W).
    DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF, gauge, Default power limit (in W).
    DCGM_FI_DEV_FB_TOTAL, gauge, Framebuffer memory (in MiB).
    DCGM_FI_DEV_PCIE_LINK_GEN, gauge, PCIe generation in use.
    DCGM_FI_DEV_PCIE_MAX_LINK_GEN, gauge, Highest PCIe generation.
    DCGM_FI_DEV_PCIE_LINK_WIDTH, gauge, PCIe lanes in use.
    DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH, gauge, Most PCIe lanes.
    DCGM_FI_DEV_ECC_DBE_VOL_TOTAL, counter, Uncorrectable memory errors since the driver was loaded.
    DCGM_FI_DEV_ROW_REMAP_PENDING, gauge, Whether memory rows wait for a reset.
    DCGM_FI_DEV_PCI_COMBINED_ID, gauge, PCI device and vendor id.
    DCGM_FI_PROF_SM_ACTIVE, gauge, Ratio of cycles in which an SM has work.
    DCGM_FI_PROF_SM_OCCUPANCY, gauge, Ratio of resident warps.
    DCGM_FI_PROF_NVLINK_TX_BYTES, gauge, NVLink data sent (in bytes per second).
    DCGM_FI_PROF_NVLINK_RX_BYTES, gauge, NVLink data received (in bytes per second).

An exporter that writes dashes for the blanks of model names (`--replace-blanks-in-model-name`)
hides which GPU it is, unless PCI_COMBINED_ID is told.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import structlog

from monitor.config.discovery import GpuSourceConfig
from monitor.model import Failure, GpuRound, Page
from monitor.sources.dcgm_page import PageUnusable, read_page
from monitor.sources.http_client import Clock
from monitor.sources.scrape import BasicAuth, Connections, Scraper, ScrapeTarget, system_clock

_log = structlog.get_logger()


class DcgmSource:
    """dcgm-exporter in the place of NVML: `read`, `last_read_seconds`, `close`.

    `connections` may be shared; whoever made them closes them. `last_read_seconds` is what the
    last `read` took, the waiting included. `dcgm_failed` and `dcgm_recovered` are logged once each.
    """

    def __init__(
        self,
        config: GpuSourceConfig,
        *,
        connections: Connections | None = None,
        clock: Clock = system_clock,
        stopwatch: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.last_read_seconds: float | None = None
        self._hostname = config.hostname
        self._scraper = Scraper(_target(config), connections=connections, clock=clock)
        self._stopwatch = stopwatch
        self._failing = False

    async def read(self) -> GpuRound:
        """Read every GPU of the host, within the time limit. Never raises but for cancellation."""
        started = self._stopwatch()
        result = self._round(await self._scraper.fetch())
        self.last_read_seconds = self._stopwatch() - started
        if result.error is not None and not self._failing:
            _log.warning("dcgm_failed", reason=result.error)
        elif result.error is None and self._failing:
            _log.info("dcgm_recovered", gpus=len(result.gpus))
        self._failing = result.error is not None
        return result

    async def close(self) -> None:
        """Close the connections that are this source's alone."""
        await self._scraper.close()

    def _round(self, answer: Page | Failure) -> GpuRound:
        if isinstance(answer, Failure):
            return GpuRound(answer.at, error=self._said(answer.problem.detail))
        try:
            gpus = read_page(answer.body.decode("utf-8", "replace"), self._hostname)
        except PageUnusable as fault:
            return GpuRound(answer.at, error=self._said(str(fault)))
        return GpuRound(answer.at, gpus)

    def _said(self, detail: str) -> str:
        shown = self._scraper.target.shown
        return f"dcgm-exporter: {detail}" if shown in detail else f"dcgm-exporter {shown}: {detail}"


def _target(config: GpuSourceConfig) -> ScrapeTarget:
    """How to ask for the page."""
    address, login, tls = config.dcgm, config.authorization, config.tls
    if address is None:
        raise ValueError("gpu_source has no dcgm address")
    basic = None
    if login is not None and login.basic is not None:
        basic = BasicAuth(
            login.basic.username,
            password_file=login.basic.password_file,
            password_env=login.basic.password_env,
        )
    elif address.username is not None:
        basic = BasicAuth(address.username, password=address.password or "")
    return ScrapeTarget(
        name="dcgm",
        url=address.request_url,
        unix_socket=None if address.unix_socket is None else Path(address.unix_socket),
        timeout_seconds=config.timeout_seconds,
        bearer_file=None if login is None else login.bearer_file,
        bearer_env=None if login is None else login.bearer_env,
        basic=basic,
        ca_file=tls.ca_file,
        certificate_file=tls.certificate_file,
        key_file=tls.key_file,
        server_name=tls.server_name,
        insecure_skip_verify=tls.insecure_skip_verify,
    )
