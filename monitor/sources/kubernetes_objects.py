"""Objects of the Kubernetes API: of their JSON only what discovery uses.

Rules of this file:

1. Fields are taken one by one, under our names; a pod may be a hundred times as large.
2. A field of the wrong form is not known (None, or no entry); it never spoils the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

GPU_RESOURCE = "nvidia.com/gpu"
LONGEST_ANNOTATION = 4096


def _known_or_none(value: Any, inner: ValidatorFunctionWrapHandler) -> Any:
    try:
        return inner(value)
    except ValidationError:
        return None


def _short(value: Any) -> Any:
    """A map of text without what is too long to be used (kubectl keeps a whole manifest)."""
    if not isinstance(value, Mapping):
        return {}
    return {
        key: text
        for key, text in value.items()
        if isinstance(key, str) and isinstance(text, str) and len(text) <= LONGEST_ANNOTATION
    }


_T = TypeVar("_T")
Lenient = WrapValidator(_known_or_none)
Text = Annotated[
    Annotated[str, Field(max_length=1024, pattern=r"^[^\x00-\x1f\x7f]*$")] | None, Lenient
]
ListOf = Annotated[list[Annotated[_T | None, Lenient]] | None, Lenient]
TextMap = Annotated[dict[str, str], BeforeValidator(_short)]


class Part(BaseModel):
    """A JSON object of which only the named fields are kept, under Kubernetes' names."""

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)


class Port(Part):
    """A port that a container declares."""

    name: Text = None
    number: Annotated[Annotated[int, Field(ge=1, le=65535)] | None, Lenient] = Field(
        default=None, alias="containerPort"
    )
    protocol: Text = None


class Resources(Part):
    """What a container may use at most."""

    limits: Annotated[dict[str, str | int] | None, Lenient] = None


class Container(Part):
    """A container of a pod; an init container that restarts always is a sidecar."""

    name: Text = None
    ports: ListOf[Port] = None
    resources: Annotated[Resources | None, Lenient] = None
    restart_policy: Text = Field(default=None, alias="restartPolicy")

    @property
    def gpus(self) -> int:
        """GPUs that it has by its limits."""
        limits = (self.resources and self.resources.limits) or {}
        text = str(limits.get(GPU_RESOURCE, 0))
        return int(text) if text.isascii() and text.isdecimal() and len(text) <= 5 else 0

    @property
    def tcp_ports(self) -> tuple[Port, ...]:
        """Its ports that can serve HTTP."""
        return tuple(
            port
            for port in self.ports or ()
            if port is not None and port.number is not None and port.protocol in (None, "TCP")
        )


class Owner(Part):
    """What made the pod."""

    kind: Text = None
    name: Text = None
    controller: Annotated[bool | None, Lenient] = None


class Metadata(Part):
    """Who a pod is. Of a bookmark, only `version` is told."""

    name: Text = None
    namespace: Text = None
    uid: Text = None
    version: Text = Field(default=None, alias="resourceVersion")
    deleted: Text = Field(default=None, alias="deletionTimestamp")
    labels: TextMap = Field(default_factory=dict)
    annotations: TextMap = Field(default_factory=dict)
    owners: ListOf[Owner] = Field(default=None, alias="ownerReferences")


class Spec(Part):
    """What a pod is to run, and where."""

    node: Text = Field(default=None, alias="nodeName")
    containers: ListOf[Container] = None
    init_containers: ListOf[Container] = Field(default=None, alias="initContainers")


class Condition(Part):
    """One condition of a pod, such as Ready."""

    type: Text = None
    status: Text = None


class State(Part):
    """How a pod is."""

    phase: Text = None
    pod_ip: Text = Field(default=None, alias="podIP")
    host_ip: Text = Field(default=None, alias="hostIP")
    conditions: ListOf[Condition] = None


class Pod(Part):
    """A pod, as far as it matters here."""

    metadata: Annotated[Metadata | None, Lenient] = None
    spec: Annotated[Spec | None, Lenient] = None
    status: Annotated[State | None, Lenient] = None

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name, which tell pods apart; both empty where it has none."""
        of = self.metadata or Metadata()
        return of.namespace or "", of.name or ""

    @property
    def containers(self) -> tuple[Container, ...]:
        """The containers that run as long as it does, sidecars among them."""
        spec = self.spec or Spec()
        sidecars = [
            one for one in spec.init_containers or () if one and one.restart_policy == "Always"
        ]
        return (*(one for one in spec.containers or () if one is not None), *sidecars)


class ListMetadata(Part):
    """At what version a list is, and where its next page begins."""

    version: Text = Field(default=None, alias="resourceVersion")
    more: Annotated[str | None, Lenient] = Field(default=None, alias="continue")


class PodPage(Part):
    """One page of a list of pods."""

    metadata: ListMetadata
    items: ListOf[Pod] = None


class Changed(Pod):
    """What a watch tells of: a pod, or (type ERROR) a status with its HTTP code."""

    code: Annotated[int | None, Lenient] = None


class WatchEvent(Part):
    """One line of a watch."""

    type: str
    object: Changed
