"""NVML: lost GPUs, NVML failing as a whole, calls that hang."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path

import pynvml
import pytest
from structlog.testing import capture_logs

from monitor.model import GpuReading, GpuRound
from monitor.sources.nvml import Nvml, NvmlPoller
from tests.sources.fake_pynvml import (
    GPU_IS_LOST,
    NO_PERMISSION,
    UNKNOWN,
    FakePynvml,
    at,
    connected,
    h200,
)

UUID = "GPU-0000000{}-0000-4000-8000-000000000000"
REPOSITORY = Path(__file__).resolve().parents[2]


# ---------------------------------------------------------------------- lost GPUs


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (GPU_IS_LOST, "GPU is lost (NVML_ERROR_GPU_IS_LOST)"),
        (pynvml.NVML_ERROR_RESET_REQUIRED, "GPU requires reset (NVML_ERROR_RESET_REQUIRED)"),
    ],
)
def test_a_lost_gpu_keeps_its_name_the_others_their_values_and_it_may_return(
    code: int, text: str
) -> None:
    fake = FakePynvml(h200(0), h200(1))
    nvml = connected(fake)
    nvml.read(at(0.0))
    fake.gpus[0].lost = code
    lost, other = nvml.read(at(1.0)).gpus
    again = nvml.read(at(2.0)).gpus[0]
    fake.gpus[0].lost = None
    back = nvml.read(at(3.0)).gpus[0]

    assert lost == GpuReading(
        index=0,
        uuid=UUID.format(0),
        name="NVIDIA H200",
        pci_device_id="0x233510de",
        pci_bus_id="00000000:81:00.0",
        error=text,
    )
    assert (other.uuid, other.power_mw, other.error) == (UUID.format(1), 628_001, None)
    assert again == lost
    assert (back.error, back.power_mw, back.gpm_pct) == (None, 628_001, {})


def test_a_gpu_lost_from_the_start_has_an_index_and_a_reason() -> None:
    fake = FakePynvml(h200(0), h200(1))
    fake.gpus[0].lost = GPU_IS_LOST
    lost, other = connected(fake).read(at(0.0)).gpus

    assert lost == GpuReading(index=0, error="GPU is lost (NVML_ERROR_GPU_IS_LOST)")
    assert other.power_mw == 628_001


def test_a_gpu_that_cannot_be_opened_is_failed_whatever_the_reason() -> None:
    fake = FakePynvml(h200())
    fake.fails = {"nvmlDeviceGetHandleByIndex": pynvml.NVML_ERROR_IRQ_ISSUE}

    assert connected(fake).read(at(0.0)).gpus == (
        GpuReading(index=0, error="irq issue (NVML_ERROR_IRQ_ISSUE)"),
    )


def test_a_gpu_that_answers_nothing_but_unknown_error_is_failed_not_empty() -> None:
    fake = FakePynvml(h200())
    nvml = connected(fake)
    nvml.read(at(0.0))
    fake.gpus[0].lost = UNKNOWN

    reading = nvml.read(at(1.0)).gpus[0]
    assert (reading.uuid, reading.error) == (UUID.format(0), "unknown (NVML_ERROR_UNKNOWN)")


def test_a_gpu_that_is_no_longer_listed_is_reported() -> None:
    fake = FakePynvml(h200(0), h200(1))
    nvml = connected(fake)
    nvml.read(at(0.0))
    nvml.close()
    del fake.gpus[0]
    nvml.connect()
    gone, moved = nvml.read(at(1.0)).gpus

    assert (gone.index, gone.uuid, gone.power_mw) == (0, UUID.format(0), None)
    assert gone.error == "no longer listed by NVML: fallen off the bus or removed"
    assert (moved.index, moved.uuid, moved.power_mw) == (0, UUID.format(1), 628_001)


def test_a_gpu_given_to_others_is_left_out_and_logged_once() -> None:
    fake = FakePynvml(h200(0), h200(1))
    fake.gpus[0].lost = NO_PERMISSION
    nvml = connected(fake)
    with capture_logs() as logs:
        rounds = [nvml.read(at(float(second))) for second in range(3)]

    assert [[gpu.index for gpu in r.gpus] for r in rounds] == [[1], [1], [1]]
    assert logs == [
        {
            "event": "gpu_withheld",
            "gpu": 0,
            "reason": "no permission to open it",
            "log_level": "info",
        }
    ]


# -------------------------------------------------------------------- NVML itself


def test_no_driver_on_this_host() -> None:
    """For real: the library is not on machines without a GPU, and pynvml says so."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        nvml = Nvml()
        assert nvml.connect() == (
            "libnvidia-ml.so not found: no NVIDIA driver in this container or host "
            "(NVML_ERROR_LIBRARY_NOT_FOUND)"
        )
        assert not nvml.connected
        assert nvml.read(at(1.0)) == GpuRound(at=at(1.0), error="NVML is not connected")
        nvml.close()
    else:
        pynvml.nvmlShutdown()
        nvml = Nvml()
        assert nvml.connect() is None
        nvml.close()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (
            pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
            "driver not loaded (NVML_ERROR_DRIVER_NOT_LOADED)",
        ),
        (NO_PERMISSION, "no permission (NVML_ERROR_NO_PERMISSION)"),
        (
            pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
            (
                "libnvidia-ml.so and the loaded driver differ in version: "
                "reload the driver or reboot (NVML_ERROR_LIB_RM_VERSION_MISMATCH)"
            ),
        ),
        (4321, "NVML error 4321"),
    ],
)
def test_why_nvml_does_not_start(code: int, reason: str) -> None:
    fake = FakePynvml(h200())
    fake.fails = {"nvmlInit": code}

    assert Nvml(fake).connect() == reason


def test_a_host_without_the_python_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)

    assert Nvml().connect() == "the Python package nvidia-ml-py is not installed"


def test_connecting_twice_and_closing_twice_balance() -> None:
    fake = FakePynvml(h200())
    nvml = connected(fake)
    assert nvml.connect() is None
    assert fake.initialised == 1
    nvml.close()
    nvml.close()

    assert fake.initialised == 0


def test_close_frees_the_gpm_samples_and_a_new_connection_reads_the_fixed_facts_anew() -> None:
    fake = FakePynvml(h200())
    nvml = connected(fake)
    nvml.read(at(0.0))
    nvml.close()
    assert len(fake.samples) == len(fake.freed) == 2
    fake.gpus[0].answers["nvmlDeviceGetMaxClockInfo", 1] = 1830
    nvml.connect()

    assert nvml.read(at(1.0)).gpus[0].max_sm_clock_mhz == 1830
    assert fake.calls["nvmlGpmQueryDeviceSupport"] == 2


def test_gpm_can_be_left_out() -> None:
    fake = FakePynvml(h200())
    nvml = connected(fake, gpm=False)
    nvml.read(at(0.0))

    assert nvml.read(at(1.0)).gpus[0].gpm_pct == {}
    assert "nvmlGpmQueryDeviceSupport" not in fake.calls


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (pynvml.NVML_ERROR_UNINITIALIZED, "uninitialized (NVML_ERROR_UNINITIALIZED)"),
        (GPU_IS_LOST, "GPU is lost (NVML_ERROR_GPU_IS_LOST)"),
        (UNKNOWN, "unknown (NVML_ERROR_UNKNOWN)"),
    ],
)
def test_a_failing_count_fails_the_round_and_closes(code: int, reason: str) -> None:
    fake = FakePynvml(h200())
    nvml = connected(fake)
    fake.fails = {"nvmlDeviceGetCount": code}

    assert nvml.read(at(1.0)) == GpuRound(at=at(1.0), error=reason)
    assert not nvml.connected
    assert fake.initialised == 0


def test_a_read_measures_its_own_cost() -> None:
    ticks = iter([5.0, 5.25])
    nvml = connected(FakePynvml(h200()), stopwatch=lambda: next(ticks))
    assert nvml.last_read_seconds is None
    nvml.read(at(0.0))

    assert nvml.last_read_seconds == 0.25


# ------------------------------------------------------------------------- poller


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return 1_796_000_000.0 + self.seconds


def poller(fake: FakePynvml, clock: Clock, timeout_seconds: float = 5.0) -> NvmlPoller:
    return NvmlPoller(
        Nvml(fake, proc=Path("/nonexistent")),
        monotonic=clock.monotonic,
        wall=clock.wall,
        timeout_seconds=timeout_seconds,
    )


async def test_the_poller_reads_in_another_thread_at_its_clocks_time() -> None:
    fake, clock = FakePynvml(h200()), Clock()
    clock.seconds = 7.0
    polling = poller(fake, clock)
    result = await polling.read()
    await polling.close()

    assert (result.at, result.error, result.gpus[0].power_mw) == (at(7.0), None, 628_001)
    assert threading.get_ident() not in fake.threads
    assert fake.initialised == 0
    assert polling.last_read_seconds is not None


async def test_a_failed_nvml_is_tried_again_after_1_2_4_seconds_up_to_60() -> None:
    fake, clock = FakePynvml(h200()), Clock()
    fake.fails = {"nvmlInit": pynvml.NVML_ERROR_DRIVER_NOT_LOADED}
    polling = poller(fake, clock)
    tried = []
    for half_seconds in range(2 * 250):
        clock.seconds = half_seconds / 2
        before = fake.calls.get("nvmlInit", 0)
        result = await polling.read()
        assert result.error == "driver not loaded (NVML_ERROR_DRIVER_NOT_LOADED)"
        tried += [clock.seconds] if fake.calls["nvmlInit"] > before else []

    assert tried == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 63.0, 123.0, 183.0, 243.0]


async def test_nvml_failing_and_recovering_is_logged_once_each_and_resets_the_patience() -> None:
    fake, clock = FakePynvml(h200()), Clock()
    polling = poller(fake, clock)
    errors = []
    with capture_logs() as logs:
        for second in range(12):
            clock.seconds = float(second)
            fake.fails = {"nvmlDeviceGetCount": UNKNOWN} if 2 <= second < 5 or second == 9 else {}
            errors.append((await polling.read()).error)

    bad = "unknown (NVML_ERROR_UNKNOWN)"
    # Fails at 2, tried at 3, next at 5; fails at 9 after a good round, so tried at 10.
    assert errors == [None, None, bad, bad, bad, None, None, None, None, bad, None, None]
    assert [(log["event"], log.get("reason"), log.get("gpus")) for log in logs] == [
        ("nvml_failed", bad, None),
        ("nvml_recovered", None, 1),
        ("nvml_failed", bad, None),
        ("nvml_recovered", None, 1),
    ]
    assert fake.initialised == 1


async def test_nvml_is_started_anew_every_minute_while_a_gpu_is_lost() -> None:
    fake, clock = FakePynvml(h200(0), h200(1)), Clock()
    polling = poller(fake, clock)
    await polling.read()
    fake.gpus[0].lost = GPU_IS_LOST
    started = []
    for second in range(1, 131):
        clock.seconds = float(second)
        before = fake.calls["nvmlInit"]
        result = await polling.read()
        assert [gpu.power_mw for gpu in result.gpus] == [None, 628_001]
        started += [second] if fake.calls["nvmlInit"] > before else []
    fake.gpus[0].lost = None
    clock.seconds = 131.0

    # Lost at 1 s; closed after the rounds of 61 and 121 s.
    assert started == [62, 122]
    assert [gpu.error for gpu in (await polling.read()).gpus] == [None, None]


async def test_a_hung_call_times_out_without_piling_up_threads() -> None:
    fake, clock = FakePynvml(h200()), Clock()
    polling = poller(fake, clock, timeout_seconds=0.1)
    await polling.read()
    fake.gate.clear()
    started = time.monotonic()
    with capture_logs() as logs:
        hung = [await polling.read() for _ in range(5)]
    took = time.monotonic() - started
    threads = [thread for thread in threading.enumerate() if thread.name == "nvml"]
    await polling.close()
    fake.gate.set()
    await asyncio.to_thread(threads[0].join, 5)
    await asyncio.sleep(0.01)
    clock.seconds = 1.0
    after = await polling.read()

    assert {result.error for result in hung} == {"timeout: NVML did not answer within 0.1 s"}
    # The limit is waited for once; while the call still hangs the answer comes at once.
    assert 0.1 <= took < 0.4
    assert len(threads) == 1
    assert [log["event"] for log in logs] == ["nvml_failed"]
    # What the hung call brought in the end is dropped: this is a reading of its own time.
    assert (after.at, after.error) == (at(1.0), None)


async def test_concurrent_readers_share_one_call() -> None:
    fake, clock = FakePynvml(h200()), Clock()
    polling = poller(fake, clock)
    first, second = await asyncio.gather(polling.read(), polling.read())

    assert first is second
    assert fake.calls["nvmlDeviceGetCount"] == 1


async def test_a_defect_in_the_thread_is_an_error_round_and_the_next_one_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raised: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: raised.append(str(args.exc_value)))
    fake, clock = FakePynvml(h200()), Clock()
    del fake.gpus[0].answers["nvmlDeviceGetPciInfo"].busId
    polling = poller(fake, clock)
    result = await polling.read()
    for thread in [thread for thread in threading.enumerate() if thread.name == "nvml"]:
        await asyncio.to_thread(thread.join, 5)
    fake.gpus = [h200()]

    assert result.error == "internal error: the NVML thread ended, its traceback is on stderr"
    assert "busId" in raised[0]
    assert (await polling.read()).error is None


async def test_no_thread_to_be_had_is_an_error_round(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    polling = poller(FakePynvml(h200()), Clock())
    monkeypatch.setattr(threading.Thread, "start", refuse)

    assert (await polling.read()).error == "no thread to ask NVML in: can't start new thread"
    await polling.close()


def test_a_hung_call_does_not_hold_up_the_exit() -> None:
    program = """
import asyncio, time
from monitor.sources.nvml import Nvml, NvmlPoller
from tests.sources.fake_pynvml import FakePynvml, h200
fake = FakePynvml(h200())
fake.gate.clear()
print(asyncio.run(NvmlPoller(Nvml(fake), timeout_seconds=0.05).read()).error)
"""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=9,
        check=False,
    )

    assert done.stdout.splitlines()[-1] == "timeout: NVML did not answer within 0.05 s"
    assert (done.returncode, done.stderr) == (0, "")
    # The fake would let go after 10 s.
    assert time.monotonic() - started < 8


def test_pynvml_is_not_imported_before_it_is_needed() -> None:
    program = "import sys, monitor.sources.nvml; print('pynvml' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )

    assert done.stdout == "False\n"
