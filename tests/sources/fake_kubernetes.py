"""A small Kubernetes API server on loopback: pods are listed in pages and watched, over HTTP(S).

What it does as the real one does: every change has a resourceVersion; a list is a snapshot and is
continued by opaque tokens; a watch begins after a version, streams one JSON object a line in chunks,
ends after `timeoutSeconds`, and is refused (410 Gone, as a status or as an ERROR event) once that
version is compacted away; selectors choose; a token that is not valid gives 401.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Json = dict[str, Any]


def pod(name: str = "vllm-0", namespace: str = "inference", **more: Any) -> Json:
    """A pod as the API tells it: it runs, is ready, and has one container with a metrics port.

    `more`: `labels`, `annotations`, `deleted` (a time), `node`, `phase`, `ip`, `ready`, `ports`,
    `gpus`, `containers`, `init`.
    """
    metadata: Json = {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}"}
    metadata["labels"] = more.get("labels", {"app": "vllm"})
    if "annotations" in more:
        metadata["annotations"] = more["annotations"]
    if "deleted" in more:
        metadata["deletionTimestamp"] = more["deleted"]
    limits = {"cpu": "16", "memory": "200Gi"}
    if "gpus" in more:
        limits["nvidia.com/gpu"] = more["gpus"]
    ports = more.get("ports", [{"name": "metrics", "containerPort": 8000, "protocol": "TCP"}])
    container = {"name": "vllm", "image": "vllm", "ports": ports, "resources": {"limits": limits}}
    spec: Json = {
        "nodeName": more.get("node", "node-a"),
        "containers": more.get("containers", [container]),
    }
    if "init" in more:
        spec["initContainers"] = more["init"]
    status: Json = {
        "phase": more.get("phase", "Running"),
        "hostIP": "10.0.0.5",
        "conditions": [
            {"type": "PodScheduled", "status": "True"},
            {"type": "Ready", "status": more.get("ready", "True")},
        ],
    }
    if more.get("ip", "10.1.2.3") is not None:
        status["podIP"] = more.get("ip", "10.1.2.3")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def status_of(code: int) -> Json:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "SECRET words of the server",
        "reason": {410: "Expired", 403: "Forbidden"}.get(code, "InternalError"),
        "code": code,
    }


@dataclass
class Asked:
    """One request that came: path, query, and the token that it bore."""

    path: str
    query: dict[str, str]
    token: str | None

    @property
    def watch(self) -> bool:
        return self.query.get("watch") == "1"


@dataclass
class FakeKubernetes:
    """The server. `tokens`: those that are valid (None: nobody must log in).

    `refuse`: statuses for the next requests, lists and watches apart. `page_pods`: most pods of a
    page. `gone_as_event`: whether a watch of an old version is refused by an ERROR event.
    """

    tokens: set[str] | None = None
    prefix: str = ""
    page_pods: int = 500
    gone_as_event: bool = True
    refuse_lists: list[int] = field(default_factory=list)
    refuse_watches: list[int] = field(default_factory=list)
    forbidden: set[str] = field(default_factory=set)
    raw_pages: list[bytes] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    pods: dict[tuple[str, str], Json] = field(default_factory=dict)
    version: int = 100
    compacted: int = 0
    port: int = 0
    scheme: str = "http"
    _history: list[tuple[int, str, Json]] = field(default_factory=list)
    _continues: dict[str, tuple[int, list[Json]]] = field(default_factory=dict)
    _watches: list[tuple[web.Request, asyncio.Queue[bytes | None]]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}{self.prefix}"

    @property
    def watching(self) -> int:
        """How many watches are under way."""
        return len(self._watches)

    @property
    def lists(self) -> list[Asked]:
        return [one for one in self.asked if not one.watch]

    @property
    def watches(self) -> list[Asked]:
        return [one for one in self.asked if one.watch]

    # ------------------------------------------------------------------ the cluster

    def put(self, *pods: Json) -> None:
        """Add or change pods."""
        for one in pods:
            key = (one["metadata"]["namespace"], one["metadata"]["name"])
            kind = "MODIFIED" if key in self.pods else "ADDED"
            self.version += 1
            stored = copy.deepcopy(one)
            stored["metadata"]["resourceVersion"] = str(self.version)
            self.pods[key] = stored
            self._happened(kind, stored)

    def remove(self, name: str, namespace: str = "inference") -> None:
        stored = copy.deepcopy(self.pods.pop((namespace, name)))
        self.version += 1
        stored["metadata"]["resourceVersion"] = str(self.version)
        self._happened("DELETED", stored)

    def bookmark(self) -> None:
        """Tell every watch how far it has come."""
        self.version += 1
        mark = {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": str(self.version)},
        }
        self.send(json.dumps({"type": "BOOKMARK", "object": mark}).encode() + b"\n")

    def compact(self) -> None:
        """Forget all changes so far: watches from before are Gone, and so are begun lists."""
        self.version += 1
        self.compacted = self.version
        self._history.clear()
        self._continues.clear()

    def send(self, data: bytes) -> None:
        """Send bytes over every watch as they are."""
        for _, queue in self._watches:
            queue.put_nowait(data)

    def end_watches(self) -> None:
        """End every watch as the server's time limit does; what happens then it tells no more."""
        ended, self._watches = self._watches, []
        for _, queue in ended:
            queue.put_nowait(None)

    def break_watches(self) -> None:
        """Cut every watch's connection in the middle of a chunk."""
        for request, _ in self._watches:
            assert request.transport is not None
            request.transport.abort()

    def _happened(self, kind: str, stored: Json) -> None:
        self._history.append((self.version, kind, stored))
        line = json.dumps({"type": kind, "object": stored}).encode() + b"\n"
        for request, queue in self._watches:
            if self._fits(stored, request.match_info.get("ns"), dict(request.query)):
                queue.put_nowait(line)

    @staticmethod
    def _fits(one: Json, namespace: str | None, query: dict[str, str]) -> bool:
        if namespace is not None and one["metadata"]["namespace"] != namespace:
            return False
        for term in filter(None, query.get("labelSelector", "").split(",")):
            key, _, value = term.partition("=")
            if one["metadata"]["labels"].get(key) != value:
                return False
        fields = {"spec.nodeName": one["spec"]["nodeName"], "status.phase": one["status"]["phase"]}
        for term in filter(None, query.get("fieldSelector", "").split(",")):
            key, _, value = term.partition("=")
            if fields.get(key) != value:
                return False
        return True

    # ------------------------------------------------------------------ the requests

    async def handle(self, request: web.Request) -> web.StreamResponse:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        one = Asked(request.path, dict(request.query), token if kind == "Bearer" else None)
        self.asked.append(one)
        namespace = request.match_info.get("ns")
        if self.tokens is not None and one.token not in self.tokens:
            return self._status(401)
        if (namespace or "*") in self.forbidden:
            return self._status(403)
        refuse = self.refuse_watches if one.watch else self.refuse_lists
        if refuse and (code := refuse.pop(0)) != 200:
            return self._status(code)
        return await self._watch(request) if one.watch else self._list(request)

    @staticmethod
    def _status(code: int) -> web.Response:
        return web.json_response(status_of(code), status=code)

    def _list(self, request: web.Request) -> web.Response:
        if self.raw_pages:
            return web.Response(body=self.raw_pages.pop(0), content_type="application/json")
        token = request.query.get("continue")
        if token is not None:
            if token not in self._continues:
                return self._status(410)
            version, left = self._continues.pop(token)
        else:
            version = self.version
            left = [
                one
                for _, one in sorted(self.pods.items())
                if self._fits(one, request.match_info.get("ns"), dict(request.query))
            ]
        most = min(int(request.query.get("limit", "1000000")), self.page_pods)
        metadata: Json = {"resourceVersion": str(version)}
        if left[most:]:
            more = base64.b64encode(f"{version}:{len(left)}/+".encode()).decode()
            self._continues[more] = (version, left[most:])
            metadata |= {"continue": more, "remainingItemCount": len(left) - most}
        body = {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": left[:most]}
        return web.json_response(body)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        gone = since < self.compacted
        if gone and not self.gone_as_event:
            return self._status(410)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        if gone:
            error = {"type": "ERROR", "object": status_of(410)}
            await response.write(json.dumps(error).encode() + b"\n")
            return response
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        for version, kind, stored in self._history:
            query, namespace = dict(request.query), request.match_info.get("ns")
            if version > since and self._fits(stored, namespace, query):
                line = json.dumps({"type": kind, "object": stored}).encode() + b"\n"
                queue.put_nowait(line)
        entry = (request, queue)
        self._watches.append(entry)
        try:
            async with asyncio.timeout(float(request.query["timeoutSeconds"])):
                while (data := await queue.get()) is not None:
                    await response.write(data)
        except (TimeoutError, ConnectionError):
            pass
        finally:
            self._watches = [one for one in self._watches if one is not entry]
        return response


@contextlib.asynccontextmanager
async def served(
    fake: FakeKubernetes, tls: ssl.SSLContext | None = None, port: int = 0
) -> AsyncIterator[FakeKubernetes]:
    """Serve it until the block ends."""
    app = web.Application()
    app.router.add_get(f"{fake.prefix}/api/v1/pods", fake.handle)
    app.router.add_get(f"{fake.prefix}/api/v1/namespaces/{{ns}}/pods", fake.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.05, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
        fake.port = runner.addresses[0][1]
        fake.scheme = "https" if tls else "http"
        yield fake
    finally:
        await runner.cleanup()
