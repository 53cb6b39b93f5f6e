"""From an entry of `expectations/references` to a reference that can be scaled.

Rules of this file:

1. An entry is found by its whole id; nothing is looked up by model or GPU, since a throughput
   holds for its own lengths, parallelism and load only, and the operator knows which fits.
2. A floor judges generated tokens. An entry that counts prompt and generated tokens together
   is brought down by its lengths, is shown, and never gates.
3. A case report lacks conditions that would show whether it is comparable: it never gates.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from monitor.expectation.reference import Reference
from monitor.model import (
    Parallelism,
    ReferenceConfidence,
    ReferenceThroughput,
    Step,
    Unknown,
)


def published(
    wanted: str, references: Iterable[ReferenceThroughput]
) -> ReferenceThroughput | Unknown:
    """Find an entry by id."""
    known = {entry.id: entry for entry in references}
    found = known.get(wanted.strip().lower())
    if found is not None:
        return found
    near = difflib.get_close_matches(wanted, known, n=3)
    hint = f"nearest: {', '.join(near)}" if near else "add an entry, or give gpu and rate"
    return Unknown("floor", f"no reference {wanted!r} in expectations/references; {hint}")


def reference_of(
    entry: ReferenceThroughput,
    rule: str,
    time_shares: Mapping[str, float] | None = None,
    *,
    across_vendors: bool = False,
) -> Reference:
    """Give the entry as generated tokens/s per GPU, with what speaks against it."""
    rate = entry.tokens_per_second_per_gpu
    origin: tuple[Step, ...] = ()
    doubts: list[str] = []
    if entry.tokens == "total":
        lengths = entry.prompt_tokens + entry.output_tokens
        share = entry.output_tokens / lengths
        origin = (
            Step(
                "published",
                rate,
                "prompt and generated tokens/s per GPU",
                "counts both; a floor needs the generated part",
            ),
            Step("generated share", share, "", f"{entry.output_tokens:g} / {lengths:g} tokens"),
        )
        rate *= share
        doubts.append(
            "the reference counts prompt and generated tokens together, and its generated part is"
            " worked out from the lengths"
        )
    if entry.confidence is ReferenceConfidence.CASE_REPORT:
        doubts.append("the reference is a case report, without conditions that were checked")
    return Reference(
        gpu=entry.gpu,
        tokens_per_second=rate,
        precision=entry.precision,
        rule=rule,
        source=_words(entry),
        math_precision=entry.math_precision,
        time_shares=time_shares,
        across_vendors=across_vendors,
        origin=origin,
        doubts=tuple(doubts),
    )


def _words(entry: ReferenceThroughput) -> str:
    load = "all requests queued at once"
    if entry.load is not None:
        load = f"{entry.load_kind} {entry.load:g}"
    return (
        f"{entry.id}: {entry.model}, {_layout(entry.parallelism)},"
        f" {entry.prompt_tokens:g} prompt and {entry.output_tokens:g} generated tokens, {load},"
        f" {entry.engine} {entry.engine_version}; {entry.confidence}: {entry.conditions};"
        f" source: {'; '.join(entry.sources)}"
    )


def _layout(parallelism: Parallelism) -> str:
    parts = (
        ("tensor", parallelism.tensor_parallel),
        ("pipeline", parallelism.pipeline_parallel),
        ("data", parallelism.data_parallel),
        ("expert", parallelism.expert_parallel),
    )
    cut = ", ".join(f"{name} parallel {size}" for name, size in parts if size > 1)
    gpus = f"{parallelism.gpus} GPU{'s' if parallelism.gpus > 1 else ''}"
    return f"{gpus} ({cut})" if cut else gpus
