"""Causes on the host: the GPU waits for launches, for the scheduler, or its output for a reader."""

from __future__ import annotations

from monitor.judgement.causes.row import Cause, by_engine, running_on_each_rank, told_info
from monitor.judgement.evidence import Evidence
from monitor.judgement.symptoms import (
    BUSY_FRONT_END_CORES,
    clients_wait,
    front_end_busy,
    gpu_waits,
)
from monitor.judgement.throttling import activity, throttles
from monitor.model import JudgementSettings

FEW_GRAPHS = 0.5
"""Fewer decoding passes by CUDA graph than that: they are off, or made for smaller batches."""


def _cuda_graphs_off(evidence: Evidence, settings: JudgementSettings) -> str | None:
    share = evidence.short.graph_share
    if share is not None:
        told = f"{100.0 * share:.0f} of 100 decoding passes replayed a CUDA graph"
        off = share < FEW_GRAPHS
    else:
        told = "the server runs eager, without CUDA graphs"
        off = bool(told_info(evidence).cuda_graph_disabled)
    if not off:
        return None
    if all(activity(gpu) is None for gpu in evidence.gpus):
        return told
    # Launches that keep the GPU at work all the same cost nothing.
    waits = gpu_waits(evidence, settings)
    return None if waits is None else f"{told}; {waits}"


def _graphs_on(evidence: Evidence) -> str:
    running = running_on_each_rank(evidence)
    batch = f"{running} or more" if running else "no lower than what runs"
    return "capture CUDA graphs: " + by_engine(
        evidence,
        sglang=f"take --disable-cuda-graph away, --cuda-graph-max-bs {batch}",
        vllm=f"take --enforce-eager away, --max-cudagraph-capture-size {batch}",
    )


def _api_server_saturated(evidence: Evidence, settings: JudgementSettings) -> str | None:
    told = [one for one in (front_end_busy(evidence), clients_wait(evidence)) if one is not None]
    cores = evidence.short.api_cpu_cores
    if not told and cores is not None and cores >= BUSY_FRONT_END_CORES:
        waits = gpu_waits(evidence, settings)
        told = [] if waits is None else [f"the front end takes {cores:.2f} CPU cores; {waits}"]
    return "; ".join(told) or None


def _more_front_ends(evidence: Evidence) -> str:
    flags = by_engine(evidence, sglang="--tokenizer-worker-num 4", vllm="--api-server-count 4")
    return (
        f"run more front-end processes ({flags}), give them free cores, and stream in larger "
        "chunks; a slow client holds its stream back as well"
    )


def _host_cpu(evidence: Evidence, settings: JudgementSettings) -> str | None:
    """The GPU waits for its host, and neither graphs nor the front end explain it."""
    if _cuda_graphs_off(evidence, settings) or _api_server_saturated(evidence, settings):
        return None
    if throttles(evidence, settings):
        return None
    waits = gpu_waits(evidence, settings)
    if waits is not None and told_info(evidence).overlap_disabled:
        return f"{waits}; the overlap scheduler is off, so each step waits for the scheduler"
    return waits


def _faster_host(evidence: Evidence) -> str:
    told = (
        "give the engine's process cores of its own on the GPU's NUMA node, look at CPU limits, "
        "steal time and the frequency governor"
    )
    info = told_info(evidence)
    if info.overlap_disabled:
        told += "; take --disable-overlap-schedule away (SGLang's no_buffer strategy forces it)"
    if evidence.short.graph_share is None and info.cuda_graph_disabled is None:
        # vLLM's page tells nothing of them, and without them the GPU waits just like this.
        flag = by_engine(evidence, sglang="--disable-cuda-graph", vllm="--enforce-eager")
        told += f"; whether CUDA graphs are on is not told: look for {flag} first"
    return told


CUDA_GRAPHS_OFF = Cause("cuda_graphs_off", _cuda_graphs_off, _graphs_on)
API_SERVER_SATURATED = Cause("api_server_saturated", _api_server_saturated, _more_front_ends)
HOST_CPU = Cause("host_cpu", _host_cpu, _faster_host)
