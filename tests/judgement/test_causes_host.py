"""Causes on the host: the evidence that shows each, and the near miss that does not."""

from __future__ import annotations

from typing import Any

import pytest

from monitor.judgement.causes import causes_of
from monitor.judgement.evidence import Evidence, Usual
from monitor.model import GpuActivity, ServerInfo
from tests.judgement.situations import ALONE, HOT, SETTINGS, gpu, held, named, seen

WAITS: dict[str, Any] = {"gpm": {"graphics": 0.31}, "power_w": 220.0}
WAITING = (
    "GPU 0 (GPU-0, 0000:00:00.0) is active for 31% of 300 s (220 of 700 W) with 19 requests running"
)
EAGER = ServerInfo(cuda_graph_disabled=True)


def host(
    windows: dict[str, Any] | None = None, gpus: tuple[GpuActivity, ...] = (), **changes: Any
) -> Evidence:
    return seen({**ALONE, **(windows or {})}, gpus=gpus, **changes)


def test_cuda_graphs_off() -> None:
    found = held("cuda_graphs_off", host({"graph_share": 0.0}))
    assert found.evidence == "0 of 100 decoding passes replayed a CUDA graph"
    eager = held("cuda_graphs_off", host(info=EAGER, gpus=(gpu(**WAITS),), engine="vllm"))
    assert eager.evidence == f"the server runs eager, without CUDA graphs; {WAITING}"
    assert eager.advice == (
        "capture CUDA graphs: take --enforce-eager away, --max-cudagraph-capture-size 19 or more"
    )


@pytest.mark.parametrize(
    ("windows", "changes", "off"),
    [
        ({"graph_share": 0.49}, {}, True),
        ({"graph_share": 0.5}, {}, False),
        # What was counted comes before what is configured.
        ({"graph_share": 1.0}, {"info": EAGER}, False),
        ({}, {"info": ServerInfo(cuda_graph_disabled=False)}, False),
        ({}, {"info": ServerInfo()}, False),
        ({}, {"info": EAGER}, True),
        ({}, {"info": EAGER, "gpus": (gpu(gpm={}, utilization_ratio=None),)}, True),
        ({}, {"info": EAGER, "gpus": (gpu(**WAITS),)}, True),
        # Launches that keep the GPU busy cost nothing.
        ({}, {"info": EAGER, "gpus": (gpu(),)}, False),
    ],
)
def test_when_cuda_graphs_are_missed(
    windows: dict[str, Any], changes: dict[str, Any], off: bool
) -> None:
    assert (named("cuda_graphs_off", host(windows, **changes)) is not None) is off


def test_the_batch_to_capture_is_not_known() -> None:
    windows = {"graph_share": 0.0, "running_mean": None}
    assert held("cuda_graphs_off", host(windows, engine="sglang")).advice == (
        "capture CUDA graphs: take --disable-cuda-graph away, --cuda-graph-max-bs no lower "
        "than what runs"
    )


def test_eager_and_hot_are_both_told() -> None:
    evidence = host(info=EAGER, gpus=(gpu(**{**HOT, **WAITS}),))
    found = [one.cause for one in causes_of(evidence, SETTINGS)]
    assert found == ["thermal_throttle", "cuda_graphs_off"]


BUSY_FRONT_END = {"api_cpu_cores": 0.97, "scrape_seconds_mean": 0.199}


def test_a_saturated_front_end() -> None:
    evidence = host(
        BUSY_FRONT_END, usual=Usual(scrape_seconds=0.013), gpus=(gpu(**WAITS),), engine="sglang"
    )
    found = held("api_server_saturated", evidence)
    assert found.evidence == (
        "the front end takes 0.97 CPU cores and a scrape 199 ms, usually 13 ms"
    )
    assert "(--tokenizer-worker-num 4)" in found.advice
    assert named("host_cpu", evidence) is None


@pytest.mark.parametrize(
    ("windows", "changes", "saturated"),
    [
        (BUSY_FRONT_END, {"usual": Usual(scrape_seconds=0.02)}, False),
        ({"http_active_mean": 256.0}, {}, True),
        ({"http_active_mean": 20.0}, {}, False),
        # Without a usual scrape to compare with, a GPU that waits is the second witness.
        ({"api_cpu_cores": 0.9}, {"gpus": (gpu(**WAITS),)}, True),
        ({"api_cpu_cores": 0.89}, {"gpus": (gpu(**WAITS),)}, False),
        ({"api_cpu_cores": 0.97}, {"gpus": (gpu(),)}, False),
        ({"api_cpu_cores": None}, {"gpus": (gpu(**WAITS),)}, False),
    ],
)
def test_when_the_front_end_is_saturated(
    windows: dict[str, Any], changes: dict[str, Any], saturated: bool
) -> None:
    found = named("api_server_saturated", host(windows, **changes))
    assert (found is not None) is saturated


def test_words_for_a_front_end_that_the_gpu_waits_for() -> None:
    found = held("api_server_saturated", host({"api_cpu_cores": 0.97}, gpus=(gpu(**WAITS),)))
    assert found.evidence == f"the front end takes 0.97 CPU cores; {WAITING}"


def test_a_host_that_is_too_slow() -> None:
    found = held("host_cpu", host(gpus=(gpu(**WAITS),)))
    assert found.evidence == WAITING
    assert "overlap" not in found.advice
    assert named("host_cpu", host(gpus=(gpu(gpm={"graphics": 0.8}),))) is None
    assert named("host_cpu", host(info=EAGER, gpus=(gpu(**WAITS),))) is None
    assert named("host_cpu", host(gpus=(gpu(**{**HOT, **WAITS}),))) is None


@pytest.mark.parametrize(
    ("windows", "changes", "ending"),
    [
        (
            {},
            {"engine": "vllm"},
            "; whether CUDA graphs are on is not told: look for --enforce-eager",
        ),
        ({}, {"engine": "sglang"}, "is not told: look for --disable-cuda-graph"),
        ({"graph_share": 1.0}, {}, None),
        ({}, {"info": ServerInfo(cuda_graph_disabled=False)}, None),
    ],
)
def test_a_slow_host_of_which_it_is_not_told_whether_graphs_are_on(
    windows: dict[str, Any], changes: dict[str, Any], ending: str | None
) -> None:
    advice = held("host_cpu", host(windows, gpus=(gpu(**WAITS),), **changes)).advice
    if ending is None:
        assert "graphs" not in advice
    else:
        assert advice.endswith(f"{ending} first")


def test_a_host_without_the_overlap_scheduler() -> None:
    info = ServerInfo(overlap_disabled=True)
    found = held("host_cpu", host(info=info, gpus=(gpu(gpm={"graphics": 0.66}),)))
    assert found.evidence.endswith(
        "; the overlap scheduler is off, so each step waits for the scheduler"
    )
    assert "--disable-overlap-schedule" in found.advice
    assert named("host_cpu", host(info=info, gpus=(gpu(),))) is None
