"""The daemon's memory on disk: the document, the pace of writing, and faults of the disk."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from monitor import keeping
from monitor.expectation.matching import Catalogue
from monitor.judgement.cost import Backlog
from monitor.judgement.drift import Drift
from monitor.judgement.findings import Found, Kept
from monitor.judgement.hysteresis import Raised
from monitor.judgement.learning import Gathered, Learned, WellHour
from monitor.keeping import Keeper, boot_id, decode, encode
from monitor.memory import LostGpu, Memory, TargetMemory, identity_of, recall
from monitor.model import (
    AlertStatus,
    Cost,
    Instant,
    JudgementSettings,
    Status,
    Verdict,
)
from monitor.outputs.state_file import StateFile
from monitor.pipeline import Plan, State, with_maintenance
from monitor.sources.state_file import StateInvalid
from monitor.target_state import TargetState
from monitor.throughput.gpu_health import GpuHealth, Grown, XidEvent
from tests.deadlines import until
from tests.world import WALL, spec

EVERYTHING = Memory(
    at=Instant(5000.0, WALL),
    boot="b1",
    targets={
        "a": TargetMemory(
            identity=identity_of(spec()),
            verdict=Verdict.CONCURRENCY_LIMITED,
            since=4000.0,
            since_wall_seconds=WALL - 1000.0,
            raised=Raised(WALL - 1000.0, "485 of 875 tokens/s", 4990.0, 4995.0),
            last_success=Instant(4999.0, WALL - 1.0),
            learned=Learned(
                key="vllm|m",
                hours=(WellHour(498_888, 0.9, 0.02, None), WellHour(498_889)),
                ratio=0.9,
                best_ratio=0.95,
                ratio_hours=1,
                open_hour=498_890,
                efficiency=Gathered(600.0, 540.0),
            ),
            drift=Drift(1.5, ((WALL, 0.8), (WALL + 300.0, 0.7)), WALL + 300.0, WALL - 9.0),
            found=Found({"drift": Kept("efficiency 0.7", WALL - 9.0, 4980.0)}),
            cost=Cost(1000.0, 20.0, 5.0, 6.0, 7.0),
            backlog=Backlog(5000.0, 700.0, 1200.0),
            maintenance_until=WALL + 60.0,
        ),
        "größe": TargetMemory(identity="y"),
    },
    lost_gpus=(LostGpu(3, "GPU-3", "a GPU", "0000:01:00.0", "GPU is lost", WALL - 5.0),),
    gpu_health={
        "GPU-3": GpuHealth(79, (XidEvent(79, Instant(4000.0, WALL - 1000.0)),), Grown(3, 1)),
    },
)

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
TARGETS = st.builds(
    TargetMemory,
    identity=st.text(),
    verdict=st.none() | st.sampled_from(Verdict),
    since=st.none() | NUMBERS,
    since_wall_seconds=NUMBERS,
    raised=st.none()
    | st.builds(Raised, NUMBERS, st.text(), judged_at=NUMBERS, well_since=st.none() | NUMBERS),
    last_success=st.none() | st.builds(Instant, NUMBERS, NUMBERS),
    cost=st.builds(Cost, lost_tokens=NUMBERS, backlog_tokens=st.none() | NUMBERS),
    backlog=st.builds(Backlog, given_tokens=st.none() | NUMBERS),
    maintenance_until=st.none() | NUMBERS,
)


# ------------------------------------------------------------------- the document


def test_what_is_written_is_read() -> None:
    assert decode(encode(EVERYTHING)) == EVERYTHING
    assert json.loads(encode(EVERYTHING))["version"] == 1


@given(st.dictionaries(st.text(), TARGETS, max_size=3))
def test_any_memory_is_read_as_it_was_written(targets: dict[str, TargetMemory]) -> None:
    memory = Memory(Instant(1.0, 2.0), None, targets)
    assert decode(encode(memory)) == memory


def document(**changes: Any) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(encode(EVERYTHING))
    return {**told, **changes}


def test_fields_of_another_version_do_no_harm() -> None:
    told = document()
    told["memory"]["targets"]["a"]["colour"] = "blue"
    told["memory"]["weather"] = {"rain": True}
    del told["memory"]["targets"]["a"]["backlog"]
    del told["memory"]["lost_gpus"]
    read = decode(json.dumps(told).encode())
    expected = replace(EVERYTHING.targets["a"], backlog=Backlog())
    assert read.targets["a"] == expected
    assert read.lost_gpus == ()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "not JSON: "),
        (b"\xff\xfe", "not JSON: "),
        (encode(EVERYTHING)[:-20], "not JSON: "),
        (b"[" * 100_000, "not JSON: "),
        (b"[]", "not a state file of Floorwatch's"),
        (b'{"version": 1}', "not a state file of Floorwatch's"),
        (json.dumps(document(version=2)).encode(), "version 2; this Floorwatch knows 1 to 1"),
        (json.dumps(document(version=0)).encode(), "version 0; "),
        (json.dumps(document(version=True)).encode(), "version True; "),
        (json.dumps(document(version="1")).encode(), "version '1'; "),
        (json.dumps(document(memory=None)).encode(), "memory: "),
        (json.dumps(document(memory={"at": 7})).encode(), "at: "),
        (encode(EVERYTHING).replace(b"5000.0", b'"5000"'), "at.monotonic_seconds: "),
        (encode(EVERYTHING).replace(b"5000.0", b"NaN"), "not JSON: NaN is no finite number"),
        (encode(EVERYTHING).replace(b"5000.0", b"1e999"), "not JSON: 1e999 is no finite"),
        (encode(EVERYTHING).replace(b"5000.0", b"9" * 400), "not JSON: a number of 400 digits"),
        (encode(EVERYTHING).replace(b"concurrency_limited", b"tired"), "targets.a.verdict: "),
        (encode(EVERYTHING).replace(b'"identity"', b'"idem"'), "targets.a.identity: "),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(body: bytes, why: str) -> None:
    with pytest.raises(StateInvalid) as caught:
        decode(body)
    assert str(caught.value).startswith(why), caught.value
    assert "\n" not in str(caught.value)


@given(st.integers(0, len(encode(EVERYTHING)) - 1), st.integers(0, 255))
def test_a_damaged_byte_never_crashes(place: int, value: int) -> None:
    body = bytearray(encode(EVERYTHING))
    body[place] = value
    with suppress(StateInvalid):
        assert isinstance(decode(bytes(body)), Memory)


def test_a_number_that_is_none_is_not_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode(Memory(Instant(float("inf"), 0.0)))


def test_the_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "BOOT_ID_FILE", tmp_path / "boot_id")
    assert boot_id() is None
    (tmp_path / "boot_id").write_text("4d2e\n")
    assert boot_id() == "4d2e"
    (tmp_path / "boot_id").write_text("\n")
    assert boot_id() is None
    (tmp_path / "boot_id").write_bytes(b"\xff")
    assert boot_id() is None


# --------------------------------------------------------------------- the pace

PLAN = Plan((spec(),), JudgementSettings(), Catalogue())
ALERT = AlertStatus("FloorwatchBelowFloor", "critical", "a", WALL, "slow")


def state(**changes: Any) -> State:
    return State(targets={"a": replace(TargetState(), **changes)})


def status(seconds: float, *alerts: AlertStatus) -> Status:
    return Status(
        at=Instant(seconds, WALL + seconds),
        targets=(),
        gpus=(),
        nvml_up=False,
        nvml_reason=None,
        alerts=alerts,
    )


def on_disk(folder: Path) -> Memory:
    return decode((folder / "state.json").read_bytes())


async def opened(folder: Path) -> Keeper:
    keeper = Keeper(folder)
    assert await keeper.open(Instant(0.0, WALL)) is None
    return keeper


RECALLED = recall(PLAN, EVERYTHING, EVERYTHING.at, "b1")


async def recalled(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> State:
    """What a keeper begins with at the moment when everything was saved."""
    monkeypatch.setattr(keeper, "_boot", "b1")
    return keeper.recalled(PLAN, await keeper.open(EVERYTHING.at), EVERYTHING.at)


async def test_an_alarm_is_on_disk_once_keep_returns(tmp_path: Path) -> None:
    keeper = await opened(tmp_path)
    await keeper.keep(PLAN, state(), status(0.0))
    assert on_disk(tmp_path).at.monotonic_seconds == 0.0
    await keeper.keep(PLAN, state(), status(1.0, ALERT))
    assert on_disk(tmp_path).at.monotonic_seconds == 1.0
    # It comes and goes at once, and so does a maintenance.
    await keeper.keep(PLAN, state(), status(2.0))
    assert on_disk(tmp_path).at.monotonic_seconds == 2.0
    silenced = with_maintenance(state(), "a", WALL + 60.0)
    await keeper.keep(PLAN, silenced, status(3.0))
    assert on_disk(tmp_path).targets["a"].maintenance_until == WALL + 60.0
    await keeper.close(PLAN, silenced, status(4.0))


async def test_the_rest_waits_for_its_turn_and_only_if_it_changed(tmp_path: Path) -> None:
    keeper = await opened(tmp_path)
    await keeper.keep(PLAN, state(), status(0.0))
    await keeper.keep(PLAN, state(cost=Cost(5.0)), status(14.0))
    assert on_disk(tmp_path).targets["a"].cost == Cost()
    await keeper.keep(PLAN, state(cost=Cost(6.0)), status(15.0))
    await until(lambda: on_disk(tmp_path).targets["a"].cost == Cost(6.0), "written")
    await keeper.keep(PLAN, state(cost=Cost(6.0)), status(40.0))
    await asyncio.sleep(0.05)
    assert on_disk(tmp_path).at.monotonic_seconds == 15.0
    await keeper.close(PLAN, state(cost=Cost(7.0)), status(41.0))
    assert on_disk(tmp_path).targets["a"].cost == Cost(7.0)


async def test_while_an_alarm_is_on_its_age_is_kept_up_to_date(tmp_path: Path) -> None:
    keeper = await opened(tmp_path)
    await keeper.keep(PLAN, state(), status(0.0, ALERT))
    await keeper.keep(PLAN, state(), status(15.0, ALERT))
    await until(lambda: on_disk(tmp_path).at.monotonic_seconds == 15.0, "written")
    short = replace(PLAN, settings=JudgementSettings(long_window_seconds=10.0))
    await keeper.keep(short, state(), status(30.0, ALERT))
    await keeper.keep(short, state(), status(35.0, ALERT))
    await until(lambda: on_disk(tmp_path).at.monotonic_seconds == 35.0, "twice in the window")
    await keeper.close(PLAN, state(), status(36.0))


async def test_a_daemon_that_never_ticked_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state.json").write_bytes(encode(EVERYTHING))
    for _ in range(2):
        keeper = Keeper(tmp_path)
        assert await recalled(keeper, monkeypatch) == RECALLED
        await keeper.close(PLAN, state(), None)
        assert on_disk(tmp_path) == EVERYTHING


async def test_without_a_folder_there_is_nothing_to_keep() -> None:
    keeper = Keeper(None)
    assert await keeper.open(Instant(0.0, WALL)) is None
    await keeper.keep(PLAN, state(), status(0.0))
    await keeper.close(PLAN, state(), status(1.0))


# -------------------------------------------------------------------- a slow disk


class SlowDisk:
    """Writes wait until `go` is set; how many there were, and the most at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        self.writes = 0
        self.at_once = 0
        self.most_at_once = 0
        self._real: Callable[[StateFile, bytes], None] = StateFile.write
        one = self

        def write(file: StateFile, body: bytes) -> None:
            one._write(file, body)

        monkeypatch.setattr(StateFile, "write", write)

    def _write(self, file: StateFile, body: bytes) -> None:
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        assert self.go.wait(10.0)
        self._real(file, body)
        self.writes += 1
        self.at_once -= 1


async def test_a_slow_disk_holds_a_tick_up_for_so_long_and_writes_never_overlap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "PATIENCE_SECONDS", 0.02)
    disk = SlowDisk(monkeypatch)
    keeper = await opened(tmp_path)
    for second in range(5):
        alerts = (ALERT,) if second % 2 else ()
        await keeper.keep(PLAN, state(cost=Cost(float(second))), status(float(second), *alerts))
    assert disk.writes == 0
    disk.go.set()
    # The first, and then the newest: what came in between nobody needs any more.
    await until(lambda: disk.writes == 2, "both writes")
    assert on_disk(tmp_path).targets["a"].cost == Cost(4.0)
    await keeper.close(PLAN, state(), status(6.0))
    assert disk.most_at_once == 1


async def test_a_disk_that_hangs_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "PATIENCE_SECONDS", 0.02)
    monkeypatch.setattr(keeping, "CLOSE_SECONDS", 0.02)
    disk = SlowDisk(monkeypatch)
    keeper = await opened(tmp_path)
    await keeper.keep(PLAN, state(), status(0.0))
    async with asyncio.timeout(5.0):
        await keeper.close(PLAN, state(), status(1.0))
    disk.go.set()
    await until(lambda: disk.writes == 1, "the thread is done")


async def test_a_folder_that_hangs_does_not_hold_up_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    monkeypatch.setattr(keeping, "OPEN_SECONDS", 0.02)
    monkeypatch.setattr(keeping, "read_state", lambda *_: go.wait(10.0))
    keeper = Keeper(tmp_path)
    with structlog.testing.capture_logs() as logs:
        assert await keeper.open(Instant(0.0, WALL)) is None
    go.set()
    (told,) = logs
    assert told["event"] == "state_not_kept"
    assert told["error"] == f"{tmp_path} does not answer"
    await keeper.keep(PLAN, state(), status(0.0))
    assert not (tmp_path / "state.json").exists()


# ------------------------------------------------------------------------- faults


async def test_a_disk_that_fails_is_told_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = True
    real: Callable[[StateFile, bytes], None] = StateFile.write

    def write(file: StateFile, body: bytes) -> None:
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(file, body)

    monkeypatch.setattr(StateFile, "write", write)
    with structlog.testing.capture_logs() as logs:
        keeper = await opened(tmp_path)
        for second in (0.0, 1.0, 16.0, 31.0):
            await keeper.keep(PLAN, state(), status(second))
            await asyncio.sleep(0.02)
        full = False
        await keeper.keep(PLAN, state(), status(46.0))
        await until((tmp_path / "state.json").exists, "written")
        await keeper.close(PLAN, state(), status(47.0))
    assert [(log["event"], log["log_level"]) for log in logs] == [
        ("state_not_written", "error"),
        ("state_written_again", "info"),
    ]
    assert logs[0]["error"] == "No space left on device"


async def test_a_state_that_is_no_json_is_told(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logs:
        keeper = await opened(tmp_path)
        await keeper.keep(PLAN, state(cost=Cost(float("nan"))), status(0.0))
        await keeper.close(PLAN, state(), None)
    assert logs[0]["event"] == "state_not_written"
    assert "not JSON compliant" in logs[0]["error"]


async def test_a_damaged_state_is_set_aside_and_a_new_one_begun(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_bytes(b"{")
    with structlog.testing.capture_logs() as logs:
        keeper = await opened(tmp_path)
    (told,) = logs
    assert (told["event"], told["log_level"]) == ("state_damaged", "warning")
    assert told["set_aside"] == str(tmp_path / "state.json.damaged-1796000000")
    assert (tmp_path / "state.json.damaged-1796000000").read_bytes() == b"{"
    await keeper.keep(PLAN, state(), status(0.0))
    assert on_disk(tmp_path).boot == boot_id()
    await keeper.close(PLAN, state(), None)


async def test_the_second_daemon_says_so_and_keeps_nothing(tmp_path: Path) -> None:
    first = await opened(tmp_path)
    await first.keep(PLAN, state(), status(0.0))
    with structlog.testing.capture_logs() as logs:
        second = await opened(tmp_path)
        await second.keep(PLAN, state(), status(9.0))
        await second.close(PLAN, state(), status(9.0))
    (told,) = logs
    assert (told["event"], told["log_level"]) == ("state_not_kept", "warning")
    assert told["error"] == f"another daemon keeps its state in {tmp_path}"
    assert on_disk(tmp_path).at.monotonic_seconds == 0.0
    await first.close(PLAN, state(), None)


async def test_a_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with structlog.testing.capture_logs() as logs:
        keeper = await opened(tmp_path / "file")
        await keeper.keep(PLAN, state(), status(0.0))
    (told,) = logs
    assert told["event"] == "state_not_kept"
    assert told["error"] == f"{tmp_path / 'file'}: File exists"


async def test_what_cannot_be_written_may_still_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state.json").write_bytes(encode(EVERYTHING))
    read_only = OSError(errno.EROFS, os.strerror(errno.EROFS), str(tmp_path / "state.lock"))

    def refuse(_: Path) -> StateFile:
        raise read_only

    monkeypatch.setattr(keeping, "StateFile", refuse)
    with structlog.testing.capture_logs() as logs:
        keeper = Keeper(tmp_path)
        assert await recalled(keeper, monkeypatch) == RECALLED
        await keeper.keep(PLAN, state(), status(0.0))
    told, begun = logs
    assert (begun["event"], begun["targets"]) == ("state_recalled", 2)
    assert told["error"] == f"{tmp_path / 'state.lock'}: Read-only file system"


async def test_a_state_that_can_be_neither_read_nor_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> Any:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with structlog.testing.capture_logs() as logs:
        with monkeypatch.context() as patch:
            patch.setattr(keeping, "read_state", denied)
            first = await opened(tmp_path)
            await first.close(PLAN, state(), None)
        (tmp_path / "state.json").write_bytes(b"{")
        monkeypatch.setattr(keeping, "set_aside", denied)
        second = await opened(tmp_path)
        await second.close(PLAN, state(), None)
    unreadable, damaged = logs
    assert (unreadable["event"], unreadable["error"]) == ("state_unreadable", "Permission denied")
    assert (damaged["event"], damaged["set_aside"]) == ("state_damaged", None)
