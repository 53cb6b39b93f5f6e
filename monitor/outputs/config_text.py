"""What a look found, as a configuration that states it: `floorwatch check --write-config`.

Rules of this file:

1. Only what is known is written; what is not is left to be found out, and said in a comment.
2. Foreign text (names, reasons) is made one printable line, values are quoted as YAML needs it.
"""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from monitor.model import Status, TargetStatus

_HEAD = """\
# Written by `floorwatch check --write-config`: what was found, stated.
# A key that is taken out is found out anew.
targets:
"""


def config_text(status: Status) -> str:
    """The configuration's text: each target with its address, GPUs, precision and parallelism."""
    notes = [f"# note: {_line(note)}\n" for note in status.discovery_notes]
    targets = [line for target in status.targets for line in _target(target)]
    body = _HEAD + "\n".join(targets) if targets else "# No server was found.\ntargets: []"
    return "".join(notes) + body + "\n"


def _target(target: TargetStatus) -> Iterator[str]:
    if target.found:
        yield f"  # {_line(target.found)}"
    if target.engine is not None:
        version = target.engine_version or "version unknown"
        yield f"  # {target.engine} {_line(version)}, model {_line(target.model or 'unknown')}"
    known = {key: value for key, value in _keys(target).items() if value is not None}
    for place, (key, value) in enumerate(known.items()):
        yield f"  {' ' if place else '-'} {key}: {_flow(value)}"
    for line in target.unknown:
        if line.what != "target":
            yield f"    # unknown: {_line(line.what)}: {_line(line.reason)}"


def _keys(target: TargetStatus) -> dict[str, object]:
    uuids = [share.uuid for share in target.gpus if share.uuid]
    listed = uuids if len(uuids) == len(target.gpus) else []
    return {
        "name": target.name,
        "url": target.url,
        "gpus": listed or None,
        "gpu_count": None if target.gpu_count == len(listed) else target.gpu_count,
        "precision": target.precision,
        "role": target.role,
        "tensor_parallel": target.tensor_parallel,
        "pipeline_parallel": target.pipeline_parallel,
        "data_parallel": target.data_parallel,
        "labels": dict(target.labels) or None,
    }


def _flow(value: object) -> str:
    """One value as YAML writes it, on one line."""
    text = yaml.safe_dump(value, width=10**6, allow_unicode=True, default_flow_style=True)
    return text.removesuffix("...\n").strip()


def _line(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)
