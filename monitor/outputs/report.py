"""The text of `floorwatch check`: what was found, how, and what is not known and why.

Rules of this file:

1. Nothing is said twice, and what is not known is named with its reason.
2. Foreign text (model names, reasons) is stripped of control characters before it is shown.
3. No secrets: a URL's query stays unsaid.
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import shorten

from monitor.model import Floor, GpuStatus, Status, TargetStatus
from monitor.outputs.foreign_text import bounded

BECAUSE_WIDTH = 110
"""A step's sources fill pages; the status and the catalogue files have them in full."""


def check_report(status: Status, doubts: tuple[str, ...] = ()) -> str:
    """One block per target and one line per GPU, plain text."""
    lines = [f"warning: {doubt}" for doubt in doubts]
    lines += [f"discovery: {note}" for note in status.discovery_notes]
    for target in status.targets:
        lines += [*_target(target), ""]
    if not status.targets:
        lines += ["no server is configured, and none was found", ""]
    if status.nvml_up:
        lines += [_gpu(gpu) for gpu in status.gpus] or ["this host has no GPUs"]
    else:
        lines.append(f"GPUs: unknown: {status.nvml_reason}")
    return "\n".join(map(_clean, lines))


def _target(target: TargetStatus) -> Iterator[str]:
    state = "ok" if target.up else "PROBLEM"
    address = target.url.partition("?")[0]
    yield f"{target.name} ({address}): {state}"
    if target.problem is not None:
        yield f"  {target.problem.reason.value}: {target.problem.detail}"
        if target.problem.hint:
            yield f"  try: {target.problem.hint}"
    if target.found:
        yield f"  found      {target.found}"
    yield from _server(target)
    names = ", ".join(
        f"{'GPU ' + str(gpu.gpu) if gpu.gpu is not None else gpu.uuid} {gpu.name}".strip()
        for gpu in target.gpus
    )
    count = "unknown" if target.gpu_count is None else str(target.gpu_count)
    here = sum(gpu.gpu is not None or gpu.uuid != "" for gpu in target.gpus)
    if target.gpu_count is not None and 0 < here < target.gpu_count:
        count += f" GPUs, {here} of them on this host"
    yield f"  GPUs       {count}{': ' + names if names else ''}"
    for floor in target.expectation.floors:
        yield from _floor(floor, in_force=floor is target.expectation.in_force)
    for line in target.unknown:
        # The target itself: said above, as the problem.
        if line.what != "target":
            yield f"  unknown    {line.what}: {line.reason}"
    for note in target.notes:
        yield f"  note       {note}"


def _server(target: TargetStatus) -> Iterator[str]:
    if target.engine is not None:
        version = target.engine_version or "version unknown"
        yield f"  engine     {target.engine} {version}, model {bounded(target.model) or 'unknown'}"
        precision = target.precision or "unknown"
        yield f"  precision  {precision}, KV cache {target.kv_cache_dtype or 'unknown'}"
        sizes = (target.tensor_parallel, target.pipeline_parallel, target.data_parallel)
        tensor, pipeline, data = ("unknown" if size is None else size for size in sizes)
        experts = "" if target.expert_parallel is None else f", expert {target.expert_parallel}"
        yield f"  parallel   tensor {tensor}, pipeline {pipeline}, data {data}{experts}"
    if target.up:
        running, waiting = _number(target.requests_running), _number(target.requests_waiting)
        yield f"  load       {running} running, {waiting} waiting"
        yield f"  tokens     counted by {target.token_source or 'nothing yet'}"


def _floor(floor: Floor, *, in_force: bool) -> Iterator[str]:
    mark = "in force" if in_force else "known"
    yield (
        f"  floor      {floor.tokens_per_second:.1f} tokens/s per GPU "
        f"by rule {floor.rule.value} ({mark})"
    )
    for step in floor.steps:
        unit = f" {step.unit}" if step.unit else ""
        because = shorten(step.because, BECAUSE_WIDTH, placeholder=" ...")
        yield f"             {step.what}: {step.value:.6g}{unit} ({because})"
    if floor.why_not:
        yield f"             may not judge: {floor.why_not}"


def _gpu(gpu: GpuStatus) -> str:
    reading = gpu.reading
    if not gpu.up:
        return f"GPU {reading.index} {reading.uuid or ''}: LOST: {reading.error}"
    entry = gpu.catalogue_id or "not in the catalogue"
    memory = reading.memory_total_bytes
    size = "" if memory is None else f", {memory / 2**30:.0f} GiB"
    users = f", serves {', '.join(gpu.targets)}" if gpu.targets else ""
    return f"GPU {reading.index} {reading.name or 'unnamed'} ({entry}){size}{users}"


def _clean(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0f}"
