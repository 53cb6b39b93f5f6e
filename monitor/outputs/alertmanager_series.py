"""What became of the pushed alerts -> their series on `/metrics`. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from monitor.outputs.alertmanager_queue import Delivered
from monitor.outputs.text_format import Page, pair


def add_deliveries(page: Page, deliveries: Iterable[Delivered]) -> None:
    """Add each Alertmanager's."""
    for one in deliveries:
        labels = pair("alertmanager", one.alertmanager)
        page.count("floorwatch_alerts_sent_total", labels, one.sent)
        for reason, times in one.failed:
            name = "floorwatch_alerts_failed_total"
            page.count(name, f"{labels},{pair('reason', reason)}", times)
        page.count("floorwatch_alerts_dropped_total", labels, one.dropped)
        page.add("floorwatch_alerts_queued", labels, one.queued)
        name = "floorwatch_alerts_last_success_timestamp_seconds"
        page.add(name, labels, one.last_success_wall_seconds)
