"""What outlives the process: from the state to what is kept, and back. Pure, part of the core.

Rules of this file:

1. Kept are the servers that discovery found, the alarms that are on with their since, what a
   server's verdict was, findings, GPUs that are lost or at fault, what was learned, what the
   faults cost, and the operator's maintenance. Counters and windows are not: the first pages give
   new ones.
2. A recalled alarm stays on with its since until something is judged; it is blind until then,
   and like any blind alarm it is forgotten once nothing was judged for the long window.
3. Monotonic times are kept as they are, with the moment of saving. In the same boot of the host
   that clock has gone on. In another one the wall clock says how long nobody watched; set back,
   it says 0. No recalled time lies in the future.
4. A target that left the plan is forgotten. At another address another server answers: of it
   only the maintenance stays, for that is of the name.
5. Whatever else is kept holds wall times only, or its monotonic times are named here, in
   `_recalled` and `_fleet`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from monitor.fleet import Fleet, saw_round
from monitor.judgement.cost import Backlog
from monitor.judgement.drift import Drift
from monitor.judgement.findings import Found
from monitor.judgement.hysteresis import Raised
from monitor.judgement.learning import Learned
from monitor.judgement.verdict import Judged
from monitor.known_servers import Known
from monitor.model import Cost, GpuReading, GpuRound, Instant, Status, TargetSpec, Verdict
from monitor.pipeline import Plan, State
from monitor.target_state import TargetState
from monitor.throughput.gpu_health import GpuHealth

_NOT_LISTED = "NVML no longer lists this GPU"


@dataclass(frozen=True, slots=True)
class _Again:
    """When it was saved, the present, and how long nobody watched in between."""

    saved: Instant
    now: Instant
    away_seconds: float

    def shifted(self, then: float) -> float:
        """A monotonic time of the saved clock on the present one."""
        age = self.saved.monotonic_seconds - then + self.away_seconds
        return self.now.monotonic_seconds - max(0.0, age)

    def shifted_instant(self, then: Instant) -> Instant:
        """The same for a moment on both clocks."""
        return replace(then, monotonic_seconds=self.shifted(then.monotonic_seconds))


@dataclass(frozen=True, slots=True)
class TargetMemory:
    """What is kept of one target. `identity` names its address without giving it away."""

    identity: str
    verdict: Verdict | None = None
    since: float | None = None
    since_wall_seconds: float = 0.0
    raised: Raised | None = None
    last_success: Instant | None = None
    learned: Learned = Learned()
    drift: Drift = Drift()
    found: Found = Found()
    cost: Cost = Cost()
    backlog: Backlog = Backlog()
    maintenance_until: float | None = None


@dataclass(frozen=True, slots=True)
class LostGpu:
    """A GPU that was lost, by its identity, and since when (Unix time)."""

    index: int
    uuid: str | None = None
    name: str | None = None
    pci_bus_id: str | None = None
    error: str | None = None
    since_wall_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Memory:
    """Everything that is kept.

    `at`: the moment of saving; `boot`: which boot of the host; `gpu_health`: by UUID, else index;
    `servers`: what discovery had found.
    """

    at: Instant
    boot: str | None = None
    targets: Mapping[str, TargetMemory] = field(default_factory=dict)
    lost_gpus: tuple[LostGpu, ...] = ()
    gpu_health: Mapping[str, GpuHealth] = field(default_factory=dict)
    servers: Known = field(default_factory=dict)


def remember(plan: Plan, state: State, status: Status, boot: str | None) -> Memory:
    """What to keep after the tick that gave this status."""
    return Memory(
        at=status.at,
        boot=boot,
        targets={
            spec.name: _kept(spec, state.targets[spec.name])
            for spec in plan.targets
            if spec.name in state.targets
        },
        lost_gpus=tuple(
            LostGpu(
                index=gpu.reading.index,
                uuid=gpu.reading.uuid,
                name=gpu.reading.name,
                pci_bus_id=gpu.reading.pci_bus_id,
                error=gpu.reading.error,
                since_wall_seconds=gpu.since_wall_seconds,
            )
            for gpu in status.gpus
            if not gpu.up
        ),
        # Which counters stand still is seen anew in the first round.
        gpu_health={key: replace(health, stopped=()) for key, health in state.fleet.health.items()},
        servers=state.known,
    )


def recall(plan: Plan, memory: Memory, now: Instant, boot: str | None) -> State:
    """The state to start with, `now` in this `boot`."""
    again = _Again(memory.at, now, away_seconds(memory, now, boot))
    forgotten = again.away_seconds > plan.settings.long_window_seconds
    return State(
        targets={
            spec.name: _recalled(spec, kept, again, forgotten=forgotten)
            for spec in plan.targets
            if (kept := memory.targets.get(spec.name)) is not None
        },
        fleet=_fleet(() if forgotten else memory.lost_gpus, memory.gpu_health, again),
        known=memory.servers,
    )


def away_seconds(memory: Memory, now: Instant, boot: str | None) -> float:
    """How long ago it was saved, never below 0."""
    if boot is not None and boot == memory.boot:
        away = now.monotonic_seconds - memory.at.monotonic_seconds
        if away >= 0.0:
            return away
    return max(0.0, now.wall_seconds - memory.at.wall_seconds)


def identity_of(spec: TargetSpec) -> str:
    """A target's address as a fingerprint: its query may hold a token."""
    return hashlib.blake2b(spec.url.encode(), digest_size=12).hexdigest()


def _kept(spec: TargetSpec, state: TargetState) -> TargetMemory:
    judged = state.judged
    return TargetMemory(
        identity=identity_of(spec),
        verdict=judged.verdict,
        since=judged.since,
        since_wall_seconds=judged.since_wall_seconds,
        raised=judged.raised,
        last_success=state.last_success,
        # The time of the last tick is no news; without it an idle server costs no writing.
        learned=replace(state.learned, seen_at=None),
        drift=state.drift,
        found=replace(state.found, check_off_since=None),
        cost=state.cost,
        backlog=state.backlog,
        maintenance_until=state.maintenance_until,
    )


def _recalled(
    spec: TargetSpec, kept: TargetMemory, again: _Again, *, forgotten: bool
) -> TargetState:
    until = _bounded(kept.maintenance_until, again)
    if kept.identity != identity_of(spec):
        return TargetState(maintenance_until=until)
    state = TargetState(
        learned=kept.learned,
        drift=kept.drift,
        cost=kept.cost,
        # Totals begin at 0 with the daemon.
        backlog=replace(kept.backlog, counted_tokens=0.0),
        maintenance_until=until,
    )
    if forgotten:
        return state
    raised, success = kept.raised, kept.last_success
    if raised is not None:
        # Nobody saw whether it was well meanwhile.
        judged_at = again.shifted(raised.judged_at)
        raised = replace(raised, judged_at=judged_at, well_since=None, recalled=True)
    return replace(
        state,
        judged=Judged(
            verdict=kept.verdict,
            since=None if kept.since is None else again.shifted(kept.since),
            since_wall_seconds=kept.since_wall_seconds,
            raised=raised,
        ),
        last_success=None if success is None else again.shifted_instant(success),
        found=replace(
            kept.found,
            kept={
                name: replace(finding, held_at=again.shifted(finding.held_at))
                for name, finding in kept.found.kept.items()
            },
        ),
    )


def _bounded(until: float | None, again: _Again) -> float | None:
    """The end of a maintenance: never later from now than it was from the saving."""
    if until is None:
        return None
    now = again.now.wall_seconds
    bounded = min(until, now + max(0.0, until - again.saved.wall_seconds))
    return bounded if bounded > now else None


def _fleet(lost: tuple[LostGpu, ...], health: Mapping[str, GpuHealth], again: _Again) -> Fleet:
    """A fleet that was not read yet, but knows which GPUs were lost or at fault."""
    fleet, fresh = Fleet(), Fleet()
    readings: tuple[GpuReading, ...] = ()
    for gpu in lost:
        reading = GpuReading(
            index=gpu.index,
            uuid=gpu.uuid,
            name=gpu.name,
            pci_bus_id=gpu.pci_bus_id,
            error=gpu.error or _NOT_LISTED,
        )
        readings = (*readings, reading)
        at = replace(again.now, wall_seconds=gpu.since_wall_seconds)
        fleet = saw_round(fleet, GpuRound(at, readings))
    return replace(
        fleet,
        nvml_up=fresh.nvml_up,
        reason=fresh.reason,
        at=fresh.at,
        health={
            key: replace(
                one,
                events=tuple(
                    replace(event, at=again.shifted_instant(event.at)) for event in one.events
                ),
            )
            for key, one in health.items()
        },
    )
