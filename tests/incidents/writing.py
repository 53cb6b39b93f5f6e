"""A recording out of what a server and its GPUs did: pages, GPU facts, archive.

Rules of this file: pages have the series that are read, by their real names and labels; a request
has 200 prompt and 100 generated tokens, so all counters follow from the tokens a second; GPU facts
are those of real cards at work, and what is different is an argument.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

START_SECONDS = 1_796_000_400
"""Unix time of the first page: the beginning of an hour."""

PROMPT_TOKENS, OUTPUT_TOKENS = 200, 100

Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Replica:
    """What one engine does in a second. `life`: a new process counts from 0.

    `cached`: the part of its prompt tokens that the prefix cache has. `drafts`, `drafted`,
    `accepted`: of speculation, a second. `state`: usage of the state pool.
    """

    tokens: float
    running: int = 60
    waiting: int = 6
    kv_cache: float = 0.4
    life: int = 0
    cached: float = 0.0
    drafts: float = 0.0
    drafted: float = 0.0
    accepted: float = 0.0
    state: float = 0.0


Server = tuple[Replica, ...] | None
"""One second of a server; None: nobody takes connections."""


@dataclass(frozen=True, slots=True)
class Incident:
    """A recording of one server. Functions take the seconds since its first page."""

    name: str
    config: str
    server: Callable[[int], Server]
    gpus: Callable[[int], Sequence[Facts]]
    engine: str = "vllm"
    seconds: int = 20
    every: int = 1
    info: Mapping[int, Facts] = field(default_factory=dict)
    model: Facts | None = None


# ----------------------------------------------------------------------------- pages


class _Counted:
    """A replica's counters since its process began."""

    def __init__(self) -> None:
        self.life = 0
        self.totals: dict[str, float] = {}

    def work(self, now: Replica, seconds: int) -> None:
        if now.life != self.life:
            self.life, self.totals = now.life, {}
        requests = now.tokens / OUTPUT_TOKENS
        prompt = requests * PROMPT_TOKENS
        for name, rate in (
            ("tokens", now.tokens),
            ("requests", requests),
            ("prompt", prompt),
            ("cached", prompt * now.cached),
            ("drafts", now.drafts),
            ("drafted", now.drafted),
            ("accepted", now.accepted),
        ):
            self.totals[name] = self.totals.get(name, 0.0) + rate * seconds


def _vllm(counted: _Counted, now: Replica, rank: int) -> Iterator[str]:
    total = counted.totals
    cached = round(total["cached"])
    for name, value, label in (
        ("num_requests_running", now.running, ""),
        ("num_requests_waiting", now.waiting, ""),
        ("kv_cache_usage_perc", now.kv_cache, ""),
        ("num_preemptions_total", 0, ""),
        ("prompt_tokens_total", round(total["prompt"]), ""),
        (
            "prompt_tokens_by_source_total",
            round(total["prompt"]) - cached,
            ',source="local_compute"',
        ),
        ("prompt_tokens_by_source_total", cached, ',source="local_cache_hit"'),
        ("generation_tokens_total", round(total["tokens"]), ""),
        ("request_success_total", round(total["requests"]), ',finished_reason="stop"'),
        ("request_prompt_tokens_count", round(total["requests"]), ""),
        ("request_prompt_tokens_sum", round(total["requests"]) * PROMPT_TOKENS, ""),
        ("request_generation_tokens_count", round(total["requests"]), ""),
        ("request_generation_tokens_sum", round(total["requests"]) * OUTPUT_TOKENS, ""),
    ):
        yield f'vllm:{name}{{engine="{rank}",model_name="m"{label}}} {value}'
    if now.drafts:
        for name, key in (
            ("drafts", "drafts"),
            ("draft_tokens", "drafted"),
            ("accepted_tokens", "accepted"),
        ):
            sample = f'vllm:spec_decode_num_{name}_total{{engine="{rank}",model_name="m"}}'
            yield f"{sample} {round(total[key])}"


def _sglang(counted: _Counted, now: Replica, rank: int) -> Iterator[str]:
    total = counted.totals
    ranks = f'engine_type="unified",model_name="m",dp_rank="{rank}",pp_rank="0",tp_rank="0"'
    cached = round(total["cached"])
    for name, value, labels in (
        ("num_running_reqs", now.running, ranks),
        ("num_queue_reqs", now.waiting, ranks),
        ("full_token_usage", now.kv_cache, ranks),
        ("token_usage", max(now.kv_cache, now.state), ranks),
        ("mamba_usage", now.state, ranks),
        ("realtime_tokens_total", round(total["tokens"]), f'{ranks},mode="decode"'),
        (
            "realtime_tokens_total",
            round(total["prompt"]) - cached,
            f'{ranks},mode="prefill_compute"',
        ),
        ("realtime_tokens_total", cached, f'{ranks},mode="prefill_cache"'),
        ("num_requests_total", round(total["requests"]), 'model_name="m"'),
    ):
        yield f"sglang:{name}{{{labels}}} {value}"


_PAGES = {"vllm": _vllm, "sglang": _sglang}

# ------------------------------------------------------------------------------ GPUs


def h200(index: int = 0, **differs: Any) -> Facts:
    """An H200 that decodes; a fact that is None is not told."""
    return _card(
        index,
        {
            "name": "NVIDIA H200",
            "pci_device_id": "0x233510de",
            "memory_total_bytes": 150_754_820_096,
            "memory_bus_width_bits": 6016,
            "power_mw": 470_000,
            "enforced_power_limit_mw": 700_000,
            "default_power_limit_mw": 700_000,
            "sm_clock_mhz": 1980,
            "max_sm_clock_mhz": 1980,
            "mem_clock_mhz": 3201,
            "max_mem_clock_mhz": 3201,
        },
        differs,
    )


def rtx_pro_6000(index: int = 0, **differs: Any) -> Facts:
    """An RTX PRO 6000 (server edition) that decodes."""
    return _card(
        index,
        {
            "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
            "memory_total_bytes": 102_641_958_912,
            "memory_bus_width_bits": 512,
            "power_mw": 330_000,
            "enforced_power_limit_mw": 600_000,
            "default_power_limit_mw": 600_000,
            "sm_clock_mhz": 2430,
            "max_sm_clock_mhz": 2430,
            "mem_clock_mhz": 12_481,
            "max_mem_clock_mhz": 12_481,
        },
        differs,
    )


def _card(index: int, card: Facts, differs: Facts) -> Facts:
    facts = {
        "index": index,
        "uuid": f"GPU-{index:08d}-0000-4000-8000-{index:012d}",
        "pci_bus_id": f"00000000:{index + 1:02X}:00.0",
        **card,
        "utilization_gpu_pct": 97,
        "utilization_mem_pct": 55,
        "clocks_event_reasons": "0x0",
        "temperature_c": 63,
        "pcie_gen": 5,
        "pcie_gen_max": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "xid": 0,
        "compute_procs": [
            {"pid": 4100 + index, "used_memory_bytes": 75_000_000_000, "name": "VLLM::EngineCore"}
        ],
        **differs,
    }
    return {key: value for key, value in facts.items() if value is not None}


def lost(index: int) -> Facts:
    """A GPU that the driver cannot reach."""
    known = h200(index)
    return {key: known[key] for key in ("index", "uuid", "name")} | {"error": "GPU is lost"}


# --------------------------------------------------------------------------- archive


def files_of(incident: Incident) -> dict[str, bytes]:
    """The recording's files: path inside it -> bytes."""
    files = {"config.yaml": incident.config.encode()}
    if incident.model is not None:
        files["config.json"] = _json(incident.model)
    counted: dict[int, _Counted] = {}
    for second in range(0, incident.seconds + 1, incident.every):
        at = (START_SECONDS + second) * 1000
        files[f"nvml/{at}.json"] = _json(incident.gpus(second))
        if second in incident.info:
            files[f"{incident.engine}/{at}.info.json"] = _json(incident.info[second])
        replicas = incident.server(second)
        if replicas is None:
            refused = {"reason": "unreachable", "detail": "connection refused"}
            files[f"{incident.engine}/{at}.failure.json"] = _json(refused)
            continue
        lines: list[str] = []
        for rank, now in enumerate(replicas):
            mine = counted.setdefault(rank, _Counted())
            mine.work(now, incident.every)
            lines += _PAGES[incident.engine](mine, now, rank)
        files[f"{incident.engine}/{at}.prom"] = ("\n".join(lines) + "\n").encode()
    return files


def packed(incident: Incident) -> bytes:
    """The recording as a `.tar.gz`, the same bytes every time."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        for path, data in files_of(incident).items():
            member = tarfile.TarInfo(f"{incident.name}/{path}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return gzip.compress(tar.getvalue(), mtime=0)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
