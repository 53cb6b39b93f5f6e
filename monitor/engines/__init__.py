"""Engines: a metrics page -> what the engine is doing. One file per engine, one table here."""

from __future__ import annotations

from monitor.engines.dialect import Dialect, Slot, read_page
from monitor.engines.scan import has_sample
from monitor.engines.sglang import SGLANG
from monitor.engines.vllm import VLLM
from monitor.model import EngineObservation, Page, Problem, ProblemReason

ENGINES: dict[str, Dialect] = {dialect.name: dialect for dialect in (VLLM, SGLANG)}
"""Every engine that is understood."""

ROUTER_PREFIXES = (b"sgl_router_", b"smg_", b"vllm_router", b"vllm:router")
"""Samples of routers and gateways: they know requests, not a GPU's tokens."""

SeriesCache = dict[bytes, Slot]


def read(
    page: Page, caches: dict[str, SeriesCache], expected: str | None = None
) -> EngineObservation | Problem:
    """What a page says, or why it says nothing.

    The engine is found from the page alone; `expected`, the engine of the target's last page,
    is only tried first. `caches` is the caller's memo, one per engine.
    """
    dialect = ENGINES.get(expected or "")
    if dialect is None or not _speaks(dialect, page.body):
        candidates = [candidate for candidate in ENGINES.values() if _speaks(candidate, page.body)]
        if len(candidates) > 1:
            names = " and ".join(candidate.name for candidate in candidates)
            return Problem(
                ProblemReason.ROUTER,
                f"one page with series of {names}: several servers joined",
                "name each server as a target of its own",
            )
        if not candidates:
            return _no_engine(page.body)
        dialect = candidates[0]
    return read_page(dialect, page, caches.setdefault(dialect.name, {}))


def _speaks(dialect: Dialect, body: bytes) -> bool:
    prefix = dialect.prefix.encode()
    return any(
        has_sample(body, prefix + mark) or b"\n# TYPE " + prefix + mark in body
        for mark in (b":", b"_")
    )


def _no_engine(body: bytes) -> Problem:
    for prefix in ROUTER_PREFIXES:
        if has_sample(body, prefix):
            return Problem(
                ProblemReason.ROUTER,
                f"a router's page ({prefix.decode()}... series), not an engine's",
                "name the servers behind it as targets",
            )
    if not body.strip():
        return Problem(
            ProblemReason.NO_ENGINE_METRICS,
            "the page is empty",
            "SGLang: start with --enable-metrics; vLLM: without --disable-log-stats",
        )
    if has_sample(body, b"process_") or has_sample(body, b"python_"):
        detail = "only series of the process, none of an engine"
    else:
        detail = "no series that starts with vllm or sglang"
    return Problem(
        ProblemReason.NO_ENGINE_METRICS,
        detail,
        "vLLM hides them under --disable-log-stats, SGLang without --enable-metrics",
    )
