"""Pods of a Kubernetes cluster, found by its API and followed as they come and go.

Rules of this file:

1. List, then watch from the list's version; events and bookmarks carry the version on. A watch
   that ends is begun again where it stopped; where the server says Gone, the list is read anew.
2. While the API cannot be had the pods known stay, with the error. One failure alone is not told
   where pods are known: API servers are restarted too. With several namespaces the whole source
   fails only if each of them does; else it is a remark.
3. Waits grow from 1 s to 60 s and are drawn at random, as the watches' times are: the daemons of
   a cluster must not all come at once.
4. Changes that come together are told together.

Rights: a Role in each namespace, or with `namespaces: []` a ClusterRole, bound to the daemon's
service account:

    rules:
    - apiGroups: [""]
      resources: [pods]
      verbs: [get, list, watch]

`own_node` needs NODE_NAME (fieldRef spec.nodeName). A sidecar knows its own pod by POD_NAME and
POD_NAMESPACE (fieldRef metadata.name, metadata.namespace), else by HOSTNAME and the service
account's namespace.

GPUs are counted by a pod's own limits. A server that spans pods says its whole number itself
(annotation `floorwatch.io/gpu-count`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from monitor.config.discovery import KubernetesConfig
from monitor.model import Found, FoundServer
from monitor.sources.connections import Connections
from monitor.sources.kubernetes_api import ApiFailed, Gone, PodsApi, api_target
from monitor.sources.kubernetes_objects import Pod, WatchEvent
from monitor.sources.kubernetes_pods import Served, served_by

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MOST_PODS = 10_000
"""Pods that run and are chosen, per namespace that is followed."""
MOST_PAGES = 400
WATCH_SECONDS = 300.0
"""How long a watch is asked to last, at most; half of it at least."""
LAST_RETRY_SECONDS = 60.0
_MOST_NOTES = 50

Tell = Callable[[Found], None]


@dataclass(slots=True)
class _Part:
    """What is known of one namespace (None: of all of them)."""

    namespace: str | None
    pods: dict[tuple[str, str], Served] = field(default_factory=dict)
    version: str | None = None
    listed: bool = False
    too_many: bool = False
    failures: int = 0
    last_error: str = ""

    @property
    def tried(self) -> bool:
        return self.listed or self.failures > 0

    @property
    def error(self) -> str | None:
        """The failure to tell of."""
        told = self.failures > (1 if self.listed else 0)
        return self.last_error if told else None


class KubernetesPods:
    """The pods of a cluster as a list of servers.

    `label` names the source. `environment` and `service_account` are those of the process.
    `retry_seconds`: the first wait after a failure; `settle_seconds`: for how long changes are
    gathered before they are told. `connections` may be shared; whoever made them closes them.
    """

    def __init__(
        self,
        config: KubernetesConfig,
        connections: Connections | None = None,
        *,
        label: str,
        environment: Mapping[str, str],
        service_account: Path = SERVICE_ACCOUNT,
        retry_seconds: float = 1.0,
        settle_seconds: float = 0.2,
        watch_seconds: float = WATCH_SECONDS,
    ) -> None:
        self.label = label
        self._config = config
        self._shared = connections
        self._environment = environment
        self._service_account = service_account
        self._retry_seconds = retry_seconds
        self._settle_seconds = settle_seconds
        self._watch_seconds = watch_seconds
        self._own = self._own_pod()
        self._parts: tuple[_Part, ...] = ()
        self._news = asyncio.Event()

    async def run(self, tell: Tell) -> None:
        """Follow the pods for ever; `tell` gets all that is known whenever it changed."""
        try:
            target = api_target(self._config, self._environment, self._service_account)
            selectors = self._selectors()
        except ApiFailed as fault:
            # What is missing is the process' own, and stays missing as long as it runs.
            tell(Found(error=str(fault)))
            await asyncio.Event().wait()
            raise AssertionError from None
        namespaces = tuple(dict.fromkeys(self._config.namespaces)) or (None,)
        self._parts = tuple(_Part(namespace) for namespace in namespaces)
        connections = self._shared or Connections()
        api = PodsApi(target, connections, selectors)
        try:
            async with asyncio.TaskGroup() as group:
                for part in self._parts:
                    group.create_task(self._follow(api, part))
                group.create_task(self._telling(tell))
        finally:
            if connections is not self._shared:
                await connections.close()

    def _selectors(self) -> dict[str, str]:
        fields = [self._config.field_selector] if self._config.field_selector else []
        if self._config.own_node:
            node = self._environment.get("NODE_NAME", "").strip()
            if not node:
                raise ApiFailed("own_node: set NODE_NAME to the node (fieldRef spec.nodeName)")
            fields.append(f"spec.nodeName={node}")
        selectors = {"fieldSelector": ",".join(fields)} if fields else {}
        if self._config.label_selector is not None:
            selectors["labelSelector"] = self._config.label_selector
        return selectors

    def _own_pod(self) -> tuple[str, str] | None:
        """Namespace and name of the pod that this process is in, where it is in one."""
        known = self._environment
        if self._config.api_server is not None or "KUBERNETES_SERVICE_HOST" not in known:
            return None
        namespace = known.get("POD_NAMESPACE", "").strip()
        if not namespace:
            try:
                namespace = (self._service_account / "namespace").read_text().strip()
            except (OSError, UnicodeDecodeError):
                return None
        name = known.get("POD_NAME", "").strip() or known.get("HOSTNAME", "").strip()
        return (namespace, name) if namespace and name else None

    async def _follow(self, api: PodsApi, part: _Part) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                if part.version is None:
                    await self._list(api, part)
                await self._watch(api, part)
            except Gone:
                part.version = None
            except ApiFailed as fault:
                part.version = None
                part.failures += 1
                part.last_error = str(fault)
                self._news.set()
                await self._pause(2.0 ** min(part.failures - 1, 10))
                continue
            if loop.time() - began < self._retry_seconds:
                await self._pause(1.0)

    async def _pause(self, times: float) -> None:
        longest = min(self._retry_seconds * times, LAST_RETRY_SECONDS)
        await asyncio.sleep(longest * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load

    async def _list(self, api: PodsApi, part: _Part) -> None:
        pods: dict[tuple[str, str], Served] = {}
        after, version, too_many = None, None, False
        for _ in range(MOST_PAGES):
            page = await api.page(part.namespace, after)
            version = page.metadata.version
            for pod in page.items or ():
                if pod is not None:
                    too_many |= not self._put(pods, pod)
            after = page.metadata.more
            if not after or too_many:
                break
        if version is None:
            raise ApiFailed("the API server's list of pods has no resourceVersion")
        part.pods, part.version = pods, version
        part.listed, part.too_many = True, too_many or bool(after)
        self._news.set()

    async def _watch(self, api: PodsApi, part: _Part) -> None:
        assert part.version is not None
        seconds = self._watch_seconds * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load

        def opened() -> None:
            if part.failures:
                part.failures = 0
                self._news.set()

        def take(event: WatchEvent) -> None:
            pod = event.object
            if event.type in {"ADDED", "MODIFIED"}:
                part.too_many |= not self._put(part.pods, pod)
            elif event.type == "DELETED":
                part.pods.pop(pod.key, None)
            if event.type != "BOOKMARK":
                self._news.set()
            part.version = (pod.metadata and pod.metadata.version) or part.version

        await api.watch(part.namespace, part.version, seconds, opened=opened, take=take)

    def _put(self, pods: dict[tuple[str, str], Served], pod: Pod) -> bool:
        """Keep what a pod comes to; False: there is no room for it."""
        served = served_by(pod, self._config, self._own)
        if not served.chosen:
            pods.pop(pod.key, None)
        elif pod.key not in pods and len(pods) >= MOST_PODS:
            return False
        else:
            pods[pod.key] = served
        return True

    async def _telling(self, tell: Tell) -> None:
        before: Found | None = None
        while True:
            await self._news.wait()
            await asyncio.sleep(self._settle_seconds)
            self._news.clear()
            if not all(part.tried for part in self._parts):
                continue
            found = self._found()
            if found != before:
                tell(found)
                before = found

    def _found(self) -> Found:
        pods = {key: one for part in self._parts for key, one in part.pods.items()}
        servers: list[FoundServer] = []
        notes: list[str] = []
        for key in sorted(pods):
            servers += pods[key].servers
            notes += pods[key].notes
        notes = [*self._remarks(pods), *notes][:_MOST_NOTES]
        errors = [part.error for part in self._parts if part.error is not None]
        lines = tuple(dict.fromkeys(errors))
        if errors and len(errors) == len(self._parts):
            return Found(tuple(servers), tuple(notes), "; ".join(lines[:3]))
        return Found(tuple(servers), (*lines, *notes))

    def _remarks(self, pods: Mapping[tuple[str, str], Served]) -> list[str]:
        remarks = []
        if any(part.too_many for part in self._parts):
            remarks.append(
                f"more than {MOST_PODS} pods: the others are left out; narrow it down with"
                " namespaces, label_selector or own_node"
            )
        chosen_by = self._config.label_selector
        if not pods and chosen_by is not None:
            remarks.append(f"no pod that runs fits label_selector {chosen_by}")
        lacking = sorted(key for key, one in pods.items() if not one.servers)
        if lacking and chosen_by is not None:
            port = self._config.port
            remarks.append(
                f"{len(lacking)} of {len(pods)} pods declare no port {port!r}, such as"
                f" {'/'.join(lacking[0])}"
            )
        return remarks
