"""The daemon's address: real sockets."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from monitor import serving
from monitor.config.outputs import ListenConfig
from monitor.serving import CannotListen, listen_on
from tests.deadlines import until


def at(address: str) -> ListenConfig:
    return ListenConfig.model_validate({"address": address})


async def hello(_: web.Request) -> web.Response:
    return web.Response(text="hello")


async def endless(_: web.Request) -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.fixture
async def runner() -> AsyncIterator[web.AppRunner]:
    app = web.Application()
    app.router.add_get("/", hello)
    app.router.add_get("/endless", endless)
    one = web.AppRunner(app, handle_signals=False)
    await one.setup()
    yield one
    await serving.close(one)


async def get(url: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return await answer.text()


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("127.0.0.1:0", r"http://127\.0\.0\.1:[1-9][0-9]+/"),
        ("localhost:0", r"http://localhost:[1-9][0-9]+/"),
        ("[::1]:0", r"http://\[::1\]:[1-9][0-9]+/"),
    ],
)
async def test_the_url_is_where_it_is_served(runner: web.AppRunner, address: str, url: str) -> None:
    served = await listen_on(runner, at(address))
    assert re.fullmatch(url, served)
    if "localhost" not in address:
        assert await get(served) == "hello"


async def test_every_interface_means_ipv4_too(runner: web.AppRunner) -> None:
    served = await listen_on(runner, at("[::]:0"))
    for host in ("127.0.0.1", "[::1]"):
        assert await get(served.replace("[::]", host)) == "hello"


async def test_a_host_without_both_serves_ipv6_alone(
    runner: web.AppRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    served = await listen_on(runner, at("[::]:0"))
    assert await get(served.replace("[::]", "[::1]")) == "hello"


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::]"])
async def test_a_taken_port_is_one_line(runner: web.AppRunner, host: str) -> None:
    family = socket.AF_INET if "." in host else socket.AF_INET6
    with socket.create_server((host.strip("[]"), 0), family=family) as taken:
        address = f"{host}:{taken.getsockname()[1]}"
        with pytest.raises(CannotListen) as caught:
            await listen_on(runner, at(address))
    assert str(caught.value) == (
        f"cannot listen on {address}: Address already in use; choose another with "
        "listen.address in the configuration, or --listen where a command has it"
    )


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("192.0.2.1:9838", "Cannot assign requested address"),
        ("no-such-host.invalid:9838", ""),
        ("a..b:9838", "label empty or too long"),
    ],
)
async def test_an_address_that_is_not_ours_is_one_line(
    runner: web.AppRunner, address: str, why: str
) -> None:
    with pytest.raises(CannotListen, match=re.escape(f"cannot listen on {address}: ")) as caught:
        await listen_on(runner, at(address))
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "error while attempting" not in str(caught.value)


async def test_closing_does_not_wait_for_an_answer_that_never_comes(
    runner: web.AppRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "CLOSE_SECONDS", 0.1)
    served = await listen_on(runner, at("127.0.0.1:0"))
    asking = asyncio.create_task(get(f"{served}endless"))
    await until(lambda: runner.server and runner.server.connections, "a connection")
    begun = time.monotonic()
    await serving.close(runner)
    assert time.monotonic() - begun < 1.0
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
