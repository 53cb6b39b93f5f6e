"""Which share of the expectation is the floor.

Of 91 healthy published rows none lies below 0.5 of what the model expects, and one lies below 0.6
(fit `2026-published`). Of 105, each source left out of the fit in force, one does, at 0.49
(`expectations/README.md`). Hence 0.5 until a server's own best is learned, and 0.6 of that best.
"""

from __future__ import annotations

from typing import NamedTuple

from monitor.model import JudgementSettings


class FloorShare(NamedTuple):
    """A share of the expectation, and how it comes about."""

    value: float
    because: str


def share_of(settings: JudgementSettings, calibration: float | None) -> FloorShare:
    """Give the share. `calibration`: the efficiency of this server when it is well, if learned."""
    if calibration is None:
        return FloorShare(
            settings.floor_share, "while nothing was learned of this server's own best"
        )
    share = settings.floor_share_calibrated
    return FloorShare(
        share * calibration,
        f"{share:g} x {calibration:.3g}, the efficiency that this server reaches when it is well",
    )
