"""`floorwatch check`: one look at each target and GPU, and what was found."""

from __future__ import annotations

import json

from monitor.assembly import catalogue_doubts, catalogue_of, plan_of
from monitor.commands.console import say, show
from monitor.commands.loop import run_to_end
from monitor.config import Config
from monitor.model import Status
from monitor.outputs.report import check_report
from monitor.outputs.status_json import status_to_json
from monitor.pipeline import Plan
from monitor.probing import probe
from monitor.sources.nvml import Nvml, NvmlPoller


def check(config: Config, *, as_json: bool) -> int:
    """0: all well; 1: a target has a problem, or an id is not in the catalogue."""
    catalogue = catalogue_of(config)
    unknown = catalogue_doubts(config, catalogue)
    doubts = (*config.doubts(), *unknown)
    plan = plan_of(config, catalogue)
    status = run_to_end(look(config, plan))
    if as_json:
        for doubt in doubts:
            say(doubt)
        show(json.dumps(status_to_json(status), allow_nan=False))
    else:
        show(check_report(status, doubts))
    failed = any(target.problem is not None or not target.up for target in status.targets)
    return 1 if failed or unknown else 0


async def look(config: Config, plan: Plan) -> Status:
    """Look once at every target and GPU."""
    poller = NvmlPoller(Nvml())
    try:
        return await probe(config, plan, poller.read)
    finally:
        await poller.close()
