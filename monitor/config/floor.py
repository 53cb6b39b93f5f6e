"""The operator's floor for a target: one of three forms, always per GPU."""

from __future__ import annotations

import re
from typing import Annotated, Any, Self

from pydantic import PlainValidator, model_validator

from monitor.config.errors import Expected, shown
from monitor.config.values import (
    GpuId,
    PositiveNumber,
    Section,
    Switch,
    Text,
    choice,
    is_number,
    share,
)
from monitor.model import FloorSpec

PRECISIONS = ("bf16", "fp16", "fp8", "nvfp4", "mxfp4", "fp4", "int8", "int4", "fp32", "tf32")
RULES = ("min", "bandwidth", "compute", "product", "weighted")
NO_SOURCE = "operator's figure, no source given"

_FORMS = (
    "write tokens_per_second: 875, or at_least: 25% with of: {gpu, tokens_per_second}, "
    "or reference: {gpu, tokens_per_second, precision}, or reference: {id}"
)
_ID = re.compile(r"[a-z0-9][a-z0-9.-]{0,119}")
_SHARES = "time_shares: {memory: 60%, compute: 30%, fixed: 10%}"
_SHARE_TOLERANCE = 0.001

Share = Annotated[float, PlainValidator(share())]


def _reference_id(value: object) -> str:
    if isinstance(value, str) and _ID.fullmatch(value.lower()):
        return value.lower()
    raise Expected("the id of an entry of expectations/references", value)


class FractionOf(Section):
    """What an `at_least` share is taken of: generated tokens/s per GPU of another GPU."""

    gpu: GpuId
    tokens_per_second: PositiveNumber
    source: Text = NO_SOURCE


class Reference(Section):
    """A throughput known on another GPU, to be scaled by hardware ratios.

    Either `id`, an entry of `expectations/references` that brings everything with it, or `gpu`
    and `tokens_per_second`.
    """

    id: Annotated[str, PlainValidator(_reference_id)] | None = None
    gpu: GpuId | None = None
    tokens_per_second: PositiveNumber | None = None
    precision: Annotated[str, PlainValidator(choice(*PRECISIONS))] | None = None
    source: Text | None = None

    @model_validator(mode="after")
    def _has_one_form(self) -> Self:
        figures = (self.gpu, self.tokens_per_second, self.precision, self.source)
        if self.id is not None:
            if any(figure is not None for figure in figures):
                raise ValueError(
                    "id stands alone: its entry brings gpu, tokens_per_second, precision and source"
                )
        elif self.gpu is None or self.tokens_per_second is None:
            raise ValueError(
                "expected gpu and tokens_per_second, or the id of an entry of"
                " expectations/references"
            )
        return self


class TimeShares(Section):
    """Where the reference's time goes: memory, compute, and what no GPU changes."""

    memory: Share
    compute: Share
    fixed: Share = 0.0

    @model_validator(mode="after")
    def _sums_to_one(self) -> Self:
        total = self.memory + self.compute + self.fixed
        if abs(total - 1.0) > _SHARE_TOLERANCE:
            raise ValueError(f"the shares must sum to 100%, got {total:.1%}; such as {_SHARES}")
        return self


class FloorConfig(Section):
    """`floor:`, in exactly one form: fixed, a fraction of another GPU, or a reference.

    Beside a reference: `rule`, `time_shares` for the rule `weighted`, and `across_vendors`.
    """

    tokens_per_second: PositiveNumber | None = None
    prompt_tokens_per_second: PositiveNumber | None = None
    at_least: Annotated[float, PlainValidator(share(10.0, zero=False))] | None = None
    of: FractionOf | None = None
    reference: Reference | None = None
    rule: Annotated[str, PlainValidator(choice(*RULES))] | None = None
    time_shares: TimeShares | None = None
    across_vendors: Switch | None = None

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
        if self.reference is None:
            self._stand_alone()
        if (self.rule == "weighted") != (self.time_shares is not None):
            raise ValueError(f"rule: weighted and time_shares belong together: {_SHARES}")
        return self

    def _stand_alone(self) -> None:
        beside = {
            "rule": self.rule,
            "time_shares": self.time_shares,
            "across_vendors": self.across_vendors,
        }
        for name, value in beside.items():
            if value is not None:
                raise ValueError(f"{name} belongs to a reference")

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
            shares = None if self.time_shares is None else self.time_shares.model_dump()
            return FloorSpec(
                reference_gpu=self.reference.gpu,
                reference_tokens_per_second=self.reference.tokens_per_second,
                reference_precision=self.reference.precision,
                reference_rule=self.rule or "min",
                source=self.reference.source or (None if self.reference.id else NO_SOURCE),
                reference_id=self.reference.id,
                reference_time_shares=shares,
                reference_across_vendors=bool(self.across_vendors),
            )
        return FloorSpec(
            fixed_tokens_per_second=self.tokens_per_second,
            fixed_prompt_tokens_per_second=self.prompt_tokens_per_second,
        )
