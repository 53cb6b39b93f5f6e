"""The part of the Kubernetes API that discovery needs: pods listed in pages, and watched.

Rules of this file:

1. The token is read anew for each request, for the kubelet rotates it; the authority's
   certificate too when its file changes.
2. Nothing the server says is copied into a message: a status becomes our own words, with what
   to do.
3. Every answer is bounded: a page, a line of the watch, and the watch's time, since a connection
   that died without a word would be waited on for ever.

Protocol: kubernetes.io/docs/reference/using-api/api-concepts (list, limit and continue, watch,
resourceVersion, bookmarks, 410 Gone).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from urllib.parse import quote

import aiohttp
from pydantic import ValidationError
from yarl import URL

from monitor.config import addresses
from monitor.config.discovery import KubernetesConfig
from monitor.model import ProblemReason
from monitor.sources.connections import Connections, Progress
from monitor.sources.credentials import ClientTls, credential_headers
from monitor.sources.http_client import HttpClient
from monitor.sources.kubernetes_objects import PodPage, WatchEvent
from monitor.sources.scrape_errors import ScrapeFailed, exception_problem, timeout_problem
from monitor.sources.scrape_target import ScrapeTarget

PAGE_PODS = 500
MAX_PAGE_BYTES = 128 * 2**20
MAX_EVENT_BYTES = 8 * 2**20
ANSWER_SECONDS = 30.0
"""For a page of a list, and for a watch to begin; also how long a watch may be over its time."""

_JSON = "application/json"


class ApiFailed(Exception):
    """A request that brought nothing; one line why, and what to do."""


class Gone(ApiFailed):
    """The server no longer knows the changes since this version: list anew."""


def api_target(
    config: KubernetesConfig, environment: Mapping[str, str], service_account: Path
) -> ScrapeTarget:
    """Where the API is and how to ask it: as configured, else as a pod of the cluster does.

    Raises ApiFailed where neither is possible.
    """
    tls, token, authority = config.tls, config.bearer_file, config.tls.ca_file
    server = config.api_server
    if server is None:
        host = environment.get("KUBERNETES_SERVICE_HOST", "")
        port = environment.get("KUBERNETES_SERVICE_PORT", "443")
        try:
            shown = f"[{host}]" if ":" in host else host
            server = addresses.parse(f"https://{shown}:{port}/", default_path="/")
        except addresses.AddressInvalid:
            raise ApiFailed(
                "this is no pod of a cluster (KUBERNETES_SERVICE_HOST is not set): set api_server,"
                " and bearer_file or tls to log in"
            ) from None
        token = token or service_account / "token"
        authority = authority or service_account / "ca.crt"
    return ScrapeTarget(
        name="kubernetes",
        url=server.request_url,
        timeout_seconds=ANSWER_SECONDS,
        max_page_bytes=MAX_PAGE_BYTES,
        bearer_file=token,
        ca_file=authority,
        certificate_file=tls.certificate_file,
        key_file=tls.key_file,
        server_name=tls.server_name,
        insecure_skip_verify=tls.insecure_skip_verify,
    )


class PodsApi:
    """Lists and watches the pods of one cluster. `selectors`: query parameters of every request."""

    def __init__(
        self, target: ScrapeTarget, connections: Connections, selectors: Mapping[str, str]
    ) -> None:
        self._target = target
        self._connections = connections
        self._selectors = selectors
        self._client = HttpClient(target, connections)
        self._tls = ClientTls(target)

    async def page(self, namespace: str | None, after: str | None) -> PodPage:
        """One page of the pods of a namespace (None: of all), `after` the page before it.

        Raises Gone where the list has become too old to be gone on with, else ApiFailed.
        """
        asked = {"limit": str(PAGE_PODS), **({} if after is None else {"continue": after})}
        try:
            answer = await self._client.get(self._url(namespace, asked), accept=_JSON)
        except ScrapeFailed as failure:
            raise _failed(failure) from None
        if answer.status != 200:
            raise self._refusal(answer.status, namespace)
        try:
            # Up to a megabyte or more of JSON: others may go on meanwhile.
            return await asyncio.to_thread(PodPage.model_validate_json, answer.body)
        except ValidationError:
            raise self._no_api("answers with something else than a list of pods") from None

    async def watch(
        self,
        namespace: str | None,
        version: str,
        seconds: float,
        *,
        opened: Callable[[], None],
        take: Callable[[WatchEvent], None],
    ) -> None:
        """Hand over each change after `version` until the server ends the watch, in `seconds`.

        A connection that breaks once the watch began (`opened`) is an end like any other. Raises
        Gone where the version is too old, else ApiFailed.
        """
        asked = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(round(seconds)),
        }
        progress = Progress()
        begun = False
        limit = asyncio.timeout(ANSWER_SECONDS)
        loop = asyncio.get_running_loop()
        try:
            async with limit, await self._open(self._url(namespace, asked), progress) as response:
                if response.status != 200:
                    raise self._refusal(response.status, namespace)
                begun = True
                limit.reschedule(loop.time() + seconds + ANSWER_SECONDS)
                opened()
                async for line in self._lines(response):
                    take(self._event(line, namespace))
        except ScrapeFailed as failure:
            raise _failed(failure) from None
        except TimeoutError:
            if not begun:
                late = timeout_problem(self._target, progress.phase, ANSWER_SECONDS)
                raise ApiFailed(late.detail) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if not begun:
                problem = exception_problem(error, self._target, progress.phase)
                raise _failed(ScrapeFailed(problem)) from None
            if isinstance(error, ValueError):
                raise

    async def _open(self, url: URL, progress: Progress) -> aiohttp.ClientResponse:
        return await self._connections.session().get(
            url,
            headers={
                "Accept": _JSON,
                "Accept-Encoding": "identity",
                "User-Agent": "floorwatch",
                **credential_headers(self._target),
            },
            allow_redirects=False,
            ssl=self._tls.setting(),
            server_hostname=self._target.server_name,
            trace_request_ctx=progress,
        )

    async def _lines(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        """Whole lines; what stands after the last line break is dropped, and will be sent again."""
        left = bytearray()
        async for chunk in response.content.iter_any():
            *lines, rest = chunk.split(b"\n")
            for line in lines:
                left += line
                if left.strip():
                    yield bytes(left)
                left.clear()
            left += rest
            if len(left) > MAX_EVENT_BYTES:
                raise ApiFailed(
                    f"{self._target.shown}: an event of more than {MAX_EVENT_BYTES} bytes"
                )

    def _event(self, line: bytes, namespace: str | None) -> WatchEvent:
        try:
            event = WatchEvent.model_validate_json(line)
        except ValidationError:
            raise self._no_api("sends something else than changes of pods") from None
        if event.type == "ERROR":
            raise self._refusal(event.object.code or 500, namespace)
        return event

    def _url(self, namespace: str | None, asked: Mapping[str, str]) -> URL:
        inside = "" if namespace is None else f"/namespaces/{quote(namespace, safe='')}"
        path = f"{self._target.address.raw_path.rstrip('/')}/api/v1{inside}/pods"
        page = self._target.address.with_path(path, encoded=True)
        return page.with_query({**self._selectors, **asked})

    def _refusal(self, status: int, namespace: str | None) -> ApiFailed:
        shown = self._target.shown
        match status:
            case 410:
                return Gone(f"{shown}: the changes asked for are too old (410)")
            case 401:
                token = self._target.bearer_file
                what = f"refuses the token in {token}" if token else "wants a login: bearer_file"
                return ApiFailed(f"{shown}: the API server {what} (401)")
            case 403:
                where, role = f"namespace {namespace}", "Role"
                if namespace is None:
                    where, role = "all namespaces", "ClusterRole"
                return ApiFailed(
                    f"{shown}: pods is forbidden in {where} (403): bind a {role} with get, list"
                    " and watch on pods"
                )
            case 400:
                return ApiFailed(
                    f"{shown}: the API server does not understand the request (400): check"
                    " label_selector and field_selector"
                )
            case 404:
                return self._no_api("has no pods to list (404)")
            case _:
                return ApiFailed(f"{shown}: the API server answers with status {status}")

    def _no_api(self, what: str) -> ApiFailed:
        return ApiFailed(f"{self._target.shown}: this {what}; is it a Kubernetes API server?")


def _failed(failure: ScrapeFailed) -> ApiFailed:
    problem = failure.problem
    hint = f"; {problem.hint}" if problem.reason is ProblemReason.TLS and problem.hint else ""
    return ApiFailed(problem.detail + hint)
