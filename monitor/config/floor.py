"""The operator's floor for a target: one of three forms, always per GPU."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import PlainValidator, model_validator

from monitor.config.errors import shown
from monitor.config.values import (
    GpuId,
    PositiveNumber,
    Section,
    Text,
    choice,
    is_number,
    share,
)
from monitor.model import FloorSpec

PRECISIONS = ("bf16", "fp16", "fp8", "nvfp4", "mxfp4", "fp4", "int8", "int4", "fp32", "tf32")
NO_SOURCE = "operator's figure, no source given"

_FORMS = (
    "write tokens_per_second: 875, or at_least: 25% with of: {gpu, tokens_per_second}, "
    "or reference: {gpu, tokens_per_second, precision}"
)


class FractionOf(Section):
    """What an `at_least` share is taken of: generated tokens/s per GPU of another GPU."""

    gpu: GpuId
    tokens_per_second: PositiveNumber
    source: Text = NO_SOURCE


class Reference(Section):
    """A throughput known on another GPU, to be scaled by hardware ratios."""

    gpu: GpuId
    tokens_per_second: PositiveNumber
    precision: Annotated[str, PlainValidator(choice(*PRECISIONS))] | None = None
    source: Text = NO_SOURCE


class FloorConfig(Section):
    """`floor:`, in exactly one form: fixed, a fraction of another GPU, or a reference."""

    tokens_per_second: PositiveNumber | None = None
    prompt_tokens_per_second: PositiveNumber | None = None
    at_least: Annotated[float, PlainValidator(share(10.0, zero=False))] | None = None
    of: FractionOf | None = None
    reference: Reference | None = None
    rule: (
        Annotated[str, PlainValidator(choice("min", "bandwidth", "compute", "product"))] | None
    ) = None

    @model_validator(mode="before")
    @classmethod
    def _is_no_number(cls, data: Any) -> Any:
        if is_number(data):
            raise ValueError(f"expected a map, got {shown(data)}; {_FORMS}")
        return data

    @model_validator(mode="after")
    def _has_one_form(self) -> Self:
        forms = {
            "tokens_per_second": self.tokens_per_second,
            "at_least": self.at_least,
            "reference": self.reference,
        }
        given = [name for name, value in forms.items() if value is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} are two floors; keep one")
        if (self.at_least is None) != (self.of is None):
            raise ValueError("at_least and of belong together: at_least: 25%, of: {gpu: ...}")
        if not given:
            raise ValueError(f"gives no floor; {_FORMS}")
        if self.prompt_tokens_per_second is not None and self.tokens_per_second is None:
            raise ValueError("prompt_tokens_per_second stands beside tokens_per_second only")
        if self.rule is not None and self.reference is None:
            raise ValueError("rule belongs to a reference")
        return self

    def spec(self) -> FloorSpec:
        """The floor as the core takes it."""
        if self.of is not None:
            return FloorSpec(
                at_least=self.at_least,
                of_gpu=self.of.gpu,
                of_tokens_per_second=self.of.tokens_per_second,
                source=self.of.source,
            )
        if self.reference is not None:
            return FloorSpec(
                reference_gpu=self.reference.gpu,
                reference_tokens_per_second=self.reference.tokens_per_second,
                reference_precision=self.reference.precision,
                reference_rule=self.rule or "min",
                source=self.reference.source,
            )
        return FloorSpec(
            fixed_tokens_per_second=self.tokens_per_second,
            fixed_prompt_tokens_per_second=self.prompt_tokens_per_second,
        )
