"""The whitelist: which fields of a server's JSON answers enter the program, and as what.

Rules of this file:

1. Fields are taken one by one. SGLang's `/server_info` carries its API key in clear, also in
   `launch_command`: nothing but the fields named here leaves the parser.
2. A field of the wrong type, or out of all measure, is not known (None); it never spoils the
   others.
3. Names are those that the servers use; a property says what several of them come to.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)


def _known_or_none(value: Any, inner: ValidatorFunctionWrapHandler) -> Any:
    try:
        return inner(value)
    except ValidationError:
        return None


_Lenient = WrapValidator(_known_or_none)
_Text = Annotated[
    Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[^\x00-\x1f\x7f]+$")] | None,
    _Lenient,
]
_Count = Annotated[Annotated[int, Field(ge=1, le=10**9)] | None, _Lenient]
_Index = Annotated[Annotated[int, Field(ge=0, le=10**9)] | None, _Lenient]
_Flag = Annotated[bool | None, _Lenient]


class Reply(BaseModel):
    """A JSON object of which only the named fields are kept."""

    model_config = ConfigDict(extra="ignore", strict=True, hide_input_in_errors=True)


_R = TypeVar("_R", bound=Reply)
_Part = Annotated[_R | None, _Lenient]
_Parts = Annotated[list[Annotated[_R | None, _Lenient]] | None, _Lenient]


class SglangState(Reply):
    """One scheduler (data-parallel rank) of SGLang's `internal_states`."""

    effective_max_running_requests_per_dp: _Count = None


class SglangGraphs(Reply):
    """How one phase uses CUDA graphs; `backend` may be `disabled`."""

    backend: _Text = None


class SglangGraphConfig(Reply):
    """SGLang's `cuda_graph_config`; decode is the phase that matters here."""

    decode: _Part[SglangGraphs] = None


class SglangInfo(Reply):
    """SGLang's `/server_info`; names are its own, except the last."""

    version: _Text = None
    model_path: _Text = None
    served_model_name: _Text = None
    dtype: _Text = None
    quantization: _Text = None
    kv_cache_dtype: _Text = None
    tp_size: _Count = None
    pp_size: _Count = None
    dp_size: _Count = None
    ep_size: _Count = None
    enable_dp_attention: _Flag = None
    nnodes: _Count = None
    disaggregation_mode: _Text = None
    mamba_radix_cache_strategy: _Text = None
    mamba_scheduler_strategy: _Text = None
    max_mamba_cache_size: _Index = None
    disable_radix_cache: _Flag = None
    disable_overlap_schedule: _Flag = None
    disable_cuda_graph: _Flag = None
    cuda_graph_config: _Part[SglangGraphConfig] = None
    internal_states: _Parts[SglangState] = None
    cuda_graph_disabled: _Flag = None
    """Of recordings only: what `disable_cuda_graph` and `cuda_graph_config` came to."""

    @property
    def graphs_disabled(self) -> bool | None:
        """Whether decode runs without CUDA graphs.

        Since `cuda_graph_config` exists, `disable_cuda_graph` stays false whatever is chosen
        there (0.5.23, measured), so a false flag alone proves nothing.
        """
        if self.cuda_graph_disabled is not None:
            return self.cuda_graph_disabled
        if self.disable_cuda_graph:
            return True
        decode = self.cuda_graph_config.decode if self.cuda_graph_config else None
        backend = decode.backend if decode else None
        return None if backend is None else backend == "disabled"


class SglangLoad(Reply):
    """One scheduler's load; its cap is the effective one."""

    max_running_requests: _Count = None


class SglangLoads(Reply):
    """SGLang's `/v1/loads` (since 0.5.8), one load per data-parallel rank."""

    loads: _Parts[SglangLoad] = None


class VllmVersion(Reply):
    """vLLM's `/version`, which needs no key."""

    version: _Text = None


class VllmModel(Reply):
    """One served model: `id` is the name clients use, `root` the path."""

    id: _Text = None
    root: _Text = None
    parent: _Text = None


class VllmModels(Reply):
    """`/v1/models`. Further entries are aliases, and LoRA adapters, which have a parent."""

    data: _Parts[VllmModel] = None


class VllmModelConfig(Reply):
    """The model as vLLM loads it; `dtype` is written `torch.bfloat16`."""

    model: _Text = None
    dtype: _Text = None
    quantization: _Text = None
    enforce_eager: _Flag = None


class VllmCacheConfig(Reply):
    """The KV cache."""

    cache_dtype: _Text = None


class VllmParallelConfig(Reply):
    """How the model is spread over GPUs."""

    tensor_parallel_size: _Count = None
    pipeline_parallel_size: _Count = None
    data_parallel_size: _Count = None
    data_parallel_size_local: _Count = None
    data_parallel_external_lb: _Flag = None
    data_parallel_hybrid_lb: _Flag = None
    nnodes: _Count = None
    enable_expert_parallel: _Flag = None

    @property
    def experts_over(self) -> int | None:
        """GPUs over which the experts lie: with expert parallelism all of them, tensor x data."""
        if self.enable_expert_parallel is None or self.tensor_parallel_size is None:
            return None
        if not self.enable_expert_parallel:
            return 1
        return self.tensor_parallel_size * (self.data_parallel_size or 1)

    @property
    def ranks_here(self) -> int | None:
        """Data-parallel ranks behind this address: with a balancer outside, only its own."""
        if self.data_parallel_external_lb or self.data_parallel_hybrid_lb:
            return self.data_parallel_size_local
        return self.data_parallel_size


class VllmSchedulerConfig(Reply):
    """The scheduler, resolved; `max_num_seqs` is per engine (data-parallel rank)."""

    max_num_seqs: _Count = None
    async_scheduling: _Flag = None


class VllmCompilationConfig(Reply):
    """Graph capture; mode 0 is NONE."""

    cudagraph_mode: _Index = None


class VllmConfig(Reply):
    """vLLM's resolved configuration. The Rust front end's has none of these parts."""

    model: _Part[VllmModelConfig] = Field(default=None, alias="model_config")
    cache_config: _Part[VllmCacheConfig] = None
    parallel_config: _Part[VllmParallelConfig] = None
    scheduler_config: _Part[VllmSchedulerConfig] = None
    compilation_config: _Part[VllmCompilationConfig] = None

    @property
    def graphs_disabled(self) -> bool | None:
        """Whether the engine runs without CUDA graphs: eager, or graph mode 0 (NONE)."""
        if self.model and self.model.enforce_eager:
            return True
        mode = self.compilation_config.cudagraph_mode if self.compilation_config else None
        return None if mode is None else mode == 0

    @property
    def overlap_disabled(self) -> bool | None:
        """Whether a step is scheduled only when the one before is done."""
        told = self.scheduler_config.async_scheduling if self.scheduler_config else None
        return None if told is None else not told


class VllmInfo(Reply):
    """vLLM's `/server_info?config_format=json`, there in its development mode only."""

    vllm_config: _Part[VllmConfig] = None
