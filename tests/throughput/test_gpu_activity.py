"""What a GPU did over a window: integrals over rounds, by hand and against brute force."""

from __future__ import annotations

import json
import math
import tarfile
import tracemalloc
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.model import THROTTLE_REASONS, GpuActivity, GpuReading, Instant
from monitor.outputs.gpu_series import throttle_reasons
from monitor.sources.gpu_facts import round_from_json
from monitor.throughput.gpu_activity import GAP_SECONDS, GpuTrack, activity, saw
from monitor.throughput.gpu_health import stopped_counters

HOUR = 3600.0
REAL = Path(__file__).parent.parent / "recordings" / "real"


def busy(**facts: object) -> GpuReading:
    """A GPU that works."""
    return GpuReading(0, **{"uuid": "GPU-0", "utilization_gpu_pct": 97.0, **facts})  # type: ignore[arg-type]


def idle(**facts: object) -> GpuReading:
    return busy(utilization_gpu_pct=0.0, **facts)


def track_of(rounds: Iterable[tuple[float, GpuReading]], longest_seconds: float = HOUR) -> GpuTrack:
    track = None
    for at, reading in rounds:
        track = saw(track, reading, at, longest_seconds)
    assert track is not None
    return track


def did(*rounds: tuple[float, GpuReading], window: float = 60.0) -> GpuActivity:
    return activity(track_of(rounds), window)


# ----------------------------------------------------------------------------- means


def test_one_round_tells_of_no_time() -> None:
    assert did((5.0, busy(power_mw=500_000, name="H", pci_bus_id="0000:01"))) == GpuActivity(
        index=0,
        uuid="GPU-0",
        name="H",
        pci_bus_id="0000:01",
        window_seconds=60.0,
        samples=1,
    )


def test_means_are_weighted_by_the_time_that_each_round_stands_for() -> None:
    seen = did(
        (0.0, busy(power_mw=1)),
        (1.0, busy(power_mw=100_000, enforced_power_limit_mw=400_000, temperature_c=50.0)),
        (
            4.0,
            busy(
                utilization_gpu_pct=57.0,
                power_mw=300_000,
                enforced_power_limit_mw=300_000,
                default_power_limit_mw=700_000,
                temperature_c=54.0,
            ),
        ),
    )
    assert (seen.span_seconds, seen.samples) == (4.0, 3)
    assert seen.power_w == pytest.approx((100 + 3 * 300) / 4)
    assert seen.power_ratio == pytest.approx((0.25 + 3 * 1.0) / 4)
    assert (seen.power_limit_w, seen.default_power_limit_w) == (300.0, 700.0)
    assert seen.temperature_c == pytest.approx(53.0)
    assert seen.utilization_ratio == pytest.approx((0.97 + 3 * 0.57) / 4)


def test_a_round_without_a_figure_adds_no_time_to_it() -> None:
    seen = did(
        (0.0, busy()),
        (1.0, busy(power_mw=400_000)),
        (5.0, busy()),
        (7.0, busy(power_mw=100_000)),
    )
    assert seen.power_w == pytest.approx((400 + 2 * 100) / 3)
    assert seen.temperature_c is None
    assert seen.power_ratio is None
    assert seen.gpm == {}
    assert seen.reason_shares == {}


def test_facts_that_one_round_lacks_are_those_of_the_round_before() -> None:
    seen = did(
        (0.0, busy(name="H", enforced_power_limit_mw=700_000, max_sm_clock_mhz=1980)),
        (1.0, busy()),
    )
    assert (seen.name, seen.power_limit_w, seen.max_sm_clock_mhz) == ("H", 700.0, 1980.0)


def test_a_window_starts_where_it_says() -> None:
    rounds = [(float(at), busy(power_mw=at * 1000)) for at in range(1, 101)]
    ten = did(*rounds, window=10.0)
    assert (ten.window_seconds, ten.span_seconds, ten.samples) == (10.0, 10.0, 11)
    assert ten.power_w == pytest.approx(sum(range(91, 101)) / 10)
    assert did(*rounds, window=HOUR).span_seconds == 99.0


@pytest.mark.parametrize(
    ("facts", "figure"),
    [
        ({"power_mw": 10**18}, "power_w"),
        ({"temperature_c": 1e9}, "temperature_c"),
        ({"temperature_c": math.nan}, "temperature_c"),
        ({"utilization_gpu_pct": 250.0}, "utilization_ratio"),
        ({"utilization_gpu_pct": -1.0}, "utilization_ratio"),
        ({"power_mw": 700_000, "enforced_power_limit_mw": 0}, "power_ratio"),
        ({"sm_clock_mhz": 1980, "max_sm_clock_mhz": 0}, "sm_clock_ratio"),
    ],
)
def test_what_no_gpu_can_have_is_not_told(facts: dict[str, object], figure: str) -> None:
    assert getattr(did((0.0, busy()), (1.0, busy(**facts))), figure) is None


def test_gpm_figures_are_ratios_and_the_nvlink_rate_is_none_of_them() -> None:
    seen = did(
        (0.0, busy(gpm_pct={"dram": 1.0})),
        (1.0, busy(gpm_pct={"dram": 60.0, "tensor": 0.0, "nvl_rx": 9.5, "unheard": 1.0})),
        (4.0, busy(gpm_pct={"dram": 64.0, "sm": 80.0})),
    )
    assert seen.gpm == pytest.approx({"dram": 0.63, "tensor": 0.0, "sm": 0.8})
    assert seen.nvlink_receive_mib_per_second == 9.5


def test_counters_that_stopped_are_no_zeros() -> None:
    seen = did(
        (0.0, busy()),
        (1.0, busy(power_mw=500_000, gpm_pct={"dram": 60.0, "sm": 70.0})),
        (9.0, busy(power_mw=500_000, gpm_pct={"dram": 0.0, "sm": 0.0})),
    )
    assert seen.gpm == pytest.approx({"dram": 0.6, "sm": 0.7})


# ----------------------------------------------------------------------------- clocks and links


CLOCKS = {"max_sm_clock_mhz": 2000, "max_mem_clock_mhz": 2600}


def test_clocks_count_only_while_the_gpu_is_busy() -> None:
    seen = did(
        (0.0, busy(**CLOCKS)),
        (1.0, busy(sm_clock_mhz=1000, mem_clock_mhz=2600, **CLOCKS)),
        (11.0, idle(sm_clock_mhz=200, mem_clock_mhz=400, **CLOCKS)),
        (12.0, busy(sm_clock_mhz=1800, mem_clock_mhz=1300, **CLOCKS)),
    )
    assert seen.sm_clock_mhz == pytest.approx(1400.0)
    assert seen.sm_clock_ratio == pytest.approx(0.7)
    assert seen.memory_clock_ratio == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("facts", "counted"),
    [
        ({"utilization_gpu_pct": 10.0}, True),
        ({"utilization_gpu_pct": 9.9}, False),
        ({"utilization_gpu_pct": None, "gpm_pct": {"graphics": 10.0}}, True),
        ({"utilization_gpu_pct": 0.0, "gpm_pct": {"graphics": 9.0}}, False),
        ({"utilization_gpu_pct": None}, False),
    ],
)
def test_what_busy_means(facts: dict[str, object], counted: bool) -> None:
    seen = did((0.0, busy()), (1.0, busy(sm_clock_mhz=990, max_sm_clock_mhz=1980, **facts)))
    assert seen.sm_clock_ratio == (0.5 if counted else None)


def test_the_link_is_the_best_seen_under_load_within_the_window() -> None:
    link = {"pcie_gen_max": 5, "pcie_width_max": 16}
    rounds = [
        (0.0, busy(pcie_gen=5, pcie_width=16, **link)),
        (10.0, busy(pcie_gen=5, pcie_width=16, **link)),
        (20.0, busy(pcie_gen=1, pcie_width=8, **link)),
        (30.0, busy(pcie_gen=3, pcie_width=4, **link)),
        (40.0, idle(pcie_gen=4, pcie_width=16, **link)),
    ]
    short, long = did(*rounds, window=30.0), did(*rounds, window=60.0)
    assert (short.pcie_generation, short.pcie_width) == (3, 8)
    assert (long.pcie_generation, long.pcie_width) == (5, 16)
    assert (short.pcie_generation_max, short.pcie_width_max) == (5, 16)


def test_a_link_that_was_not_under_load_for_a_while_is_not_judged() -> None:
    waking = [(at / 1.0, busy(pcie_gen=1, pcie_width=16)) for at in range(5)]
    assert did(*waking).pcie_generation is None
    assert did(*waking).pcie_width is None
    assert did(*waking, (5.0, busy(pcie_gen=1, pcie_width=16))).pcie_generation == 1
    assert did((0.0, idle()), (20.0, idle(pcie_gen=1))).pcie_generation is None


@pytest.mark.parametrize("value", [None, 0, 65, 10**12])
def test_a_link_that_cannot_be_is_not_told(value: int | None) -> None:
    seen = did((0.0, busy()), (10.0, busy(pcie_gen=value, pcie_width=value)))
    assert (seen.pcie_generation, seen.pcie_width) == (None, None)


# ----------------------------------------------------------------------------- clock event reasons


def test_reasons_have_the_names_of_the_metrics() -> None:
    seen = did((0.0, busy()), (1.0, busy(clocks_event_reasons=0x1FF)))
    assert seen.reason_shares == throttle_reasons(0x1FF) == dict.fromkeys(seen.reason_shares, 1.0)
    assert [name for _, name in THROTTLE_REASONS] == list(seen.reason_shares)


def test_shares_of_the_bit_mask_are_shares_of_time() -> None:
    shares = did(
        (0.0, busy(clocks_event_reasons=0x4)),
        (1.0, busy(clocks_event_reasons=0x48)),
        (4.0, busy(clocks_event_reasons=0x0)),
        (8.0, busy()),
    ).reason_shares
    assert shares["hw_thermal"] == shares["hw_slowdown"] == pytest.approx(0.25)
    assert shares["sw_power_cap"] == 0.0


def test_a_counter_of_nanoseconds_is_exact_and_wins_over_the_mask() -> None:
    shares = did(
        (0.0, busy(clocks_event_reasons=0x0, throttle_ns={"hw_thermal": 5_000_000_000})),
        (2.0, busy(clocks_event_reasons=0x0, throttle_ns={"hw_thermal": 5_500_000_000})),
        (10.0, busy(clocks_event_reasons=0x44, throttle_ns={"hw_thermal": 7_500_000_000})),
    ).reason_shares
    assert shares["hw_thermal"] == pytest.approx(0.25)
    assert shares["sw_power_cap"] == pytest.approx(0.8)


def test_a_counter_alone_tells_its_reason_and_no_other() -> None:
    seen = did(
        (0.0, busy(throttle_ns={"sw_power_cap": 0, "thermal": 0})),
        (4.0, busy(throttle_ns={"sw_power_cap": 1_000_000_000, "thermal": 4_000_000_000})),
    )
    assert seen.reason_shares == {"sw_power_cap": pytest.approx(0.25)}


def test_a_counter_that_fell_began_anew() -> None:
    shares = did(
        (0.0, busy(throttle_ns={"hw_thermal": 900_000_000_000})),
        (5.0, busy(throttle_ns={"hw_thermal": 2_000_000_000})),
        (10.0, busy(throttle_ns={"hw_thermal": 3_000_000_000})),
    ).reason_shares
    assert shares == {"hw_thermal": pytest.approx(0.3)}


def test_a_counter_that_moves_in_steps_keeps_its_time() -> None:
    held = [0, 0, 1_900_000_000, 1_900_000_000, 3_800_000_000]
    shares = did(
        *((float(at), busy(throttle_ns={"hw_thermal": ns})) for at, ns in enumerate(held))
    ).reason_shares
    assert shares["hw_thermal"] == pytest.approx(0.95)


@pytest.mark.parametrize(("mask", "share"), [(None, None), (0x0, 0.0), (0x40, 1.0)])
def test_more_throttling_than_time_is_no_measurement(mask: int | None, share: float | None) -> None:
    shares = did(
        (0.0, busy(throttle_ns={"hw_thermal": 0})),
        (1.0, busy(clocks_event_reasons=mask, throttle_ns={"hw_thermal": 10**18})),
    ).reason_shares
    assert shares.get("hw_thermal") == share


# ----------------------------------------------------------------------------- time


def test_a_gap_begins_a_new_track() -> None:
    rounds = [(0.0, busy(power_mw=1_000)), (10.0, busy(power_mw=1_000))]
    close = did(*rounds, (10.0 + GAP_SECONDS, busy(power_mw=4_000)), window=HOUR)
    assert close.span_seconds == 40.0
    assert close.power_w == pytest.approx((10 * 1.0 + 30 * 4.0) / 40)
    apart = did(*rounds, (10.1 + GAP_SECONDS, busy(power_mw=4_000)), window=HOUR)
    assert (apart.span_seconds, apart.samples, apart.power_w) == (0.0, 1, None)


def test_a_round_that_is_not_later_changes_nothing() -> None:
    track = track_of([(0.0, busy()), (5.0, busy(power_mw=1_000))])
    assert saw(track, busy(power_mw=9_000), 5.0, HOUR) is track
    assert saw(track, busy(power_mw=9_000), 4.0, HOUR) is track


FULL = {
    "power_mw": 500_000,
    "enforced_power_limit_mw": 700_000,
    "temperature_c": 60.0,
    "sm_clock_mhz": 1980,
    "max_sm_clock_mhz": 1980,
    "mem_clock_mhz": 2600,
    "max_mem_clock_mhz": 2600,
    "clocks_event_reasons": 0x4,
    "pcie_gen": 5,
    "pcie_width": 16,
    "gpm_pct": {"graphics": 99.0, "sm": 70.0, "tensor": 20.0, "dram": 60.0, "occ": 10.0},
}


def held(track: GpuTrack) -> int:
    return len(track.fine) + len(track.medium) + len(track.coarse)


@pytest.mark.parametrize(
    ("longest", "most"), [(900.0, 206), (HOUR, 206), (86_400.0, 206)], ids=["900 s", "1 h", "1 d"]
)
def test_the_memory_is_bounded_and_windows_are_full(longest: float, most: int) -> None:
    track = None
    for at in range(9000):
        track = saw(track, busy(**FULL), float(at), longest)
        assert held(track) <= most
    assert track is not None
    for window in (10.0, 60.0):
        assert activity(track, window).span_seconds == window
    # A round that comes half a hundredth early still spans its window.
    assert 298.5 <= activity(track, 300.0).span_seconds <= 306.0
    spacing = max(15.0, longest / 60)
    long = min(longest, 8999.0)
    assert 0.995 * long <= activity(track, longest).span_seconds <= longest + spacing
    assert activity(track, longest).power_w == pytest.approx(500.0)


def test_a_track_of_an_hour_takes_less_than_a_megabyte() -> None:
    reading = busy(**FULL)
    tracemalloc.start()
    track = track_of((float(at), reading) for at in range(4000))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held(track) > 150
    assert size < 1_000_000


def test_rounds_in_quick_succession_are_not_all_kept() -> None:
    track = track_of((at / 20, busy(power_mw=1_000 + at)) for at in range(20 * 70))
    assert len(track.fine) < 160
    seen = activity(track, 10.0)
    assert seen.span_seconds == pytest.approx(10.0, abs=0.5)
    assert seen.samples == round(seen.span_seconds * 20) + 1


# ----------------------------------------------------------------------------- brute force


masks = st.one_of(st.none(), st.integers(0, 0x1FF))
percents = st.one_of(st.none(), st.floats(0.0, 100.0))
readings = st.builds(
    GpuReading,
    st.just(0),
    utilization_gpu_pct=percents,
    power_mw=st.one_of(st.none(), st.integers(0, 700_000)),
    enforced_power_limit_mw=st.sampled_from((None, 300_000, 700_000)),
    sm_clock_mhz=st.one_of(st.none(), st.integers(1, 2000)),
    max_sm_clock_mhz=st.just(2000),
    temperature_c=st.one_of(st.none(), st.floats(-10.0, 110.0)),
    clocks_event_reasons=masks,
    throttle_ns=st.dictionaries(
        st.sampled_from(("hw_thermal", "sw_power_cap")), st.integers(0, 10**11), max_size=2
    ),
    # Never an exact 0: that is another test's.
    gpm_pct=st.dictionaries(
        st.sampled_from(("graphics", "sm", "dram")), st.floats(0.001, 100.0), max_size=3
    ),
)


def share_of(reason: int, name: str, before: GpuReading, now: GpuReading, took: float) -> object:
    was, told = before.throttle_ns.get(name), now.throttle_ns.get(name)
    if was is not None and told is not None:
        seconds = (told - was if told >= was else told) / 1e9
        if seconds <= took + 1.0:
            return seconds / took
    mask = now.clocks_event_reasons
    return None if mask is None else float(mask & reason != 0)


def brute(rounds: Sequence[tuple[float, GpuReading]], start: float) -> Mapping[str, float]:
    """Each mean as the definition says, from all rounds after `start`."""
    weighed: dict[str, list[tuple[float, float]]] = {}
    for (before, old), (at, now) in pairwise(rounds):
        if at <= start:
            continue
        took = at - before
        works = max(now.utilization_gpu_pct or 0.0, now.gpm_pct.get("graphics", 0.0)) >= 10.0
        power, limit = now.power_mw, now.enforced_power_limit_mw
        clock = now.sm_clock_mhz if works else None
        values: dict[str, object] = {
            "utilization": None
            if now.utilization_gpu_pct is None
            else now.utilization_gpu_pct / 100,
            "power": None if power is None else power / 1000,
            "power_ratio": None if power is None or limit is None else power / limit,
            "temperature": now.temperature_c,
            "clock": clock,
            "clock_ratio": None if clock is None else clock / 2000,
            **{unit: value / 100 for unit, value in now.gpm_pct.items()},
            **{name: share_of(bit, name, old, now, took) for bit, name in THROTTLE_REASONS},
        }
        for name, value in values.items():
            if isinstance(value, int | float):
                weighed.setdefault(name, []).append((took, float(value)))
    return {
        name: math.fsum(took * value for took, value in pairs)
        / math.fsum(took for took, _ in pairs)
        for name, pairs in weighed.items()
    }


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.tuples(st.floats(0.5, 29.9), readings), min_size=2, max_size=120),
    st.sampled_from((10.0, 60.0, 300.0, HOUR)),
    st.sampled_from((60.0, 900.0, HOUR)),
)
def test_integrals_give_the_means_of_the_rounds(
    steps: list[tuple[float, GpuReading]], window: float, longest: float
) -> None:
    rounds, at = [], 1000.0
    for took, reading in steps:
        at += took
        rounds.append((at, reading))
    track = track_of(rounds, longest)
    seen = activity(track, window)
    start = track.start(window).at
    assert any(start == moment for moment, _ in rounds)
    expected = brute(rounds, start)
    told = {
        "utilization": seen.utilization_ratio,
        "power": seen.power_w,
        "power_ratio": seen.power_ratio,
        "temperature": seen.temperature_c,
        "clock": seen.sm_clock_mhz,
        "clock_ratio": seen.sm_clock_ratio,
        **seen.gpm,
        **seen.reason_shares,
    }
    shares = {name for _, name in THROTTLE_REASONS}
    assert {name for name, value in told.items() if value is not None} == expected.keys()
    for name, value in expected.items():
        limited = min(1.0, value) if name in shares else value
        assert told[name] == pytest.approx(limited, rel=1e-6, abs=1e-6), name
    assert seen.samples == sum(moment >= start for moment, _ in rounds)
    assert seen.span_seconds == pytest.approx(at - start)
    if window <= longest and at - rounds[0][0] >= window + 30.0:
        assert seen.span_seconds >= window * 0.995


# ----------------------------------------------------------------------------- a real GPU


def recorded(name: str) -> list[tuple[float, GpuReading]]:
    """The rounds of a recording's one GPU; seconds since the first."""
    rounds = []
    with tarfile.open(REAL / f"{name}.tar.gz") as archive:
        for member in archive.getmembers():
            path = Path(member.name)
            content = archive.extractfile(member)
            if path.parent.name == "nvml" and content is not None:
                seconds = int(path.stem) / 1000
                round_, _ = round_from_json(json.load(content), Instant(seconds, seconds))
                assert round_ is not None
                rounds.append((seconds, round_.gpus[0]))
    rounds.sort(key=lambda one: one[0])
    return [(at - rounds[0][0], reading) for at, reading in rounds]


def test_an_h200_under_load_as_measured() -> None:
    """SGLang, 24 of 128 requests run: 22 s of full load end 24 s after the first round.

    By the file's own figures: DRAM 61.3 %, SM 75.7 %, 524 W, 1961 MHz, power cap in 3 of 22 s.
    """
    rounds = recorded("h200-sglang-hyb_extra-c128")
    seen = did(*[one for one in rounds if one[0] <= 24.5], window=22.0)
    assert seen.span_seconds == pytest.approx(22.0)
    assert seen.gpm["dram"] == pytest.approx(0.614, abs=0.001)
    assert seen.gpm["sm"] == pytest.approx(0.757, abs=0.001)
    assert seen.gpm["tensor"] == pytest.approx(0.073, abs=0.001)
    assert seen.power_w == pytest.approx(524.0, abs=1.0)
    assert seen.sm_clock_mhz == pytest.approx(1961.0, abs=1.0)
    assert seen.reason_shares["sw_power_cap"] == pytest.approx(3 / 22)


def test_the_same_h200_is_never_taken_for_one_whose_counters_stopped() -> None:
    rounds = recorded("h200-sglang-hyb_extra-c128")
    told = [reading for _, reading in rounds if reading.gpm_pct]
    assert len(told) > 40
    zeros = sum(reading.gpm_pct["dram"] == 0.0 for reading in told)
    assert zeros > 0
    assert all(stopped_counters(reading) == () for reading in told)
