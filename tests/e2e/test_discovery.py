"""`floorwatch run` without a target: it finds what runs here, follows it and misses what is gone."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.deadlines import until_told
from tests.e2e.daemon_process import DaemonProcess, daemon, finished
from tests.e2e.engine_like import engine_like

CONFIG = """\
poll_interval: 200ms
judgement: {{windows: [1s, 2s, 5s], warm_up: 0s, no_data: 1s}}
discovery: {{interval: 1s}}
listen: {{address: '127.0.0.1:0'}}
state: {state}
"""


LOOKING = {"FLOORWATCH_DISCOVERY_LOCAL": "true"}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


async def target(one: DaemonProcess, port: int) -> dict[str, Any] | None:
    """The target at a port, as the status has it; other servers may run on this host too."""
    name = f"{socket.gethostname()}:{port}"
    found = [target for target in (await one.status()).get("targets", ()) if target["name"] == name]
    return found[0] if found else None


async def until_served(one: DaemonProcess, port: int, model: str) -> dict[str, Any]:
    async def told() -> dict[str, Any] | None:
        found = await target(one, port)
        return found if found is not None and found["up"] and found["model"] == model else None

    return await until_told(told, f"{model} at {port}")


async def down_alerts(one: DaemonProcess, port: int) -> list[dict[str, Any]]:
    name = f"{socket.gethostname()}:{port}"
    return [
        alert
        for alert in (await one.status()).get("alerts", ())
        if (alert["name"], alert["target"]) == ("FloorwatchTargetDown", name)
    ]


async def test_both_engines_are_found_followed_and_missed(tmp_path: Path) -> None:
    first, second = free_port(), free_port()
    config = CONFIG.format(state=tmp_path / "state")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(engine_like("vllm", tmp_path / "v", first, model="org/one"))
        sglang = await stack.enter_async_context(
            engine_like("sglang", tmp_path / "s", second, model="org/two")
        )
        async with daemon(config, tmp_path, **LOOKING) as one:
            vllm = await until_served(one, first, "org/one")
            other = await until_served(one, second, "org/two")
            assert (vllm["engine"], other["engine"]) == ("vllm", "sglang")

            async def parallel() -> bool:
                told = await target(one, second) or {}
                return (told.get("tensor_parallel"), told.get("data_parallel")) == (2, 1)

            await until_told(parallel, "what the server tells of itself")
            assert str(second) in other["found"]
            assert not any("SECRET-KEY" in line for line in one.lines)
            assert "SECRET-KEY" not in str(await one.status()) + await one.metrics()

            # Another model at the same port.
            sglang.kill()
            await sglang.wait()
            async with engine_like("sglang", tmp_path / "s", second, model="org/three"):
                await until_served(one, second, "org/three")

            # Gone: the alarm comes, and outlives the daemon.
            await until_told(lambda: down_alerts(one, second), "the loss", 40.0)
            one.process.kill()
            await one.process.wait()
        async with daemon(config, tmp_path, **LOOKING) as again:
            await until_served(again, first, "org/one")
            await until_told(lambda: down_alerts(again, second), "the loss, still", 40.0)
            found = await target(again, second)
            assert found is not None
            assert not found["up"]
            await again.end()


async def test_a_found_server_moves_into_the_file(tmp_path: Path) -> None:
    port = free_port()
    quiet = "discovery: {interval: 1s}\nlisten: {address: '127.0.0.1:0'}\n"
    (tmp_path / "config.yaml").write_text(quiet)
    written = tmp_path / "written.yaml"
    async with engine_like("vllm", tmp_path / "v", port, model="org/one"):
        await asyncio.sleep(0)

        async def checked() -> bool:
            written.unlink(missing_ok=True)
            _, _, err = await finished(
                "check",
                "--config",
                str(tmp_path / "config.yaml"),
                "--write-config",
                str(written),
                **LOOKING,
            )
            assert "Traceback" not in err
            return f"127.0.0.1:{port}/metrics" in written.read_text()

        await until_told(checked, "the server in a configuration", 40.0, 0.2)
        code, out, err = await finished("check", "--config", str(written))
    assert "Traceback" not in err
    assert f"{socket.gethostname()}:{port} (http://127.0.0.1:{port}/metrics): ok" in out
    assert code in (0, 1), "1: another server of this host may be in trouble"
