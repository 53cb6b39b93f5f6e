"""What is wrong with a GPU: errors since it is watched, stopped counters, narrow links."""

from __future__ import annotations

import pytest

from monitor.model import GpuActivity, GpuReading, Instant
from monitor.throughput.gpu_health import (
    GpuHealth,
    believable,
    examined,
    health_notes,
    pcie_note,
    stopped_counters,
)

WALL = 1_796_000_000.0


def at(second: float) -> Instant:
    return Instant(second, WALL + second)


def after(*readings: GpuReading) -> GpuHealth:
    """The health after one round every ten seconds."""
    health = GpuHealth()
    for number, reading in enumerate(readings):
        health = examined(health, reading, at(10.0 * number))
    return health


def xids(*codes: int | None) -> GpuHealth:
    return after(*(GpuReading(0, xid=code) for code in codes))


def codes(health: GpuHealth) -> list[tuple[int, float]]:
    return [(event.code, event.at.monotonic_seconds) for event in health.events]


# ----------------------------------------------------------------------------- XID


def test_an_xid_that_comes_while_watched_is_an_event_once() -> None:
    health = xids(0, 31, 31)
    assert codes(health) == [(31, 10.0)]
    assert health.faults == ()
    assert health_notes(health, at(20.0)) == (
        "XID 31 (application fault: illegal memory access (page fault)) at Unix time 1796000010",
    )


def test_an_xid_that_was_there_before_is_none() -> None:
    assert codes(xids(79, 79)) == []
    assert codes(xids(79, 79, 31)) == [(31, 20.0)]
    # A GPU that is lost already tells of what was before, too.
    lost = GpuReading(0, xid=79, error="GPU is lost")
    assert codes(after(lost, lost)) == []


def test_no_xid_and_xid_0_are_none_so_far() -> None:
    assert codes(xids(None, 79)) == [(79, 10.0)]
    assert codes(xids(None, 0, None, 79)) == [(79, 30.0)]


def test_a_gpu_that_gave_no_facts_at_first_tells_what_was_before() -> None:
    assert codes(after(GpuReading(0, error="Unknown Error"), GpuReading(0, xid=79))) == []


def test_a_round_that_tells_no_xid_forgets_none() -> None:
    assert codes(xids(0, 79, None, 79)) == [(79, 10.0)]


def test_a_lost_gpu_may_still_tell_its_xid() -> None:
    health = after(GpuReading(0, xid=0), GpuReading(0, xid=79, error="GPU is lost"))
    assert codes(health) == [(79, 10.0)]


def test_a_driver_that_was_loaded_anew_has_no_faults() -> None:
    assert codes(xids(0, 79, 0)) == []
    assert codes(xids(0, 79, 0, 79)) == [(79, 30.0)]


def test_a_device_fault_stays_as_of_its_first_time_and_others_as_of_their_last() -> None:
    health = xids(0, 48, 31, 48, 31)
    assert codes(health) == [(48, 10.0), (31, 40.0)]
    assert [event.code for event in health.faults] == [48]
    assert [note[:6] for note in health_notes(health, at(3640.0))] == ["XID 48", "XID 31"]
    assert [note[:6] for note in health_notes(health, at(3641.0))] == ["XID 48"]


def test_a_flood_of_codes_pushes_out_no_device_fault() -> None:
    assert codes(xids(0, 48, *range(200, 300))) == [
        (48, 10.0),
        *((code, 20.0 + 10.0 * (code - 200)) for code in (296, 297, 298, 299)),
    ]
    faults = (48, 62, 64, 74, 79, 94, 95, 119, 120)
    assert [event.code for event in xids(0, *faults, 13, 43).faults] == list(faults)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (79, "XID 79 (device fault: GPU has fallen off the bus)"),
        (119, "XID 119 (device fault: GPU system processor does not answer)"),
        (43, "XID 43 (application fault: GPU stopped processing)"),
        (63, "XID 63 (memory row remapped or page retired)"),
        (999, "XID 999 (see NVIDIA's list of XID errors)"),
    ],
)
def test_what_a_code_means(code: int, text: str) -> None:
    assert xids(0, code).events[0].text == text


# ----------------------------------------------------------------------------- counted XIDs


def counted(*told: tuple[int | None, int | None]) -> GpuHealth:
    return after(*(GpuReading(0, xid=code, xid_count=count) for code, count in told))


def test_the_same_code_once_more_is_an_event_where_the_source_counts() -> None:
    assert codes(counted((None, 0), (31, 1), (31, 1))) == [(31, 10.0)]
    assert codes(counted((None, 0), (31, 1), (31, 1), (31, 2))) == [(31, 30.0)]
    # Two in one round are one event; a round without facts forgets no count.
    assert codes(counted((None, 0), (31, 2), (None, None), (31, 2))) == [(31, 10.0)]


def test_a_device_fault_that_comes_again_keeps_its_first_time() -> None:
    assert codes(counted((None, 0), (48, 1), (45, 2), (48, 3))) == [(48, 10.0), (45, 20.0)]


def test_what_was_counted_by_the_first_round_is_an_event() -> None:
    assert codes(counted((79, 1))) == [(79, 0.0)]


def test_a_source_that_was_started_anew_counts_from_0() -> None:
    assert codes(counted((None, 0), (31, 5), (None, 0), (31, 1))) == [(31, 30.0)]
    assert codes(counted((None, 0), (31, 5), (31, 2))) == [(31, 20.0)]
    assert codes(counted((None, 0), (31, 5), (31, 0))) == [(31, 10.0)]


# ----------------------------------------------------------------------------- reset and reload


@pytest.mark.parametrize(
    ("before", "later", "gone"),
    [
        # 93 165 429 mJ have 27 bits, 67 108 863 mJ have 26.
        ({"energy_mj": 93_165_429}, {"energy_mj": 67_108_863}, True),
        ({"energy_mj": 93_165_429}, {"energy_mj": 67_108_864}, False),
        ({"energy_mj": 93_165_429}, {"energy_mj": 93_165_430}, False),
        ({"energy_mj": 93_165_429}, {}, False),
        ({}, {"energy_mj": 5}, False),
        ({"ecc_uncorrected": 2}, {"ecc_uncorrected": 0}, True),
        ({"ecc_uncorrected": 2}, {"ecc_uncorrected": 2}, False),
        ({"row_remap_pending": True}, {"row_remap_pending": False}, True),
        ({"row_remap_pending": False}, {"row_remap_pending": False}, False),
        ({"row_remap_pending": True}, {}, False),
    ],
)
def test_a_reset_ends_the_faults(
    before: dict[str, int | bool], later: dict[str, int | bool], gone: bool
) -> None:
    health = after(
        GpuReading(0, xid_count=0),
        GpuReading(0, xid=48, xid_count=1, **before),  # type: ignore[arg-type]
        GpuReading(0, xid=48, xid_count=1, **later),  # type: ignore[arg-type]
    )
    assert codes(health) == ([] if gone else [(48, 10.0)])


def test_a_reset_while_the_gpu_was_lost_is_seen_when_it_is_back() -> None:
    health = after(
        GpuReading(0, xid_count=0, energy_mj=93_165_429),
        GpuReading(0, xid=79, xid_count=1, error="GPU is lost"),
        GpuReading(0, xid=79, xid_count=1, energy_mj=1_000),
    )
    assert codes(health) == []
    again = examined(health, GpuReading(0, xid=79, xid_count=2), at(30.0))
    assert codes(again) == [(79, 30.0)]


def test_what_comes_with_the_first_round_after_a_reset_stays() -> None:
    health = after(
        GpuReading(0, xid_count=0, energy_mj=93_165_429),
        GpuReading(0, xid=48, xid_count=1),
        GpuReading(0, xid=95, xid_count=2, energy_mj=1_000),
    )
    assert codes(health) == [(95, 20.0)]


# ----------------------------------------------------------------------------- ECC and rows


@pytest.mark.parametrize(
    ("counts", "gained"),
    [
        ((7, 7), 0),
        ((7, None, 9), 2),
        ((None, 7, 7), 0),
        ((7, 9, 1), 3),
        ((7, 0), 0),
    ],
)
def test_uncorrected_errors_count_since_watched(
    counts: tuple[int | None, ...], gained: int
) -> None:
    health = after(*(GpuReading(0, ecc_uncorrected=count) for count in counts))
    assert health.uncorrected.gained == gained
    notes = health_notes(health, at(0.0))
    assert notes == ((f"ECC: {gained} uncorrected errors since it is watched",) if gained else ())


def test_rows_that_were_remapped_before_are_no_news() -> None:
    assert health_notes(after(GpuReading(0, remapped_rows=4)), at(0.0)) == ()
    health = after(GpuReading(0, remapped_rows=4), GpuReading(0, remapped_rows=5))
    assert health_notes(health, at(10.0)) == (
        "memory rows remapped since it is watched: 1; that takes effect when the GPU is reset",
    )


def test_rows_that_wait_for_a_reset_are_remarked_as_long_as_they_wait() -> None:
    pending = GpuReading(0, remapped_rows=4, row_remap_pending=True)
    assert health_notes(after(pending), at(0.0)) == ("row remapping pending: reset the GPU",)
    lost = GpuReading(0, error="GPU is lost")
    assert health_notes(after(pending, lost), at(0.0)) == ("row remapping pending: reset the GPU",)
    done = GpuReading(0, remapped_rows=4, row_remap_pending=False)
    assert health_notes(after(pending, done), at(10.0)) == ()


def test_rows_remapped_while_watched_and_whether_they_wait() -> None:
    before = GpuReading(0, remapped_rows=4, row_remap_pending=False)
    waiting = GpuReading(0, remapped_rows=6, row_remap_pending=True)
    assert health_notes(after(before, waiting), at(10.0)) == (
        "memory rows remapped since it is watched: 2",
        "row remapping pending: reset the GPU",
    )
    done = GpuReading(0, remapped_rows=6, row_remap_pending=False)
    assert health_notes(after(before, waiting, done), at(20.0)) == (
        "memory rows remapped since it is watched: 2",
    )


# ----------------------------------------------------------------------------- stopped counters


def working(gpm: dict[str, float], **facts: object) -> GpuReading:
    return GpuReading(0, gpm_pct=gpm, **{"utilization_gpu_pct": 98.0, **facts})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reading", "stopped"),
    [
        (working({"dram": 0.0}), ("dram",)),
        (working({"dram": 0.0, "sm": 60.0, "tensor": 0.0, "fp64": 0.0}), ("dram", "tensor")),
        (working({"graphics": 0.0, "sm": 0.0, "dram": 0.0}), ("graphics", "sm", "dram")),
        (working({"dram": 88.6, "sm": 99.6, "tensor": 0.0}), ()),
        (working({"dram": 0.001}), ()),
        (working({}), ()),
        (working({"dram": 0.0}, utilization_gpu_pct=49.0), ()),
        (working({"dram": 0.0}, utilization_gpu_pct=None), ()),
        # One spinning thread on an H200: 125 of 700 W, and the memory is idle in earnest.
        (working({"dram": 0.0}, power_mw=125_000, default_power_limit_mw=700_000), ()),
        (working({"dram": 0.0}, power_mw=210_000, default_power_limit_mw=700_000), ("dram",)),
        (working({"dram": 0.0}, power_mw=125_000, enforced_power_limit_mw=300_000), ("dram",)),
        (working({"dram": 0.0}, power_mw=125_000), ("dram",)),
    ],
)
def test_which_zeros_cannot_be(reading: GpuReading, stopped: tuple[str, ...]) -> None:
    assert stopped_counters(reading) == stopped
    assert believable(reading).gpm_pct == {
        unit: value for unit, value in reading.gpm_pct.items() if unit not in stopped
    }


def test_stopped_counters_are_remarked_while_they_stand() -> None:
    stopped = working({"dram": 0.0, "sm": 0.0, "tensor": 0.0})
    assert health_notes(after(stopped), at(0.0)) == (
        "GPM counters stopped: sm, dram read 0 under load and are left out",
    )
    assert health_notes(after(stopped, working({"dram": 60.0})), at(10.0)) == ()


# ----------------------------------------------------------------------------- PCIe


@pytest.mark.parametrize(
    ("link", "note"),
    [
        ((5, 5, 16, 16), None),
        ((5, 5, 4, 4), None),
        ((None, 5, None, 16), None),
        ((5, None, 16, None), None),
        ((5, 5, 4, 16), "PCIe link degraded under load: x4 of x16 lanes"),
        ((3, 5, 16, 16), "PCIe link degraded under load: generation 3 of 5"),
        ((1, 4, 8, 16), "PCIe link degraded under load: x8 of x16 lanes, generation 1 of 4"),
    ],
)
def test_a_link_below_its_best(link: tuple[int | None, ...], note: str | None) -> None:
    generation, best, lanes, most = link
    did = GpuActivity(
        0,
        pcie_generation=generation,
        pcie_generation_max=best,
        pcie_width=lanes,
        pcie_width_max=most,
    )
    assert pcie_note(did) == note
