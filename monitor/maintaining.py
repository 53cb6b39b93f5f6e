"""An operator's maintenance of a target: begun for a time, prolonged, ended. Pure.

It is of the target's name: it outlives a restart, and the server moving to another address.
`maintenance: true` in the configuration is another matter, and only the file ends that one.
"""

from __future__ import annotations

from datetime import UTC, datetime

from monitor.model import Instant
from monitor.outputs.http import Refused, UnknownTarget
from monitor.pipeline import Plan, State, with_maintenance


def maintained(
    plan: Plan, state: State, target: str, seconds: float | None, now: Instant
) -> tuple[State, str]:
    """The state, and one line for whoever asked: no alarms for `seconds`; None: alarms again.

    Raises UnknownTarget, and Refused where the configuration holds the target in maintenance.
    """
    spec = plan.by_name.get(target)
    if spec is None:
        raise UnknownTarget(target)
    if seconds is not None:
        until = now.wall_seconds + seconds
        return with_maintenance(state, target, until), f"{target}: maintenance until {_utc(until)}"
    if spec.maintenance:
        raise Refused(
            f"{target}: the configuration says maintenance: true; take it out there and reload"
        )
    before = state.targets.get(target)
    until_before = None if before is None else before.maintenance_until
    was_on = until_before is not None and until_before > now.wall_seconds
    line = "maintenance ended" if was_on else "no maintenance was on"
    return with_maintenance(state, target, None), f"{target}: {line}"


def _utc(wall_seconds: float) -> str:
    return f"{datetime.fromtimestamp(wall_seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
