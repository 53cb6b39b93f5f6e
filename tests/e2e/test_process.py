"""The real process over real loopback servers: start, answers, signals, end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families as classic

from tests.deadlines import until, until_told
from tests.e2e.daemon_process import ENDS_WITHIN_SECONDS, daemon, finished
from tests.served_engine import ServedEngine

LISTEN = "listen: {address: '127.0.0.1:0'}\n"
FAST = f"poll_interval: 100ms\n{LISTEN}"


def targets(*engines: ServedEngine, **settings: object) -> str:
    more = "".join(f", {key}: {value}" for key, value in settings.items())
    lines = [f"  - {{name: t{i}, url: '{e.url}'{more}}}\n" for i, e in enumerate(engines)]
    return "targets:\n" + "".join(lines)


async def test_ready_only_after_the_first_round(tmp_path: Path) -> None:
    async with ServedEngine() as slow:
        slow.hangs = True
        async with daemon(FAST + targets(slow, timeout="2s"), tmp_path) as one:
            code, text, _ = await one.get("-/ready")
            assert (code, text) == (503, "not ready: the first round of scrapes is not done\n")
            assert (await one.get("-/healthy"))[0] == 200
            assert "floorwatch_build_info" in await one.metrics()
            assert "floorwatch_target_up" not in await one.metrics()
            await one.until_ready()
            (target,) = (await one.status())["targets"]
            assert target["problem"]["reason"] == "timeout"
            # One request hangs, and a reader does not take its answers: neither holds it up.
            port = int(one.url.rstrip("/").rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port)) as reader:
                reader.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 500)
                assert await one.end() < ENDS_WITHIN_SECONDS


async def test_reload_by_request_and_by_signal(tmp_path: Path) -> None:
    async with (
        ServedEngine() as engine,
        ServedEngine() as other,
        daemon(FAST + targets(engine), tmp_path) as one,
    ):
        await one.until_ready()
        file = tmp_path / "config.yaml"

        async def reloaded(metric: int, *names: str) -> None:
            async def told() -> bool:
                text = await one.metrics()
                found = {
                    sample.labels["target"]
                    for family in classic(text)
                    for sample in family.samples
                    if sample.name == "floorwatch_target_up"
                }
                flag = f"floorwatch_config_last_reload_successful {metric}\n"
                return flag in text and found == set(names)

            await until_told(told, f"{names} and {metric}")

        file.write_text(FAST + targets(engine, other))
        assert (await one.get("-/reload", method="POST"))[:2] == (200, "reloaded\n")
        await reloaded(1, "t0", "t1")

        file.write_text("poll_intervall: 1s\ntargets: 7\n")
        code, text, _ = await one.get("-/reload", method="POST")
        assert code == 500
        assert text.startswith("reload failed, the old configuration stays: ")
        assert "poll_intervall" in text
        assert text.count("\n") == 1
        await reloaded(0, "t0", "t1")

        file.write_text(FAST + targets(other))
        one.process.send_signal(signal.SIGHUP)
        await reloaded(1, "t0")
        await one.until_event("config_reloaded", times=2)

        file.unlink()
        one.process.send_signal(signal.SIGHUP)
        failed = await one.until_event("config_reload_failed", times=2)
        assert "cannot be read: No such file or directory" in failed["error"]
        await reloaded(0, "t0")
        assert await one.end(signal.SIGINT) < ENDS_WITHIN_SECONDS


async def test_under_a_service_manager_without_targets(tmp_path: Path) -> None:
    """What the environment says: where to listen, and whom to tell of start, life and end."""
    told: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)

        def listen() -> list[str]:
            try:
                while True:
                    told.append(manager.recv(4096).decode())
            except BlockingIOError:
                return told

        env = {
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "WATCHDOG_USEC": "200000",
            "FLOORWATCH_LISTEN_ADDRESS": "[::1]:0",
        }
        quiet = "listen: {address: '192.0.2.1:1'}\ndiscovery: {local: false}\n"
        async with daemon(quiet, tmp_path, **env) as one:
            assert one.url.startswith("http://[::1]:")
            await until(lambda: "READY=1" in listen(), "READY")
            assert (await one.get("-/ready"))[0] == 200
            assert (await one.status())["targets"] == []
            fed = listen().count("WATCHDOG=1")
            await until(lambda: listen().count("WATCHDOG=1") >= fed + 3, "fed every 100 ms")
            assert await one.end() < ENDS_WITHIN_SECONDS
        assert (
            "floorwatch: no targets are configured and discovery is off: only this host's GPUs are"
            " watched" in one.lines
        )
        assert listen()[-1] == "STOPPING=1"
        assert told.count("READY=1") == 1


async def test_dead_and_hanging_targets_leave_the_others_alone(tmp_path: Path) -> None:
    async with ServedEngine() as good, ServedEngine() as dies, ServedEngine() as hangs:
        config = FAST + targets(good, dies, hangs, timeout="1s")
        async with daemon(config, tmp_path) as one:
            await one.until_ready()

            async def up() -> list[bool]:
                return [target["up"] for target in (await one.status())["targets"]]

            assert await up() == [True, True, True]
            await dies.close()
            hangs.hangs = True

            async def expected() -> bool:
                return await up() == [True, False, False]

            await until_told(expected, "two are down")
            asked = good.asked("/metrics")
            begun = time.monotonic()
            await until(lambda: good.asked("/metrics") >= asked + 10, "ten polls")
            assert time.monotonic() - begun < 5.0
            page = await one.metrics()
            assert 'floorwatch_target_problem{target="t1",reason="unreachable"} 1' in page
            assert 'floorwatch_target_problem{target="t2",reason="timeout"} 1' in page
            assert 'floorwatch_tokens_per_second{target="t1"' not in page

            await dies.open()
            hangs.hangs = False

            async def all_up() -> bool:
                return all(await up())

            await until_told(all_up, "all are back")
            failed = [event for event in one.events if event["event"] == "target_failed"]
            assert sorted(event["target"] for event in failed) == ["t1", "t2"], "once each"
            await one.until_event("target_recovered", times=2)
            assert await one.end() < ENDS_WITHIN_SECONDS


async def test_200_targets(tmp_path: Path) -> None:
    async with ServedEngine() as engine:
        lines = [f"  - {{name: t{i}, url: '{engine.url}/{i}/metrics'}}\n" for i in range(200)]
        config = f"poll_interval: 2s\n{LISTEN}targets:\n{''.join(lines)}"
        async with daemon(config, tmp_path) as one:
            await one.until_ready()
            status = await one.status()
            assert [target["up"] for target in status["targets"]] == [True] * 200
            first = status["time"]

            async def ticked() -> bool:
                return bool((await one.status())["time"] > first + 1.0)

            await until_told(ticked, "the next tick")
            assert await one.end() < ENDS_WITHIN_SECONDS


_HUNG_NAMES = """
import socket, threading
real = socket.getaddrinfo
def getaddrinfo(host, *rest, **more):
    if "slow" in str(host):
        threading.Event().wait(120)
    return real(host, *rest, **more)
socket.getaddrinfo = getaddrinfo
from monitor.cli import main
main()
"""


async def test_a_name_server_that_hangs_holds_up_neither_polls_nor_the_end(tmp_path: Path) -> None:
    async with ServedEngine() as engine:
        hung = "".join(f"  - {{name: h{i}, url: 'http://slow-{i}:1'}}\n" for i in range(12))
        by_name = f"  - {{name: named, url: 'http://ip4-loopback.localhost:{engine.port}'}}\n"
        config = FAST + targets(engine) + hung + by_name + "defaults: {timeout: 1s}\n"
        async with daemon(config, tmp_path, start=("-c", _HUNG_NAMES)) as one:
            await one.until_ready()
            told = {target["name"]: target for target in (await one.status())["targets"]}
            assert told["t0"]["up"]
            assert told["named"]["up"]
            assert told["h11"]["problem"]["reason"] in ("timeout", "dns")
            assert await one.end() < ENDS_WITHIN_SECONDS


async def test_secrets_never_reach_the_log(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("bearer-s3cret\n")
    async with ServedEngine() as engine:
        engine.status = 401
        there = engine.url.removeprefix("http://")
        config = f"""{FAST}
targets:
  - {{name: a, url: 'http://user:pass-s3cret@{there}/a/metrics?token=query-s3cret'}}
  - {{name: b, url: 'http://{there}/b/metrics', authorization: {{bearer_file: token}}}}
  - {{name: c, url: 'http://{there}/c/metrics', authorization: {{bearer_env: TOKEN}}}}
"""
        env = {"TOKEN": "env-s3cret", "FLOORWATCH_LOG_LEVEL": "debug"}
        async with daemon(config, tmp_path, **env) as one:
            await one.until_event("target_failed", times=3)
            assert await one.end() < ENDS_WITHIN_SECONDS
        assert "s3cret" not in "\n".join(one.lines)


# --------------------------------------------------------------------- starts that must fail


async def test_a_taken_port_is_one_line_and_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / "c.yaml").write_text(
            f"listen: {{address: '127.0.0.1:{port}'}}\ntargets: [{{url: 'http://127.0.0.1:9'}}]\n"
        )
        code, out, err = await finished("run", "--config", str(tmp_path / "c.yaml"))
    assert (code, out) == (1, "")
    assert err == (
        f"floorwatch: cannot listen on 127.0.0.1:{port}: Address already in use; choose another "
        "with listen.address in the configuration, or --listen where a command has it\n"
    )


async def test_a_bad_configuration_is_a_line_per_fault_and_2(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("poll_intervall: 1s\ntargets: [{url: 7}]\n")
    code, out, err = await finished("run", "--config", str(path), FLOORWATCH_JUDGEMENT_WARMUP="1s")
    assert (code, out) == (2, "")
    lines = err.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("floorwatch: ") for line in lines)
    assert 'poll_intervall: unknown key; did you mean "poll_interval"?' in err
    assert "FLOORWATCH_JUDGEMENT_WARMUP" in err


async def test_a_log_whose_reader_left_does_not_end_the_daemon(tmp_path: Path) -> None:
    async with ServedEngine() as engine:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        (tmp_path / "c.yaml").write_text(
            f"poll_interval: 100ms\nlisten: {{address: '127.0.0.1:{port}'}}\n" + targets(engine)
        )
        out, into = os.pipe()
        os.close(out)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "monitor",
            "run",
            "--config",
            str(tmp_path / "c.yaml"),
            stderr=into,
        )
        os.close(into)
        await until(lambda: engine.asked("/metrics") >= 3, "it polls")
        engine.status = 500
        asked = engine.asked("/metrics")
        await until(lambda: engine.asked("/metrics") >= asked + 5, "it polls on")
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 5) == 0
