"""A throughput that somebody published, with all that makes it comparable."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class ReferenceConfidence(StrEnum):
    """How far a published throughput is to be trusted, best first."""

    AUDITED = "audited benchmark"
    VENDOR = "vendor-published"
    DERIVED = "derived"
    CASE_REPORT = "case report"


@dataclass(frozen=True, slots=True)
class Parallelism:
    """How a model lay over GPUs: `gpus` = tensor x pipeline x data parallel.

    Data parallel counts whole replicas and data-parallel attention alike; `expert_parallel`
    cuts the experts over GPUs that are counted already.
    """

    gpus: int
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    expert_parallel: int = 1


@dataclass(frozen=True, slots=True)
class ReferenceThroughput:
    """One published throughput on one kind of GPU (`gpu`: a catalogue id).

    `prompt_tokens` and `output_tokens` per request. `load_kind`: `max` (all requests queued at
    once, `load` None), `concurrency` (clients) or `batch` (mean running requests).
    `tokens_per_second_per_gpu` counts generated tokens (`output`) or prompt and generated
    tokens together (`total`). `math_precision` None: that of the weights.
    """

    id: str
    gpu: str
    model: str
    precision: str
    parallelism: Parallelism
    prompt_tokens: float
    output_tokens: float
    load_kind: Literal["max", "concurrency", "batch"]
    load: float | None
    tokens: Literal["output", "total"]
    tokens_per_second_per_gpu: float
    engine: str
    engine_version: str
    sources: tuple[str, ...]
    confidence: ReferenceConfidence
    conditions: str
    math_precision: str | None = None
