"""What a verdict is reached from: the figures of one target at one tick, nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field

from monitor.model import (
    Efficiency,
    Expectation,
    Floor,
    GpuActivity,
    Liveness,
    Problem,
    Rates,
    ServerInfo,
)

PREFILL_DOMINATED_RATIO = 8.0
"""Computed prompt tokens per generated token above which prefill takes half of the work.

Performance model, test vector 10: 5620 prompt and 702 generated tokens/s (ratio 8.0) spend
0.49 of the time in prefill. Beyond it a floor of generated tokens alone judges the wrong work.
"""


@dataclass(frozen=True, slots=True)
class GpuFault:
    """A GPU of the target that is lost or told of a device error (XID) since it was watched.

    `wall_seconds`: Unix time at which it was first seen so.
    """

    index: int
    uuid: str | None
    pci_bus_id: str | None
    lost: bool
    xid: int | None
    what: str
    wall_seconds: float


@dataclass(frozen=True, slots=True)
class Usual:
    """What is usual of this server, learned while it was well; None: not learned yet.

    `scrape_seconds`: the duration of a scrape. `prefix_hit_share`: the part of prompt tokens
    that its cache had.
    """

    scrape_seconds: float | None = None
    prefix_hit_share: float | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """One target at one tick. Times are monotonic seconds; rates are of the whole server.

    `ready`: the scheduler reports. `unbroken_seconds`: since the first page or the last break;
    `break_reason` names it. `still_seconds`: from the last movement of the work counters to the
    last page, 0 when that page itself moved them, None when it does not tell the token counter:
    what is not seen may move. `prompt_told`: it tells the prompt counter, or never did.
    `liveness` is of the counter that shows work
    under way, `prompt_liveness` of the prompt counter. `running` and `waiting` are the last
    page's. `cap`: the most requests that can run at once, over the ranks that `running` covers.
    `others_*`: the floor share of the other servers on this one's fullest GPU, which adds up
    with its own; None when one of them is unknown. `floor_pending`: there is no floor now, but
    the model gives one as soon as there is load to work it out from.
    `efficiency_*`: measured over expected, each window by its own load.
    `gpus`, `gpus_main`: what the GPUs that serve it did over the short and
    the main window; `gpu_faults`: which of them
    are lost or told of a device error; `strangers`: processes of nobody's servers on them
    (`name (pid N) on GPU I`). `maintenance`: the operator wants no alarms now.
    """

    now: float
    wall: float
    problem: Problem | None
    last_success: float | None
    ready: bool
    unbroken_seconds: float
    break_reason: str
    process_age_seconds: float | None
    sleeping: bool
    still_seconds: float | None
    liveness: Liveness | None
    prompt_liveness: Liveness | None
    prompt_told: bool
    stale_gauge_seconds: float
    running: float | None
    waiting: float | None
    main: Rates
    short: Rates
    long: Rates
    floor: Floor | None
    no_floor_reason: str
    gpu_count: int | None
    no_gpus_reason: str
    cap: int | None
    intended_cap: int | None
    shared_with: tuple[str, ...]
    others_short: float | None
    others_long: float | None
    others_main: float | None = field(default=0.0, kw_only=True)
    role: str | None
    info: ServerInfo | None
    floor_pending: bool = False
    engine: str | None = None
    expectation: Expectation = Expectation()
    gpus: tuple[GpuActivity, ...] = ()
    gpus_main: tuple[GpuActivity, ...] = ()
    gpu_faults: tuple[GpuFault, ...] = ()
    strangers: tuple[str, ...] = ()
    tensor_parallel: int | None = None
    usual: Usual = Usual()
    efficiency_main: Efficiency = Efficiency()
    efficiency_short: Efficiency = Efficiency()
    efficiency_long: Efficiency = Efficiency()
    maintenance: bool = False

    def blind_seconds(self) -> float | None:
        """How long ago the last page came; None if there never was one."""
        return None if self.last_success is None else self.now - self.last_success

    def prefill_dominated(self, rates: Rates) -> bool:
        """Whether most of the work over this window was prefill."""
        if self.role in ("prefill", "decode"):
            # A decode server counts the prompts that another one computed.
            return self.role == "prefill"
        prompt = rates.prompt_tokens_per_second or 0.0
        generation = rates.generation_tokens_per_second or 0.0
        return prompt > 0.0 and prompt >= PREFILL_DOMINATED_RATIO * generation


def count(value: float | None) -> str:
    """A mean number of requests as people say it."""
    return "an unknown number of" if value is None else f"{value:.0f}"
