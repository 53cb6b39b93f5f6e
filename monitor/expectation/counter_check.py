"""The model's bandwidth against the one that the GPU itself counts (NVML GPM's DRAM activity).

A live check of the constants behind an expectation: it needs no reference. Far from 1, the
model, the precision or the tenancy is not what was taken.

Rules of this file:

1. Both are means over a window. The model's is of the time in which requests ran, the GPU's of all
   time, so they compare only where the work went on all through.
2. Only decoding is compared: the bytes that prefill moves are not in the model.
3. Every GPU that serves and is read must tell, and no other server may run there.
"""

from __future__ import annotations

from collections.abc import Sequence

from monitor.expectation.load_model import LoadExpectation
from monitor.model import GpuActivity, Rates

LEAST_DRAM_ACTIVE = 0.05
"""Below this share of bandwidth in use the ratio of two small numbers checks nothing."""

LEAST_BUSY_SHARE = 0.9

MOST_PREFILL_SHARE = 0.1


def check_ratio(
    told: LoadExpectation, rates: Rates, activity: Sequence[GpuActivity], gpus_read: int
) -> float | None:
    """Give model bandwidth over counted bandwidth; None where they do not compare.

    `activity` is of GPUs that serve and that nobody else uses, `gpus_read` the number of such.
    """
    seen = [one.gpm["dram"] for one in activity if "dram" in one.gpm]
    if told.mbu is None or not seen or len(seen) < gpus_read:
        return None
    steady = (rates.busy_share or 0.0) > LEAST_BUSY_SHARE
    active = sum(seen) / len(seen)
    if not steady or told.prefill_share > MOST_PREFILL_SHARE or active < LEAST_DRAM_ACTIVE:
        return None
    return told.mbu / active
