"""Target groups, as Prometheus' file_sd and http_sd have them -> servers to watch.

A list: [{"targets": ["10.0.0.1:8000"], "labels": {"pod": "a", "__metrics_path__": "/m"}}].

Rules of this file (pure):

1. As for Prometheus: `__scheme__`, `__metrics_path__` and `__param_<name>` make the address;
   labels that begin with `__` go no further, the others become labels of the server's series.
   A name that is Floorwatch's own (`gpu`) becomes `exported_gpu`. An empty label is no label.
2. Unlike for Prometheus, which refuses the whole list: a group, target or label that is not well
   costs only itself, and is told in one line. A label that belongs to the address costs its group.
3. `__floorwatch_<key>__` (`__floorwatch_gpu__`; the last two underscores may be left out) is that
   key of a target in the configuration. How a server is asked (credentials, headers, TLS) is
   never the list's to say.
4. A target is HOST:PORT: no URL, no unix socket, no path, no credentials, and none of the
   addresses at which clouds tell their machines' secrets. Names are not resolved here.
5. Of an address that stands twice the first counts.

Labels of a server, later ones win: the list's, `labels`, `label_names`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, urlencode

from monitor.config import addresses
from monitor.config.discovery import FromLists
from monitor.config.errors import Place, dotted, nearest, quoted, shown
from monitor.config.target import LONGEST_NAME, OWN_LABELS, RESERVED_NAMES
from monitor.model import FoundServer
from monitor.sources.target_address import TargetRefused, address_identity

SETTINGS = (
    "gpu",
    "gpu_count",
    "model",
    "precision",
    "role",
    "tensor_parallel",
    "pipeline_parallel",
    "data_parallel",
    "intended_max_running",
    "backlog_tokens",
    "maintenance",
)
"""Keys of a target that a list may set. `gpus` is none: it names GPUs of this host."""

MOST_TARGETS = 20_000
MOST_LABELS = 50
MOST_FAULTS = 20
LONGEST_FAULT = 300
LONGEST_VALUE = 200
"""As for an operator's own labels."""
LONGEST_INNER_VALUE = 2000
"""Of labels that begin with `__`: paths, query parameters, what discovery tells."""

_ADDRESS, _SCHEME, _PATH, _PARAM = "__address__", "__scheme__", "__metrics_path__", "__param_"
_SETTING = "__floorwatch_"
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)


def unusable(groups: Any) -> str | None:
    """Why a list cannot be used as a whole: it is none, or too long. None: it can."""
    if not isinstance(groups, list):
        return f'expected a list such as [{{"targets": ["10.0.0.1:8000"]}}], got {shown(groups)}'
    told = (group.get("targets") for group in groups if isinstance(group, Mapping))
    count = sum(len(targets) for targets in told if isinstance(targets, list))
    if count > MOST_TARGETS:
        return f"{count} targets, expected {MOST_TARGETS} at most; part the list"
    return None


def servers_of(
    groups: Any, config: FromLists, where: str, discovered: Mapping[str, str] | None = None
) -> tuple[tuple[FoundServer, ...], tuple[str, ...]]:
    """The servers of a list, in its order, and one line for each thing that is not well.

    `where` names the list in messages; `discovered` are labels that the way of discovery adds to
    every group, such as `__meta_filepath`. Never raises.
    """
    faults = _Faults(where)
    whole = unusable(groups)
    if whole is not None:
        faults.add((), whole)
        return (), faults.lines()
    servers: dict[str, FoundServer] = {}
    for number, raw in enumerate(groups):
        group = _group(raw, (number,), config, discovered or {}, faults)
        if group is None:
            continue
        for index, target in enumerate(group.targets):
            place = (number, "targets", index)
            try:
                identity = address_identity(group.scheme, target) + group.tail
            except TargetRefused as fault:
                faults.add(place, str(fault))
                continue
            server = group.server(target, where, config)
            if servers.setdefault(identity, server) != server:
                faults.add(place, f"{quoted(target)} stands in the list before; the first counts")
    return _named_apart(list(servers.values()), config, faults), faults.lines()


class _Faults:
    """The faults of one list: the first ones by word, the rest by number."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._first: list[str] = []
        self._more = 0

    def add(self, place: Place, fault: str) -> None:
        if len(self._first) < MOST_FAULTS:
            at = f"{self._where}: {dotted(place)}" if place else self._where
            self._first.append(f"{at}: {fault[:LONGEST_FAULT]}")
        else:
            self._more += 1

    def lines(self) -> tuple[str, ...]:
        more = (f"{self._where}: {self._more} more faults",) if self._more else ()
        return (*self._first, *more)


@dataclass(frozen=True, slots=True)
class _Group:
    """A group of which all is checked but its targets. `tail`: path and query of the address."""

    targets: Sequence[Any]
    scheme: str = "http"
    tail: str = addresses.METRICS_PATH
    name: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)

    def server(self, target: str, where: str, config: FromLists) -> FoundServer:
        from_address = {
            ours: target
            for ours, source in config.label_names.items()
            if source == _ADDRESS and len(target) <= LONGEST_VALUE
        }
        return FoundServer(
            url=f"{self.scheme}://{target}{self.tail}",
            name=_name(target) if config.name_label == _ADDRESS else self.name,
            how=f"listed in {where}",
            labels={**self.labels, **from_address} if from_address else self.labels,
            settings=self.settings,
        )


def _group(
    raw: Any, place: Place, config: FromLists, discovered: Mapping[str, str], faults: _Faults
) -> _Group | None:
    if not isinstance(raw, Mapping):
        faults.add(place, f"expected a map with targets and labels, got {shown(raw)}")
        return None
    for key in raw:
        if key not in ("targets", "labels"):
            known = nearest(str(key), ["targets", "labels"])
            faults.add((*place, str(key)), f"unknown key; {known}")
    targets, given = raw.get("targets"), raw.get("labels")
    if targets is not None and not isinstance(targets, list):
        faults.add((*place, "targets"), f"expected a list of HOST:PORT, got {shown(targets)}")
        return None
    if given is not None and not isinstance(given, Mapping):
        faults.add((*place, "labels"), f"expected a map of labels to text, got {shown(given)}")
        return None
    labels = {}
    for name, value in (given or {}).items():
        if value is None or value == "":
            continue
        fault = _label_fault(name, value)
        if fault is None:
            labels[name] = value
            continue
        faults.add((*place, "labels", str(name)), fault)
        if name in (_SCHEME, _PATH) or str(name).startswith(_PARAM):
            return None
    return _checked(targets or (), {**labels, **discovered}, place, config, faults)


def _label_fault(name: Any, value: Any) -> str | None:
    if not isinstance(name, str) or not _LABEL.fullmatch(name):
        return "expected a label name of letters, digits and _ (not first a digit)"
    if not isinstance(value, str):
        return f"expected text, got {shown(value)}; put it in quotes"
    longest = LONGEST_INNER_VALUE if name.startswith("__") else LONGEST_VALUE
    if not value.strip() or not value.isprintable() or len(value) > longest:
        return f"expected printable text of 1 to {longest} characters"
    if name == _SCHEME and value.lower() not in ("http", "https"):
        return f"expected http or https, got {quoted(value)}"
    return None


def _checked(
    targets: Sequence[Any],
    labels: Mapping[str, str],
    place: Place,
    config: FromLists,
    faults: _Faults,
) -> _Group:
    """The group, from labels each of which is well."""
    asked = {
        name.removeprefix(_PARAM): value
        for name, value in sorted(labels.items())
        if name.startswith(_PARAM) and name != _PARAM
    }
    path = "/" + labels.get(_PATH, addresses.METRICS_PATH).removeprefix("/")
    # A bare / would be read as no path, which means the usual one.
    path = quote(path, safe="/:!$&'()*+,;=~") if path != "/" else "/."
    kept = dict(_carried(labels))
    if len(kept) > MOST_LABELS:
        faults.add((*place, "labels"), f"{len(kept)} labels, expected {MOST_LABELS} at most")
        kept = dict(list(kept.items())[:MOST_LABELS])
    name, told = _asked_for(labels, place, config, faults)
    return _Group(
        targets=targets,
        scheme=labels.get(_SCHEME, "http").lower(),
        tail=f"{path}?{urlencode(asked)}" if asked else path,
        name=name,
        labels={**kept, **config.labels, **told},
        settings=_settings(labels, place, faults),
    )


def _asked_for(
    labels: Mapping[str, str], place: Place, config: FromLists, faults: _Faults
) -> tuple[str | None, dict[str, str]]:
    """The name by `name_label`, and the labels of `label_names`, where the group has them."""
    name, source = None, config.name_label
    if source is not None and source in labels:
        name = _name(labels[source])
        if name is None:
            faults.add((*place, "labels", source), "fit for no name; the address is taken")
    told = {}
    for ours, source in config.label_names.items():
        if source not in labels:
            continue
        fault = _label_fault(ours, labels[source])
        if fault is None:
            told[ours] = labels[source]
        else:
            faults.add((*place, "labels", source), f"as label {ours}: {fault}")
    return name, told


def _carried(labels: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in labels.items():
        if name.startswith("__"):
            continue
        free = name
        while free in OWN_LABELS or (free != name and free in labels):
            free = f"exported_{free}"
        yield free, value


def _settings(labels: Mapping[str, str], place: Place, faults: _Faults) -> dict[str, str]:
    settings = {}
    for name, value in labels.items():
        if not name.startswith(_SETTING):
            continue
        key = name.removeprefix(_SETTING).removesuffix("__")
        if key in SETTINGS:
            settings[key] = value.strip()
        else:
            faults.add((*place, "labels", name), f"unknown; {nearest(key, SETTINGS)}")
    return settings


def _name(text: str) -> str | None:
    """A name that a target may have, from a label's text; None where it makes none."""
    name = text.strip().replace("/", ".").lstrip(".").strip()
    fit = name and name.isprintable() and len(name) <= LONGEST_NAME
    return name if fit and name not in RESERVED_NAMES else None


def _named_apart(
    servers: Sequence[FoundServer], config: FromLists, faults: _Faults
) -> tuple[FoundServer, ...]:
    """The servers, those that share a name without it: their addresses tell them apart."""
    bearers = Counter(server.name for server in servers if server.name is not None)
    for name, count in bearers.items():
        if count > 1:
            faults.add(
                (),
                f"{count} servers have the {config.name_label} {quoted(name)};"
                " their addresses name them",
            )
    return tuple(
        replace(server, name=None) if bearers[server.name or ""] > 1 else server
        for server in servers
    )
