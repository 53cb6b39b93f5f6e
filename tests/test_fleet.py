"""The host's GPUs over rounds of NVML."""

from __future__ import annotations

from dataclasses import replace

import pytest

from monitor.expectation.matching import Catalogue
from monitor.fleet import Fleet, faults_of, gpu_statuses, saw_round, strangers_of
from monitor.judgement.evidence import GpuFault
from monitor.model import (
    GpuOnTarget,
    GpuProcess,
    GpuReading,
    GpuRound,
    GpuStatus,
    Instant,
    MigDevice,
)
from tests.judgement.test_alarms import target as target_status
from tests.world import H100, WALL, figure, gpu

CATALOGUE = Catalogue((H100,))


def at(second: float) -> Instant:
    return Instant(second, WALL + second)


def after(*rounds: tuple[GpuReading, ...] | str) -> Fleet:
    """A fleet that saw one round a second; a text is NVML's own failure."""
    fleet = Fleet()
    for second, seen in enumerate(rounds):
        if isinstance(seen, str):
            fleet = saw_round(fleet, GpuRound(at(second), error=seen))
        else:
            fleet = saw_round(fleet, GpuRound(at(second), seen))
    return fleet


def on(name: str, *gpus: tuple[str, float | None]) -> tuple[str, tuple[GpuOnTarget, ...]]:
    return name, tuple(
        GpuOnTarget(0, uuid, "", "shared", (), 1.0, None, None, None, ratio) for uuid, ratio in gpus
    )


def statuses(fleet: Fleet, *targets: tuple[str, tuple[GpuOnTarget, ...]]) -> tuple[GpuStatus, ...]:
    seen = [replace(target_status(name, None), gpus=gpus) for name, gpus in targets]
    return gpu_statuses(fleet, seen, CATALOGUE)


def test_before_the_first_round_nothing_is_known() -> None:
    assert Fleet().nvml_up is False
    assert Fleet().reason == "not read yet"
    assert gpu_statuses(Fleet(), (), CATALOGUE) == ()


def test_a_round_replaces_the_one_before() -> None:
    fleet = after((gpu(0), gpu(1)), (gpu(0, power_mw=1), gpu(1)))
    assert [reading.power_mw for reading in fleet.readings] == [1, 560_000]
    assert fleet.nvml_up
    assert fleet.reason is None
    assert fleet.lost_since == {}


@pytest.mark.parametrize(
    ("round_", "error"),
    [
        ((gpu(0), GpuReading(1, error="GPU is lost")), "GPU is lost"),
        ((gpu(0), GpuReading(1, uuid="GPU-1", error="GPU is lost")), "GPU is lost"),
        ((gpu(0),), "NVML no longer lists this GPU"),
    ],
    ids=["without its uuid", "with its uuid", "not listed"],
)
def test_a_lost_gpu_keeps_its_identity_and_no_figures(
    round_: tuple[GpuReading, ...], error: str
) -> None:
    fleet = after((gpu(0), gpu(1, "VLLM::Worker")), round_, round_)
    assert [reading.index for reading in fleet.readings] == [0, 1]
    _, lost = statuses(fleet)
    assert not lost.up
    assert lost.since_wall_seconds == WALL + 1.0
    assert lost.reading == GpuReading(
        1,
        uuid="GPU-1",
        name="NVIDIA H100 80GB HBM3",
        memory_total_bytes=85_520_809_984,
        error=error,
    )
    assert lost.catalogue_id == "h100-sxm-80gb"


def test_who_was_on_a_lost_gpu_is_remembered_for_the_attribution() -> None:
    fleet = after((gpu(0), gpu(1, "VLLM::Worker")), (gpu(0),))
    processes = fleet.readings[1].compute_procs
    assert processes is not None
    assert [process.name for process in processes] == ["VLLM::Worker"]


def test_a_gpu_that_comes_back_is_not_lost() -> None:
    fleet = after((gpu(0), gpu(1)), (gpu(0),), (gpu(0), gpu(1)), (gpu(0),))
    assert statuses(after((gpu(0), gpu(1)), (gpu(0),), (gpu(0), gpu(1))))[1].up
    assert statuses(fleet)[1].since_wall_seconds == WALL + 3.0


def test_a_gpu_that_never_gave_facts_is_lost_from_the_start() -> None:
    (lost,) = statuses(after((GpuReading(3, error="Insufficient Permissions"),)))
    assert (lost.up, lost.reading.index, lost.reading.uuid) == (False, 3, None)
    assert lost.since_wall_seconds == WALL
    assert lost.reading.error == "Insufficient Permissions"


def test_while_nvml_is_down_no_gpu_is_known_and_none_is_lost() -> None:
    fleet = after((gpu(0), gpu(1)), "Driver Not Loaded")
    assert statuses(fleet) == ()
    assert (fleet.nvml_up, fleet.reason) == (False, "Driver Not Loaded")
    assert [reading.uuid for reading in fleet.readings] == ["GPU-0", "GPU-1"]
    assert [reading.power_mw for reading in fleet.readings] == [None, None]


def test_a_gpu_that_was_lost_stays_lost_while_nvml_is_down() -> None:
    (lost,) = statuses(after((gpu(0), gpu(1)), (gpu(0),), "Driver Not Loaded"))
    assert (lost.reading.uuid, lost.up, lost.since_wall_seconds) == ("GPU-1", False, WALL + 1.0)


def test_nvml_that_comes_back_with_one_gpu_less_has_lost_it() -> None:
    fleet = after((gpu(0), gpu(1)), "Unknown Error", (gpu(0),))
    assert [(one.reading.uuid, one.up) for one in statuses(fleet)] == [
        ("GPU-0", True),
        ("GPU-1", False),
    ]


def test_a_gpu_without_uuid_is_followed_by_its_index() -> None:
    fleet = after((gpu(0, uuid=None), gpu(1, uuid=None)), (gpu(0, uuid=None),))
    assert [(one.reading.index, one.up) for one in statuses(fleet)] == [(0, True), (1, False)]


def test_the_targets_on_a_gpu_and_the_sum_of_their_shares() -> None:
    (status,) = statuses(
        after((gpu(0, "VLLM::A", "VLLM::B"),)),
        on("A", ("GPU-0", 300 / 900)),
        on("B", ("GPU-0", 450 / 1500)),
        on("elsewhere", ("GPU-9", 0.5)),
        on("remote", ("", 0.5)),
    )
    assert status.targets == ("A", "B")
    assert status.floor_share_ratio == pytest.approx(0.6333, abs=1e-4)
    assert status.notes == ()


def test_a_share_that_is_not_known_makes_no_sum() -> None:
    fleet = after((gpu(0, "A", "B"),))
    (status,) = statuses(fleet, on("A", ("GPU-0", 0.3)), on("B", ("GPU-0", None)))
    assert status.floor_share_ratio is None
    assert statuses(fleet)[0].floor_share_ratio is None


def test_slices_of_a_gpu_belong_to_it() -> None:
    sliced = gpu(0, mig_devices=(MigDevice("MIG-1", 0), MigDevice("MIG-2", 1)))
    fleet = after((sliced,))
    (status,) = statuses(fleet, on("both", ("MIG-1", 0.2), ("MIG-2", 0.3)))
    assert status.targets == ("both",)
    assert status.floor_share_ratio == pytest.approx(0.5)
    assert fleet.reading_of("MIG-2") == sliced
    assert fleet.reading_of("MIG-3") is None
    assert after((sliced,), "down").reading_of("MIG-2") is not None


@pytest.mark.parametrize(
    ("processes", "targets", "notes"),
    [
        (("VLLM::EngineCore",), 1, ()),
        (("VLLM::EngineCore", "python"), 1, ("other_process_on_gpu: VLLM::EngineCore, python",)),
        ((None, None), 1, ("other_process_on_gpu: pid 0, pid 1",)),
        (("a", "b"), 2, ()),
        (("a", "b"), 0, ()),
    ],
)
def test_processes_that_no_target_accounts_for(
    processes: tuple[str, ...], targets: int, notes: tuple[str, ...]
) -> None:
    fleet = after((gpu(0, *processes),))
    names = [on(f"t{number}", ("GPU-0", 1.0)) for number in range(targets)]
    assert statuses(fleet, *names)[0].notes == notes


def test_a_gpu_that_the_catalogue_does_not_know_says_so() -> None:
    (status,) = statuses(after((gpu(0, name="NVIDIA B999"),)))
    assert status.catalogue_id is None
    assert "'NVIDIA B999'" in status.notes[0]


def test_memory_that_is_not_the_catalogues_is_remarked_and_exported() -> None:
    (healthy,) = statuses(
        after((replace(gpu(0), memory_bus_width_bits=5120, max_mem_clock_mhz=2619),))
    )
    assert healthy.catalogue_bandwidth_ratio is not None
    assert abs(healthy.catalogue_bandwidth_ratio - 3352.32 / 3350) < 1e-9
    assert healthy.notes == ()
    (other,) = statuses(
        after((replace(gpu(0), memory_bus_width_bits=5120, max_mem_clock_mhz=1593),))
    )
    assert other.catalogue_bandwidth_ratio is not None
    assert abs(other.catalogue_bandwidth_ratio - 2039.04 / 3350) < 1e-9
    assert "bandwidth by NVML 2039.0" in other.notes[0]


# ----------------------------------------------------------------------------- what they did


def test_what_a_gpu_did_is_the_mean_of_its_rounds() -> None:
    fleet = after(
        (gpu(0, power_mw=1), gpu(1)), (gpu(0, power_mw=100_000), gpu(1)), (gpu(0), gpu(1))
    )
    did = fleet.activity_of("GPU-0", 60.0)
    assert did is not None
    assert (did.index, did.span_seconds, did.samples) == (0, 2.0, 3)
    assert did.power_w == pytest.approx((100 + 560) / 2)
    assert fleet.activity_of("GPU-9", 60.0) is None
    last = fleet.activity_of("GPU-0", 1.0)
    assert last is not None
    assert last.power_w == pytest.approx(560.0)
    assert gpu_statuses(fleet, (), CATALOGUE, 1.0)[0].activity == last
    assert gpu_statuses(fleet, (), CATALOGUE)[0].activity == did


def test_a_slice_did_what_its_gpu_did() -> None:
    fleet = after((gpu(0, mig_devices=(MigDevice("MIG-1", 0),)),))
    assert fleet.activity_of("MIG-1", 60.0) == fleet.activity_of("GPU-0", 60.0) is not None


@pytest.mark.parametrize(
    "between",
    [(GpuReading(0, error="GPU is lost"),), (), "Driver Not Loaded"],
    ids=["lost", "not listed", "NVML down"],
)
def test_no_window_spans_a_loss(between: tuple[GpuReading, ...] | str) -> None:
    gone = after((gpu(0),), (gpu(0),), between)
    assert gone.activity_of("GPU-0", 60.0) is None
    assert all(status.activity is None for status in statuses(gone))
    back = after((gpu(0),), (gpu(0),), between, (gpu(0),), (gpu(0),)).activity_of("GPU-0", 60.0)
    assert back is not None
    assert (back.span_seconds, back.samples) == (1.0, 2)


def test_the_longest_window_decides_what_is_kept() -> None:
    fleet = Fleet()
    for second in range(0, 3000, 5):
        fleet = saw_round(fleet, GpuRound(at(second), (gpu(0),)), longest_seconds=900.0)
    did = fleet.activity_of("GPU-0", 3600.0)
    assert did is not None
    assert 900.0 <= did.span_seconds <= 1000.0


def linked(generation: int, lanes: int, most: int = 16, load: float = 97.0) -> GpuReading:
    return gpu(
        0,
        utilization_gpu_pct=load,
        pcie_gen=generation,
        pcie_gen_max=5,
        pcie_width=lanes,
        pcie_width_max=most,
    )


@pytest.mark.parametrize(
    ("reading", "notes"),
    [
        (linked(1, 16, load=0.0), ()),
        (linked(5, 4), ("PCIe link degraded under load: x4 of x16 lanes",)),
        (linked(5, 4, most=4), ()),
        (linked(3, 16), ("PCIe link degraded under load: generation 3 of 5",)),
    ],
)
def test_a_pcie_link_is_judged_under_load(reading: GpuReading, notes: tuple[str, ...]) -> None:
    assert statuses(after(*[(reading,)] * 7))[0].notes == notes
    assert statuses(after((reading,), (reading,)))[0].notes == ()


def test_counters_that_stopped_tell_nothing_and_are_remarked() -> None:
    told = {"dram": 0.0, "sm": 0.0, "fp64": 0.0}
    fleet = after((gpu(0, utilization_gpu_pct=98.0, gpm_pct=told),))
    (status,) = statuses(fleet)
    assert status.reading.gpm_pct == fleet.readings[0].gpm_pct == {"fp64": 0.0}
    assert status.notes == ("GPM counters stopped: sm, dram read 0 under load and are left out",)
    (lost,) = statuses(saw_round(fleet, GpuRound(at(1.0), ())))
    assert lost.notes == ()


def test_an_xid_is_remarked_for_an_hour_and_a_device_fault_for_good() -> None:
    fleet = after((gpu(0, xid=0),), (gpu(0, xid=31),))
    note = "XID 31 (application fault: illegal memory access (page fault)) at Unix time 1796000001"
    assert statuses(fleet)[0].notes == (note,)
    assert statuses(saw_round(fleet, GpuRound(at(3601.0), (gpu(0, xid=31),))))[0].notes == (note,)
    assert statuses(saw_round(fleet, GpuRound(at(3602.0), (gpu(0, xid=31),))))[0].notes == ()
    fallen = after((gpu(0, xid=0),), (GpuReading(0, xid=79, error="GPU is lost"),))
    (lost,) = statuses(saw_round(fallen, GpuRound(at(9000.0), ())))
    assert lost.notes == (
        "XID 79 (device fault: GPU has fallen off the bus) at Unix time 1796000001",
    )


# ----------------------------------------------------------------------------- faults


def fault(index: int, what: str, second: float, *, lost: bool, xid: int | None) -> GpuFault:
    return GpuFault(index, f"GPU-{index}", f"bus {index}", lost, xid, what, WALL + second)


def test_faults_are_lost_gpus_and_device_errors_of_those_asked_for() -> None:
    def host(xid: int, *others: GpuReading) -> tuple[GpuReading, ...]:
        well = (gpu(2, pci_bus_id="bus 2", xid=31), gpu(3, pci_bus_id="bus 3", xid=48))
        return (gpu(0, pci_bus_id="bus 0", xid=xid), *others, *well)

    fleet = after(host(0, gpu(1, pci_bus_id="bus 1")), host(94), host(48))
    broken = fault(
        0,
        "XID 94 (device fault: memory error, contained to one application);"
        " XID 48 (device fault: uncorrectable double-bit memory error)",
        1.0,
        lost=False,
        xid=94,
    )
    gone = fault(1, "lost: NVML no longer lists this GPU", 1.0, lost=True, xid=None)
    everyone = ("GPU-0", "GPU-1", "GPU-2", "GPU-3", "GPU-9")
    assert faults_of(fleet, everyone) == (broken, gone)
    assert faults_of(fleet, ("GPU-1",)) == (gone,)
    assert faults_of(fleet, ()) == faults_of(Fleet(), everyone) == ()
    down = saw_round(fleet, GpuRound(at(3.0), error="Driver Not Loaded"))
    assert faults_of(down, everyone) == (broken, gone)


def test_a_gpu_that_is_lost_with_an_xid_is_one_fault() -> None:
    whole = gpu(0, pci_bus_id="bus 0", mig_devices=(MigDevice("MIG-1", 0), MigDevice("MIG-2", 1)))
    fleet = after((whole,), (whole,), (GpuReading(0, xid=79, error="GPU is lost"),), ())
    expected = fault(
        0,
        "lost: NVML no longer lists this GPU; XID 79 (device fault: GPU has fallen off the bus)",
        2.0,
        lost=True,
        xid=79,
    )
    assert faults_of(fleet, ("MIG-1", "MIG-2")) == (expected,)
    assert faults_of(saw_round(fleet, GpuRound(at(4.0), (whole,))), ("GPU-0",)) == (
        replace(expected, lost=False, what=expected.what.partition("; ")[2]),
    )


# ----------------------------------------------------------------------------- strangers


def holding(*processes: tuple[int, str | None, int | None]) -> Fleet:
    held = tuple(GpuProcess(pid, memory, name) for pid, name, memory in processes)
    return after((gpu(0, compute_procs=held),))


@pytest.mark.parametrize(
    ("processes", "servers", "strangers"),
    [
        (((5001, None, 38), (5002, None, 36)), (None,), ("a process (pid 5002) on GPU 0",)),
        (((1, None, 36), (2, None, 38)), ("vllm",), ("a process (pid 1) on GPU 0",)),
        (((1, "python", 99), (2, "VLLM::EngineCore", 1)), ("vllm",), ("python (pid 1) on GPU 0",)),
        (
            ((1, "sglang::scheduler", 9), (2, "sglang::scheduler", 8)),
            ("sglang",),
            ("sglang::scheduler (pid 2) on GPU 0",),
        ),
        (
            ((3, "x", 1), (2, "VLLM::Worker_TP0", 1), (1, "sglang::scheduler_TP0", 1)),
            ("sglang", "vllm"),
            ("x (pid 3) on GPU 0",),
        ),
        # A server of an unknown engine leaves the named process to the one whose it is.
        (((1, "VLLM::EngineCore", 9), (2, "x", 1)), (None, "vllm"), ()),
        # A worker without the engine's name, as under Ray, is taken before a named one.
        (((1, "x", 9), (2, None, 1)), ("vllm",), ("x (pid 1) on GPU 0",)),
        (((1, "ray::RayWorkerWrapper", 9),), ("vllm",), ()),
        (((1, "a" * 200, None), (2, "b", 5)), (None,), ("a" * 64 + " (pid 1) on GPU 0",)),
        (((1, "a", 1), (2, "b", 1)), (None, None, None), ()),
        (((1, "a", 1), (2, "b", 1)), (), ()),
        ((), ("vllm",), ()),
    ],
)
def test_strangers_are_processes_of_nobodys_servers(
    processes: tuple[tuple[int, str | None, int | None], ...],
    servers: tuple[str | None, ...],
    strangers: tuple[str, ...],
) -> None:
    assert strangers_of(holding(*processes), ("GPU-0",), {"GPU-0": servers}) == strangers


def test_strangers_are_looked_for_on_the_gpus_asked_for_alone() -> None:
    fleet = after((gpu(0, "VLLM::Worker_TP0", "x"), gpu(1, "VLLM::Worker_TP1", "x"), gpu(2, "x")))
    servers = {"GPU-0": ["vllm"], "GPU-1": ["vllm"]}
    assert strangers_of(fleet, ("GPU-1", "GPU-2"), servers) == ("x (pid 101) on GPU 1",)
    assert strangers_of(fleet, (), servers) == ()


def test_on_a_slice_its_own_processes_count() -> None:
    one = MigDevice("MIG-1", 0, compute_procs=(GpuProcess(1, 5, "VLLM::EngineCore"),))
    two = MigDevice("MIG-2", 1, compute_procs=(GpuProcess(2, 5, "x"), GpuProcess(3, 4, "y")))
    fleet = after((gpu(0, uuid=None, mig_devices=(one, two)),))
    servers: dict[str, tuple[str | None, ...]] = {"MIG-1": ("vllm",), "MIG-2": (None,)}
    assert strangers_of(fleet, ("MIG-1",), servers) == ()
    assert strangers_of(fleet, ("MIG-1", "MIG-2"), servers) == ("y (pid 3) on GPU 0",)


def test_nobody_is_known_to_hold_a_lost_gpu_or_one_that_does_not_tell() -> None:
    servers = {"GPU-0": ["vllm"]}
    assert strangers_of(after((gpu(0, "a", "b"),), ()), ("GPU-0",), servers) == ()
    assert strangers_of(after((gpu(0, compute_procs=None),)), ("GPU-0",), servers) == ()


def test_multiprocessors_and_clocks_are_compared_and_exported() -> None:
    # 132 x 1980 MHz listed; 16896 cores at 9.0 are 132 multiprocessors, at 1485 MHz 0.75 of it.
    count, clock = figure(132, "SM"), figure(1980, "MHz")
    known = Catalogue((replace(H100, multiprocessors=count, boost_clock_mhz=clock),))
    told = replace(gpu(0), compute_capability="9.0", cuda_cores=16896)
    (whole,) = gpu_statuses(after((replace(told, max_sm_clock_mhz=1980),)), [], known)
    assert (whole.catalogue_clock_ratio, whole.notes) == (1.0, ())
    (capped,) = gpu_statuses(after((replace(told, max_sm_clock_mhz=1485),)), [], known)
    assert capped.catalogue_clock_ratio == 0.75
    assert capped.notes[0].startswith("multiprocessors x highest clock by NVML (132 x 1485 MHz)")
    (old,) = gpu_statuses(after((gpu(0),)), [], known)
    assert old.catalogue_clock_ratio is None
