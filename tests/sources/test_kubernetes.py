"""Pods followed through the Kubernetes API: lists, watches, and all that goes wrong with them."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from monitor.config.discovery import KubernetesConfig
from monitor.model import Found
from monitor.sources import kubernetes, kubernetes_api
from monitor.sources.connections import Connections
from monitor.sources.kubernetes import KubernetesPods
from monitor.sources.kubernetes_api import ApiFailed, PodsApi
from monitor.sources.kubernetes_objects import WatchEvent
from tests.sources.fake_kubernetes import Asked, FakeKubernetes, pod, served
from tests.sources.served import Serve
from tests.sources.test_scrape_tls import CA, server_side

SECONDS = 5.0


class Told:
    """What a source told, and how to wait for it."""

    def __init__(self) -> None:
        self.all: list[Found] = []
        self._news = asyncio.Event()

    def __call__(self, found: Found) -> None:
        self.all.append(found)
        self._news.set()

    @property
    def last(self) -> Found:
        return self.all[-1]

    async def until(self, holds: Callable[[Found], bool]) -> Found:
        """The first find, from the last one on, of which it holds."""
        async with asyncio.timeout(SECONDS):
            while not self.all or not holds(self.last):
                self._news.clear()
                await self._news.wait()
        return self.last

    async def names(self, *names: str) -> Found:
        return await self.until(lambda found: names_of(found) == list(names))

    async def error(self) -> str:
        found = await self.until(lambda found: found.error is not None)
        assert found.error is not None
        assert "\n" not in found.error
        assert "SECRET" not in found.error
        return found.error


def names_of(found: Found) -> list[str]:
    return [server.name or server.url for server in found.servers]


@contextlib.asynccontextmanager
async def following(
    fake: FakeKubernetes | str | None,
    environment: dict[str, str] | None = None,
    account: Path = Path("/nonexistent"),
    connections: Connections | None = None,
    *,
    watch_seconds: float = 60.0,
    **config: Any,
) -> AsyncIterator[Told]:
    """Run the source against a server until the block ends."""
    if fake is not None:
        config["api_server"] = fake if isinstance(fake, str) else fake.url
    source = KubernetesPods(
        KubernetesConfig.model_validate(config),
        connections,
        label="kubernetes[0]",
        environment=environment or {},
        service_account=account,
        retry_seconds=0.02,
        settle_seconds=0.01,
        watch_seconds=watch_seconds,
    )
    told = Told()
    task = asyncio.create_task(source.run(told))
    try:
        yield told
    finally:
        assert not task.done(), task
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


@pytest.fixture
async def api() -> AsyncIterator[FakeKubernetes]:
    async with served(FakeKubernetes()) as fake:
        yield fake


# ---------------------------------------------------------------------- list and watch


async def test_pods_are_listed_and_followed_as_they_come_change_and_go(api: FakeKubernetes) -> None:
    api.put(pod("b"), pod("a", ip="10.1.2.4"), pod("c", phase="Pending", ip=None))
    async with following(api) as told:
        found = await told.names("inference.a", "inference.b")
        assert found.error is None
        assert [server.url for server in found.servers] == [
            "http://10.1.2.4:8000/metrics",
            "http://10.1.2.3:8000/metrics",
        ]
        await eventually(lambda: api.watching == 1)
        api.put(pod("c", ip="10.1.2.9"))
        await told.names("inference.a", "inference.b", "inference.c")
        api.put(pod("a", deleted="2026-12-01T00:00:00Z"))
        await told.names("inference.b", "inference.c")
        api.remove("b")
        await told.names("inference.c")
        api.put(pod("c", ip="10.1.2.10"))
        moved = await told.until(lambda found: "10.1.2.10" in found.servers[0].url)
        assert moved.error is None
    assert [(one.path, one.query) for one in api.asked] == [
        ("/api/v1/pods", {"limit": "500"}),
        (
            "/api/v1/pods",
            {
                "watch": "1",
                "allowWatchBookmarks": "true",
                "resourceVersion": "103",
                "timeoutSeconds": api.asked[1].query["timeoutSeconds"],
            },
        ),
    ]
    assert 30 <= int(api.asked[1].query["timeoutSeconds"]) <= 60


async def test_a_long_list_comes_in_pages(api: FakeKubernetes) -> None:
    api.page_pods = 2
    api.put(*(pod(f"p{number}") for number in range(5)))
    async with following(api) as told:
        await told.names(*(f"inference.p{number}" for number in range(5)))
        await eventually(lambda: api.watching == 1)
    assert ["continue" in one.query for one in api.lists] == [False, True, True]
    assert {one.query["limit"] for one in api.lists} == {"500"}


async def test_a_list_that_grew_too_old_between_its_pages_is_begun_anew(
    api: FakeKubernetes,
) -> None:
    api.page_pods = 1
    api.put(pod("a"), pod("b"))
    api.refuse_lists = [200, 410]
    async with following(api) as told:
        await told.names("inference.a", "inference.b")
    assert ["continue" in one.query for one in api.lists] == [False, True, False, True]
    assert told.all[0].error is None


async def test_nothing_changes_between_the_end_of_a_watch_and_the_next(api: FakeKubernetes) -> None:
    api.put(pod("a"))
    async with following(api) as told:
        await eventually(lambda: api.watching == 1)
        api.put(pod("b"))
        await told.names("inference.a", "inference.b")
        api.bookmark()
        api.end_watches()
        api.put(pod("c"))
        await told.names("inference.a", "inference.b", "inference.c")
    assert len(api.lists) == 1
    assert [one.query["resourceVersion"] for one in api.watches] == ["101", "103"]
    assert [found.error for found in told.all] == [None] * len(told.all)


async def test_a_server_that_ends_watches_at_once_is_not_stormed(api: FakeKubernetes) -> None:
    async with following(api, watch_seconds=0.1) as told:
        await told.names()
        await asyncio.sleep(0.15)
    assert 2 <= len(api.watches) <= 16
    assert len(api.lists) == 1


async def test_a_watch_that_is_never_ended_is_left_in_time(
    api: FakeKubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A connection that died without a word: the server never ends the watch.
    monkeypatch.setattr(kubernetes_api, "ANSWER_SECONDS", 0.05)
    api.put(pod("a"))

    async def endless(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return api._list(request)
        api.asked.append(Asked(request.path, dict(request.query), None))
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(0.2)
        return response

    app = web.Application()
    app.router.add_get("/api/v1/pods", endless)
    runner = web.AppRunner(app, shutdown_timeout=0.01)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with following(url, watch_seconds=0.1) as told:
            await told.names("inference.a")
            await eventually(lambda: len(api.watches) >= 2)
            assert told.last.error is None
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("as_event", [True, False])
async def test_when_the_version_is_gone_the_list_is_read_anew(
    api: FakeKubernetes, as_event: bool
) -> None:
    api.gone_as_event = as_event
    api.put(pod("a"), pod("b"))
    async with following(api) as told:
        await told.names("inference.a", "inference.b")
        await eventually(lambda: api.watching == 1)
        api.end_watches()
        api.remove("a")
        api.put(pod("c"))
        api.compact()
        await told.names("inference.b", "inference.c")
        await eventually(lambda: api.watching == 1)
        assert len(api.lists) == 2
        assert all(found.error is None for found in told.all)


async def test_changes_that_come_together_are_told_together(api: FakeKubernetes) -> None:
    async with following(api) as told:
        await told.names()
        await eventually(lambda: api.watching == 1)
        api.put(*(pod(f"p{number:02}") for number in range(20)))
        await told.until(lambda found: len(found.servers) == 20)
        assert len(told.all) <= 4
        before = len(told.all)
        api.put(pod("p00", ready="False"))
        api.bookmark()
        await asyncio.sleep(0.1)
        assert len(told.all) == before


async def test_lines_may_be_cut_anywhere(api: FakeKubernetes) -> None:
    async with following(api) as told:
        await eventually(lambda: api.watching == 1)
        api.put(pod("a"))
        await told.names("inference.a")
        (_, queue) = api._watches[0]
        api.version += 1
        line = (
            b'{"type":"ADDED","object":{"metadata":{"name":"b","namespace":"x","resourceVersion":'
            b'"300"},"spec":{"containers":[{"ports":[{"name":"metrics","containerPort":9}]}]},'
            b'"status":{"podIP":"10.9.9.9","phase":"Running"}}}\n'
        )
        for start in range(0, len(line), 50):
            queue.put_nowait(line[start : start + 50])
            await asyncio.sleep(0)
        await told.names("inference.a", "x.b")
        api.send(b"\n \n" + line[:100])
        api.end_watches()
        await eventually(lambda: len(api.watches) == 2)
    assert api.watches[1].query["resourceVersion"] == "300"


# ---------------------------------------------------------------------- what is asked for


async def test_selectors_and_namespaces_are_the_servers_to_apply(api: FakeKubernetes) -> None:
    api.put(
        pod("a", "one", labels={"app": "vllm"}),
        pod("b", "one", labels={"app": "db"}),
        pod("c", "two", labels={"app": "vllm"}, node="node-b"),
        pod("d", "three", labels={"app": "vllm"}),
    )
    chosen: Any = {
        "namespaces": ["one", "two", "one"],
        "label_selector": "app=vllm",
        "field_selector": "status.phase=Running",
    }
    async with following(api, **chosen) as told:
        await told.names("one.a", "two.c")
        await eventually(lambda: api.watching == 2)
        api.put(pod("e", "two"))
        await told.names("one.a", "two.c", "two.e")
    assert {one.path for one in api.asked} == {
        "/api/v1/namespaces/one/pods",
        "/api/v1/namespaces/two/pods",
    }
    assert {one.query["labelSelector"] for one in api.asked} == {"app=vllm"}
    assert {one.query["fieldSelector"] for one in api.asked} == {"status.phase=Running"}


async def test_own_node_asks_for_the_pods_of_this_node(api: FakeKubernetes) -> None:
    api.put(pod("a"), pod("b", node="node-b"))
    async with following(api, {"NODE_NAME": "node-b"}, own_node=True) as told:
        await told.names("inference.b")
    more: Any = {"own_node": True, "field_selector": "status.phase=Running"}
    async with following(api, {"NODE_NAME": "node-a"}, **more) as told:
        await told.names("inference.a")
    assert [one.query["fieldSelector"] for one in api.lists] == [
        "spec.nodeName=node-b",
        "status.phase=Running,spec.nodeName=node-a",
    ]


async def test_own_node_without_its_name_says_what_to_set(api: FakeKubernetes) -> None:
    async with following(api, own_node=True) as told:
        assert await told.error() == (
            "own_node: set NODE_NAME to the node (fieldRef spec.nodeName)"
        )
    assert api.asked == []


async def test_pods_without_the_port_are_told_of_where_a_selector_chose_them(
    api: FakeKubernetes,
) -> None:
    async with following(api, label_selector="app=vllm") as told:
        found = await told.names()
        assert found.notes == ("no pod that runs fits label_selector app=vllm",)
        await eventually(lambda: api.watching == 1)
        api.put(pod("a"), pod("b", ports=[{"containerPort": 1}]), pod("c", ports=None))
        found = await told.names("inference.a")
        assert found.notes == ("2 of 3 pods declare no port 'metrics', such as inference/b",)
    async with following(api) as told:
        assert (await told.names("inference.a")).notes == ()


# ---------------------------------------------------------------------- in the cluster


def account(folder: Path, token: str, namespace: str = "inference") -> Path:
    (folder / "token").write_text(token)
    (folder / "namespace").write_text(namespace)
    (folder / "ca.crt").write_bytes(CA.read_bytes())
    return folder


async def test_a_pod_of_the_cluster_logs_in_with_its_service_account(tmp_path: Path) -> None:
    fake = FakeKubernetes(tokens={"first"})
    async with served(fake, server_side("server.pem")):
        fake.put(pod("a"), pod("b"))
        environment = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(fake.port),
            "HOSTNAME": "b",
        }
        folder = account(tmp_path, "first\n")
        async with following(None, environment, folder) as told:
            found = await told.names("inference.a", "inference.b")
            assert [(server.local, server.url) for server in found.servers] == [
                (False, "http://10.1.2.3:8000/metrics"),
                (True, "http://127.0.0.1:8000/metrics"),
            ]
            await eventually(lambda: fake.watching == 1)
            (folder / "token").write_text("second\n")
            fake.tokens = {"second"}
            fake.put(pod("c"))
            fake.end_watches()
            await told.names("inference.a", "inference.b", "inference.c")
            await eventually(lambda: len(fake.watches) == 2)
        assert [one.token for one in fake.asked] == ["first", "first", "second"]
        assert all(found.error is None for found in told.all)


@pytest.mark.parametrize(
    ("environment", "local"),
    [
        ({"HOSTNAME": "a"}, True),
        ({"POD_NAME": "a", "HOSTNAME": "node-a"}, True),
        ({"POD_NAME": "a", "POD_NAMESPACE": "other"}, False),
        ({}, False),
    ],
)
async def test_which_pod_is_ours(tmp_path: Path, environment: dict[str, str], local: bool) -> None:
    fake = FakeKubernetes()
    async with served(fake, server_side("server.pem")):
        fake.put(pod("a"))
        cluster = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(fake.port),
        }
        async with following(None, {**cluster, **environment}, account(tmp_path, "x")) as told:
            found = await told.names("inference.a")
            assert found.servers[0].local is local


async def test_of_another_cluster_no_pod_is_ours(api: FakeKubernetes, tmp_path: Path) -> None:
    api.put(pod("a"))
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "a"}
    async with following(api, environment, account(tmp_path, "x")) as told:
        assert not (await told.names("inference.a")).servers[0].local


async def test_without_a_namespace_no_pod_is_ours_and_without_a_token_none_is_found(
    tmp_path: Path,
) -> None:
    (tmp_path / "ca.crt").write_bytes(CA.read_bytes())
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "HOSTNAME": "a"}
    async with following(None, environment, tmp_path) as told:
        error = await told.error()
    assert f"no credentials to send: {tmp_path}/token: No such file" in error


async def test_outside_of_a_cluster_an_address_is_needed() -> None:
    async with following(None) as told:
        assert await told.error() == (
            "this is no pod of a cluster (KUBERNETES_SERVICE_HOST is not set): set api_server, and"
            " bearer_file or tls to log in"
        )


async def test_the_api_may_be_behind_a_prefix_a_token_and_a_certificate(tmp_path: Path) -> None:
    fake = FakeKubernetes(tokens={"mine"}, prefix="/k8s/clusters/c-1")
    (tmp_path / "token").write_text("mine")
    async with served(fake, server_side("server.pem")):
        fake.put(pod("a"))
        login: Any = {"bearer_file": str(tmp_path / "token"), "tls": {"ca_file": str(CA)}}
        async with following(fake, **login) as told:
            await told.names("inference.a")
        async with following(fake, bearer_file=str(tmp_path / "token")) as told:
            assert "set tls: {ca_file: FILE}" in await told.error()
        async with following(fake, tls={"ca_file": str(CA)}) as told:
            assert "the API server wants a login: bearer_file (401)" in await told.error()
        (tmp_path / "token").write_text("other")
        async with following(fake, **login) as told:
            error = await told.error()
            assert f"the API server refuses the token in {tmp_path}/token (401)" in error


def test_the_api_server_may_have_an_ipv6_address() -> None:
    target = kubernetes_api.api_target(
        KubernetesConfig(),
        {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"},
        Path("/account"),
    )
    assert target.url == "https://[fd00::1]:6443/"
    assert (target.bearer_file, target.ca_file) == (Path("/account/token"), Path("/account/ca.crt"))


# ---------------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "does not understand the request (400): check label_selector and field_selector"),
        (
            403,
            "pods is forbidden in all namespaces (403): bind a ClusterRole with get, list and watch on pods",
        ),
        (404, "this has no pods to list (404); is it a Kubernetes API server?"),
        (429, "the API server answers with status 429"),
        (503, "the API server answers with status 503"),
    ],
)
async def test_a_refused_list_says_why_and_is_tried_again(
    api: FakeKubernetes, status: int, said: str
) -> None:
    api.put(pod("a"))
    api.refuse_lists = [status]
    async with following(api) as told:
        await told.names("inference.a")
    first = told.all[0]
    assert first.error is not None
    assert first.error.startswith(f"{api.url}/: ")
    assert first.error.endswith(said)
    assert first.servers == ()
    assert told.last.error is None


async def test_a_forbidden_watch_is_told_and_the_list_kept(api: FakeKubernetes) -> None:
    api.put(pod("a"))
    api.refuse_watches = [403, 403, 403]
    async with following(api) as told:
        first = await told.names("inference.a")
        assert first.error is None
        assert "bind a ClusterRole" in await told.error()
        assert names_of(told.last) == ["inference.a"]
        await told.until(lambda found: found.error is None)


async def test_while_the_server_is_down_the_pods_stay_and_it_is_found_again() -> None:
    async with served(FakeKubernetes()) as fake:
        fake.put(pod("a"))
        port = fake.port
        source = following(fake)
        told = await source.__aenter__()
        await told.names("inference.a")
    error = await told.error()
    assert f"http://127.0.0.1:{port}/: " in error
    assert names_of(told.last) == ["inference.a"]
    again = FakeKubernetes()
    again.put(pod("b"))
    async with served(again, port=port):
        found = await told.names("inference.b")
        assert found.error is None
        await source.__aexit__(None, None, None)


async def test_one_failure_alone_is_not_told(api: FakeKubernetes) -> None:
    api.put(pod("a"))
    async with following(api) as told:
        await told.names("inference.a")
        await eventually(lambda: api.watching == 1)
        api.refuse_watches = [500]
        api.put(pod("b"))
        api.end_watches()
        await told.names("inference.a", "inference.b")
        await eventually(lambda: api.watching == 1)
        assert len(api.lists) == 2
        assert all(found.error is None for found in told.all)


async def test_a_connection_that_breaks_is_taken_up_where_it_stopped(api: FakeKubernetes) -> None:
    api.put(pod("a"))
    async with following(api) as told:
        await told.names("inference.a")
        await eventually(lambda: api.watching == 1)
        api.break_watches()
        await eventually(lambda: len(api.watches) == 2)
        api.put(pod("b"))
        await told.names("inference.a", "inference.b")
        assert all(found.error is None for found in told.all)


async def test_of_several_namespaces_one_may_be_forbidden(api: FakeKubernetes) -> None:
    api.put(pod("a", "one"), pod("b", "two"))
    api.forbidden = {"two"}
    async with following(api, namespaces=["one", "two"]) as told:
        found = await told.names("one.a")
        assert found.error is None
        assert found.notes == (
            f"{api.url}/: pods is forbidden in namespace two (403): bind a Role with get, list and watch on pods",
        )
        api.forbidden = {"one", "two"}
        api.end_watches()
        error = await told.error()
        assert "forbidden in namespace one" in error
        assert "forbidden in namespace two" in error
        assert names_of(told.last) == ["one.a"]


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (b"<html>", "answers with something else than a list of pods"),
        (b'{"kind":"Status"}', "answers with something else than a list of pods"),
        (b'{"metadata":{},"items":[]}', "list of pods has no resourceVersion"),
    ],
)
async def test_an_answer_that_is_no_list(api: FakeKubernetes, page: bytes, said: str) -> None:
    api.raw_pages = [page]
    async with following(api) as told:
        assert said in await told.error()
        await told.until(lambda found: found.error is None)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"not json\n", "sends something else than changes of pods"),
        (b'{"type":"ADDED"}\n', "sends something else than changes of pods"),
        (b'{"type":"ERROR","object":{"kind":"Status","code":504}}\n', "status 504"),
        (b'{"type":"ERROR","object":{}}\n', "status 500"),
        (b"x" * 3000, "an event of more than 2048 bytes"),
    ],
)
async def test_a_watch_that_sends_nonsense_is_left_and_the_list_read_anew(
    api: FakeKubernetes, monkeypatch: pytest.MonkeyPatch, line: bytes, said: str
) -> None:
    monkeypatch.setattr(kubernetes_api, "MAX_EVENT_BYTES", 2048)
    connections = Connections()
    target = kubernetes_api.api_target(
        KubernetesConfig.model_validate({"api_server": api.url}), {}, Path("/nonexistent")
    )
    client = PodsApi(target, connections, {})
    taken: list[WatchEvent] = []
    watch = asyncio.create_task(
        client.watch(None, "100", 60.0, opened=lambda: None, take=taken.append)
    )
    try:
        await eventually(lambda: api.watching == 1)
        api.send(line)
        with pytest.raises(ApiFailed, match=re.escape(said)):
            await watch
    finally:
        await connections.close()
    assert taken == []
    api.put(pod("a"))
    async with following(api) as told:
        await told.names("inference.a")
        await eventually(lambda: api.watching == 1)
        api.send(line)
        await eventually(lambda: len(api.lists) == 2)
        await eventually(lambda: api.watching == 1)
        assert told.all == [told.last]


async def test_a_kind_of_event_of_a_later_kubernetes_does_no_harm(api: FakeKubernetes) -> None:
    api.put(pod("a"))
    async with following(api) as told:
        await told.names("inference.a")
        await eventually(lambda: api.watching == 1)
        api.send(b'{"type":"RENAMED","object":{"metadata":{"name":"z"}}}\n')
        api.put(pod("b"))
        await told.names("inference.a", "inference.b")
    assert len(api.lists) == 1


async def test_a_token_that_is_gone_at_the_next_watch_is_told_of(
    api: FakeKubernetes, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("mine")
    api.put(pod("a"))
    async with following(api, bearer_file=str(tmp_path / "token")) as told:
        await told.names("inference.a")
        await eventually(lambda: api.watching == 1)
        (tmp_path / "token").unlink()
        api.end_watches()
        assert f"no credentials to send: {tmp_path}/token" in await told.error()
        assert names_of(told.last) == ["inference.a"]
    assert len(api.asked) == 2


async def test_a_fault_of_our_own_does_not_pass_for_the_end_of_a_watch(api: FakeKubernetes) -> None:
    def take(_: WatchEvent) -> None:
        raise ValueError("ours")

    connections = Connections()
    config = KubernetesConfig.model_validate({"api_server": api.url})
    client = PodsApi(kubernetes_api.api_target(config, {}, Path("/nonexistent")), connections, {})
    api.put(pod("a"))
    try:
        with pytest.raises(ValueError, match="ours"):
            await client.watch(None, "100", 60.0, opened=lambda: None, take=take)
    finally:
        await connections.close()


async def test_nothing_is_told_before_every_namespace_was_tried(serve: Serve) -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        if "watch" in request.query:
            await asyncio.sleep(0.2)
            return web.Response()
        namespace = request.path.split("/")[4]
        if namespace == "two":
            await asyncio.sleep(0.1)
        items: list[Any] = [None, {"metadata": {"labels": []}}, pod("a", namespace)]
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})

    server = await serve(answer)
    async with following(server.url("/"), namespaces=["one", "two"]) as told:
        await told.names("one.a", "two.a")
        assert len(told.all) == 1


async def test_a_server_that_never_answers_is_told_of(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_api, "ANSWER_SECONDS", 0.1)

    async def silent(request: web.BaseRequest) -> web.Response:
        if "watch" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})
        await asyncio.sleep(0.2)
        return web.Response()

    server = await serve(silent)
    async with following(server.url("/")) as told:
        assert "no full answer within 0.1 s, still waiting" in await told.error()


async def test_more_pods_than_can_be_followed_are_told_of(
    api: FakeKubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes, "MOST_PODS", 2)
    api.put(pod("a"), pod("b"))
    async with following(api) as told:
        assert (await told.names("inference.a", "inference.b")).notes == ()
        await eventually(lambda: api.watching == 1)
        api.put(pod("c"), pod("a", ip="10.1.2.9"))
        found = await told.until(lambda found: bool(found.notes))
        assert names_of(found) == ["inference.a", "inference.b"]
        assert "more than 2 pods: the others are left out" in found.notes[0]
    api.page_pods = 1
    async with following(api) as told:
        found = await told.names("inference.a", "inference.b")
        assert "more than 2 pods" in found.notes[0]


async def test_pages_without_an_end_have_one(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes, "MOST_PAGES", 3)
    asked = []

    async def endless(request: web.BaseRequest) -> web.StreamResponse:
        if "watch" in request.query:
            await asyncio.sleep(0.2)
            return web.Response()
        asked.append(request)
        metadata = {"resourceVersion": "1", "continue": "again"}
        return web.json_response({"metadata": metadata, "items": None})

    server = await serve(endless)
    async with following(server.url("/")) as told:
        found = await told.until(lambda found: bool(found.notes))
        assert len(asked) == 3
        assert found.servers == ()


async def test_a_redirect_is_not_followed_to_another_server(
    serve: Serve, api: FakeKubernetes
) -> None:
    async def away(request: web.BaseRequest) -> web.Response:
        raise web.HTTPFound(f"{api.url}{request.path_qs}")

    server = await serve(away)
    async with following(server.url("/")) as told:
        assert "not followed, so that credentials stay here" in await told.error()
    assert api.asked == []


async def test_connections_may_be_shared_and_are_then_left_open(api: FakeKubernetes) -> None:
    connections = Connections()
    try:
        for _ in range(2):
            async with following(api, connections=connections) as told:
                await told.names()
        assert not connections.session().closed
    finally:
        await connections.close()
