"""The web server, over real connections."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest
import yarl
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from monitor.model import Status
from monitor.outputs.access import change_refusal
from monitor.outputs.explanation import explanation_to_json
from monitor.outputs.exposition import render
from monitor.outputs.http import (
    Board,
    HttpOptions,
    Refused,
    UnknownTarget,
    accepts_gzip,
    make_app,
    make_runner,
    prefers_openmetrics,
)
from monitor.outputs.status_json import STATUS_SCHEMA, status_to_json
from tests.outputs.samples import CAPPED, DOWN, HOSTILE, HOSTILE_TARGET, NOW, OWN, STATUS

CLASSIC = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@dataclass
class Clock:
    seconds: float = 1_000.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class Reloads:
    error: str | None = None
    asked: int = 0

    async def __call__(self) -> str | None:
        self.asked += 1
        return self.error


@dataclass
class Served:
    clock: Clock = field(default_factory=Clock)
    reloads: Reloads = field(default_factory=Reloads)

    def __post_init__(self) -> None:
        self.board = Board(OWN, stale_after_seconds=10.0, clock=self.clock)


@asynccontextmanager
async def serving(
    served: Served, *, lifecycle: bool = False, hosts: frozenset[str] = frozenset()
) -> AsyncIterator[aiohttp.ClientSession]:
    options = HttpOptions(served.reloads, lifecycle=lifecycle, hosts=hosts)
    runner = make_runner(make_app(served.board, options))
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        async with aiohttp.ClientSession(
            f"http://{host}:{port}", auto_decompress=False, skip_auto_headers=["Accept-Encoding"]
        ) as session:
            yield session
    finally:
        await runner.cleanup()


@pytest.fixture
def served() -> Served:
    return Served()


@pytest.fixture
async def client(served: Served) -> AsyncIterator[aiohttp.ClientSession]:
    async with serving(served) as session:
        yield session


# ------------------------------------------------------------------------- /metrics


async def test_metrics_are_the_rendered_page(served: Served, client: aiohttp.ClientSession) -> None:
    served.board.publish(STATUS, OWN)

    async with client.get("/metrics", headers={"Accept": "*/*"}) as answer:
        assert (answer.status, answer.headers["Content-Type"]) == (200, CLASSIC)
        assert "Content-Encoding" not in answer.headers
        assert await answer.read() == render(STATUS, OWN).classic
    async with client.get(
        "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"}
    ) as answer:
        assert answer.headers["Content-Type"] == OPENMETRICS
        assert answer.headers["Vary"] == "Accept, Accept-Encoding"
        assert await answer.read() == render(STATUS, OWN).openmetrics


async def test_metrics_are_compressed_once_a_tick(
    served: Served, client: aiohttp.ClientSession
) -> None:
    served.board.publish(STATUS, OWN)

    async with client.get("/metrics", headers={"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(await answer.read()) == render(STATUS, OWN).classic
    first = served.board.metrics(openmetrics=False)
    assert first is served.board.metrics(openmetrics=False)
    assert first.gzipped is first.gzipped
    served.board.publish(STATUS, OWN)
    assert first is not served.board.metrics(openmetrics=False)


async def test_before_the_first_tick_there_is_only_own_health(
    client: aiohttp.ClientSession,
) -> None:
    async with client.get("/metrics") as answer:
        assert answer.status == 200
        assert await answer.read() == render(None, OWN).classic


async def test_a_stale_tick_is_not_served(served: Served, client: aiohttp.ClientSession) -> None:
    served.board.publish(STATUS, OWN)
    served.clock.seconds += 10.0
    async with client.get("/metrics") as answer:
        assert b"floorwatch_tokens_per_second{" in await answer.read()

    served.clock.seconds += 0.1
    async with client.get("/metrics") as answer:
        page = await answer.read()
        assert answer.status == 200
        assert b"floorwatch_target_up" not in page
        assert b"floorwatch_last_tick_timestamp_seconds 1796000000.0\n" in page
    async with client.get("/api/v1/status") as answer:
        assert answer.status == 503
        assert await answer.text() == "stale: the last tick was 10.1 s ago, the limit is 10 s\n"
    async with client.get("/") as answer:
        assert answer.status == 503
        assert "No fresh data." in await answer.text()

    served.board.publish(STATUS, OWN)
    async with client.get("/api/v1/status") as answer:
        assert answer.status == 200


async def test_the_time_of_rendering_is_told(served: Served) -> None:
    assert served.board.render_seconds is None
    served.board.publish(STATUS, OWN)
    served.board.metrics(openmetrics=True)

    seconds = served.board.render_seconds
    assert seconds is not None
    assert 0 < seconds < 1


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("application/json", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text; version=0.0.1", False),
        ('APPLICATION/OpenMetrics-Text; version="1.0.0"', True),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=x, text/plain;q=0.1", False),
        ("application/openmetrics-text;q=0.4, text/plain;q=0.5", False),
        ("application/openmetrics-text;q=0.5, text/plain;q=0.5", True),
        # Prometheus 2.42
        (
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;"
                "version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
            ),
            True,
        ),
        # Prometheus 3.5
        (
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
                "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;"
                "escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
            ),
            True,
        ),
        (",;,=;q=,", False),
    ],
)
def test_negotiation(accept: str, wanted: bool) -> None:
    assert prefers_openmetrics(accept) is wanted


@pytest.mark.parametrize(
    ("accept_encoding", "wanted"),
    [
        ("", False),
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("gzip;q=0", False),
        ("*", True),
        ("*, gzip;q=0", False),
        ("identity", False),
        ("gzip;q=nonsense", False),
    ],
)
def test_who_takes_gzip(accept_encoding: str, wanted: bool) -> None:
    assert accepts_gzip(accept_encoding) is wanted


# ----------------------------------------------------------------------------- API


async def test_the_status_and_its_schema(served: Served, client: aiohttp.ClientSession) -> None:
    served.board.publish(STATUS, OWN)

    async with client.get("/api/v1/status") as answer:
        assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
        assert json.loads(await answer.read()) == json.loads(json.dumps(status_to_json(STATUS)))
    async with client.get("/api/v1/status/schema", headers={"Accept-Encoding": "gzip"}) as answer:
        assert json.loads(gzip.decompress(await answer.read())) == STATUS_SCHEMA


async def test_a_floor_is_explained(served: Served, client: aiohttp.ClientSession) -> None:
    async with client.get("/api/v1/explain/qwen-a") as answer:
        assert answer.status == 503
        assert await answer.text() == "no data yet: the first round of scrapes is not done\n"
    odd = replace(CAPPED, name="ü %2F?#")
    served.board.publish(replace(STATUS, targets=(CAPPED, odd)), OWN)

    async with client.get("/api/v1/explain/qwen-a", headers={"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
        assert json.loads(gzip.decompress(await answer.read())) == explanation_to_json(CAPPED)
    path = yarl.URL(f"/api/v1/explain/{quote(odd.name, safe='')}", encoded=True)
    async with client.get(path) as answer:
        assert json.loads(await answer.read())["target"] == odd.name
    first = served.board.explanation("qwen-a")
    assert first is not None
    assert first is served.board.explanation("qwen-a")
    served.board.publish(STATUS, OWN)
    assert first is not served.board.explanation("qwen-a")

    served.clock.seconds += 42.0
    async with client.get("/api/v1/explain/qwen-a") as answer:
        assert answer.status == 503
        assert await answer.text() == "stale: the last tick was 42.0 s ago, the limit is 10 s\n"
    assert served.board.target_names() == ()


async def test_an_unknown_target_names_the_known(
    served: Served, client: aiohttp.ClientSession
) -> None:
    served.board.publish(STATUS, OWN)
    async with client.get("/api/v1/explain/qwen") as answer:
        assert answer.status == 404
        assert await answer.text() == "no such target; known: qwen-a, dp2, gone, never\n"
    served.board.publish(replace(STATUS, targets=()), OWN)
    async with client.get("/api/v1/explain/qwen-a") as answer:
        assert await answer.text() == "no such target; known: none\n"
    many = tuple(replace(CAPPED, name=f"t{number}") for number in range(52))
    served.board.publish(replace(STATUS, targets=many), OWN)
    async with client.get("/api/v1/explain/qwen-a") as answer:
        told = await answer.text()
    assert told.startswith("no such target; known: t0, t1, ")
    assert told.endswith(", t49 and 2 more\n")


async def test_health(served: Served, client: aiohttp.ClientSession) -> None:
    async def ask(path: str) -> tuple[int, str]:
        async with client.get(path) as answer:
            return answer.status, await answer.text()

    assert await ask("/-/healthy") == (200, "healthy\n")
    not_ready = "not ready: the first round of scrapes is not done\n"
    assert await ask("/-/ready") == (503, not_ready)
    no_data = "no data yet: the first round of scrapes is not done\n"
    assert await ask("/api/v1/status") == (503, no_data)

    served.board.publish(STATUS, OWN)
    assert await ask("/-/ready") == (200, "ready\n")

    served.clock.seconds += 42.0
    stale = "stale: the last tick was 42.0 s ago, the limit is 10 s\n"
    assert await ask("/-/healthy") == (503, stale)
    assert await ask("/-/ready") == (200, "ready\n")

    served.board.stale_after_seconds = 60.0
    assert await ask("/-/healthy") == (200, "healthy\n")


# -------------------------------------------------------------------------- errors


async def test_errors_are_one_line(client: aiohttp.ClientSession) -> None:
    async with client.get("/nothing/<b>here") as answer:
        assert answer.status == 404
        assert await answer.text() == "no such page: see / for what there is\n"
        assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        async with client.request(method, "/metrics") as answer:
            assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
            assert await answer.text() == "method not allowed: use GET, HEAD\n"
    async with client.get("/-/reload") as answer:
        assert (answer.status, answer.headers["Allow"]) == (405, "POST")
    async with client.post("/-/reload", data=b"x" * 1025) as answer:
        assert answer.status == 413
        assert await answer.text() == "request body above 1024 bytes\n"


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/metrics",
        "/api/v1/status",
        "/api/v1/status/schema",
        "/api/v1/explain/qwen-a",
        "/-/healthy",
        "/missing",
    ],
)
async def test_every_answer_has_the_security_headers(
    served: Served, client: aiohttp.ClientSession, path: str
) -> None:
    served.board.publish(STATUS, OWN)

    async with client.get(path) as answer:
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; ")
        assert "unsafe" not in answer.headers["Content-Security-Policy"]
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Server"] == "floorwatch"


async def test_head_has_no_body(served: Served, client: aiohttp.ClientSession) -> None:
    served.board.publish(STATUS, OWN)

    async with client.head("/metrics") as answer:
        assert answer.status == 200
        assert int(answer.headers["Content-Length"]) == len(render(STATUS, OWN).classic)
        assert await answer.read() == b""


async def test_a_header_without_end_is_refused(client: aiohttp.ClientSession) -> None:
    async with client.get("/metrics", headers={"X-Long": "x" * 20_000}) as answer:
        assert answer.status == 400


# -------------------------------------------------------------------------- reload


async def test_reload_from_this_host(served: Served, client: aiohttp.ClientSession) -> None:
    async with client.post("/-/reload") as answer:
        assert (answer.status, await answer.text()) == (200, "reloaded\n")
    assert served.reloads.asked == 1

    served.reloads.error = "targets[0].url: not a URL\nuse http://host:port"
    async with client.post("/-/reload") as answer:
        assert answer.status == 500
        assert await answer.text() == (
            "reload failed, the old configuration stays: "
            "targets[0].url: not a URL use http://host:port\n"
        )


@pytest.mark.parametrize("lifecycle", [False, True])
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "rebound.example:9838"},
        {"Host": ""},
        {"Host": "localhost.rebound.example"},
        {"Host": "[::1"},
        {"Origin": "https://elsewhere.example"},
        {"Origin": "null"},
        {"Host": "rebound.example", "Origin": "http://rebound.example"},
    ],
)
async def test_no_web_page_can_reload(
    served: Served, headers: dict[str, str], lifecycle: bool
) -> None:
    async with (
        serving(served, lifecycle=lifecycle) as client,
        client.post("/-/reload", headers=headers) as answer,
    ):
        assert answer.status == 403
        assert (await answer.text()).startswith("reload refused: ")
    assert served.reloads.asked == 0


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "localhost:9838"},
        {"Host": "127.0.0.1"},
        {"Host": "[::1]:9838"},
        {"Host": "localhost:9838", "Origin": "http://localhost:9838"},
        {"Host": "gpu-box.example"},
    ],
)
async def test_names_of_this_host_may_reload(served: Served, headers: dict[str, str]) -> None:
    async with (
        serving(served, hosts=frozenset({"gpu-box.example"})) as client,
        client.post("/-/reload", headers=headers) as answer,
    ):
        assert answer.status == 200


async def test_a_proxy_on_this_host_does_not_open_reload_to_all(served: Served) -> None:
    headers = {"X-Forwarded-For": "192.0.2.7"}
    async with serving(served) as client, client.post("/-/reload", headers=headers) as answer:
        assert answer.status == 403
    async with (
        serving(served, lifecycle=True) as client,
        client.post("/-/reload", headers=headers) as answer,
    ):
        assert answer.status == 200


async def test_reload_over_a_unix_socket(served: Served, tmp_path: Path) -> None:
    path = str(tmp_path / "floorwatch.sock")
    runner = make_runner(make_app(served.board, HttpOptions(served.reloads)))
    await runner.setup()
    try:
        await web.UnixSite(runner, path).start()
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(path)) as client,
            client.post("http://localhost/-/reload") as answer,
        ):
            assert answer.status == 200
    finally:
        await runner.cleanup()


class Ends(asyncio.Transport):
    """A connection between two given addresses."""

    def __init__(self, peer: object, own: object) -> None:
        super().__init__({"peername": peer, "sockname": own})


@pytest.mark.parametrize(
    ("peer", "lifecycle", "allowed"),
    [
        (("192.0.2.7", 5_000), False, False),
        (("192.0.2.7", 5_000), True, True),
        (("2001:db8::7", 5_000, 0, 0), False, False),
        (("::ffff:192.0.2.7", 5_000, 0, 0), False, False),
        (("::ffff:127.0.0.1", 5_000, 0, 0), False, True),
        (("127.0.0.9", 5_000), False, True),
        (("fe80::1%eth0", 5_000, 0, 2), False, False),
        (("not an address", 5_000), False, False),
        (None, False, False),
    ],
)
def test_who_may_reload_where_it_listens_on_every_address(
    peer: object, lifecycle: bool, allowed: bool
) -> None:
    request = make_mocked_request(
        "POST",
        "/-/reload",
        headers={"Host": "gpu-box.example:9838"},
        transport=Ends(peer, ("192.0.2.1", 9_838)),
    )
    refusal = change_refusal(request, lifecycle=lifecycle, hosts=frozenset())

    assert (refusal is None) is allowed


def test_another_hosts_name_is_told_what_to_ask_instead() -> None:
    request = make_mocked_request(
        "POST",
        "/-/reload",
        headers={"Host": "evil.example:9838"},
        transport=Ends(("127.0.0.1", 5_000), ("127.0.0.1", 9_838)),
    )

    assert change_refusal(request, lifecycle=False, hosts=frozenset()) == (
        "the Host header names another host; ask at localhost or a loopback address"
    )


# --------------------------------------------------------------------- maintenance


@dataclass
class Maintained:
    asked: list[tuple[str, float | None]] = field(default_factory=list)

    async def __call__(self, target: str, seconds: float | None) -> str:
        self.asked.append((target, seconds))
        if target == "gone":
            raise UnknownTarget(target)
        if target == "fixed":
            raise Refused("fixed: by the configuration")
        return f"{target}: done"


@asynccontextmanager
async def maintaining(
    served: Served, maintained: Maintained, *, lifecycle: bool = False
) -> AsyncIterator[aiohttp.ClientSession]:
    options = HttpOptions(served.reloads, lifecycle=lifecycle, maintain=maintained)
    runner = make_runner(make_app(served.board, options))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        async with aiohttp.ClientSession(f"http://{host}:{port}") as session:
            yield session
    finally:
        await runner.cleanup()


async def test_maintenance_begins_and_ends(served: Served) -> None:
    maintained = Maintained()
    async with maintaining(served, maintained) as client:
        async with client.post("/api/v1/maintenance/a?for=2h") as answer:
            assert (answer.status, await answer.text()) == (200, "a: done\n")
        async with client.delete("/api/v1/maintenance/a%20b") as answer:
            assert (answer.status, await answer.text()) == (200, "a b: done\n")
    assert maintained.asked == [("a", 7200.0), ("a b", None)]


@pytest.mark.parametrize(
    ("query", "line"),
    [
        ("", "expected one time, such as ?for=2h"),
        ("?for=1h&for=2h", "expected one time, such as ?for=2h"),
        (
            "?for=soon",
            'for: expected a duration (500ms, 5s, 2h30m, or a number of seconds), got "soon"',
        ),
        ("?for=0", 'for: expected 1s to 30d, got "0"'),
        ("?for=30d1s", 'for: expected 1s to 30d, got "30d1s"'),
        (
            "?for=-5",
            'for: expected a duration (500ms, 5s, 2h30m, or a number of seconds), got "-5"',
        ),
    ],
)
async def test_times_of_maintenance_that_are_refused(served: Served, query: str, line: str) -> None:
    maintained = Maintained()
    async with (
        maintaining(served, maintained) as client,
        client.post(f"/api/v1/maintenance/a{query}") as answer,
    ):
        assert (answer.status, await answer.text()) == (400, f"{line}\n")
    assert maintained.asked == []


async def test_maintenance_of_no_target_or_of_the_configurations(served: Served) -> None:
    async with maintaining(served, Maintained()) as client:
        async with client.delete("/api/v1/maintenance/gone") as answer:
            assert (answer.status, await answer.text()) == (404, "no such target; known: none\n")
        async with client.delete("/api/v1/maintenance/fixed") as answer:
            assert (answer.status, await answer.text()) == (409, "fixed: by the configuration\n")
        async with client.get("/api/v1/maintenance/a") as answer:
            assert answer.status == 405
            assert answer.headers["Allow"] == "DELETE, POST"


async def test_a_server_without_maintenance_says_so(client: aiohttp.ClientSession) -> None:
    async with client.delete("/api/v1/maintenance/a") as answer:
        assert (answer.status, await answer.text()) == (409, "this server takes no maintenance\n")


@pytest.mark.parametrize("method", ["POST", "DELETE"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "rebound.example:9838"},
        {"Origin": "https://elsewhere.example"},
        {"X-Forwarded-For": "192.0.2.7"},
    ],
)
async def test_no_web_page_and_no_proxy_silences_a_target(
    served: Served, headers: dict[str, str], method: str
) -> None:
    maintained = Maintained()
    async with (
        maintaining(served, maintained) as client,
        client.request(method, "/api/v1/maintenance/a?for=1h", headers=headers) as answer,
    ):
        assert answer.status == 403
        assert (await answer.text()).startswith("maintenance refused: ")
    assert maintained.asked == []


# ------------------------------------------------------------------- page for people


class Outline(HTMLParser):
    """Tags, links and text of a page; raises where the nesting is wrong."""

    void = frozenset({"meta", "br"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str | None] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("href", "src")]
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


async def page_of(served: Served, status: Status) -> tuple[Outline, str]:
    served.board.publish(status, OWN)
    async with serving(served) as client, client.get("/") as answer:
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        text = await answer.text()
    return Outline(text), text


async def test_the_page_shows_targets_and_alarms(served: Served) -> None:
    outline, text = await page_of(served, STATUS)

    row = text[text.index("qwen-a<br>") :].partition("</tr>")[0]
    assert "<td>concurrency limited, below the floor</td>" in row
    assert '<td class="number">485.0</td><td class="number">725.0<br>model</td>' in row
    assert '<td class="number">67%</td>' in row
    assert "19 run and 200 wait<br>mamba_state_cap: 19 of 19 state slots." in row
    # 7200 tokens/s on 8 GPUs
    assert '<td class="number">900.0</td>' in text[text.index("dp2<br>") :].partition("</tr>")[0]
    gone = text[text.index("gone<br>") :].partition("</tr>")[0]
    assert "unreachable: connection refused<br>is the server started?" in gone
    assert "485.0" not in gone
    assert "As of <time" in text
    assert "2026-11-30 00:53:20 UTC" in text
    assert "FloorwatchBelowFloor</strong> (page) on qwen-a since" in text
    assert "FloorwatchGpuLost</strong> (critical) GPU 3 GPU-3 since" in text
    assert outline.links == ["/metrics", "/api/v1/status", "/api/v1/status/schema"]
    assert "script" not in outline.tags


async def test_the_page_without_nvml_and_alarms(served: Served) -> None:
    status = Status(NOW, (CAPPED,), (), nvml_up=False, nvml_reason="no driver")
    _, text = await page_of(served, status)

    assert "<p>GPUs cannot be read: no driver</p>" in text
    assert "<p>No alarm is on.</p>" in text


async def test_hostile_text_stays_text(served: Served) -> None:
    problem = replace(DOWN.problem, detail=HOSTILE, hint=HOSTILE) if DOWN.problem else None
    alerts = tuple(
        replace(alert, name=HOSTILE, target=HOSTILE, uuid=HOSTILE, because=HOSTILE)
        for alert in STATUS.alerts
    )
    down = replace(DOWN, problem=problem)
    outline, text = await page_of(
        served, replace(STATUS, targets=(HOSTILE_TARGET, down), alerts=alerts)
    )

    assert "script" not in outline.tags
    assert "nan" not in text
    assert "alert(1)" in "".join(outline.words)
