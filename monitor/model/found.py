"""What discovery found: servers to watch, and how each was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A server that a discovery source found.

    `url`: the address of its metrics page. `name`: what to call it; None: its address' short form.
    `how`: one line for people, how it was found. `labels`: added to its series. `settings`: keys
    of a target in the configuration, as text (`gpu`, `model`, ...); what the operator wrote for
    the same address wins.
    Of a server of this host: `local` is true (another host's paths and GPUs mean nothing here),
    `gpus` are the UUIDs of the GPUs and MIG slices that its processes hold, None where that is
    not known, with `gpus_because` saying how that is known or why not.
    """

    url: str
    name: str | None = None
    how: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    local: bool = False
    gpus: tuple[str, ...] | None = None
    gpus_because: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """All that one source knows at a time; each replaces the one before it.

    `notes`: one line each on what is ambiguous, what was found and cannot be watched, and which
    right would tell more. `error`: the source failed, and `servers` are those it knew before.
    """

    servers: tuple[FoundServer, ...] = ()
    notes: tuple[str, ...] = ()
    error: str | None = None
