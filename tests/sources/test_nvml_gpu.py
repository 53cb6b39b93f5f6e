"""One GPU as NVML tells it: what becomes of each answer, names of processes, MIG."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from monitor.model import GpuProcess, GpuReading, GpuRound, MigDevice
from monitor.sources.nvml_calls import NvmlCalls
from tests.sources.fake_pynvml import (
    NO_PERMISSION,
    NOT_FOUND,
    NOT_SUPPORTED,
    UNKNOWN,
    Fails,
    FakeGpu,
    FakePynvml,
    at,
    connected,
    h200,
    process,
)

# ------------------------------------------------------------------------ one GPU


def test_a_healthy_gpu_tells_everything(tmp_path: Path) -> None:
    (tmp_path / "4242").mkdir()
    (tmp_path / "4242" / "cmdline").write_bytes(b"VLLM::EngineCore\0\0")
    nvml = connected(FakePynvml(h200()), tmp_path)
    nvml.read(at(0.0))

    assert nvml.read(at(10.0)) == GpuRound(
        at=at(10.0),
        gpus=(
            GpuReading(
                index=0,
                uuid="GPU-00000000-0000-4000-8000-000000000000",
                name="NVIDIA H200",
                pci_device_id="0x233510de",
                pci_bus_id="00000000:81:00.0",
                memory_total_bytes=150_754_820_096,
                memory_used_bytes=129_039_728_640,
                memory_bus_width_bits=6016,
                compute_capability="9.0",
                cuda_cores=16896,
                utilization_gpu_pct=99.0,
                utilization_mem_pct=54.0,
                power_mw=628_001,
                power_instant_mw=640_123,
                energy_mj=93_165_429,
                enforced_power_limit_mw=650_000,
                default_power_limit_mw=700_000,
                sm_clock_mhz=1974,
                max_sm_clock_mhz=1980,
                mem_clock_mhz=3200,
                max_mem_clock_mhz=3201,
                clocks_event_reasons=0x4,
                throttle_ns={
                    "sw_power_cap": 16_100_000_000,
                    "thermal": 0,
                    "sw_thermal": 11,
                    "hw_thermal": 12,
                    "hw_power_brake": 13,
                },
                temperature_c=57.0,
                memory_temperature_c=60.0,
                pcie_gen=4,
                pcie_gen_max=5,
                pcie_width=8,
                pcie_width_max=16,
                mig_mode=0,
                ecc_uncorrected=2,
                remapped_rows=3,
                row_remap_pending=False,
                xid_count=0,
                compute_procs=(
                    GpuProcess(
                        pid=4242, used_memory_bytes=128_000_000_000, name="VLLM::EngineCore"
                    ),
                ),
                gpm_pct={"graphics": 98.4, "sm": 75.8, "tensor": 22.0, "dram": 59.123},
            ),
        ),
    )
    assert nvml.driver_version == "580.159.04"


def test_no_call_is_made_but_the_known_ones() -> None:
    fake = FakePynvml(h200(), h200(1))
    nvml = connected(fake)
    for second in range(30):
        nvml.read(at(float(second)))

    assert fake.forbidden == []
    # Per GPU once for each of two clocks; once; and at 0, 10 and 20 s.
    assert fake.calls["nvmlDeviceGetMaxClockInfo"] == 2 * 2
    assert fake.calls["nvmlDeviceGetName"] == 2
    assert fake.calls["nvmlDeviceGetTotalEnergyConsumption"] == 2 * 3
    assert fake.calls["nvmlDeviceGetMigMode"] == 2 * 3
    assert fake.calls["nvmlDeviceGetFieldValues"] == 2 * 30


def test_energy_is_told_every_ten_seconds_and_unknown_between() -> None:
    nvml = connected(FakePynvml(h200()))
    energy = {s: nvml.read(at(s)).gpus[0].energy_mj for s in (0.0, 1.0, 9.9, 10.0, 11.0, 20.5)}

    assert energy == {
        0.0: 93_165_429,
        1.0: None,
        9.9: None,
        10.0: 93_165_429,
        11.0: None,
        20.5: 93_165_429,
    }


def test_the_fake_fails_a_forbidden_call() -> None:
    with pytest.raises(AssertionError, match="nvmlDeviceGetPcieThroughput must not be called"):
        NvmlCalls(FakePynvml(h200())).ask("nvmlDeviceGetPcieThroughput", None, 0)


def test_a_gpu_that_tells_only_its_name_gives_no_zeros() -> None:
    fake = FakePynvml(FakeGpu(answers={"nvmlDeviceGetName": "Tesla K80"}))

    assert connected(fake).read(at(0.0)).gpus == (GpuReading(index=0, name="Tesla K80"),)


@pytest.mark.parametrize(
    "code",
    [
        NOT_SUPPORTED,
        NO_PERMISSION,
        NOT_FOUND,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        UNKNOWN,
    ],
)
def test_what_one_call_does_not_tell_is_none_and_the_rest_stays(code: int) -> None:
    gpu = h200()
    for function in ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetUtilizationRates"):
        gpu.answers[function] = Fails(code)
    reading = connected(FakePynvml(gpu)).read(at(0.0)).gpus[0]

    assert (reading.power_mw, reading.utilization_gpu_pct, reading.utilization_mem_pct) == (
        None,
        None,
        None,
    )
    assert (reading.error, reading.sm_clock_mhz, reading.temperature_c) == (None, 1974, 57.0)


def test_rows_that_wait_for_a_reset_are_told() -> None:
    gpu = h200()
    nvml = connected(FakePynvml(gpu))
    gpu.answers["nvmlDeviceGetRemappedRows"] = (1, 3, 1, 0)
    reading = nvml.read(at(0.0)).gpus[0]
    assert (reading.remapped_rows, reading.row_remap_pending) == (4, True)
    gpu.answers["nvmlDeviceGetRemappedRows"] = Fails(NOT_SUPPORTED)
    reading = nvml.read(at(1.0)).gpus[0]
    assert (reading.remapped_rows, reading.row_remap_pending) == (None, None)


def test_no_permission_for_processes_is_unknown_and_none_running_is_empty() -> None:
    gpu = h200()
    nvml = connected(FakePynvml(gpu))
    gpu.answers["nvmlDeviceGetComputeRunningProcesses"] = Fails(NO_PERMISSION)
    assert nvml.read(at(0.0)).gpus[0].compute_procs is None
    gpu.answers["nvmlDeviceGetComputeRunningProcesses"] = []

    assert nvml.read(at(1.0)).gpus[0].compute_procs == ()


def test_numbers_that_mean_not_available_are_none() -> None:
    gpu = h200()
    gpu.answers["nvmlDeviceGetPowerUsage"] = 2**32 - 1
    gpu.answers["nvmlDeviceGetComputeRunningProcesses"] = [process(1, 2**64 - 1), process(2, None)]
    gpu.fields[82] = ("uiVal", 1, 0)
    reading = connected(FakePynvml(gpu)).read(at(0.0)).gpus[0]

    assert reading.power_mw is None
    assert reading.compute_procs == (GpuProcess(pid=1), GpuProcess(pid=2))
    assert reading.memory_temperature_c is None


def test_text_may_come_as_bytes() -> None:
    gpu = h200()
    gpu.answers["nvmlDeviceGetName"] = b"NVIDIA H200"
    gpu.answers["nvmlDeviceGetUUID"] = b"GPU-1"
    gpu.answers["nvmlDeviceGetPciInfo"] = SimpleNamespace(
        pciDeviceId=0x1EB810DE, busId=b"00000000:0C:00.0"
    )
    reading = connected(FakePynvml(gpu)).read(at(0.0)).gpus[0]

    assert (reading.name, reading.uuid) == ("NVIDIA H200", "GPU-1")
    assert (reading.pci_device_id, reading.pci_bus_id) == ("0x1eb810de", "00000000:0C:00.0")


def test_an_older_driver_is_asked_in_its_own_words() -> None:
    gpu = h200()
    gpu.answers["nvmlDeviceGetMemoryInfo", pynvml.nvmlMemory_v2] = Fails(
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    )
    gpu.answers["nvmlDeviceGetCurrentClocksThrottleReasons"] = 0x20
    gpu.answers["nvmlDeviceGetTemperatureV", 0] = 44
    gpu.answers["nvmlDeviceGetComputeRunningProcesses_v2"] = [process(7, 1)]
    fake = FakePynvml(gpu)
    fake.fails = {"nvmlDeviceGetTemperature": pynvml.NVML_ERROR_FUNCTION_NOT_FOUND}
    fake.missing = {"nvmlDeviceGetCurrentClocksEventReasons", "NVML_FI_DEV_POWER_INSTANT"}
    fake.mismatched = {"nvmlDeviceGetComputeRunningProcesses"}
    reading = connected(fake).read(at(0.0)).gpus[0]

    assert reading.memory_used_bytes == 129_716_060_160
    assert reading.clocks_event_reasons == 0x20
    assert reading.temperature_c == 44.0
    assert reading.compute_procs == (GpuProcess(pid=7, used_memory_bytes=1),)
    assert reading.power_instant_mw is None
    assert reading.memory_temperature_c == 60.0


def test_a_driver_without_a_function_under_any_name_does_not_tell() -> None:
    fake = FakePynvml(h200())
    fake.missing = {
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        "nvmlMemory_v2",
    }
    reading = connected(fake).read(at(0.0)).gpus[0]

    assert reading.clocks_event_reasons is None
    assert reading.memory_used_bytes == 129_716_060_160


# ---------------------------------------------------------------------- processes


def test_process_names_come_from_the_command_line_else_the_short_name(tmp_path: Path) -> None:
    for pid, cmdline, comm in (
        (1, b"python3\0-m\0sglang.launch_server\0", b"python3\n"),
        (2, b"sglang::scheduler TP0   ", b"sglang\n"),
        (3, b"", b"kworker\n"),
    ):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cmdline").write_bytes(cmdline)
        (tmp_path / str(pid) / "comm").write_bytes(comm)
    # Unreadable, as of another user under hidepid: here a folder stands for it.
    (tmp_path / "4" / "cmdline").mkdir(parents=True)
    gpu = h200()
    gpu.answers["nvmlDeviceGetComputeRunningProcesses"] = [process(pid, 0) for pid in range(1, 6)]
    procs = connected(FakePynvml(gpu), tmp_path).read(at(0.0)).gpus[0].compute_procs

    assert [p.name for p in procs or ()] == ["python3", "sglang::scheduler", "kworker", None, None]


def test_a_name_is_looked_up_once_and_forgotten_with_the_process(tmp_path: Path) -> None:
    (tmp_path / "4242").mkdir()
    cmdline = tmp_path / "4242" / "cmdline"
    cmdline.write_bytes(b"first\0")
    gpu = h200()
    running = gpu.answers["nvmlDeviceGetComputeRunningProcesses"]
    nvml = connected(FakePynvml(gpu), tmp_path)

    def name(second: float) -> list[str | None]:
        return [p.name for p in nvml.read(at(second)).gpus[0].compute_procs or ()]

    assert name(0.0) == ["first"]
    cmdline.write_bytes(b"second\0")
    assert name(1.0) == ["first"]
    gpu.answers["nvmlDeviceGetComputeRunningProcesses"] = []
    assert name(2.0) == []
    gpu.answers["nvmlDeviceGetComputeRunningProcesses"] = running
    assert name(3.0) == ["second"]


# ---------------------------------------------------------------------------- MIG


def mig_gpu() -> FakeGpu:
    def piece(number: int, pids: list[int]) -> FakeGpu:
        return FakeGpu(
            answers={
                "nvmlDeviceGetUUID": f"MIG-{number}",
                "nvmlDeviceGetGpuInstanceId": 10 + number,
                "nvmlDeviceGetComputeInstanceId": number,
                "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=18_253_611_008, used=1),
                "nvmlDeviceGetAttributes_v2": SimpleNamespace(multiprocessorCount=16),
                "nvmlDeviceGetComputeRunningProcesses": [process(pid, 5) for pid in pids],
            }
        )

    gpu = h200()
    gpu.answers["nvmlDeviceGetMigMode"] = [1, 1]
    gpu.answers["nvmlDeviceGetMaxMigDeviceCount"] = 4
    gpu.slices = [piece(0, [77]), None, piece(2, []), None]
    return gpu


def test_a_mig_gpu_tells_its_slices_and_no_utilisation() -> None:
    fake = FakePynvml(mig_gpu())
    nvml = connected(fake)
    nvml.read(at(0.0))
    reading = nvml.read(at(1.0)).gpus[0]

    assert reading.mig_mode == 1
    assert reading.mig_devices == (
        MigDevice(
            uuid="MIG-0",
            index=0,
            gpu_instance_id=10,
            compute_instance_id=0,
            memory_total_bytes=18_253_611_008,
            multiprocessor_count=16,
            compute_procs=(GpuProcess(pid=77, used_memory_bytes=5),),
        ),
        MigDevice(
            uuid="MIG-2",
            index=2,
            gpu_instance_id=12,
            compute_instance_id=2,
            memory_total_bytes=18_253_611_008,
            multiprocessor_count=16,
        ),
    )
    assert (reading.utilization_gpu_pct, reading.utilization_mem_pct, reading.gpm_pct) == (
        None,
        None,
        {},
    )
    assert "nvmlGpmQueryDeviceSupport" not in fake.calls
    # Unchanging facts of a slice are read once, its processes every round.
    assert fake.calls["nvmlDeviceGetAttributes_v2"] == 2
    assert reading.power_mw == 628_001


def test_mig_switched_on_while_running_is_seen_within_ten_seconds() -> None:
    gpu = mig_gpu()
    gpu.answers["nvmlDeviceGetMigMode"] = [0, 1]
    nvml = connected(FakePynvml(gpu))
    assert nvml.read(at(0.0)).gpus[0].mig_devices == ()
    gpu.answers["nvmlDeviceGetMigMode"] = [1, 1]

    assert [mig.uuid for mig in nvml.read(at(10.0)).gpus[0].mig_devices] == ["MIG-0", "MIG-2"]
