"""A small world for the core: servers that publish pages, GPUs that answer, and a clock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from monitor.expectation.matching import Catalogue
from monitor.model import (
    Confidence,
    Density,
    Event,
    Failure,
    Figure,
    FloorSpec,
    GpuProcess,
    GpuReading,
    GpuRound,
    GpuSpec,
    InfoReply,
    Instant,
    JudgementSettings,
    Page,
    Problem,
    ProblemReason,
    ServerInfo,
    Status,
    TargetSpec,
    TargetStatus,
)
from monitor.pipeline import Plan, State, step

WALL = 1_796_000_000.0
REFUSED = Problem(ProblemReason.UNREACHABLE, "connection refused")


@dataclass
class Server:
    """A server that works at given rates; `page` is what it publishes now.

    `frozen` holds the load that the gauges show in place of the true one.
    """

    name: str = "a"
    engine: str = "vllm"
    model: str = "m"
    rate: float = 485.0
    prompt_rate: float = 0.0
    running: float | None = 19.0
    waiting: float | None = 200.0
    kv_cache: float | None = 0.35
    generation: float = 10_000.0
    prompt: float = 0.0
    finished: float = 0.0
    finish_rate: float = 1.0
    started: float | None = None
    frozen: tuple[float, float] | None = None
    idle_seconds: float | None = None
    scheduler: bool = True
    up: bool = True
    labels: str = ""
    info: ServerInfo | None = None

    def work(self, seconds: float) -> None:
        """Let time go by."""
        self.generation += self.rate * seconds
        self.prompt += self.prompt_rate * seconds
        self.finished += self.finish_rate * seconds

    def rest(self) -> None:
        """Have nothing to do from now on."""
        self.rate = self.prompt_rate = self.finish_rate = 0.0
        self.running = self.waiting = 0.0

    def event(self, now: Instant) -> Event:
        """What a scrape brings."""
        if not self.up:
            return Failure(self.name, now, REFUSED)
        lines = self._vllm() if self.engine == "vllm" else self._sglang()
        if self.started is not None:
            lines.append(f"process_start_time_seconds {self.started}")
        return Page(self.name, now, ("\n".join(lines) + "\n").encode(), duration_seconds=0.02)

    def _vllm(self) -> list[str]:
        labels = f'{{engine="0",model_name="{self.model}"}}'
        lines = [
            f"vllm:generation_tokens_total{labels} {self.generation}",
            f"vllm:prompt_tokens_total{labels} {self.prompt}",
            f"vllm:request_success_total{labels} {self.finished}",
            f"vllm:num_preemptions_total{labels} 0",
        ]
        for sample, value in (
            ("num_requests_running", self.running),
            ("num_requests_waiting", self.waiting),
            ("kv_cache_usage_perc", self.kv_cache),
        ):
            if value is not None:
                lines.append(f"vllm:{sample}{labels} {value}")
        return lines

    def _sglang(self) -> list[str]:
        labels = f'model_name="{self.model}"{self.labels}'
        if not self.scheduler:
            return [f"sglang:num_requests_total{{{labels}}} {self.finished}"]
        running, waiting = self.frozen or (self.running, self.waiting)
        lines = [
            f'sglang:realtime_tokens_total{{{labels},mode="decode"}} {self.generation}',
            f'sglang:realtime_tokens_total{{{labels},mode="prefill_compute"}} {self.prompt}',
            f"sglang:num_running_reqs{{{labels}}} {running}",
            f"sglang:num_queue_reqs{{{labels}}} {waiting}",
            f"sglang:token_usage{{{labels}}} {self.kv_cache}",
        ]
        if self.idle_seconds is not None:
            lines.append(f"sglang:scheduler_idle_seconds_total{{{labels}}} {self.idle_seconds}")
        return lines


@dataclass
class World:
    """Everything that is watched, and the core that watches it."""

    specs: tuple[TargetSpec, ...]
    servers: list[Server]
    settings: JudgementSettings = JudgementSettings(slow_for_seconds=0.0)
    catalogue: Catalogue = Catalogue()
    gpus: list[GpuReading] | None = None
    nvml_error: str | None = None
    now: float = 1000.0
    wall_offset: float = WALL
    state: State = field(default_factory=State)
    status: Status | None = None
    alarm_log: list[tuple[float, str, str | None]] = field(default_factory=list)

    @property
    def instant(self) -> Instant:
        """Now on both clocks."""
        return Instant(self.now, self.now + self.wall_offset)

    def tick(self, seconds: float = 10.0, extra: Iterable[Event] = ()) -> TargetStatus:
        """Let time go by, look once at everything; the first target's status."""
        self.now += seconds
        events: list[Event] = []
        for server in self.servers:
            server.work(seconds)
            events.append(server.event(self.instant))
            if server.info is not None:
                events.append(InfoReply(server.name, self.instant, server.info))
        if self.nvml_error is not None:
            events.append(GpuRound(self.instant, error=self.nvml_error))
        elif self.gpus is not None:
            events.append(GpuRound(self.instant, tuple(self.gpus)))
        before = self.alarms()
        plan = Plan(self.specs, self.settings, self.catalogue)
        self.state, self.status = step(plan, self.state, [*events, *extra], self.instant)
        for name, target in sorted(set(self.alarms()) - set(before), key=str):
            self.alarm_log.append((self.now, name, target))
        return self.status.targets[0]

    def run(self, seconds: float, every: float = 10.0) -> TargetStatus:
        """Tick for a while."""
        for _ in range(round(seconds / every) - 1):
            self.tick(every)
        return self.tick(every)

    def alarms(self) -> list[tuple[str, str | None]]:
        """The alarms that are on, by name and target."""
        alerts = () if self.status is None else self.status.alerts
        return [(alert.name, alert.target) for alert in alerts]

    def of(self, name: str) -> TargetStatus:
        """The latest status of a target."""
        assert self.status is not None
        return next(target for target in self.status.targets if target.name == name)


def spec(name: str = "a", floor: float | None = 875.0, **changes: object) -> TargetSpec:
    """A local target on GPU 0 with a fixed floor."""
    facts: dict[str, object] = {"gpus": (0,), **changes}
    return TargetSpec(
        name=name,
        url=str(facts.pop("url", "http://127.0.0.1:8000")),
        floor=None if floor is None else FloorSpec(fixed_tokens_per_second=floor),
        **facts,  # type: ignore[arg-type]
    )


def gpu(index: int = 0, *processes: str, **changes: object) -> GpuReading:
    """A GPU that answers, with the processes on it."""
    facts: dict[str, object] = {
        "uuid": f"GPU-{index}",
        "name": "NVIDIA H100 80GB HBM3",
        "memory_total_bytes": 85_520_809_984,
        "power_mw": 560_000,
        "compute_procs": tuple(
            GpuProcess(100 * index + number, name=name) for number, name in enumerate(processes)
        ),
        **changes,
    }
    return GpuReading(index, **facts)  # type: ignore[arg-type]


def figure(value: float, unit: str) -> Figure:
    """A number of the catalogue."""
    return Figure(value, unit, ("a datasheet",), Confidence.DATASHEET)


def card(name: str, ident: str, bandwidth: float = 3350.0, tflops: float = 989.0) -> GpuSpec:
    """A GPU of the catalogue that NVML calls `name`."""
    return GpuSpec(
        id=ident,
        vendor="nvidia",
        names=(name,),
        pci_device_ids=(),
        compute_capability=None,
        memory_gb=None,
        memory_bandwidth_gb_per_second=figure(bandwidth, "GB/s"),
        dense_peaks={"bf16": replace(figure(tflops, "TFLOPS"), density=Density.DENSE)},
        sparse_peaks={},
        tdp_w=None,
        multiprocessors=None,
    )


H100 = card("NVIDIA H100 80GB HBM3", "h100-sxm-80gb")
A100 = card("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb", 2039.0, 312.0)
