"""The host's GPUs over rounds of NVML."""

from __future__ import annotations

from dataclasses import replace

import pytest

from monitor.expectation.matching import Catalogue
from monitor.fleet import Fleet, gpu_statuses, saw_round
from monitor.model import GpuOnTarget, GpuReading, GpuRound, GpuStatus, Instant, MigDevice
from tests.judgement.test_alarms import target as target_status
from tests.world import H100, WALL, gpu

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
