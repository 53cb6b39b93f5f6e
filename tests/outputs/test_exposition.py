"""The metrics page: parsed back by prometheus_client, linted by promtool, checked by hand."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_classic
from prometheus_client.registry import Collector

from monitor.model import (
    CauseFound,
    Expectation,
    Floor,
    FloorRule,
    GpuOnTarget,
    GpuReading,
    GpuStatus,
    Judgement,
    Status,
    TargetStatus,
    Unknown,
    Verdict,
)
from monitor.outputs.exposition import SelfStats, render
from monitor.outputs.metric_table import METRICS, MetricType
from monitor.outputs.text_format import Exposition
from tests.outputs.samples import (
    CAPPED,
    DATA_PARALLEL,
    DOWN,
    GPU_NAME,
    HOSTILE,
    HOSTILE_TARGET,
    LOST_READING,
    NEVER_SEEN,
    NOW,
    OWN,
    READING,
    STATUS,
    UUID,
)

AM = "http://am:9093"

Series = tuple[str, frozenset[tuple[str, str]]]


def series(name: str, **labels: str) -> Series:
    return name, frozenset(labels.items())


def parsed(exposition: Exposition) -> dict[Series, float]:
    """Read both formats with the reference parsers, and ask that they tell the same."""
    classic = _samples(parse_classic(exposition.classic.decode()))
    openmetrics = _samples(_openmetrics(exposition))
    assert classic == openmetrics
    return classic


def _openmetrics(exposition: Exposition) -> list[Metric]:
    return list(parse_openmetrics(exposition.openmetrics.decode()))  # type: ignore[no-untyped-call]


def _samples(families: Iterable[Metric]) -> dict[Series, float]:
    found: dict[Series, float] = {}
    for family in families:
        for sample in family.samples:
            key = series(sample.name, **sample.labels)
            assert key not in found, f"twice on the page: {key}"
            found[key] = sample.value
    return found


def status_of(*targets: TargetStatus, gpus: tuple[GpuStatus, ...] = ()) -> Status:
    return Status(NOW, targets, gpus, nvml_up=True, nvml_reason=None)


def of_target(target: TargetStatus) -> dict[Series, float]:
    return parsed(render(status_of(target), OWN))


def names(found: Mapping[Series, float]) -> set[str]:
    return {name for name, _ in found}


def labels_of(found: Mapping[Series, float], name: str) -> list[dict[str, str]]:
    return [dict(labels) for metric, labels in found if metric == name]


ME = {"target": "qwen-a", "team": "search"}
GPU = {"gpu": "0", "uuid": UUID, "gpu_name": GPU_NAME}

EXPECTED_OF_TARGET: dict[Series, float] = {
    series("floorwatch_target_up", **ME): 1,
    series(
        "floorwatch_target_info",
        **ME,
        engine="sglang",
        engine_version="0.5.23",
        model="Qwen/Qwen3.5-27B",
        precision="bf16",
        kv_cache_dtype="",
        tensor_parallel="1",
        pipeline_parallel="1",
        data_parallel="",
        gpus="1",
    ): 1,
    series("floorwatch_tokens_per_second", **ME, phase="generation"): 485.0,
    series("floorwatch_tokens_per_second", **ME, phase="prompt"): 121.2,
    series("floorwatch_tokens_per_second_per_gpu", **ME, phase="generation"): 485.0,
    series("floorwatch_tokens_per_second_per_gpu", **ME, phase="prompt"): 121.2,
    series("floorwatch_tokens_total", **ME, phase="generation"): 29_100,
    series("floorwatch_tokens_total", **ME, phase="prompt"): 7_272,
    series("floorwatch_prompt_cached_tokens_total", **ME): 0,
    series("floorwatch_engine_resets_total", **ME): 1,
    series("floorwatch_gpu_tokens_per_second", **ME, **GPU, phase="generation"): 485.0,
    series("floorwatch_gpu_tokens_per_second", **ME, **GPU, phase="prompt"): 121.2,
    series("floorwatch_gpu_expected_tokens_per_second", **ME, **GPU): 1449.5,
    series("floorwatch_gpu_floor_tokens_per_second", **ME, **GPU, rule="model"): 725.0,
    series("floorwatch_gpu_floor_tokens_per_second", **ME, **GPU, rule="reference"): 705.25,
    series("floorwatch_floor_in_force", **ME, rule="model"): 1,
    series("floorwatch_floor_in_force", **ME, rule="reference"): 0,
    series("floorwatch_gpu_floor_ratio", **ME, **GPU): 0.669,
    series("floorwatch_efficiency", **ME, basis="observed"): 1.081,
    series("floorwatch_efficiency", **ME, basis="demand"): 0.335,
    series("floorwatch_efficiency", **ME, basis="relative"): 0.31,
    series("floorwatch_calibration_ratio", **ME): 1.08,
    series("floorwatch_mbu_ratio", **ME): 0.72,
    series("floorwatch_mfu_ratio", **ME): 0.06,
    series("floorwatch_batch_demand", **ME): 98.0,
    series("floorwatch_batch_memory_cap", **ME): 98.5,
    series("floorwatch_expectation_check_ratio", **ME): 1.02,
    series("floorwatch_expectation_known", **ME, reason=""): 1,
    series("floorwatch_requests_running", **ME): 19,
    series("floorwatch_requests_waiting", **ME): 200,
    series("floorwatch_kv_cache_usage_ratio", **ME): 0.35,
    series("floorwatch_verdict", **ME, verdict="no_data"): 0,
    series("floorwatch_verdict", **ME, verdict="warming_up"): 0,
    series("floorwatch_verdict", **ME, verdict="idle"): 0,
    series("floorwatch_verdict", **ME, verdict="stalled"): 0,
    series("floorwatch_verdict", **ME, verdict="throttled"): 0,
    series("floorwatch_verdict", **ME, verdict="concurrency_limited"): 1,
    series("floorwatch_verdict", **ME, verdict="kv_cache_limited"): 0,
    series("floorwatch_verdict", **ME, verdict="host_bound"): 0,
    series("floorwatch_verdict", **ME, verdict="degraded"): 0,
    series("floorwatch_verdict", **ME, verdict="memory_bandwidth_limited"): 0,
    series("floorwatch_verdict", **ME, verdict="compute_limited"): 0,
    series("floorwatch_verdict", **ME, verdict="demand_limited"): 0,
    series("floorwatch_verdict", **ME, verdict="maintenance"): 0,
    series("floorwatch_below_floor", **ME): 1,
    series("floorwatch_cause", **ME, cause="mamba_state_cap"): 1,
    series("floorwatch_finding", **ME, finding="kv_cache_limited", severity="warning"): 1,
    series("floorwatch_lost_tokens_total", **ME): 1_929.0,
    series("floorwatch_lost_gpu_seconds_total", **ME): 1.33,
    series("floorwatch_backlog_tokens", **ME): 58_000.0,
    series("floorwatch_backlog_finish_seconds", **ME, at="present"): 119.6,
    series("floorwatch_backlog_finish_seconds", **ME, at="expected"): 40.0,
    series("floorwatch_maintenance", **ME): 0,
    series("floorwatch_scrape_duration_seconds", **ME): 0.0125,
    series("floorwatch_scrape_page_bytes", **ME): 51_900,
    series("floorwatch_scrape_attempts_total", **ME): 601,
    series("floorwatch_scrape_failures_total", **ME, reason="timeout"): 2,
    series("floorwatch_scrape_last_success_timestamp_seconds", **ME): 1_796_000_000,
}

EXPECTED_OF_GPU: dict[Series, float] = {
    series("floorwatch_gpu_up", **GPU): 1,
    series(
        "floorwatch_gpu_info",
        **GPU,
        catalogue_id="rtx-pro-6000-blackwell-ws",
        pci_bus_id="00000000:01:00.0",
    ): 1,
    series("floorwatch_gpu_floor_share_ratio", gpu="0", uuid=UUID): 0.669,
    series("floorwatch_gpu_catalogue_bandwidth_ratio", gpu="0", uuid=UUID): 1.0625,
    series("floorwatch_gpu_catalogue_clock_ratio", gpu="0", uuid=UUID): 0.9375,
    series("floorwatch_gpu_utilization_ratio", **GPU): 0.99,
    series("floorwatch_gpu_memory_utilization_ratio", **GPU): 0.41,
    series("floorwatch_gpu_power_watts", **GPU): 412.345,
    series("floorwatch_gpu_power_instant_watts", **GPU): 431,
    series("floorwatch_gpu_power_limit_watts", **GPU): 600,
    series("floorwatch_gpu_power_limit_default_watts", **GPU): 600,
    series("floorwatch_gpu_energy_joules_total", **GPU): 123_456.789,
    series("floorwatch_gpu_sm_clock_hertz", **GPU): 2_415_000_000,
    series("floorwatch_gpu_sm_clock_max_hertz", **GPU): 3_090_000_000,
    series("floorwatch_gpu_memory_clock_hertz", **GPU): 13_365_000_000,
    series("floorwatch_gpu_memory_clock_max_hertz", **GPU): 14_001_000_000,
    series("floorwatch_gpu_temperature_celsius", **GPU): 71,
    series("floorwatch_gpu_memory_temperature_celsius", **GPU): 84,
    # 0x44 = 0x40 + 0x04
    series("floorwatch_gpu_throttle_reason", **GPU, reason="gpu_idle"): 0,
    series("floorwatch_gpu_throttle_reason", **GPU, reason="applications_clocks"): 0,
    series("floorwatch_gpu_throttle_reason", **GPU, reason="sw_power_cap"): 1,
    series("floorwatch_gpu_throttle_reason", **GPU, reason="hw_slowdown"): 0,
    series("floorwatch_gpu_throttle_reason", **GPU, reason="sync_boost"): 0,
    series("floorwatch_gpu_throttle_reason", **GPU, reason="sw_thermal"): 0,
    series("floorwatch_gpu_throttle_reason", **GPU, reason="hw_thermal"): 1,
    series("floorwatch_gpu_throttle_reason", **GPU, reason="hw_power_brake"): 0,
    series("floorwatch_gpu_throttle_reason", **GPU, reason="display_clocks"): 0,
    series("floorwatch_gpu_throttle_seconds_total", **GPU, reason="sw_power_cap"): 16.1,
    series("floorwatch_gpu_memory_size_bytes", **GPU): 102_641_958_912,
    series("floorwatch_gpu_memory_used_bytes", **GPU): 90_000_000_000,
    series("floorwatch_gpu_pcie_link_generation", **GPU): 5,
    series("floorwatch_gpu_pcie_link_generation_max", **GPU): 5,
    series("floorwatch_gpu_pcie_link_width", **GPU): 8,
    series("floorwatch_gpu_pcie_link_width_max", **GPU): 16,
    series("floorwatch_gpu_ecc_uncorrected_errors_total", **GPU): 0,
    series("floorwatch_gpu_remapped_rows", **GPU): 0,
    series("floorwatch_gpu_xid", **GPU): 31,
    series("floorwatch_gpu_dram_active_ratio", **GPU): 0.591,
    series("floorwatch_gpu_tensor_active_ratio", **GPU): 0.22,
    series("floorwatch_gpu_sm_active_ratio", **GPU): 0.705,
    series("floorwatch_gpu_graphics_active_ratio", **GPU): 0.99,
}

EXPECTED_OF_DAEMON: dict[Series, float] = {
    series("floorwatch_build_info", version="0.1.0", revision="abc123", python="3.11.7"): 1,
    series("floorwatch_config_last_reload_successful"): 1,
    series("floorwatch_config_last_reload_success_timestamp_seconds"): 1_795_990_001,
    series("floorwatch_last_tick_timestamp_seconds"): 1_796_000_000,
    series("floorwatch_ticks_total"): 600,
    series("floorwatch_ticks_skipped_total"): 1,
    series("floorwatch_tick_duration_seconds"): 0.004,
    series("floorwatch_render_duration_seconds"): 0.0005,
    series("floorwatch_nvml_reads_total"): 599,
    series("floorwatch_nvml_read_duration_seconds"): 0.0033,
    series("floorwatch_alerts_sent_total", alertmanager=AM): 1_200,
    series("floorwatch_alerts_failed_total", alertmanager=AM, reason="rejected"): 1,
    series("floorwatch_alerts_failed_total", alertmanager=AM, reason="timeout"): 3,
    series("floorwatch_alerts_dropped_total", alertmanager=AM): 2,
    series("floorwatch_alerts_queued", alertmanager=AM): 1,
    series("floorwatch_alerts_last_success_timestamp_seconds", alertmanager=AM): 1_796_000_000,
    series("process_cpu_seconds_total"): 12.5,
    series("process_resident_memory_bytes"): 67_000_000,
    series("process_open_fds"): 42,
    series("floorwatch_discovery_servers", source="local"): 2,
    series("floorwatch_discovery_servers", source="http_sd[0]"): 7,
    series("floorwatch_discovery_up", source="local"): 1,
    series("floorwatch_discovery_up", source="http_sd[0]"): 0,
    series("process_start_time_seconds"): 1_795_990_000,
}


# ------------------------------------------------------------------ names, labels, values


def test_every_series_of_a_target_a_gpu_and_the_daemon() -> None:
    status = status_of(CAPPED, gpus=STATUS.gpus[:1])

    assert parsed(render(status, OWN)) == {
        **EXPECTED_OF_TARGET,
        **EXPECTED_OF_GPU,
        **EXPECTED_OF_DAEMON,
        series("floorwatch_nvml_up", reason=""): 1,
        series("floorwatch_alerts_active"): 0,
    }


def test_without_a_status_only_the_daemon_is_left() -> None:
    assert parsed(render(None, OWN)) == EXPECTED_OF_DAEMON


def test_what_the_daemon_does_not_know_of_itself() -> None:
    own = SelfStats("0.1.0", "", "3.11.7", start_wall_seconds=1_795_990_000.0)

    assert parsed(render(None, own)) == {
        series("floorwatch_build_info", version="0.1.0", revision="", python="3.11.7"): 1,
        series("floorwatch_ticks_total"): 0,
        series("floorwatch_ticks_skipped_total"): 0,
        series("floorwatch_nvml_reads_total"): 0,
        series("process_start_time_seconds"): 1_795_990_000,
    }


def test_every_metric_of_the_table_is_exported_with_its_labels() -> None:
    found = parsed(render(status_of(CAPPED, DATA_PARALLEL, DOWN, gpus=STATUS.gpus), OWN))

    assert names(found) == {metric.name for metric in METRICS}
    for metric in METRICS:
        for labels in labels_of(found, metric.name):
            assert set(labels) - {"team"} == set(metric.labels)


def test_types_and_descriptions_in_both_formats() -> None:
    exposition = render(STATUS, OWN)
    classic, openmetrics = exposition.classic.decode(), exposition.openmetrics.decode()

    assert "# TYPE floorwatch_tokens_total counter\nfloorwatch_tokens_total{" in classic
    assert "# TYPE floorwatch_tokens counter\nfloorwatch_tokens_total{" in openmetrics
    assert "# TYPE floorwatch_target_info gauge\nfloorwatch_target_info{" in classic
    assert "# TYPE floorwatch_target info\nfloorwatch_target_info{" in openmetrics
    assert "# EOF" not in classic
    assert openmetrics.endswith("\n# EOF\n")
    for metric, family in zip(METRICS, _openmetrics(exposition), strict=True):
        assert (family.type, family.documentation) == (metric.type.value, metric.help)


def test_names_follow_the_conventions() -> None:
    for metric in METRICS:
        assert re.fullmatch(r"(floorwatch|process)_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.type is MetricType.COUNTER)
        assert metric.name.endswith("_info") == (metric.type is MetricType.INFO)
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_promtool_finds_nothing_to_say() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.fail("promtool is not on PATH: install Debian's package prometheus")
    page = render(status_of(CAPPED, DATA_PARALLEL, DOWN, HOSTILE_TARGET, gpus=STATUS.gpus), OWN)

    checked = subprocess.run(
        [promtool, "check", "metrics"], input=page.classic, capture_output=True, check=False
    )

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


# -------------------------------------------------------------------- absent beats stale


def test_a_target_that_is_not_up_has_no_rate_and_no_load() -> None:
    found = of_target(DOWN)

    assert found[series("floorwatch_target_up", target="gone")] == 0
    assert found[series("floorwatch_target_problem", target="gone", reason="unreachable")] == 1
    assert found[series("floorwatch_verdict", target="gone", verdict="no_data")] == 1
    assert found[series("floorwatch_tokens_total", target="gone", phase="generation")] == 29_100
    gone = {
        "floorwatch_tokens_per_second",
        "floorwatch_tokens_per_second_per_gpu",
        "floorwatch_replica_tokens_per_second",
        "floorwatch_gpu_tokens_per_second",
        "floorwatch_gpu_expected_tokens_per_second",
        "floorwatch_gpu_floor_ratio",
        "floorwatch_requests_running",
        "floorwatch_requests_waiting",
        "floorwatch_kv_cache_usage_ratio",
        "floorwatch_scrape_page_bytes",
    }
    assert not gone & names(found)


def test_a_target_of_which_nothing_is_known() -> None:
    of_daemon = set(EXPECTED_OF_DAEMON) | {
        series("floorwatch_nvml_up", reason=""),
        series("floorwatch_alerts_active"),
    }
    found = {key: value for key, value in of_target(NEVER_SEEN).items() if key not in of_daemon}

    empty = dict.fromkeys(
        (
            "engine",
            "engine_version",
            "model",
            "precision",
            "kv_cache_dtype",
            "tensor_parallel",
            "pipeline_parallel",
            "data_parallel",
            "gpus",
        ),
        "",
    )
    assert found == {
        series("floorwatch_target_up", target="never"): 0,
        series("floorwatch_target_problem", target="never", reason="dns"): 1,
        series("floorwatch_target_info", target="never", **empty): 1,
        series("floorwatch_engine_resets_total", target="never"): 0,
        series("floorwatch_lost_tokens_total", target="never"): 0,
        series("floorwatch_lost_gpu_seconds_total", target="never"): 0,
        series("floorwatch_maintenance", target="never"): 0,
        series("floorwatch_expectation_known", target="never", reason="no floor rule applies"): 0,
        series("floorwatch_scrape_attempts_total", target="never"): 1,
        series("floorwatch_scrape_failures_total", target="never", reason="dns"): 1,
    }


def test_a_target_without_a_floor_tells_why_and_has_no_alarm_state() -> None:
    found = of_target(DATA_PARALLEL)

    reason = "no reference for this model"
    assert found[series("floorwatch_expectation_known", target="dp2", reason=reason)] == 0
    assert "floorwatch_below_floor" not in names(found)
    assert "floorwatch_verdict" not in names(found)
    assert "floorwatch_gpu_floor_tokens_per_second" not in names(found)


def test_a_reason_in_a_label_is_cut() -> None:
    unknown = Expectation(unknown=(Unknown("floor", "x" * 500),))
    found = of_target(replace(DATA_PARALLEL, expectation=unknown))

    (labels,) = labels_of(found, "floorwatch_expectation_known")
    assert labels["reason"] == "x" * 128


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_has_no_series(value: float | None) -> None:
    target = replace(
        CAPPED,
        main=replace(CAPPED.main, generation_tokens_per_second=value),
        totals=replace(CAPPED.totals, generation_tokens=value),
        requests_running=value,
        gpus=(replace(CAPPED.gpus[0], floor_ratio=value, floor_tokens_per_second=value),),
    )
    found = of_target(target)

    absent = {
        series("floorwatch_tokens_per_second", **ME, phase="generation"),
        series("floorwatch_tokens_per_second_per_gpu", **ME, phase="generation"),
        series("floorwatch_tokens_total", **ME, phase="generation"),
        series("floorwatch_requests_running", **ME),
        series("floorwatch_gpu_floor_ratio", **ME, **GPU),
        series("floorwatch_gpu_floor_tokens_per_second", **ME, **GPU, rule="model"),
    }
    assert set(EXPECTED_OF_TARGET) - set(found) == absent


def test_per_gpu_and_replicas() -> None:
    found = of_target(DATA_PARALLEL)

    # 7200 tokens/s on 8 GPUs = 900; the replicas' own GPUs 4800/4 and 2400/4.
    per_gpu = series("floorwatch_tokens_per_second_per_gpu", target="dp2", phase="generation")
    assert found[per_gpu] == 900
    replicas = {
        labels["replica"]: found[series("floorwatch_replica_tokens_per_second", **labels)]
        for labels in labels_of(found, "floorwatch_replica_tokens_per_second")
    }
    assert replicas == {"0": 4_800, "1": 2_400}
    gpus = {
        (labels["gpu"], labels["uuid"]): found[series("floorwatch_gpu_tokens_per_second", **labels)]
        for labels in labels_of(found, "floorwatch_gpu_tokens_per_second")
    }
    assert gpus == {("0", ""): 1_200, ("4", ""): 600}


def test_gpus_of_another_host_are_numbered_by_place() -> None:
    unnumbered = GpuOnTarget(None, "", "h200", "share", (), 100.0, None, None, None, None)
    found = of_target(replace(CAPPED, gpus=(unnumbered, unnumbered)))

    assert {labels["gpu"] for labels in labels_of(found, "floorwatch_gpu_tokens_per_second")} == {
        "0",
        "1",
    }


def test_no_series_is_twice_on_the_page() -> None:
    twice = replace(
        CAPPED,
        gpus=CAPPED.gpus * 2,
        expectation=Expectation(
            (Floor(FloorRule.MODEL, 1.0, ()), *CAPPED.expectation.floors * 2),
            CAPPED.expectation.in_force,
            1449.5,
        ),
        judgement=replace(CAPPED.judgement, causes=CAPPED.judgement.causes * 2),
        findings=CAPPED.findings * 2,
    )
    status = status_of(twice, gpus=(*STATUS.gpus, *STATUS.gpus))

    found = parsed(render(status, OWN))

    floors = {key: value for key, value in found.items() if "floor_tokens" in key[0]}
    assert floors == {
        series("floorwatch_gpu_floor_tokens_per_second", **ME, **GPU, rule="model"): 725.0,
        series("floorwatch_gpu_floor_tokens_per_second", **ME, **GPU, rule="reference"): 705.25,
    }
    finding = {"finding": "kv_cache_limited", "severity": "warning"}
    assert labels_of(found, "floorwatch_finding") == [{**ME, **finding}]


def test_a_stall_without_a_floor_is_still_an_alarm() -> None:
    stalled = Judgement(Verdict.STALLED, 1.0, "no token for 120 s", below_floor=True)
    found = of_target(replace(DATA_PARALLEL, judgement=stalled))

    assert found[series("floorwatch_below_floor", target="dp2")] == 1


# ----------------------------------------------------------------------------- GPUs


def test_a_lost_gpu_keeps_nothing_but_its_name() -> None:
    lost = replace(LOST_READING, power_mw=1, memory_used_bytes=1, gpm_pct={"sm": 1.0})
    found = parsed(render(status_of(gpus=(GpuStatus(lost, False, "h200-sxm-141gb"),)), OWN))

    assert {key: value for key, value in found.items() if "_gpu_" in key[0]} == {
        series("floorwatch_gpu_up", gpu="3", uuid="GPU-3", gpu_name="NVIDIA H200"): 0
    }


def test_without_nvml_nothing_is_said_of_gpus_but_those_lost_before() -> None:
    status = replace(STATUS, nvml_up=False, nvml_reason="Driver Not Loaded")
    found = parsed(render(status, OWN))

    assert found[series("floorwatch_nvml_up", reason="Driver Not Loaded")] == 0
    of_host = [key for key in found if "_gpu_" in key[0] and ("target", "qwen-a") not in key[1]]
    assert series("floorwatch_gpu_up", gpu="3", uuid="GPU-3", gpu_name="NVIDIA H200") in of_host
    assert not [key for key in of_host if ("uuid", UUID) in key[1] and "target" not in dict(key[1])]


def test_the_share_of_a_gpu_is_absent_while_one_of_its_servers_is_down() -> None:
    shared = replace(STATUS.gpus[0], targets=("qwen-a", "gone"))
    found = parsed(render(status_of(CAPPED, DOWN, gpus=(shared,)), OWN))

    assert "floorwatch_gpu_floor_share_ratio" not in names(found)


def test_a_gpu_that_tells_nothing_has_no_facts() -> None:
    silent = GpuStatus(GpuReading(0, utilization_gpu_pct=float("nan")), True, None)
    found = parsed(render(status_of(gpus=(silent,)), OWN))

    empty = {"gpu": "0", "uuid": "", "gpu_name": ""}
    assert {key: value for key, value in found.items() if "_gpu_" in key[0]} == {
        series("floorwatch_gpu_up", **empty): 1,
        series("floorwatch_gpu_info", **empty, catalogue_id="", pci_bus_id=""): 1,
    }


def test_absurd_facts_are_left_out() -> None:
    absurd = replace(READING, power_mw=10**400, pcie_gen=10**400, energy_mj=-5)
    found = parsed(render(status_of(gpus=(GpuStatus(absurd, True, None),)), OWN))

    assert not {
        "floorwatch_gpu_power_watts",
        "floorwatch_gpu_pcie_link_generation",
        "floorwatch_gpu_energy_joules_total",
    } & names(found)


# ----------------------------------------------------------------------- hostile text


def test_hostile_text_stays_inside_its_label() -> None:
    found = of_target(HOSTILE_TARGET)

    (info,) = labels_of(found, "floorwatch_target_info")
    assert info["target"] == info["model"] == info["team"] == info["engine_version"] == HOSTILE
    # A label of the operator neither takes the place of ours nor breaks the page.
    assert {"bad-name", "__name__"}.isdisjoint(info)
    assert "floorwatch_tokens_per_second" not in names(found)
    assert "floorwatch_requests_running" not in names(found)


def test_half_a_surrogate_pair_does_not_break_the_page() -> None:
    found = of_target(replace(CAPPED, model="a\ud800b"))

    (info,) = labels_of(found, "floorwatch_target_info")
    assert info["model"] == "a?b"


@settings(deadline=None)
@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
    st.text(st.sampled_from('\\"\n{},= a')),
)
def test_any_label_value_comes_back_as_it_was(model: str, team: str) -> None:
    exposition = render(status_of(replace(CAPPED, model=model, labels={"team": team})), OWN)

    (info,) = labels_of(parsed(exposition), "floorwatch_target_info")
    assert (info["model"], info["team"]) == (model, team)


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_number_comes_back_as_it_was(value: float) -> None:
    found = of_target(replace(CAPPED, kv_cache_usage_ratio=value))

    assert found[series("floorwatch_kv_cache_usage_ratio", **ME)] == value


# ------------------------------------------------------------------------------ cost


def test_it_costs_a_fraction_of_generate_latest() -> None:
    """Compare CPU time with the library's writer on the same series: a ratio bears any load."""
    status = status_of(*(replace(CAPPED, name=f"t{number}") for number in range(64)))
    page = render(status, OWN)
    families: list[Metric] = []
    for family in parse_classic(page.classic.decode()):
        copy = GaugeMetricFamily(family.name, family.documentation)
        copy.samples = family.samples
        families.append(copy)

    class Recorded(Collector):
        def collect(self) -> list[Metric]:
            return families

    registry = CollectorRegistry()
    registry.register(Recorded())

    ours = _cpu_seconds(lambda: render(status, OWN))
    theirs = _cpu_seconds(lambda: generate_latest(registry))

    assert ours < theirs / 2


def _cpu_seconds(work: Callable[[], object]) -> float:
    spent = []
    for _ in range(5):
        begun = time.process_time()
        work()
        spent.append(time.process_time() - begun)
    return min(spent)


def test_causes_of_one_name_are_one_series() -> None:
    causes = (CauseFound("xid", "79", ""), CauseFound("xid", "48", ""))
    found = of_target(replace(CAPPED, judgement=replace(CAPPED.judgement, causes=causes)))

    assert labels_of(found, "floorwatch_cause") == [{**ME, "cause": "xid"}]
