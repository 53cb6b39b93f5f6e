"""`floorwatch gpus`: the catalogue with provenance, and what it lacks of this host's GPUs."""

from __future__ import annotations

import datetime as dt
import json
import time

from monitor.assembly import catalogue_of
from monitor.commands.console import say, show, width
from monitor.config import Config
from monitor.config.errors import ConfigInvalid
from monitor.expectation.matching import Catalogue, match
from monitor.expectation.nvml_facts import (
    bandwidth_from_nvml,
    multiprocessors_from_nvml,
    pci_device_id,
)
from monitor.expectation.runtime_check import is_listed, shape_words
from monitor.model import GpuReading, GpuRound, GpuSpec, Instant, Unknown
from monitor.outputs.catalogue import catalogue_table, gpu_page, gpu_to_json
from monitor.outputs.catalogue_entry import catalogue_entry
from monitor.sources.nvml import Nvml


def gpus(config: Config, gpu_id: str | None, *, missing: bool, as_json: bool) -> int:
    """Show the list, one entry, or a file to fill in for each GPU of this host that is missing."""
    if missing and gpu_id is not None:
        raise ConfigInvalid(["gpus: --missing looks at this host's GPUs; leave out the ID"])
    catalogue = catalogue_of(config)
    if missing:
        _show_missing(read_gpus(), catalogue, as_json=as_json)
    elif gpu_id is not None:
        spec = entry_of(gpu_id, catalogue)
        show(_json(gpu_to_json(spec)) if as_json else gpu_page(spec, width()))
    elif as_json:
        show(_json({"gpus": [gpu_to_json(spec) for spec in catalogue.specs]}))
    else:
        show(catalogue_table(catalogue.specs))
    return 0


def entry_of(gpu_id: str, catalogue: Catalogue, where: str = "gpus") -> GpuSpec:
    """Find an entry. Raises ConfigInvalid with the nearest ids."""
    spec = catalogue.by_id(gpu_id)
    if isinstance(spec, Unknown):
        raise ConfigInvalid([f"{where}: {spec.reason}; floorwatch gpus lists them"])
    return spec


def read_gpus() -> GpuRound:
    """Read NVML once; without a driver the round has an error."""
    at = Instant(time.monotonic(), time.time())
    nvml = Nvml(gpm=False)
    reason = nvml.connect()
    if reason is not None:
        return GpuRound(at, error=reason)
    try:
        return nvml.read(at)
    finally:
        nvml.close()


def _show_missing(seen: GpuRound, catalogue: Catalogue, *, as_json: bool) -> None:
    known: dict[int, str] = {}
    unreadable: dict[int, str] = {}
    entries: dict[str, list[int]] = {}
    for reading in seen.gpus:
        found = match(reading, catalogue)
        if reading.error is not None:
            unreadable[reading.index] = reading.error
        elif isinstance(found, GpuSpec) and is_listed(reading, found):
            known[reading.index] = found.id
        else:
            # GPUs of one kind need one file. One that is known by its shape alone needs it too.
            reason = found.reason if isinstance(found, Unknown) else shape_words(reading, found)
            entries.setdefault(_entry(reading, reason, seen), []).append(reading.index)
    if as_json:
        document = {
            "nvml": {"up": seen.error is None, "reason": seen.error},
            "known": [{"gpu": index, "id": gpu_id} for index, gpu_id in known.items()],
            "unreadable": [{"gpu": index, "reason": why} for index, why in unreadable.items()],
            "missing": [{"gpus": indices, "toml": text} for text, indices in entries.items()],
        }
        show(_json(document))
        return
    if seen.error is not None:
        show(f"GPUs of this host: unknown: {seen.error}")
        return
    for index, why in unreadable.items():
        say(f"GPU {index} cannot be read: {why}")
    for text, indices in entries.items():
        say(f"missing: GPU {', '.join(map(str, indices))}")
        show(f"{text}\n")
    if not seen.gpus:
        show("this host has no GPUs")
    elif not entries and not unreadable:
        told = ", ".join(f"GPU {index} {gpu_id}" for index, gpu_id in known.items())
        show(f"the catalogue knows every GPU of this host: {told}")


def _entry(reading: GpuReading, reason: str, seen: GpuRound) -> str:
    return catalogue_entry(
        reading,
        pci_device_id=pci_device_id(reading.pci_device_id),
        bandwidth_bytes_per_second=bandwidth_from_nvml(reading),
        reason=reason,
        multiprocessors=multiprocessors_from_nvml(reading),
        today=dt.datetime.fromtimestamp(seen.at.wall_seconds, dt.UTC).date(),
    )


def _json(document: object) -> str:
    return json.dumps(document, allow_nan=False)
