"""XID events: registered, taken without waiting, told one code a round, never an error."""

from __future__ import annotations

from types import SimpleNamespace

import pynvml
import pytest
from structlog.testing import capture_logs

from monitor.sources.nvml import Nvml
from monitor.sources.nvml_xid import MOST_EVENTS, XID_CRITICAL_ERROR
from tests.sources.fake_pynvml import (
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    UNKNOWN,
    FakeGpu,
    FakePynvml,
    at,
    connected,
    h200,
)

Told = tuple[int | None, int | None]


def told(nvml: Nvml, second: float, gpu: int = 0) -> Told:
    """The XID and its count that a round tells of a GPU."""
    reading = nvml.read(at(second)).gpus[gpu]
    return reading.xid, reading.xid_count


def living(fake: FakePynvml) -> int:
    return sum(not events.freed for events in fake.event_sets)


def test_the_constant_is_that_of_nvml() -> None:
    assert pynvml.nvmlEventTypeXidCriticalError == XID_CRITICAL_ERROR


def test_an_event_is_told_from_the_round_after_it_on() -> None:
    gpu = h200()
    gpu.xids = []
    nvml = connected(FakePynvml(gpu))
    assert told(nvml, 0.0) == (None, 0)
    gpu.xids += [31]
    assert [told(nvml, second) for second in (1.0, 2.0)] == [(31, 1), (31, 1)]
    gpu.xids += [31]
    assert told(nvml, 3.0) == (31, 2)


def test_several_codes_are_told_one_a_round_in_their_order() -> None:
    gpu = h200()
    gpu.xids = [48, 45, 45, 48, 45, 63]
    nvml = connected(FakePynvml(gpu))
    assert told(nvml, 0.0) == (48, 2)
    gpu.xids += [48]
    assert [told(nvml, second) for second in (1.0, 2.0, 3.0, 4.0)] == [
        (45, 5),
        (63, 6),
        (48, 7),
        (48, 7),
    ]


def test_a_flood_is_taken_in_parts() -> None:
    gpu = h200()
    gpu.xids = [13] * (MOST_EVENTS + 3)
    fake = FakePynvml(gpu)
    nvml = connected(fake)
    assert told(nvml, 0.0) == (13, 64)
    assert fake.calls["nvmlEventSetWait"] == 64
    assert told(nvml, 1.0) == (13, 67)
    # Three events and one that says that there is no more.
    assert fake.calls["nvmlEventSetWait"] == 68


def test_each_gpu_has_its_own() -> None:
    fake = FakePynvml(h200(0), h200(1), FakeGpu(answers={"nvmlDeviceGetName": "Tesla K80"}))
    fake.gpus[1].xids = [94]
    gpus = connected(fake).read(at(0.0)).gpus

    assert [(gpu.xid, gpu.xid_count) for gpu in gpus] == [(None, 0), (94, 1), (None, None)]


def test_other_events_and_code_0_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [(0x10, 0), (0x8, 0), (0x8, 31)]

    def wait(_: object, __: int) -> SimpleNamespace:
        if not answers:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        kind, data = answers.pop(0)
        return SimpleNamespace(eventType=kind, eventData=data)

    monkeypatch.setattr(FakePynvml, "_nvmlEventSetWait", staticmethod(wait))
    assert told(connected(FakePynvml(h200())), 0.0) == (31, 1)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (NOT_SUPPORTED, "not supported (NVML_ERROR_NOT_SUPPORTED)"),
        (NO_PERMISSION, "no permission (NVML_ERROR_NO_PERMISSION)"),
        (UNKNOWN, "unknown (NVML_ERROR_UNKNOWN)"),
    ],
)
@pytest.mark.parametrize("function", ["nvmlEventSetCreate", "nvmlDeviceRegisterEvents"])
def test_a_gpu_without_events_tells_none_and_says_so_once(
    function: str, code: int, reason: str
) -> None:
    fake = FakePynvml(h200())
    fake.fails = {function: code}
    nvml = connected(fake)
    with capture_logs() as logs:
        assert [told(nvml, second) for second in (0.0, 1.0)] == [(None, None)] * 2
        nvml.close()
        nvml.connect()
        reading = nvml.read(at(2.0)).gpus[0]

    assert (reading.error, reading.xid_count, reading.power_mw) == (None, None, 628_001)
    assert logs == [{"event": "xid_not_told", "gpu": 0, "reason": reason, "log_level": "info"}]
    assert fake.calls[function] == 2
    assert "nvmlEventSetWait" not in fake.calls
    assert living(fake) == 0


@pytest.mark.parametrize("code", [NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND])
def test_a_driver_that_registers_and_cannot_be_asked_does_not_count(code: int) -> None:
    fake = FakePynvml(h200())
    fake.fails = {"nvmlEventSetWait": code}
    nvml = connected(fake)

    assert [told(nvml, second) for second in (0.0, 1.0)] == [(None, None)] * 2
    assert fake.calls["nvmlEventSetWait"] == 1
    assert living(fake) == 0


def test_what_was_seen_stays_when_events_end() -> None:
    fake = FakePynvml(h200())
    fake.gpus[0].xids = [31]
    nvml = connected(fake)
    nvml.read(at(0.0))
    fake.fails = {"nvmlEventSetWait": NO_PERMISSION}

    assert told(nvml, 1.0) == (31, 1)
    assert living(fake) == 0


def test_an_odd_answer_is_no_event_and_the_next_round_asks_again() -> None:
    fake = FakePynvml(h200())
    nvml = connected(fake)
    nvml.read(at(0.0))
    fake.fails = {"nvmlEventSetWait": UNKNOWN}
    fake.gpus[0].xids = [31]
    assert told(nvml, 1.0) == (None, 0)
    fake.fails = {}

    assert told(nvml, 2.0) == (31, 1)


def test_a_lost_set_hides_neither_its_gpu_nor_the_others() -> None:
    fake = FakePynvml(h200())
    fake.fails = {"nvmlEventSetWait": GPU_IS_LOST}
    reading = connected(fake).read(at(0.0)).gpus[0]

    assert (reading.error, reading.power_mw, reading.xid_count) == (None, 628_001, 0)


def test_a_gpu_that_is_lost_tells_the_event_that_says_why() -> None:
    fake = FakePynvml(h200(0), h200(1))
    nvml = connected(fake)
    nvml.read(at(0.0))
    fake.gpus[0].lost = GPU_IS_LOST
    fake.gpus[0].xids = [79]
    lost, other = nvml.read(at(1.0)).gpus
    assert (lost.error, lost.xid, lost.xid_count) == (
        "GPU is lost (NVML_ERROR_GPU_IS_LOST)",
        79,
        1,
    )
    assert (other.xid, other.xid_count) == (None, 0)
    assert told(nvml, 2.0) == (79, 1)
    # The set of a lost GPU is freed, not kept or made anew each round.
    assert (len(fake.event_sets), living(fake)) == (2, 1)
    fake.gpus[0].lost = None
    fake.gpus[0].xids += [79]

    assert told(nvml, 3.0) == (79, 2)
    assert (len(fake.event_sets), living(fake)) == (3, 2)


def test_a_gpu_lost_while_it_is_registered_fails_as_lost() -> None:
    fake = FakePynvml(h200())
    fake.fails = {"nvmlDeviceRegisterEvents": GPU_IS_LOST}
    nvml = connected(fake)
    reading = nvml.read(at(0.0)).gpus[0]

    assert (reading.error, reading.xid_count) == ("GPU is lost (NVML_ERROR_GPU_IS_LOST)", None)
    assert living(fake) == 0
    fake.fails = {}
    assert told(nvml, 1.0) == (None, 0)


def test_what_was_seen_outlives_the_connection_and_events_go_on() -> None:
    fake = FakePynvml(h200(0), h200(1))
    fake.gpus[1].xids = [48, 45]
    nvml = connected(fake)
    assert told(nvml, 0.0, gpu=1) == (48, 1)
    nvml.close()
    assert (len(fake.event_sets), living(fake), fake.initialised) == (2, 0, 0)
    # The GPU moved up: its XIDs go with it.
    gone = fake.gpus.pop(0)
    nvml.connect()
    first, second = nvml.read(at(1.0)).gpus
    assert (first.uuid, first.error is None, first.xid) == (
        gone.answers["nvmlDeviceGetUUID"],
        False,
        None,
    )
    assert (second.index, second.xid, second.xid_count) == (0, 45, 2)
    fake.gpus[0].xids = [45]

    assert told(nvml, 2.0, gpu=1) == (45, 3)
    assert living(fake) == 1


def test_a_gpu_without_uuid_is_known_by_its_index() -> None:
    gpu = h200()
    del gpu.answers["nvmlDeviceGetUUID"]
    gpu.xids = [31]

    assert told(connected(FakePynvml(gpu)), 0.0) == (31, 1)


def test_nvml_that_fails_at_a_wait_fails_the_round_and_frees_nothing_twice() -> None:
    fake = FakePynvml(h200())
    nvml = connected(fake)
    nvml.read(at(0.0))
    down = pynvml.NVML_ERROR_UNINITIALIZED
    fake.fails = {"nvmlEventSetWait": down, "nvmlEventSetFree": down}
    assert nvml.read(at(1.0)).error == "uninitialized (NVML_ERROR_UNINITIALIZED)"
    assert not nvml.connected
    fake.fails = {}
    nvml.connect()

    assert told(nvml, 2.0) == (None, 0)


def test_watching_can_be_left_out() -> None:
    fake = FakePynvml(h200())
    assert told(connected(fake, xids=False), 0.0) == (None, None)
    assert fake.event_sets == []
