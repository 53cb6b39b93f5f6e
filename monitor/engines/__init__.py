"""Engines: a metrics page -> what the engine is doing. One file per engine, one table here."""

from __future__ import annotations

import re

from monitor.engines.dialect import Dialect, SeriesCache, read_page
from monitor.engines.scan import has_sample
from monitor.engines.sglang import SGLANG
from monitor.engines.vllm import VLLM
from monitor.model import Counter, EngineObservation, Page, Problem, ProblemReason

__all__ = ["ENGINES", "SeriesCache", "read"]

ENGINES: dict[str, Dialect] = {dialect.name: dialect for dialect in (VLLM, SGLANG)}
"""Every engine that is understood."""

ROUTER_PREFIXES = (
    b"sgl_router_",
    b"smg_",
    b"vllm_router",
    b"vllm:router",
    b"vllm:current_qps",
    b"vllm:healthy_pods_total",
)
"""Samples of routers and gateways: they know requests, not a GPU's tokens."""

_HIDDEN = "vLLM hides its series under --disable-log-stats, SGLang without --enable-metrics"
STRANGERS = (
    (
        b"ray_vllm",
        "Ray's export of vLLM's series, under Ray's names",
        "name the vLLM server's own /metrics, not Ray's metrics port",
    ),
    (
        b"DCGM_FI_",
        "a GPU exporter's page (dcgm-exporter), not an engine's",
        "name the inference server's /metrics; GPUs are read through NVML",
    ),
    (b"process_", "only series of the process, none of an engine", _HIDDEN),
    (b"python_", "only series of the process, none of an engine", _HIDDEN),
)
"""Pages without an engine, by the start of a sample's name: what they are, what to do."""


def read(
    page: Page, caches: dict[str, SeriesCache], expected: str | None = None
) -> EngineObservation | Problem:
    """What a page says, or why it says nothing.

    The engine is found from the page alone: the same page always reads the same. `expected`,
    the engine of the target's last page, is only named where a page has none. `caches` is
    the caller's memo, one per engine.
    """
    speakers = [dialect for dialect in ENGINES.values() if _speaks(dialect.prefix, page.body)]
    if not speakers:
        return _router(page.body) or _no_engine(page.body, expected)
    if len(speakers) > 1:
        names = " and ".join(dialect.name for dialect in speakers)
        return Problem(
            ProblemReason.ROUTER,
            f"one page with series of {names}: several servers joined",
            "name each server as a target of its own",
        )
    dialect = speakers[0]
    told = read_page(dialect, page, caches.setdefault(dialect.name, {}))
    if isinstance(told, EngineObservation) and Counter.GENERATION not in told.counters:
        return _router(page.body) or told
    return told


def _speaks(prefix: str, body: bytes) -> bool:
    """Whether an engine's series stand on the page, or at least their HELP or TYPE."""
    if prefix.encode() not in body:
        return False
    if has_sample(body, f"{prefix}:".encode()):
        return True
    line = rf'\n(?:\xef\xbb\xbf)?[ \t]*(?:#[ \t]*(?:HELP|TYPE)[ \t]+|\{{[ \t]*)?"?{prefix}[:_]'
    return re.search(line.encode("latin-1"), b"\n" + body) is not None


def _router(body: bytes) -> Problem | None:
    for prefix in ROUTER_PREFIXES:
        if has_sample(body, prefix):
            return Problem(
                ProblemReason.ROUTER,
                f"a router's page ({prefix.decode()}... series), not an engine's",
                "name the servers behind it as targets",
            )
    return None


def _no_engine(body: bytes, expected: str | None) -> Problem:
    if not body.strip():
        detail, hint = "the page is empty", _HIDDEN
    else:
        detail, hint = next(
            ((detail, hint) for prefix, detail, hint in STRANGERS if has_sample(body, prefix)),
            (f"no series that starts with {' or '.join(ENGINES)}", _HIDDEN),
        )
    if expected is not None:
        detail += f"; the page before was of {expected}"
    return Problem(ProblemReason.NO_ENGINE_METRICS, detail, hint)
