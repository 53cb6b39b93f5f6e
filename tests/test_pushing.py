"""Every Alertmanager of the configuration is told: logins, TLS, reloads, a cluster, an end."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from monitor.config import Config, parse
from monitor.model import AlertStatus, Instant, Status
from monitor.pushing import Pushing
from tests.deadlines import until
from tests.outputs.samples import CAPPED

TLS = Path(__file__).parent / "sources" / "data" / "tls"


@dataclass
class Posted:
    """What an Alertmanager of the test got; `status` is what it answers."""

    url: str = ""
    alerts: list[dict[str, Any]] = field(default_factory=list)
    logins: list[str | None] = field(default_factory=list)
    status: int = 200

    def labels(self) -> list[dict[str, str]]:
        return [one["labels"] for one in self.alerts]


Serve = Callable[..., Awaitable[Posted]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    async with AsyncExitStack() as stack:

        async def start(tls: ssl.SSLContext | None = None) -> Posted:
            got = Posted()

            async def answer(request: web.Request) -> web.Response:
                got.logins.append(request.headers.get("Authorization"))
                got.alerts += await request.json()
                return web.Response(status=got.status)

            app = web.Application()
            app.router.add_post("/api/v2/alerts", answer)
            runner = web.AppRunner(app, shutdown_timeout=0.1)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
            scheme = "http" if tls is None else "https"
            got.url = f"{scheme}://127.0.0.1:{runner.addresses[0][1]}"
            return got

        yield start


def config_of(*alertmanagers: str, labels: str = "{}") -> Config:
    listed = ", ".join(f"{{{one}}}" for one in alertmanagers)
    return parse(f"alertmanagers: [{listed}]\nalert_labels: {labels}\n", "test", {})


def status(*targets: str) -> Status:
    now = Instant(time.monotonic(), time.time())
    alerts = tuple(
        AlertStatus("FloorwatchBelowFloor", "critical", target, now.wall_seconds, "slow")
        for target in targets
    )
    return Status(now, (), (), nvml_up=False, nvml_reason="none here", alerts=alerts)


@asynccontextmanager
async def pushing(config: Config, resend_seconds: float = 60.0) -> AsyncIterator[Pushing]:
    one = Pushing(resend_seconds)
    one.follow(config)
    try:
        yield one
    finally:
        async with asyncio.timeout(5.0):
            await one.close()


async def test_every_one_of_a_cluster_is_told_whatever_becomes_of_another(serve: Serve) -> None:
    first, second = await serve(), await serve()
    first.status = 500
    config = config_of(f"url: '{first.url}'", f"url: '{second.url}/'", labels="{cluster: north}")
    async with pushing(config) as one:
        one.show(status("a"))
        await until(lambda: first.alerts and second.alerts, "told")
        await until(lambda: one.delivered()[0].failed, "counted")
    expected = {
        "alertname": "FloorwatchBelowFloor",
        "severity": "critical",
        "target": "a",
        "cluster": "north",
    }
    assert (first.labels()[0], second.labels()) == (expected, [expected])
    told = {of.alertmanager: (of.sent, of.queued) for of in one.delivered()}
    assert told == {first.url: (0, 1), second.url: (1, 0)}


async def test_a_rotated_token_is_used_and_a_missing_one_is_said(
    serve: Serve, tmp_path: Path
) -> None:
    served, token = await serve(), tmp_path / "token"
    config = config_of(f"url: '{served.url}', authorization: {{bearer_file: {token}}}")
    with capture_logs() as logs:
        async with pushing(config, 0.2) as one:
            one.show(status("a"))
            await until(lambda: one.delivered()[0].failed, "a try")
            assert not served.logins
            token.write_text("first\n")
            await until(lambda: "Bearer first" in served.logins, "the token")
            token.write_text("second\n")
            await until(lambda: "Bearer second" in served.logins, "the new token")
    assert [line["event"] for line in logs] == ["alertmanager_failed", "alertmanager_recovered"]
    assert logs[0]["reason"] == "unauthorized"
    assert str(token) in logs[0]["detail"]


async def test_a_login_in_the_url_is_sent_and_shown_nowhere(serve: Serve) -> None:
    served = await serve()
    served.status = 401
    with_login = served.url.replace("//", "//ops:s3cret@")
    with capture_logs() as logs:
        async with pushing(config_of(f"url: '{with_login}'")) as one:
            one.show(status("a"))
            await until(lambda: logs, "the line")
    assert served.logins[0] == "Basic b3BzOnMzY3JldA=="
    assert "s3cret" not in f"{logs} {one.delivered()}"
    assert one.delivered()[0].alertmanager == served.url


async def test_a_private_authority_is_trusted_when_named(serve: Serve) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(TLS / "server.pem")
    served = await serve(context)
    async with pushing(config_of(f"url: '{served.url}'")) as one:
        one.show(status("a"))
        await until(lambda: dict(one.delivered()[0].failed).get("tls"), "refused")
    assert not served.alerts
    trusted = config_of(f"url: '{served.url}', tls: {{ca_file: {TLS / 'ca.pem'}}}")
    async with pushing(trusted) as one:
        one.show(status("a"))
        await until(lambda: served.alerts, "told")


async def test_a_certificate_that_cannot_be_read_is_said(serve: Serve) -> None:
    served = await serve()
    url = served.url.replace("http:", "https:")
    async with pushing(config_of(f"url: '{url}', tls: {{ca_file: /nowhere/ca.pem}}")) as one:
        one.show(status("a"))
        await until(lambda: dict(one.delivered()[0].failed).get("tls"), "refused")


async def test_after_a_reload_those_are_told_that_are_named_then(serve: Serve) -> None:
    first, second = await serve(), await serve()
    old = f"url: '{first.url}'"
    async with pushing(config_of(old)) as one:
        one.show(status("a", "b"))
        await until(lambda: len(first.alerts) == 2, "told")
        # Another timeout is no news to it; a new one is told of what is on.
        one.follow(config_of(f"{old}, timeout: 1s", f"url: '{second.url}'"))
        await until(lambda: len(second.alerts) == 2, "told too")
        assert len(first.alerts) == 2
        one.show(status("a"))
        await until(lambda: len(first.alerts) == len(second.alerts) == 4, "an end and the other")
        one.follow(config_of(f"url: '{second.url}'"))
        one.show(status())
        await until(lambda: len(second.alerts) == 6, "the end")
        assert len(first.alerts) == 4
        assert [of.alertmanager for of in one.delivered()] == [second.url]
        one.follow(config_of())
        one.show(status("c"))
    assert one.delivered() == ()


async def test_other_labels_end_the_alert_that_had_the_old_ones(serve: Serve) -> None:
    served = await serve()
    async with pushing(config_of(f"url: '{served.url}'", labels="{cluster: north}")) as one:
        now = status("a")
        one.show(now)
        await until(lambda: served.alerts, "told")
        one.follow(config_of(f"url: '{served.url}'", labels="{cluster: south}"))
        one.show(now)
        await until(lambda: len(served.alerts) == 3, "both")
    ends = {body["labels"]["cluster"]: body["endsAt"] for body in served.alerts[1:]}
    assert ends["north"] < ends["south"]


async def test_a_server_that_hangs_holds_up_no_end() -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with pushing(config_of(f"url: 'http://127.0.0.1:{port}'")) as one:
            one.show(status("a"))
            await asyncio.sleep(0.1)
            begun = time.monotonic()
        assert time.monotonic() - begun < 2.0


async def test_labels_of_a_target_are_told_too(serve: Serve) -> None:
    served = await serve()
    async with pushing(config_of(f"url: '{served.url}'")) as one:
        now = status("qwen-a")
        one.show(Status(now.at, (CAPPED,), (), True, None, now.alerts))
        await until(lambda: served.alerts, "told")
    assert {labels.get("team") for labels in served.labels()} == {"search"}
