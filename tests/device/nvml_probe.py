"""Read the GPUs of this host and say what a read costs. For a person, on a GPU host.

    python tests/device/nvml_probe.py [--rounds 50] [--interval 1.0]

Prints the second reading as JSON (the first has no GPM yet: GPM needs an interval) and, with
and without GPM and the watch for XID errors, the median and the maximum cost of a read, apart
for the rounds that also read what is costly (energy and MIG mode, every 10 s). `xid_count` 0 in
the reading says that the GPU is registered for XID events. Exit status 1: NVML cannot be used.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from monitor.model import GpuRound, Instant
from monitor.sources.nvml import Nvml


def _instant() -> Instant:
    return Instant(monotonic_seconds=time.monotonic(), wall_seconds=time.time())


def _measure(
    *, gpm: bool, xids: bool, rounds: int, interval_seconds: float
) -> tuple[list[GpuRound], list[float]]:
    nvml = Nvml(gpm=gpm, xids=xids)
    started = time.perf_counter()
    reason = nvml.connect()
    if reason is not None:
        sys.exit(f"nvml_probe: {reason}")
    print(f"connect: {1000 * (time.perf_counter() - started):.1f} ms, driver {nvml.driver_version}")
    seen, costs = [], []
    for _ in range(rounds):
        seen.append(nvml.read(_instant()))
        costs.append(nvml.last_read_seconds or 0.0)
        time.sleep(interval_seconds)
    nvml.close()
    return seen, costs


def _report(what: str, costs: list[float]) -> None:
    if costs:
        median, most = 1000 * statistics.median(costs), 1000 * max(costs)
        print(f"{what}: {len(costs)} reads, median {median:.2f} ms, max {most:.2f} ms")


def main() -> None:
    """Measure with everything, print a reading, then measure without GPM and XIDs."""
    parser = argparse.ArgumentParser(description="Read the GPUs of this host; say what it costs.")
    parser.add_argument("--rounds", type=int, default=50, help="reads in each pass (default 50)")
    parser.add_argument(
        "--interval", type=float, default=1.0, help="seconds between reads (default 1.0)"
    )
    arguments = parser.parse_args()
    for gpm, xids in ((True, True), (False, True), (False, False)):
        seen, costs = _measure(
            gpm=gpm,
            xids=xids,
            rounds=max(2, arguments.rounds),
            interval_seconds=arguments.interval,
        )
        if gpm:
            print(json.dumps(dataclasses.asdict(seen[1]), indent=2))
        words = f"{'with' if gpm else 'without'} GPM, {'with' if xids else 'without'} XIDs"
        _report(f"first read {words}", costs[:1])
        later = list(zip(seen, costs, strict=True))[1:]
        slow = [cost for r, cost in later if any(g.energy_mj is not None for g in r.gpus)]
        usual = [cost for r, cost in later if all(g.energy_mj is None for g in r.gpus)]
        _report(f"reads {words}", usual)
        _report(f"reads {words} and the costly facts", slow)


if __name__ == "__main__":
    main()
