"""What reading a page costs, against prometheus_client's parser, in one run.

Each figure is the median of several rounds; a round measures all three ways on all pages one
after the other, so that other load on the machine meets them alike. `read` is the whole of
`engines.read` (recognition, scan, label algebra), `scan` the selective scan alone; both are
warm, as from a target's second page on.
"""

from __future__ import annotations

import gzip
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from monitor import engines
from monitor.engines.scan import Labels, scan
from monitor.model import EngineObservation, Instant, Page

ROUNDS = 7
LEAST_SECONDS = 0.02
"""A short call is repeated until a measurement takes so long."""

RECORDINGS = Path(__file__).parents[1] / "recordings"


@dataclass(frozen=True, slots=True)
class Row:
    """One page's medians in seconds."""

    page: str
    size_bytes: int
    lines: int
    read_seconds: float
    scan_seconds: float
    reference_seconds: float


def recorded(name: str) -> bytes:
    """A recorded page."""
    return gzip.decompress((RECORDINGS / f"{name}.prom.gz").read_bytes())


def hostile_page(models: int = 400) -> bytes:
    """A vLLM page of about 5 MB: six histograms and one counter for each of many models."""
    bounds = [*(f"{10.0**power:g}" for power in range(-3, 13)), "+Inf"]
    rows: list[str] = []
    for family in ("e2e_request_latency", "inference_time", "prefill", "queue", "decode", "itl"):
        rows.append(f"# TYPE vllm:{family}_seconds histogram")
        for model in range(models):
            labels = f'engine="0",model_name="organisation/base-8b-adapter-{model:04d}"'
            rows += [
                f'vllm:{family}_seconds_bucket{{{labels},le="{bound}"}} {count}.0'
                for count, bound in enumerate(bounds)
            ]
            rows += [f"vllm:{family}_seconds_{end}{{{labels}}} 16.0" for end in ("sum", "count")]
    rows.append("# TYPE vllm:generation_tokens_total counter")
    rows += [
        f'vllm:generation_tokens_total{{engine="0",'
        f'model_name="organisation/base-8b-adapter-{model:04d}"}} 10000.0'
        for model in range(models)
    ]
    return ("\n".join(rows) + "\n").encode()


def measure(rounds: int = ROUNDS) -> list[Row]:
    """The table, one row a page."""
    pages = {
        "vLLM 0.32": recorded("vllm/0.32.0-aborts"),
        "SGLang 0.5.23": recorded("sglang/0.5.23-saturated_queue"),
        "400 models": hostile_page(),
    }
    ways = {name: _ways(body) for name, body in pages.items()}
    took: dict[str, list[list[float]]] = {name: [[], [], []] for name in pages}
    for _ in range(rounds):
        for name, calls in ways.items():
            for seconds, call in zip(took[name], calls, strict=True):
                seconds.append(_time(call))
    return [
        Row(name, len(body), body.count(b"\n"), *map(statistics.median, took[name]))
        for name, body in pages.items()
    ]


def _ways(body: bytes) -> tuple[Callable[[], object], ...]:
    """`read`, `scan` and the reference on a page, the first two with a warm cache."""
    page = Page("bench", Instant(0.0, 0.0), body)
    caches: dict[str, engines.SeriesCache] = {}
    told = engines.read(page, caches)
    assert isinstance(told, EngineObservation)
    wanted = engines.ENGINES[told.engine].index
    cache: dict[bytes, tuple[bytes, str]] = {}

    def by_name(key: str, _: Labels) -> str:
        return key

    def reference() -> object:
        return [list(family.samples) for family in text_string_to_metric_families(body.decode())]

    return (
        lambda: engines.read(page, caches, told.engine),
        lambda: scan(body, wanted, by_name, cache),
        reference,
    )


def _time(call: Callable[[], object]) -> float:
    """Seconds a call takes, averaged over enough of them to be seen by the clock."""
    calls = 0
    start = time.perf_counter()
    while (passed := time.perf_counter() - start) < LEAST_SECONDS:
        call()
        calls += 1
    return passed / calls


def main() -> None:
    """Print the table."""
    print(f"reading a metrics page, median of {ROUNDS} rounds (x: times faster than the parser)")
    print(
        f"{'page':<14}{'KB':>8}{'lines':>8}{'prometheus_client':>20}"
        f"{'engines.read':>20}{'scan alone':>20}"
    )
    for row in measure():
        whole, part = (
            f"{seconds * 1e3:.3f} ms {row.reference_seconds / seconds:5.0f}x"
            for seconds in (row.read_seconds, row.scan_seconds)
        )
        print(
            f"{row.page:<14}{row.size_bytes / 1e3:>8.0f}{row.lines:>8}"
            f"{row.reference_seconds * 1e3:>17.1f} ms{whole:>20}{part:>20}"
        )


if __name__ == "__main__":
    main()
