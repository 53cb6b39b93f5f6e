"""The incidents that were written by hand: what each server and its GPUs did, second by second.

`python -m tests.incidents.made FOLDER` writes every one of them into a folder as `NAME.tar.gz`.

Rules of this file: one row of `INCIDENTS` is one recording; nothing in it is random, so it is the
same every time. How it becomes pages: `writing.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.incidents.writing import (
    Facts,
    Incident,
    Replica,
    Server,
    h200,
    lost,
    packed,
    rtx_pro_6000,
)


def always(*replicas: Replica) -> Callable[[int], Server]:
    """The same in every second."""
    return lambda _: replicas


def then(second: int, before: Replica, after: Replica) -> Callable[[int], Server]:
    """Another after that second."""
    return lambda now: (before if now <= second else after,)


def on(*gpus: Facts) -> Callable[[int], Sequence[Facts]]:
    """The same GPU facts in every second."""
    return lambda _: gpus


def _config(gpus: int, floor: float | None, *more: str, name: str = "vllm") -> str:
    port = {"vllm": 8000, "sglang": 30000}[name]
    lines = [
        "targets:",
        f"  - name: {name}",
        f"    url: http://127.0.0.1:{port}",
        f"    gpus: {list(range(gpus))}",
        *([] if floor is None else [f"    floor: {{tokens_per_second: {floor:g}}}"]),
        *(f"    {line}" for line in more),
    ]
    return "\n".join(lines) + "\n"


WELL, SLOW, STILL = Replica(6000.0), Replica(2500.0), Replica(0.0)
"""Of a floor of 5000 tokens/s: 1.2, 0.5, and a hang with 60 requests running."""

_LLAMA_8B: Facts = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}

_FLOOR_OF_A_B200 = """\
floor:
      at_least: 25%
      of: {gpu: b200-sxm-180gb, tokens_per_second: 3500, source: "one B200 under the same load"}"""


def _hybrid_info(slots: int, cap: int) -> Facts:
    return {
        "server_info": {
            "version": "0.5.16",
            "tp_size": 1,
            "mamba_radix_cache_strategy": "extra_buffer",
            "max_mamba_cache_size": slots,
            "internal_states": [{"effective_max_running_requests_per_dp": cap}],
        }
    }


def _first_story(second: int) -> Server:
    if second <= 30:
        return (Replica(485.0, running=12, waiting=186, kv_cache=0.35, state=0.75),)
    if second <= 35:
        return None
    return (Replica(1180.0, running=64, waiting=134, kv_cache=0.8, state=0.8, life=1),)


def _pair(**of_the_second: Any) -> tuple[Facts, Facts]:
    return h200(0), h200(1, **of_the_second)


_HANGING: Facts = {"utilization_gpu_pct": 100, "utilization_mem_pct": 0, "power_mw": 125_000}
"""Kernels that wait for each other spin at full utilisation and near idle power."""

_RESTING: Facts = {
    "utilization_gpu_pct": 0,
    "utilization_mem_pct": 0,
    "power_mw": 76_000,
    "sm_clock_mhz": 345,
    "clocks_event_reasons": "0x1",
    "temperature_c": 31,
    "compute_procs": [],
}

INCIDENTS = (
    # GPU 0 falls off the bus at 6 s; the server shows 60 requests and makes nothing.
    Incident(
        "gpu-lost",
        _config(1, 5000),
        then(6, WELL, STILL),
        lambda second: (h200() if second <= 6 else lost(0),),
    ),
    # A memory error at 6 s; the GPU answers on, at rest, and the server stands still.
    Incident(
        "xid-95",
        _config(1, 5000),
        then(6, WELL, STILL),
        lambda second: (h200() if second <= 6 else h200(xid=95, **_HANGING),),
    ),
    Incident(
        "engine-hung",
        _config(2, 2500, "tensor_parallel: 2"),
        then(6, WELL, STILL),
        lambda second: _pair() if second <= 6 else (h200(0, **_HANGING), h200(1, **_HANGING)),
    ),
    # The engine's process is gone; the front end answers on with its last page.
    Incident(
        "engine-dead",
        _config(1, 5000),
        then(6, WELL, STILL),
        lambda second: (h200() if second <= 6 else h200(**_RESTING),),
    ),
    Incident(
        "thermal-throttle",
        _config(1, 5000),
        then(6, WELL, SLOW),
        lambda second: (
            h200()
            if second <= 6
            else h200(
                clocks_event_reasons="0x48",
                sm_clock_mhz=990,
                temperature_c=91,
                power_mw=310_000,
            ),
        ),
        seconds=24,
    ),
    Incident(
        "power-brake",
        _config(1, 5000),
        always(SLOW),
        on(h200(clocks_event_reasons="0x88", sm_clock_mhz=660, power_mw=220_000)),
    ),
    Incident(
        "power-cap",
        _config(1, 5000),
        always(SLOW),
        on(
            h200(
                clocks_event_reasons="0x4",
                sm_clock_mhz=1100,
                power_mw=350_000,
                enforced_power_limit_mw=350_000,
            )
        ),
    ),
    # Somebody locked the clock of GPU 2 at 1650 MHz (0.83): no reason is told, three wait for it.
    Incident(
        "slow-gpu-in-group",
        _config(4, 1250, "tensor_parallel: 4"),
        always(Replica(4000.0)),
        on(h200(0), h200(1), h200(2, sm_clock_mhz=1650), h200(3)),
    ),
    Incident(
        "pcie-link",
        _config(2, 2500, "tensor_parallel: 2"),
        always(SLOW),
        on(*_pair(pcie_width=4, pcie_gen=3)),
    ),
    # An NVLink error at 6 s: the group goes on over what is left.
    Incident(
        "nvlink-xid-74",
        _config(2, 2500, "tensor_parallel: 2"),
        then(6, WELL, SLOW),
        lambda second: _pair() if second <= 6 else _pair(xid=74),
        seconds=24,
    ),
    # Somebody trains on the same GPU.
    Incident(
        "shared-gpu",
        _config(1, 5000),
        always(SLOW),
        on(
            h200(
                compute_procs=[
                    {
                        "pid": 4100,
                        "used_memory_bytes": 75_000_000_000,
                        "name": "VLLM::EngineCore",
                    },
                    {"pid": 5002, "used_memory_bytes": 30_000_000_000, "name": "python train.py"},
                ]
            )
        ),
    ),
    # Two replicas; one does a sixth of the work.
    Incident(
        "data-parallel-imbalance",
        _config(2, 2500, "data_parallel: 2"),
        always(Replica(3000.0, running=50), Replica(500.0, running=10)),
        on(*_pair()),
    ),
    # Two hours with 80 % of the prompt tokens in the prefix cache, then nearly none: a page and a
    # GPU fact each minute.
    Incident(
        "prefix-cache-collapsed",
        "poll_interval: 60s\njudgement: {windows: [2m, 5m, 15m], warm_up: 0s}\n"
        + _config(1, 5000, "model: config.json", "precision: bf16"),
        lambda second: (
            Replica(6000.0, cached=0.8)
            if second <= 7800
            else Replica(3000.0, waiting=20, cached=0.05),
        ),
        on(h200()),
        seconds=9000,
        every=60,
        model=_LLAMA_8B,
    ),
    # Five tokens are drafted, 0.3 of them accepted, at a batch where the GPU computes.
    Incident(
        "speculation-costs",
        _config(1, 5000),
        always(Replica(2600.0, drafts=2000.0, drafted=10_000.0, accepted=600.0)),
        on(h200(power_mw=660_000, gpm_pct={"graphics": 97.0, "tensor": 62.0, "dram": 40.0})),
    ),
    # A quarter of what a healthy H200 makes of this model and batch, on a busy GPU.
    Incident(
        "wrong-kernel",
        _config(1, None, "model: config.json", "precision: bf16"),
        always(Replica(2500.0, waiting=0)),
        on(h200(power_mw=420_000, gpm_pct={"graphics": 97.0, "tensor": 8.0, "dram": 16.0})),
        model=_LLAMA_8B,
    ),
    # 64 state slots at 5 a request let 12 run; restarted at 36 s with 320, 64 run.
    Incident(
        "mamba-cap-and-its-fix",
        _config(1, None, _FLOOR_OF_A_B200, name="sglang"),
        _first_story,
        on(
            rtx_pro_6000(
                compute_procs=[
                    {"pid": 4100, "used_memory_bytes": 90_000_000_000, "name": "sglang::scheduler"}
                ]
            )
        ),
        engine="sglang",
        seconds=80,
        info={0: _hybrid_info(64, 12), 36: _hybrid_info(320, 64)},
    ),
)


def main(arguments: list[str]) -> int:
    """Write every incident into the folder that is named, else beside this file."""
    folder = Path(arguments[0]) if arguments else Path(__file__).parent
    for incident in INCIDENTS:
        (folder / f"{incident.name}.tar.gz").write_bytes(packed(incident))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
