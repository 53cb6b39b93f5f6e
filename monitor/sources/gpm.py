"""GPM: how busy a GPU's units really were, as the difference of two hardware samples.

Rules of this file:

1. Two samples per GPU, used in turn: each sample closes one interval and opens the next.
2. Intervals are at least 200 ms. Shorter ones gave zeros and NaN on an H200 (10 ms: always,
   50 ms: sometimes, 100 ms and more: never).
3. What is not a number, or cannot be one, is left out; it never becomes 0.
4. A GPU that says "not supported" or "no permission" is not asked again (hosts often keep GPM
   for root: `RmProfilingAdminOnly=1`). A MIG-enabled GPU is the caller's to leave out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from monitor.sources.nvml_calls import Code, NvmlCalls

MIN_INTERVAL_SECONDS = 0.2
_ROUNDING_SECONDS = 1e-9

PERCENTAGES = {
    "graphics": "NVML_GPM_METRIC_GRAPHICS_UTIL",
    "sm": "NVML_GPM_METRIC_SM_UTIL",
    "occ": "NVML_GPM_METRIC_SM_OCCUPANCY",
    "int": "NVML_GPM_METRIC_INTEGER_UTIL",
    "tensor": "NVML_GPM_METRIC_ANY_TENSOR_UTIL",
    "dfma": "NVML_GPM_METRIC_DFMA_TENSOR_UTIL",
    "hmma": "NVML_GPM_METRIC_HMMA_TENSOR_UTIL",
    "dmma": "NVML_GPM_METRIC_DMMA_TENSOR_UTIL",
    "imma": "NVML_GPM_METRIC_IMMA_TENSOR_UTIL",
    "dram": "NVML_GPM_METRIC_DRAM_BW_UTIL",
    "fp64": "NVML_GPM_METRIC_FP64_UTIL",
    "fp32": "NVML_GPM_METRIC_FP32_UTIL",
    "fp16": "NVML_GPM_METRIC_FP16_UTIL",
}
RATES = {
    "pcie_tx": "NVML_GPM_METRIC_PCIE_TX_PER_SEC",
    "pcie_rx": "NVML_GPM_METRIC_PCIE_RX_PER_SEC",
    "nvl_rx": "NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC",
    "nvl_tx": "NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC",
}
"""Not percentages: MiB per second, from (tx) and to (rx) the GPU."""


@dataclass(slots=True)
class _Pair:
    """The two samples of a GPU: the last one taken, and the one to be written next."""

    last: Any
    spare: Any
    taken_at: float | None = None


class GpmSampler:
    """GPM of every GPU of one NVML session. Close it before NVML is shut down."""

    def __init__(self, calls: NvmlCalls) -> None:
        self._calls = calls
        self._pairs: dict[int, _Pair | None] = {}
        self._metrics = [
            (key, getattr(calls.pynvml, name), 100.0 if name in PERCENTAGES.values() else math.inf)
            for key, name in (PERCENTAGES | RATES).items()
            if hasattr(calls.pynvml, name)
        ]

    def sample(self, index: int, handle: Any, monotonic_seconds: float) -> dict[str, float]:
        """Take a sample and give the activity since the last one.

        Percentages 0 to 100 (`PERCENTAGES`) and MiB/s (`RATES`), to three decimals. Empty: no
        GPM on this GPU, the first sample, less than 200 ms since the last, or no answer.
        """
        if index not in self._pairs:
            self._pairs[index] = self._open(handle)
        pair = self._pairs[index]
        if pair is None:
            return {}
        opened = pair.taken_at
        if opened is not None and self._too_soon(monotonic_seconds - opened):
            return {}
        self._calls.ask("nvmlGpmSampleGet", handle, pair.spare)
        if self._refused(index):
            return {}
        pair.last, pair.spare, pair.taken_at = pair.spare, pair.last, monotonic_seconds
        if opened is None:
            return {}
        return self._activity(index, earlier=pair.spare, later=pair.last)

    def forget(self, index: int) -> None:
        """Begin a fresh interval: the GPU was away, so its last sample says nothing."""
        pair = self._pairs.get(index)
        if pair is not None:
            pair.taken_at = None

    def close(self) -> None:
        """Free every sample. The sampler then starts anew, support query included."""
        for pair in self._pairs.values():
            self._free(pair)
        self._pairs.clear()

    @staticmethod
    def _too_soon(elapsed_seconds: float) -> bool:
        return elapsed_seconds + _ROUNDING_SECONDS < MIN_INTERVAL_SECONDS

    def _open(self, handle: Any) -> _Pair | None:
        support = self._calls.ask("nvmlGpmQueryDeviceSupport", handle)
        if support is None or not support.isSupportedDevice:
            return None
        last = self._calls.ask("nvmlGpmSampleAlloc")
        spare = self._calls.ask("nvmlGpmSampleAlloc")
        if last is None or spare is None:
            self._free(_Pair(last, spare))
            return None
        return _Pair(last, spare)

    def _refused(self, index: int) -> bool:
        code = self._calls.refusal
        if code in {Code.NOT_SUPPORTED, Code.NO_PERMISSION}:
            self._free(self._pairs[index])
            self._pairs[index] = None
        return code is not None

    def _free(self, pair: _Pair | None) -> None:
        for sample in (pair.last, pair.spare) if pair is not None else ():
            if sample is not None:
                self._calls.ask("nvmlGpmSampleFree", sample)

    def _activity(self, index: int, *, earlier: Any, later: Any) -> dict[str, float]:
        pynvml = self._calls.pynvml
        request = pynvml.c_nvmlGpmMetricsGet_t()
        request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(self._metrics)
        request.sample1, request.sample2 = earlier, later
        for slot, (_, metric_id, _) in zip(request.metrics, self._metrics, strict=False):
            slot.metricId = metric_id
            # A metric that NVML passes over must not read as an idle unit.
            slot.value = math.nan
        self._calls.ask("nvmlGpmMetricsGet", request)
        if self._refused(index):
            return {}
        return {
            key: value
            for slot, (key, _, most) in zip(request.metrics, self._metrics, strict=False)
            if slot.nvmlReturn == 0
            and math.isfinite(slot.value)
            and 0.0 <= (value := round(slot.value, 3)) <= most
        }
