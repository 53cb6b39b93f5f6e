"""The GPU fact object: every field both ways, and what wrong facts become."""

from __future__ import annotations

import json
import math
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.model import GpuProcess, GpuReading, GpuRound, Instant, MigDevice
from monitor.sources.gpu_facts import (
    facts_from_reading,
    reading_from_facts,
    round_from_json,
    round_to_json,
)

AT = Instant(10.0, 1796000000.0)

FULL_FACTS = {
    "index": 3,
    "uuid": "GPU-1",
    "name": "NVIDIA H200",
    "pci_device_id": "0x233510de",
    "pci_bus_id": "00000000:18:00.0",
    "memory_total_bytes": 150754820096,
    "memory_used_bytes": 46490451968,
    "memory_bus_width_bits": 6016,
    "compute_capability": "9.0",
    "cuda_cores": 16896,
    "utilization_gpu_pct": 100.0,
    "utilization_mem_pct": 71.0,
    "power_mw": 692667,
    "power_instant_mw": 630992,
    "energy_mj": 51520476,
    "enforced_power_limit_mw": 700000,
    "default_power_limit_mw": 700000,
    "sm_clock_mhz": 1815,
    "max_sm_clock_mhz": 1980,
    "mem_clock_mhz": 3201,
    "max_mem_clock_mhz": 3201,
    "clocks_event_reasons": "0x24",
    "throttle_ns": {"sw_power_cap": 5},
    "temperature_c": 60.0,
    "memory_temperature_c": 57.0,
    "pcie_gen": 5,
    "pcie_gen_max": 5,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "mig_mode": 1,
    "mig_devices": [
        {
            "uuid": "MIG-1",
            "index": 0,
            "gpu_instance_id": 1,
            "compute_instance_id": 0,
            "memory_total_bytes": 1000,
            "multiprocessor_count": 16,
            "compute_procs": [{"pid": 7}],
        }
    ],
    "ecc_uncorrected": 0,
    "remapped_rows": 0,
    "row_remap_pending": True,
    "xid": 79,
    "xid_count": 2,
    "compute_procs": [{"pid": 585, "used_memory_bytes": 45835354112, "name": "sglang"}],
    "gpm_pct": {"sm": 88.753, "dram": 60.136},
    "error": "lost",
}

FULL_READING = GpuReading(
    index=3,
    uuid="GPU-1",
    name="NVIDIA H200",
    pci_device_id="0x233510de",
    pci_bus_id="00000000:18:00.0",
    memory_total_bytes=150754820096,
    memory_used_bytes=46490451968,
    memory_bus_width_bits=6016,
    compute_capability="9.0",
    cuda_cores=16896,
    utilization_gpu_pct=100.0,
    utilization_mem_pct=71.0,
    power_mw=692667,
    power_instant_mw=630992,
    energy_mj=51520476,
    enforced_power_limit_mw=700000,
    default_power_limit_mw=700000,
    sm_clock_mhz=1815,
    max_sm_clock_mhz=1980,
    mem_clock_mhz=3201,
    max_mem_clock_mhz=3201,
    clocks_event_reasons=0x20 | 0x4,
    throttle_ns={"sw_power_cap": 5},
    temperature_c=60.0,
    memory_temperature_c=57.0,
    pcie_gen=5,
    pcie_gen_max=5,
    pcie_width=16,
    pcie_width_max=16,
    mig_mode=1,
    mig_devices=(MigDevice("MIG-1", 0, 1, 0, 1000, 16, (GpuProcess(7),)),),
    ecc_uncorrected=0,
    remapped_rows=0,
    row_remap_pending=True,
    xid=79,
    xid_count=2,
    compute_procs=(GpuProcess(585, 45835354112, "sglang"),),
    gpm_pct={"sm": 88.753, "dram": 60.136},
    error="lost",
)


def test_every_field_is_read_and_written() -> None:
    assert set(FULL_FACTS) == {field.name for field in fields(GpuReading)}
    assert reading_from_facts(FULL_FACTS) == FULL_READING
    assert facts_from_reading(FULL_READING) == FULL_FACTS


def test_an_index_alone_is_a_gpu_and_absence_is_unknown() -> None:
    assert reading_from_facts({"index": 0}) == GpuReading(0)
    assert facts_from_reading(GpuReading(0)) == {"index": 0}


def test_no_process_differs_from_processes_not_told() -> None:
    told = reading_from_facts({"index": 0, "compute_procs": []})
    assert told == GpuReading(0, compute_procs=())
    assert facts_from_reading(GpuReading(0, compute_procs=())) == {"index": 0, "compute_procs": []}


@pytest.mark.parametrize(
    "facts",
    [
        None,
        3,
        "x",
        [],
        {},
        {"index": "0"},
        {"index": True},
        {"index": -1},
        {"index": None},
        {"index": 0.5},
    ],
)
def test_without_a_usable_index_there_is_no_gpu(facts: object) -> None:
    assert reading_from_facts(facts) is None


@pytest.mark.parametrize(
    "wrong", ["700000", True, -1, [], {}, float("nan"), float("inf"), 0.5, 10**400, 2**64 - 1, None]
)
def test_a_wrong_whole_number_is_not_known_and_the_rest_stands(wrong: object) -> None:
    reading = reading_from_facts({"index": 0, "power_mw": wrong, "sm_clock_mhz": 1815})
    assert reading == GpuReading(0, sm_clock_mhz=1815)


@pytest.mark.parametrize("wrong", ["50", True, -0.1, [], float("nan"), float("-inf"), 10**400])
def test_a_wrong_percentage_is_not_known(wrong: object) -> None:
    assert reading_from_facts({"index": 0, "utilization_gpu_pct": wrong}) == GpuReading(0)


@pytest.mark.parametrize("wrong", ["true", 1, 0, 0.0, [], {}, None])
def test_a_wrong_yes_or_no_is_not_known(wrong: object) -> None:
    assert reading_from_facts({"index": 0, "row_remap_pending": wrong}) == GpuReading(0)


def test_no_is_a_fact() -> None:
    facts = {"index": 0, "row_remap_pending": False}
    assert facts_from_reading(GpuReading(0, row_remap_pending=False)) == facts
    assert reading_from_facts(facts) == GpuReading(0, row_remap_pending=False)


def test_whole_numbers_may_be_spelled_as_floats() -> None:
    assert reading_from_facts({"index": 0, "power_mw": 7e5}) == GpuReading(0, power_mw=700000)


def test_it_may_be_cold() -> None:
    assert reading_from_facts({"index": 0, "temperature_c": -5}) == GpuReading(0, temperature_c=-5)


@pytest.mark.parametrize(
    ("text", "mask"),
    [
        ("0x0", 0),
        ("0x44", 68),
        ("44", 68),
        ("0XfF", 255),
        (4, 4),
        ("-0x4", None),
        ("z", None),
        ("", None),
        (True, None),
        (1.5, None),
        ([], None),
    ],
)
def test_clock_event_reasons_are_a_hex_mask(text: object, mask: int | None) -> None:
    reading = reading_from_facts({"index": 0, "clocks_event_reasons": text})
    assert reading == GpuReading(0, clocks_event_reasons=mask)


def test_wrong_entries_leave_tables_and_lists() -> None:
    reading = reading_from_facts(
        {
            "index": 0,
            "throttle_ns": {"hw_slowdown": 1, "sw_thermal": "x"},
            "gpm_pct": {"sm": 1.5, "dram": float("nan"), "occ": None, 5: 1.0},
            "compute_procs": [{"pid": 1, "name": 3}, {"pid": "2"}, 3, None],
            "mig_devices": [{"uuid": "MIG-1", "index": 0, "compute_procs": 4}, {"index": 1}, 0],
        }
    )
    assert reading == GpuReading(
        0,
        throttle_ns={"hw_slowdown": 1},
        gpm_pct={"sm": 1.5},
        compute_procs=(GpuProcess(1),),
        mig_devices=(MigDevice("MIG-1", 0),),
    )


def test_wrong_tables_and_lists_are_not_known() -> None:
    facts = {"index": 0, "throttle_ns": 3, "gpm_pct": [], "compute_procs": {}, "mig_devices": "x"}
    assert reading_from_facts(facts) == GpuReading(0)


def test_nan_is_never_written() -> None:
    reading = GpuReading(
        0,
        utilization_gpu_pct=math.nan,
        temperature_c=math.inf,
        gpm_pct={"sm": math.nan, "dram": 2.0},
        throttle_ns={},
    )
    assert facts_from_reading(reading) == {"index": 0, "gpm_pct": {"dram": 2.0}}


def test_a_round_is_a_list_or_an_error() -> None:
    assert round_from_json([{"index": 0}, {"index": 1}], AT) == (
        GpuRound(AT, (GpuReading(0), GpuReading(1))),
        (),
    )
    assert round_from_json([], AT) == (GpuRound(AT), ())
    failed = GpuRound(AT, error="driver/library version mismatch")
    assert round_from_json({"error": "driver/library version mismatch"}, AT) == (failed, ())
    assert round_to_json(failed) == {"error": "driver/library version mismatch"}
    assert round_to_json(GpuRound(AT, (GpuReading(1),))) == [{"index": 1}]


def test_a_round_without_some_gpus_says_so() -> None:
    gpu_round, remarks = round_from_json([{"index": 0}, {"uuid": "GPU-2"}], AT)
    assert gpu_round == GpuRound(AT, (GpuReading(0),))
    assert remarks == ("a GPU entry without a whole-number index was left out",)


@pytest.mark.parametrize("data", [None, 3, "x", {}, {"error": 4}, {"gpus": []}])
def test_other_documents_are_no_round(data: object) -> None:
    gpu_round, remarks = round_from_json(data, AT)
    assert gpu_round is None
    assert remarks == ("expected a list of GPU facts or an object with an error text",)


WORDS = st.text("0xab", max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([field.name for field in fields(GpuReading)]), JSON))
def test_whatever_is_read_can_be_written_and_read_again(facts: dict[str, object]) -> None:
    reading = reading_from_facts(facts)
    if reading is not None:
        text = json.dumps(facts_from_reading(reading), allow_nan=False)
        assert reading_from_facts(json.loads(text)) == reading
