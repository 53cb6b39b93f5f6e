"""The simulated GPUs: what they tell under load, idle, hot and lost."""

from __future__ import annotations

import pytest

from monitor.demo.gpus import NAME, GpuCondition, GpuLoad, SimulatedGpu

BUSY = GpuLoad(working=True, condition=GpuCondition.NORMAL, process="sglang::scheduler")
IDLE = GpuLoad(working=False, condition=GpuCondition.NORMAL, process=None)
HOT = GpuLoad(working=True, condition=GpuCondition.HOT, process="VLLM::EngineCore")
LOST = GpuLoad(working=False, condition=GpuCondition.LOST, process="VLLM::EngineCore")


def test_a_busy_card_looks_fine() -> None:
    reading = SimulatedGpu(1).read(BUSY, 0.0)
    assert (reading.index, reading.name) == (1, NAME)
    assert reading.utilization_gpu_pct in {95.0, 96.0, 97.0}
    assert reading.sm_clock_mhz
    assert reading.max_sm_clock_mhz
    assert reading.sm_clock_mhz / reading.max_sm_clock_mhz > 0.9
    # 2 x 14001 MHz x 512 bit / 8 = 1792 GB/s, the datasheet's bandwidth.
    assert reading.mem_clock_mhz
    assert reading.memory_bus_width_bits
    bandwidth = 2 * reading.mem_clock_mhz * 1e6 * reading.memory_bus_width_bits / 8
    assert bandwidth == pytest.approx(1792e9, rel=1e-3)
    assert reading.clocks_event_reasons == 0x4
    assert reading.compute_procs
    assert reading.compute_procs[0].name == "sglang::scheduler"
    assert reading.compute_procs[0].pid > 2**22


def test_an_idle_card_draws_little_and_has_no_process() -> None:
    reading = SimulatedGpu(0).read(IDLE, 0.0)
    assert reading.utilization_gpu_pct == 0.0
    assert reading.power_mw is not None
    assert reading.power_mw < 50_000
    assert reading.compute_procs == ()
    assert reading.clocks_event_reasons == 0


def test_a_hot_card_says_so_at_half_its_clock() -> None:
    reading = SimulatedGpu(0).read(HOT, 0.0)
    assert reading.sm_clock_mhz == pytest.approx(2617 / 2, abs=20)
    assert reading.temperature_c is not None
    assert reading.temperature_c >= 93
    assert reading.clocks_event_reasons == 0x68
    assert reading.utilization_gpu_pct is not None
    assert reading.utilization_gpu_pct >= 95


def test_a_lost_card_has_identity_and_an_error_only() -> None:
    card = SimulatedGpu(1)
    before = card.read(BUSY, 0.0)
    reading = card.read(LOST, 1.0)
    assert (reading.uuid, reading.name) == (before.uuid, before.name)
    assert reading.error == "GPU is lost: it has fallen off the bus (simulated)"
    assert reading.utilization_gpu_pct is None
    assert reading.power_mw is None


def test_energy_is_power_over_time() -> None:
    card = SimulatedGpu(0)
    assert card.read(BUSY, 0.0).energy_mj == 0
    second = card.read(BUSY, 10.0)
    assert second.power_mw is not None
    assert second.energy_mj == second.power_mw * 10


def test_cards_differ_by_uuid_and_bus() -> None:
    one, other = (SimulatedGpu(index).read(IDLE, 0.0) for index in (0, 1))
    assert one.uuid != other.uuid
    assert one.pci_bus_id == "00000000:01:00.0"
    assert other.pci_bus_id == "00000000:02:00.0"
