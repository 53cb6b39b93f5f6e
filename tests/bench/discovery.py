"""What following a list of 500 servers costs, and how soon a change of it is told.

Each figure is the median of several rounds. One reading is what a changed file costs: the text,
and the servers that come of it; `json.loads` and PyYAML's C loader stand beside it. A look is what
each second costs in which nothing changed. The latency is that from the rename of a new list over
the old to the word of it, with 50 of the 500 servers new in a minute: five renames, at moments
that have nothing to do with the looks'.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from monitor.config.discovery import FileSdConfig, FromLists
from monitor.model import Found
from monitor.sources.file_sd import FileSd
from monitor.sources.list_text import read_json, read_yaml
from monitor.sources.target_lists import servers_of

ROUNDS = 15
RENAMES = 15
TARGETS = 500
NEW_PER_RENAME = 10

Groups = list[dict[str, Any]]


def groups(first: int) -> Groups:
    """A list of 500 servers that begins at server `first`: a group and eight labels for each."""
    return [
        {
            "targets": [f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:8000"],
            "labels": {
                "pod": f"qwen3-235b-{number}",
                "namespace": "inference",
                "node": f"gpu-node-{number // 8}",
                "zone": "eu-1a",
                "team": "search",
                "__meta_kubernetes_pod_uid": f"{number:032x}",
                "__metrics_path__": "/metrics",
                "__floorwatch_gpu__": "h200-sxm-141gb",
            },
        }
        for number in range(first, first + TARGETS)
    ]


def median_seconds(call: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    took = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        call()
        took.append(time.perf_counter() - start)
    return statistics.median(took)


def readings() -> dict[str, float]:
    """Seconds for each part of one reading, and for the references."""
    told = groups(0)
    as_json, as_yaml = json.dumps(told).encode(), yaml.safe_dump(told).encode()
    config = FromLists(name_label="pod")
    servers, faults = servers_of(told, config, "bench")
    assert (len(servers), faults) == (TARGETS, ())
    assert read_yaml(as_yaml) == read_json(as_json) == told
    return {
        "JSON text": median_seconds(lambda: read_json(as_json)),
        "  json.loads": median_seconds(lambda: json.loads(as_json)),
        "YAML text": median_seconds(lambda: read_yaml(as_yaml)),
        "  yaml.CSafeLoader": median_seconds(lambda: yaml.load(as_yaml, yaml.CSafeLoader)),
        "servers of it": median_seconds(lambda: servers_of(told, config, "bench")),
    }


class _Followed:
    """A file that is followed, and when the word of its latest list came."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        config = FileSdConfig.model_validate({"files": [str(folder / "*.json")]})
        self.source = FileSd(config, label="bench")
        self.heard = asyncio.Event()
        self.found = Found()

    def put(self, first: int) -> None:
        new = self._folder / "new"
        new.write_text(json.dumps(groups(first)))
        new.replace(self._folder / "list.json")

    def tell(self, found: Found) -> None:
        self.found = found
        self.heard.set()


async def followed(folder: Path) -> tuple[float, list[float]]:
    """Seconds of a look at what is as it was; seconds from each rename to the word of it."""
    one = _Followed(folder)
    one.put(0)
    task = asyncio.create_task(one.source.run(one.tell))
    await one.heard.wait()
    look = median_seconds(lambda: one.source._look(read_all=False))
    latencies = []
    for number in range(1, RENAMES + 1):
        await asyncio.sleep(random.uniform(0.0, 1.0))
        one.heard.clear()
        one.put(number * NEW_PER_RENAME)
        start = time.perf_counter()
        await one.heard.wait()
        latencies.append(time.perf_counter() - start)
        assert len(one.found.servers) == TARGETS
        assert one.found.servers[-1].labels["pod"].endswith(f"-{number * NEW_PER_RENAME + 499}")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return look, latencies


def main() -> None:
    """Print the table."""
    print(f"\na list of {TARGETS} servers, median of {ROUNDS} rounds")
    for what, seconds in readings().items():
        print(f"{what:<28}{seconds * 1e3:>9.2f} ms")
    with tempfile.TemporaryDirectory() as folder:
        look, latencies = asyncio.run(followed(Path(folder)))
    print(f"{'a look, nothing changed':<28}{look * 1e3:>9.2f} ms")
    print(
        f"{'from rename to the word':<28}{statistics.median(latencies) * 1e3:>9.0f} ms"
        f"   (of {RENAMES}: {min(latencies) * 1e3:.0f} to {max(latencies) * 1e3:.0f} ms)"
    )


if __name__ == "__main__":
    main()
