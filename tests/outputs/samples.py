"""Hand-built values for the tests of outputs: a status with every kind of target and GPU."""

from __future__ import annotations

from dataclasses import replace

from monitor.model import (
    AlertStatus,
    CauseFound,
    Cost,
    Expectation,
    Finding,
    Floor,
    FloorRule,
    GpuOnTarget,
    GpuProcess,
    GpuReading,
    GpuStatus,
    Instant,
    Judgement,
    MigDevice,
    Problem,
    ProblemReason,
    Rates,
    ReplicaStatus,
    Status,
    Step,
    TargetStatus,
    Totals,
    Unknown,
    Verdict,
)
from monitor.outputs.alertmanager_queue import Delivered
from monitor.outputs.exposition import SelfStats

NOW = Instant(monotonic_seconds=5_000.0, wall_seconds=1_796_000_000.0)
UUID = "GPU-1a2b"
GPU_NAME = "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"

HOSTILE = 'a\\b"c\nd{e="f"} 1\n# EOF\n</td><script>alert(1)</script>'

MODEL_FLOOR = Floor(
    FloorRule.MODEL,
    725.0,
    (
        Step("expected", 1449.5, "tokens/s", "at the demanded batch"),
        Step("safety factor", 0.5, "", "see the model"),
    ),
)
REFERENCE_FLOOR = Floor(FloorRule.REFERENCE, 705.25, ())


def rates(window_seconds: float, generation: float | None, prompt: float | None) -> Rates:
    """Build a complete window with the load of the story."""
    return Rates(
        window_seconds=window_seconds,
        span_seconds=window_seconds,
        complete=True,
        generation_tokens_per_second=generation,
        prompt_tokens_per_second=prompt,
        samples=int(window_seconds) + 1,
        running_mean=19.0,
        waiting_mean=200.0,
        waiting_share=1.0,
        busy_share=1.0,
    )


CAPPED = TargetStatus(
    name="qwen-a",
    url="http://127.0.0.1:30000",
    labels={"team": "search"},
    engine="sglang",
    engine_version="0.5.23",
    model="Qwen/Qwen3.5-27B",
    precision="bf16",
    kv_cache_dtype=None,
    role="unified",
    tensor_parallel=1,
    pipeline_parallel=1,
    data_parallel=None,
    up=True,
    problem=None,
    last_success_wall_seconds=1_796_000_000.0,
    scrape_duration_seconds=0.0125,
    page_bytes=51_900,
    scrapes=601,
    scrape_failures={"timeout": 2},
    totals=Totals(29_100.0, 7_272.0, 0.0, resets=1),
    main=rates(60, 485.0, 121.2),
    rates={"10s": rates(10, 485.5, 121.25), "60s": rates(60, 485.0, 121.2)},
    requests_running=19.0,
    requests_waiting=200.0,
    kv_cache_usage_ratio=0.35,
    token_source="sglang:realtime_tokens_total",
    gpu_count=1,
    gpus=(GpuOnTarget(0, UUID, GPU_NAME, "single", (), 485.0, 121.2, 1449.5, 725.0, 0.669),),
    replicas=(),
    expectation=Expectation(
        (MODEL_FLOOR, REFERENCE_FLOOR),
        MODEL_FLOOR,
        1449.5,
        efficiency_observed=1.081,
        efficiency_demand=0.335,
        mbu=0.72,
        mfu=0.06,
        batch_demand=98.0,
        batch_memory_cap=98.5,
        expectation_check_ratio=1.02,
        efficiency_relative=0.31,
        calibration_ratio=1.08,
    ),
    judgement=Judgement(
        verdict=Verdict.CONCURRENCY_LIMITED,
        since_wall_seconds=1_795_999_000.0,
        because="19 run and 200 wait",
        below_floor=True,
        floor_ratio=0.669,
        judged_over_seconds=(300.0, 3600.0),
        causes=(CauseFound("mamba_state_cap", "19 of 19 state slots", "raise the state pool"),),
    ),
    findings=(
        Finding(
            "kv_cache_limited",
            "warning",
            "KV cache above 0.9",
            "give the cache more memory",
            1_795_998_000.0,
        ),
    ),
    cost=Cost(1_929.0, 1.33, 58_000.0, 119.6, 40.0),
    unknown=(Unknown("kv_cache_dtype", "the server does not tell"),),
    notes=("copies of two ranks agree",),
)
"""The capped server of the story: 485 tokens/s where 725 is the floor."""

DATA_PARALLEL = replace(
    CAPPED,
    name="dp2",
    labels={},
    problem=None,
    scrape_failures={},
    main=rates(60, 7_200.0, None),
    rates={"60s": rates(60, 7_200.0, None)},
    kv_cache_usage_ratio=None,
    gpu_count=8,
    gpus=tuple(
        GpuOnTarget(i, "", "b200-sxm-180gb", "replica", (), rate, None, None, None, None)
        for i, rate in ((0, 1_200.0), (4, 600.0))
    ),
    replicas=(
        ReplicaStatus("0", (0, 1, 2, 3), 4_800.0, 50.0, 0.0),
        ReplicaStatus("1", (4, 5, 6, 7), 2_400.0, 50.0, 0.0),
    ),
    expectation=Expectation(unknown=(Unknown("floor", "no reference for this model"),)),
    judgement=Judgement(None, 1_795_999_500.0, "no floor is known"),
    findings=(),
    unknown=(),
    notes=(),
)
"""Two replicas on eight GPUs of another host, without a floor."""

DOWN = replace(
    CAPPED,
    name="gone",
    labels={},
    up=False,
    problem=Problem(ProblemReason.UNREACHABLE, "connection refused", "is the server started?"),
    scrape_duration_seconds=None,
    scrapes=10,
    scrape_failures={"unreachable": 3},
    judgement=Judgement(Verdict.NO_DATA, 1_795_999_900.0, "no page for 60 s"),
    findings=(),
)
"""A server that stopped answering; the figures of its last page are still in its status."""

NEVER_SEEN = TargetStatus(
    name="never",
    url="http://127.0.0.1:1",
    labels={},
    engine=None,
    engine_version=None,
    model=None,
    precision=None,
    kv_cache_dtype=None,
    role=None,
    tensor_parallel=None,
    pipeline_parallel=None,
    data_parallel=None,
    up=False,
    problem=Problem(ProblemReason.DNS, "no such host", ""),
    last_success_wall_seconds=None,
    scrape_duration_seconds=None,
    page_bytes=None,
    scrapes=1,
    scrape_failures={"dns": 1},
    totals=Totals(),
    main=Rates(60, reason="first_sample"),
    rates={},
    requests_running=None,
    requests_waiting=None,
    kv_cache_usage_ratio=None,
    token_source=None,
    gpu_count=None,
    gpus=(),
    replicas=(),
    expectation=Expectation(),
    judgement=Judgement(None, 1_795_999_999.0, "first round"),
)
"""A target of which nothing is known."""

HOSTILE_TARGET = replace(
    CAPPED,
    name=HOSTILE,
    labels={"team": HOSTILE, "target": "stolen", "__name__": "x", "bad-name": "y"},
    engine_version=HOSTILE,
    model=HOSTILE,
    main=rates(60, float("nan"), float("inf")),
    requests_running=float("-inf"),
    gpus=(replace(CAPPED.gpus[0], name=HOSTILE),),
    judgement=replace(CAPPED.judgement, because=HOSTILE),
)
"""A target whose every text and number tries to break out."""

READING = GpuReading(
    index=0,
    uuid=UUID,
    name=GPU_NAME,
    pci_device_id="0x2bb110de",
    pci_bus_id="00000000:01:00.0",
    memory_total_bytes=102_641_958_912,
    memory_used_bytes=90_000_000_000,
    memory_bus_width_bits=512,
    utilization_gpu_pct=99.0,
    utilization_mem_pct=41.0,
    power_mw=412_345,
    power_instant_mw=431_000,
    energy_mj=123_456_789,
    enforced_power_limit_mw=600_000,
    default_power_limit_mw=600_000,
    sm_clock_mhz=2_415,
    max_sm_clock_mhz=3_090,
    mem_clock_mhz=13_365,
    max_mem_clock_mhz=14_001,
    clocks_event_reasons=0x44,
    throttle_ns={"sw_power_cap": 16_100_000_000},
    temperature_c=71.0,
    memory_temperature_c=84.0,
    pcie_gen=5,
    pcie_gen_max=5,
    pcie_width=8,
    pcie_width_max=16,
    mig_mode=0,
    mig_devices=(MigDevice("MIG-1", 0),),
    ecc_uncorrected=0,
    remapped_rows=0,
    xid=31,
    compute_procs=(GpuProcess(4_100, 75_000_000_000, "sglang"),),
    gpm_pct={"graphics": 99.0, "sm": 70.5, "tensor": 22.0, "dram": 59.1},
)

LOST_READING = GpuReading(3, "GPU-3", "NVIDIA H200", error="gpu is lost")

STATUS = Status(
    at=NOW,
    targets=(CAPPED, DATA_PARALLEL, DOWN, NEVER_SEEN),
    gpus=(
        GpuStatus(
            READING,
            True,
            "rtx-pro-6000-blackwell-ws",
            targets=("qwen-a",),
            floor_share_ratio=0.669,
            catalogue_bandwidth_ratio=1.0625,
            catalogue_clock_ratio=0.9375,
        ),
        GpuStatus(LOST_READING, False, None, since_wall_seconds=1_795_999_990.0),
    ),
    nvml_up=True,
    nvml_reason=None,
    alerts=(
        AlertStatus("FloorwatchBelowFloor", "page", "qwen-a", 1_795_999_400.0, "485 of 725"),
        AlertStatus("FloorwatchGpuLost", "critical", None, 1_795_999_990.0, "lost", 3, "GPU-3"),
    ),
)

OWN = SelfStats(
    version="0.1.0",
    revision="abc123",
    python="3.11.7",
    start_wall_seconds=1_795_990_000.0,
    last_tick_wall_seconds=1_796_000_000.0,
    config_reload_successful=True,
    config_reload_success_wall_seconds=1_795_990_001.0,
    ticks=600,
    ticks_skipped=1,
    tick_seconds=0.004,
    render_seconds=0.0005,
    nvml_reads=599,
    nvml_read_seconds=0.0033,
    process_cpu_seconds=12.5,
    process_resident_bytes=67_000_000,
    process_open_fds=42,
    discovery={"local": (2, True), "http_sd[0]": (7, False)},
    deliveries=(
        Delivered(
            "http://am:9093", 1_200, (("rejected", 1), ("timeout", 3)), 2, 1, 1_796_000_000.0
        ),
    ),
)
