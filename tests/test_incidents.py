"""An incident for every cause, through the whole pipeline, and healthy servers that have none.

Rules of this file:

1. `INCIDENTS` is the whole claim: what each recording must come to. Its causes are exact: every
   other one is wrong at every tick, but for those named in `beside` (true as well, or true for a
   moment).
2. Recordings of real servers stand in `recordings/real` and `incidents`; what no recorded server
   had was written by `incidents/made.py`.
3. All are judged as `floorwatch replay NAME --windows 5s,10s,30s --warm-up 0s` does.
"""

from __future__ import annotations

import tarfile
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from pathlib import Path

import pytest

from monitor.assembly import catalogue_of, plan_of
from monitor.config import Config, parse, scaled
from monitor.judgement.causes import CAUSES
from monitor.judgement.verdict import FAULTS
from monitor.model import JudgementSettings, Status, TargetStatus, Verdict
from monitor.replaying import replay
from monitor.sources.model_config import recorded_model_config
from monitor.sources.recording import open_recording
from tests.incidents import made
from tests.incidents.writing import Incident, files_of

TESTS = Path(__file__).parent
REAL = "recordings/real/h200-"
WINDOWS = (5.0, 10.0, 30.0)

BELOW, STALLED, LOST = "FloorwatchBelowFloor", "FloorwatchStalled", "FloorwatchGpuLost"


@dataclass(frozen=True)
class Expected:
    """What a recording must come to at one tick (the last), and which alarms ever came on.

    `config`: what is added to the recording's own. `as_configured`: its own windows, for a
    recording of hours. `finding`: the ticket that it brings.
    """

    verdict: Verdict
    below_floor: bool
    causes: tuple[str, ...]
    alarms: tuple[str, ...] = ()
    finding: str | None = None
    beside: tuple[str, ...] = ()
    tick: int = -1
    config: str = ""
    as_configured: bool = False


def real(name: str) -> str:
    return f"{REAL}{name}"


def own(name: str) -> str:
    return f"incidents/{name}"


TWO_REPLICAS = """\
targets:
  - name: dp2_engine_killed
    url: http://127.0.0.1:8101
    gpu_count: 2
    floor: {tokens_per_second: 50}
"""

# fmt: off
INCIDENTS: dict[str, Expected] = {
    own("gpu-lost"): Expected(
        Verdict.STALLED, False, ("gpu_lost", "engine_hung"), (LOST, STALLED)),
    own("xid-95"): Expected(
        Verdict.STALLED, False, ("xid", "engine_hung"), (STALLED,)),
    own("engine-dead"): Expected(
        Verdict.STALLED, False, ("engine_dead",), (STALLED,), beside=("engine_hung",)),
    # Its processes were killed; nothing moved for 4 s, then the port refused.
    "recordings/real/vllm-dp2_engine_killed": Expected(
        Verdict.STALLED, False, ("engine_dead",), (STALLED,), beside=("engine_hung",),
        config=TWO_REPLICAS),
    own("engine-hung"): Expected(
        Verdict.STALLED, False, ("engine_hung",), (STALLED,)),
    own("thermal-throttle"): Expected(
        Verdict.THROTTLED, True, ("thermal_throttle",), (BELOW,), beside=("unknown",)),
    own("power-brake"): Expected(
        Verdict.THROTTLED, True, ("hardware_slowdown",), (BELOW,)),
    own("power-cap"): Expected(
        Verdict.THROTTLED, True, ("power_cap",), (BELOW,)),
    own("slow-gpu-in-group"): Expected(
        Verdict.DEGRADED, True, ("slow_gpu_in_group",), (BELOW,), finding="straggler"),
    real("sglang-hyb_extra-c128"): Expected(
        Verdict.CONCURRENCY_LIMITED, True, ("mamba_state_cap", "shared_gpu"), (BELOW,), tick=30),
    own("sglang-mamba-state-cap"): Expected(
        Verdict.CONCURRENCY_LIMITED, True, ("mamba_state_cap",), (BELOW,), tick=30,
        beside=("unknown",)),
    real("cap8-cap128"): Expected(
        Verdict.CONCURRENCY_LIMITED, True, ("max_running_cap",), (BELOW,)),
    own("vllm-slot-cap"): Expected(
        Verdict.CONCURRENCY_LIMITED, True, ("max_running_cap",), (BELOW,)),
    own("vllm-flickering-queue"): Expected(
        Verdict.CONCURRENCY_LIMITED, True, ("max_running_cap",), (BELOW,), tick=25),
    real("kvsmall-c256ns"): Expected(
        Verdict.KV_CACHE_LIMITED, False, ("kv_cache_full", "preemptions"),
        finding="kv_cache_limited", config="    floor: {tokens_per_second: 20000}\n"),
    real("sglang-llama_eager-c8s"): Expected(
        Verdict.HOST_BOUND, True, ("cuda_graphs_off", "shared_gpu"), (BELOW,)),
    real("sglang-llama-c256"): Expected(
        Verdict.HOST_BOUND, False, ("api_server_saturated", "shared_gpu"), finding="host_bound"),
    real("bf16-c64s-onecore"): Expected(
        Verdict.HOST_BOUND, False, ("host_cpu",), finding="host_bound"),
    # vLLM's page tells nothing of CUDA graphs: what is seen is that the GPU waits.
    real("eager-c8s"): Expected(
        Verdict.HOST_BOUND, True, ("host_cpu",), (BELOW,)),
    own("nvlink-xid-74"): Expected(
        Verdict.DEGRADED, True, ("xid", "nvlink"), (BELOW,)),
    own("pcie-link"): Expected(
        Verdict.DEGRADED, True, ("pcie_link",), (BELOW,)),
    own("shared-gpu"): Expected(
        Verdict.DEGRADED, True, ("shared_gpu",), (BELOW,)),
    own("data-parallel-imbalance"): Expected(
        Verdict.DEGRADED, True, ("data_parallel_imbalance",), (BELOW,),
        finding="data_parallel_imbalance"),
    own("prefix-cache-collapsed"): Expected(
        Verdict.DEGRADED, True, ("prefix_cache_collapsed",), (BELOW,), beside=("unknown",),
        as_configured=True),
    own("speculation-costs"): Expected(
        Verdict.DEGRADED, True, ("speculation_costs",), (BELOW,)),
    own("wrong-kernel"): Expected(
        Verdict.DEGRADED, True, ("wrong_kernel_or_precision",), (BELOW,)),
    own("mamba-cap-and-its-fix"): Expected(
        Verdict.CONCURRENCY_LIMITED, True, ("mamba_state_cap",), (BELOW,), tick=30),
}
# fmt: on

HEALTHY = {
    "bf16-c1": Verdict.DEMAND_LIMITED,
    "bf16-c8": Verdict.DEMAND_LIMITED,
    "bf16-c64": Verdict.DEMAND_LIMITED,
    "bf16-c256": Verdict.DEMAND_LIMITED,
    "bf16-prefill": Verdict.COMPUTE_LIMITED,
    "bf16-idle10": Verdict.IDLE,
    "fp8-c1s": Verdict.DEMAND_LIMITED,
    "fp8-c256ns": Verdict.DEMAND_LIMITED,
    "tp2-c64s": Verdict.DEMAND_LIMITED,
    "tp2-idle5": Verdict.IDLE,
    "kvsmall-c256ns": Verdict.MEMORY_BANDWIDTH_LIMITED,
    "sglang-llama-c8": Verdict.DEMAND_LIMITED,
    "sglang-llama-c64": Verdict.DEMAND_LIMITED,
    "sglang-llama-c256n": Verdict.DEMAND_LIMITED,
    "sglang-llama-idle12": Verdict.IDLE,
    "sglang-hyb_noradix-c24": Verdict.DEMAND_LIMITED,
    "sglang-hyb_noradix-c128": Verdict.DEMAND_LIMITED,
    "sglang-hyb_extra640-c128n": Verdict.DEMAND_LIMITED,
}
"""Real servers that were well, and their last verdict."""

SHORT = {"fp8-c1s": (2.0, 5.0, 8.0)}
"""Windows for a recording of 9 s."""

STILL_IDLE = (
    "sglang-idle",
    "vllm-idle",
    "sglang-0.5.9-stale-gauges",
    "sglang-0.4.10-stale-gauges",
)


@cache
def replayed(
    path: str, windows: tuple[float, ...] | None = WINDOWS, more: str = ""
) -> tuple[Status, ...]:
    recording = open_recording(TESTS / f"{path}.tar.gz")
    text = (recording.config_text or "") + more
    config = scaled(parse(text, "config.yaml", {}), windows, None if windows is None else 0.0)
    read = partial(recorded_model_config, side_file=recording.side_file)
    plan = plan_of(config, catalogue_of(config), read)
    statuses = tuple(replay(plan, recording.events(), config.poll_interval_seconds))
    assert recording.notes == ()
    return statuses


def judged(path: str) -> tuple[Status, ...]:
    expected = INCIDENTS[path]
    return replayed(path, None if expected.as_configured else WINDOWS, expected.config)


def causes_of(target: TargetStatus) -> tuple[str, ...]:
    return tuple(cause.cause for cause in target.judgement.causes)


def alarms(statuses: tuple[Status, ...]) -> set[str]:
    return {alert.name for status in statuses for alert in status.alerts}


# -------------------------------------------------------------------------- incidents


def test_every_cause_has_an_incident() -> None:
    shown = {cause for expected in INCIDENTS.values() for cause in expected.causes}
    assert [row.name for row in CAUSES if row.name not in shown] == []
    assert len(CAUSES) == 22


def test_every_recorded_incident_is_in_the_table() -> None:
    recorded = {path.name.removesuffix(".tar.gz") for path in (TESTS / "incidents").glob("*.gz")}
    assert {own(name) for name in recorded} == {
        path for path in INCIDENTS if path.startswith("incidents/")
    } | {own(name) for name in STILL_IDLE}


@pytest.mark.parametrize("path", INCIDENTS)
def test_the_verdict(path: str) -> None:
    expected, target = INCIDENTS[path], judged(path)[INCIDENTS[path].tick].targets[0]
    judgement = target.judgement
    assert judgement.verdict is expected.verdict, judgement.because
    assert judgement.below_floor is expected.below_floor


@pytest.mark.parametrize("path", INCIDENTS)
def test_the_causes_and_no_others(path: str) -> None:
    expected, statuses = INCIDENTS[path], judged(path)
    assert causes_of(statuses[expected.tick].targets[0]) == expected.causes
    ever = {cause for status in statuses for cause in causes_of(status.targets[0])}
    assert ever - set(expected.causes) == set(expected.beside)


@pytest.mark.parametrize("path", INCIDENTS)
def test_each_cause_says_what_shows_it_and_what_to_try(path: str) -> None:
    found = judged(path)[INCIDENTS[path].tick].targets[0].judgement.causes
    assert all(any(letter.isdigit() for letter in cause.evidence) for cause in found)
    assert all(cause.advice for cause in found)


@pytest.mark.parametrize("path", INCIDENTS)
def test_its_alarms_and_its_ticket(path: str) -> None:
    expected, statuses = INCIDENTS[path], judged(path)
    assert alarms(statuses) == set(expected.alarms)
    findings = {finding.finding for status in statuses for finding in status.targets[0].findings}
    assert findings == ({expected.finding} if expected.finding else set())


@pytest.mark.parametrize("incident", made.INCIDENTS, ids=lambda one: one.name)
def test_what_was_written_by_hand_is_written_again(incident: Incident) -> None:
    with tarfile.open(TESTS / "incidents" / f"{incident.name}.tar.gz") as archive:
        packed = {
            member.name.partition("/")[2]: data.read()
            for member in archive
            if (data := archive.extractfile(member)) is not None
        }
    assert packed == files_of(incident)


def test_writing_them_all(tmp_path: Path) -> None:
    assert made.main([str(tmp_path)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        f"{incident.name}.tar.gz" for incident in made.INCIDENTS
    )
    largest = max(path.stat().st_size for path in tmp_path.iterdir())
    assert largest < 20_000


# ---------------------------------------------------------------------------- healthy


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_server_has_no_fault_no_alarm_and_no_cause(name: str) -> None:
    statuses = replayed(real(name), SHORT.get(name, WINDOWS))
    targets = [status.targets[0] for status in statuses]
    assert {target.judgement.verdict for target in targets} & FAULTS == set()
    assert targets[-1].judgement.verdict is HEALTHY[name]
    assert alarms(statuses) == set()
    assert not any(target.judgement.below_floor for target in targets)
    assert not any(causes_of(target) for target in targets)
    assert not any(target.findings for target in targets)


# -------------------------------------------------------------------- the first story


def test_the_first_story_live() -> None:
    """A hybrid model under `extra_buffer`: 120 state slots let 24 of 128 clients run."""
    target = judged(real("sglang-hyb_extra-c128"))[20].targets[0]
    assert target.judgement.verdict is Verdict.CONCURRENCY_LIMITED
    cause = target.judgement.causes[0]
    assert cause.cause == "mamba_state_cap"
    assert cause.evidence.startswith("24 of 24 running, 104 waiting, KV cache ")
    assert "extra_buffer takes 5 state slots a request: 120 // 5 = 24; expected +" in cause.evidence
    assert "--max-mamba-cache-size 5 x 128 = 640 for the 128 requests asked for" in cause.advice
    assert "cap 24; the KV cache has room" in target.judgement.because


def test_as_many_requests_that_are_asked_for_are_no_cap() -> None:
    """The same model with 24 clients, of whom nobody waits."""
    statuses = replayed(real("sglang-hyb_noradix-c24"))
    running = [status.targets[0].requests_running or 0.0 for status in statuses[10:]]
    assert max(running) <= 24.0
    assert alarms(statuses) == set()


def test_the_first_story_and_its_fix() -> None:
    """485 tokens/s with 12 of 12 running; a restart with five times the slots: 1180, silence."""
    statuses = judged(own("mamba-cap-and-its-fix"))
    before, after = statuses[30].targets[0], statuses[-1].targets[0]
    assert before.main.generation_tokens_per_second == pytest.approx(485.0)
    assert before.judgement.because == (
        "485 of 875 tokens/s per GPU (0.55 of the fraction floor) over 10 s, 12 running, "
        "186 waiting, cap 12; the KV cache has room"
    )
    (cause,) = before.judgement.causes
    assert cause.evidence == (
        "12 of 12 running, 186 waiting, KV cache 35% used; extra_buffer takes 5 state slots a "
        "request: 64 // 5 = 12; 16.5 times as many are asked for"
    )
    assert cause.advice.startswith("set --max-mamba-cache-size 5 x 198 = 990 for the 198 requests")
    assert after.main.generation_tokens_per_second == pytest.approx(1180.0)
    assert after.judgement.verdict is Verdict.MEMORY_BANDWIDTH_LIMITED
    assert causes_of(after) == ()
    assert after.judgement.because.startswith(
        "1180 of 875 tokens/s per GPU (1.35 of the fraction floor) over 10 s, 64 running"
    )
    on = [tick for tick, status in enumerate(statuses) if status.alerts]
    # Full windows at 10 s; nobody answers from 31 to 35 s; the new server's first page is at 36 s.
    assert on == list(range(10, 36))
    assert {alert.name for tick in on for alert in statuses[tick].alerts} == {BELOW}


# --------------------------------------------------------------- --windows, --warm-up


TIMES = {field.name for field in fields(JudgementSettings) if field.name.endswith("_seconds")}

CHOSEN = """\
judgement:
  waiting_share_short: 0.6
  waiting_share_long: 0.4
  kv_cache_high: 0.85
  running_at_cap: 0.7
  clear_margin: 0.2
  min_samples: 4
  min_completions: 50
  idle_requests: 0.4
  max_plausible_tokens_per_second_per_gpu: 500000
  floor_share: 0.4
  floor_share_calibrated: 0.7
  min_running: 2
  min_moving_share: 0.6
  fast_step_cap: 0.3
  fast_shortfall: 0.5
  host_bound_activity: 0.7
  throttle_share: 0.6
  throttle_efficiency: 0.7
  clock_low: 0.7
  memory_clock_low: 0.9
  gain_info: 1.3
  gain_critical: 1.4
  invalid_efficiency: 1.6
  check_low: 0.6
  check_high: 1.5
  calibration_hours: 12
  calibration_days: 7
  calibration_low: 0.5
  calibration_high: 1.7
  drift_slack: 0.3
  drift_threshold: 4
  drift_step_cap: 0.5
  straggler_deviations: 4
  straggler_share: 0.2
  straggler_windows: 2
  imbalance: 2
"""


def settings_of(config: Config) -> JudgementSettings:
    return config.judgement.settings(config.poll_interval_seconds)


def test_every_threshold_is_chosen_below() -> None:
    chosen = settings_of(parse(CHOSEN, "config.yaml", {}))
    default = JudgementSettings()
    assert {
        field.name
        for field in fields(JudgementSettings)
        if getattr(chosen, field.name) == getattr(default, field.name)
    } == TIMES


@pytest.mark.parametrize("text", ["", CHOSEN], ids=["default", "chosen"])
@pytest.mark.parametrize("windows", [None, WINDOWS, (60.0, 600.0, 7200.0)])
@pytest.mark.parametrize("warm_up", [None, 0.0, 30.0])
def test_windows_and_warm_up_change_times_only(
    text: str, windows: tuple[float, ...] | None, warm_up: float | None
) -> None:
    config = parse(text, "config.yaml", {})
    judged_so = scaled(config, windows, warm_up)
    before, after = settings_of(config), settings_of(judged_so)
    for field in fields(JudgementSettings):
        if field.name not in TIMES:
            assert getattr(after, field.name) == getattr(before, field.name), field.name
    assert judged_so.model_copy(update={"judgement": config.judgement}) == config


def test_the_times_are_a_thirtieth_with_a_short_window_that_is() -> None:
    default = JudgementSettings()
    assert settings_of(scaled(parse("", "config.yaml", {}), WINDOWS, 0.0)) == replace(
        default,
        windows_seconds=(5.0, 10.0, 30.0),
        main_window_seconds=10.0,
        short_window_seconds=10.0,
        long_window_seconds=30.0,
        warm_up_seconds=0.0,
        stall_seconds=4.0,
        clear_after_seconds=30.0,
        slow_for_seconds=0.0,
        drift_mean_seconds=60.0,
        drift_every_seconds=10.0,
        straggler_window_seconds=30.0,
    )
