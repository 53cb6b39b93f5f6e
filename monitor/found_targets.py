"""The configuration's targets and those that were found: which servers are watched.

Rules of this file (no I/O, no clock):

1. What the operator wrote wins: a server that `targets:` names is not found a second time. But
   the GPUs that its processes were seen on are taken over.
2. An address is watched once, whichever source names it first; `defaults:` hold for the found
   ones too.
3. One find that cannot be a target costs only itself, and is told of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from monitor.config import Config, TargetConfig
from monitor.config.errors import lines
from monitor.model import Found, FoundServer

MOST_NOTES = 50


@dataclass(frozen=True, slots=True)
class Watched:
    """The targets to watch. `found`: by a target's name, what discovery saw of it."""

    targets: tuple[TargetConfig, ...] = ()
    found: Mapping[str, FoundServer] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Merging:
    """Joins a configuration with what is found; remembers the checked finds, for speed alone."""

    def __init__(self) -> None:
        self._checked: dict[str, tuple[FoundServer, TargetConfig | str]] = {}

    def watched(self, config: Config, finds: Mapping[str, Found]) -> Watched:
        """What to watch. `finds`: what each source told last, by the source's name."""
        targets = {target.name: target for target in config.targets}
        by_address = {target.address.same_server_hint: target for target in config.targets}
        found: dict[str, FoundServer] = {}
        notes: list[str] = []
        checked: dict[str, tuple[FoundServer, TargetConfig | str]] = {}
        for source, server in _servers(finds):
            key = f"{source} {server.url}"
            target = self._target(config, key, server)
            checked[key] = (server, target)
            if isinstance(target, str):
                notes.append(f"{source}: {target}")
                continue
            known = by_address.get(target.address.same_server_hint)
            if known is not None:
                if server.local and known.name not in found:
                    found[known.name] = server
                continue
            name = _free_name(target, targets)
            if name is None:
                notes.append(
                    f"{source}: {target.shown}: another target has this name; it is not watched"
                )
                continue
            target = target.model_copy(update={"name": name})
            targets[name] = by_address[target.address.same_server_hint] = target
            found[name] = server
        self._checked = checked
        for source, one in finds.items():
            notes += [f"{source}: {one.error}"] if one.error is not None else []
            notes += one.notes
        return Watched(tuple(targets.values()), found, _bounded(notes))

    def forget(self) -> None:
        """Check every find anew: the configuration changed."""
        self._checked = {}

    def _target(self, config: Config, key: str, server: FoundServer) -> TargetConfig | str:
        before = self._checked.get(key)
        if before is not None and before[0] == server:
            return before[1]
        return target_of(config, server)


def target_of(config: Config, server: FoundServer) -> TargetConfig | str:
    """A find as a target; a line that says why it is none."""
    told: dict[str, Any] = {
        # A list's values are text, a configuration's may be numbers.
        **{key: int(text) if text.isdecimal() else text for key, text in server.settings.items()},
        "url": server.url,
        "labels": {**config.defaults.labels, **server.labels},
    }
    if server.name is not None:
        told["name"] = server.name
    try:
        target = TargetConfig.model_validate(told)
    except ValidationError as error:
        return "; ".join(lines(error, TargetConfig, lambda place: _place(server, place)))
    # Checked already, where they stand.
    left = config.defaults.model_fields_set - target.model_fields_set
    return target.model_copy(update={key: getattr(config.defaults, key) for key in left})


def _place(server: FoundServer, place: tuple[int | str, ...]) -> str:
    return ".".join([server.url.partition("?")[0], *map(str, place)])


def _servers(finds: Mapping[str, Found]) -> Iterator[tuple[str, FoundServer]]:
    for source, found in finds.items():
        for server in found.servers:
            yield source, server


def _free_name(target: TargetConfig, taken: Mapping[str, TargetConfig]) -> str | None:
    """Its own name, else its address; None: both are taken."""
    for name in (target.name, target.address.display):
        if name not in taken:
            return name
    return None


def _bounded(notes: Iterable[str]) -> tuple[str, ...]:
    """The notes, each once and not too many."""
    every = tuple(dict.fromkeys(notes))
    if len(every) <= MOST_NOTES:
        return every
    return (*every[: MOST_NOTES - 1], f"and {len(every) - MOST_NOTES + 1} more notes")
