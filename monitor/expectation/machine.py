"""What a target runs on, as the load model takes it: one GPU's figures, and how many serve.

Rules of this file:

1. Bandwidth is what NVML tells (bus width and highest memory clock) where that is near the
   catalogue's figure, else the catalogue's. Compute peaks come from the catalogue, dense ones.
2. Each figure goes into the derivation with its source.
3. The GPUs of a replica are taken to be tensor parallel. What the model does not know (pipeline
   parallelism) is an `Unknown`.
4. With data-parallel attention (SGLang) each rank has its own batch and whole KV heads, on its part
   of the tensor-parallel GPUs; the experts lie over all of them. The other weights are taken as
   the rank's own. Where they too lie over all, the step is expected longer and a floor errs low.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from monitor.expectation.matching import bandwidth_from_nvml
from monitor.expectation.peaks import math_peak, provenance, unverified
from monitor.expectation.step_time import Hardware
from monitor.model import GpuReading, GpuSpec, ServerInfo, Step, TargetSpec, Unknown

_PLAUSIBLE_RATIOS = (0.8, 1.25)
"""NVML's bandwidth over the catalogue's. Beyond it the clock is taken to be counted otherwise."""

_TERA, _GIGA, _MIB = 1e12, 1e9, 1024.0 * 1024.0


@dataclass(frozen=True, slots=True)
class OnGpu:
    """A GPU's figures and where they come from; `weak`: those that must raise no alarm."""

    hardware: Hardware
    steps: tuple[Step, ...]
    weak: tuple[str, ...] = ()


def hardware_of(
    gpu: GpuSpec | Unknown | None, readings: Sequence[GpuReading], math_precision: str
) -> OnGpu | Unknown:
    """Give the figures of the GPUs that serve: the least of them where several are read."""
    if gpu is None:
        return Unknown("gpu", "the GPU that serves is not known: set `gpu:`")
    if isinstance(gpu, Unknown):
        return gpu
    steps, weak = [], []
    bandwidth = _bandwidth(gpu, readings)
    if isinstance(bandwidth, Unknown):
        return bandwidth
    steps.append(bandwidth)
    figure = gpu.memory_bandwidth_gb_per_second
    if figure is not None and unverified(figure) and bandwidth.value == figure.value:
        weak.append("memory bandwidth")
    peaks = {}
    for precision in dict.fromkeys((math_precision, "bf16")):
        peak = math_peak(gpu, precision)
        if isinstance(peak, Unknown):
            return peak
        peaks[precision] = peak.value * _TERA
        because = f"{gpu.id}: {provenance(peak)}"
        steps.append(Step(f"dense peak for {precision}", peak.value, peak.unit, because))
        if unverified(peak):
            weak.append(f"dense peak for {precision}")
    memory = _memory(gpu, readings)
    if memory is not None:
        steps.append(memory)
    hardware = Hardware(
        bandwidth_bytes_per_second=bandwidth.value * _GIGA,
        dense_peaks=peaks,
        memory_bytes=None if memory is None else memory.value * _GIGA,
    )
    return OnGpu(hardware, tuple(steps), tuple(weak))


def _bandwidth(gpu: GpuSpec, readings: Sequence[GpuReading]) -> Step | Unknown:
    what, unit = "memory bandwidth", "GB/s"
    figure = gpu.memory_bandwidth_gb_per_second
    read = [told for reading in readings if (told := bandwidth_from_nvml(reading)) is not None]
    least, most = _PLAUSIBLE_RATIOS
    if read and (figure is None or least <= min(read) / _GIGA / figure.value <= most):
        because = "NVML: 2 x highest memory clock x bus width / 8"
        if figure is not None:
            because += f"; catalogue: {figure.value:g} GB/s"
        return Step(what, min(read) / _GIGA, unit, because)
    if figure is None:
        return Unknown("gpu", f"{gpu.id} has no memory bandwidth in the catalogue")
    because = f"{gpu.id}: {provenance(figure)}"
    if read:
        because += f"; NVML's clocks give {min(read) / _GIGA:.0f} GB/s, which is not believed"
    return Step(what, figure.value, unit, because)


def _memory(gpu: GpuSpec, readings: Sequence[GpuReading]) -> Step | None:
    what, unit = "total memory", "GB"
    read = [r.memory_total_bytes for r in readings if r.memory_total_bytes]
    if read:
        return Step(what, min(read) / _GIGA, unit, "NVML")
    if gpu.nvml_memory_mib is not None:
        told = gpu.nvml_memory_mib * _MIB / _GIGA
        return Step(what, told, unit, f"{gpu.id}: as NVML tells on this card")
    if gpu.memory_gb is None:
        return None
    return Step(what, gpu.memory_gb.value, unit, f"{gpu.id}: {provenance(gpu.memory_gb)}")


@dataclass(frozen=True, slots=True)
class Layout:
    """How a server lies over its GPUs: `replicas` of `tensor` GPUs each.

    `experts`: the GPUs over which the experts lie, where those are more than a replica's.
    """

    tensor: int
    replicas: int
    because: str
    experts: int | None = None


def layout_of(
    spec: TargetSpec, info: ServerInfo | None, gpu_count: int | None, replicas_seen: int
) -> Layout | Unknown:
    """Find out the tensor-parallel size and the number of replicas.

    `gpu_count`: the GPUs that serve; `replicas_seen`: data-parallel parts on the page.
    """
    told = info or ServerInfo()
    if gpu_count is None:
        return Unknown("gpus", "how many GPUs serve it is not known")
    if (spec.pipeline_parallel or told.pipeline_parallel or 1) > 1:
        return Unknown("gpus", "pipeline parallelism is not modelled")
    data = spec.data_parallel or told.data_parallel or max(1, replicas_seen)
    tensor = spec.tensor_parallel or told.tensor_parallel
    if tensor is not None and gpu_count % tensor:
        return Unknown("gpus", f"{gpu_count} GPUs are no multiple of tensor parallel {tensor}")
    if told.data_parallel_attention and data > 1:
        return _attention_apart(gpu_count, tensor or gpu_count, data)
    if tensor is not None:
        because = f"tensor parallel {tensor}, as told"
        spread = told.expert_parallel or 1
        if spread <= tensor:
            return Layout(tensor, gpu_count // tensor, because)
        because = f"{because}; experts over {spread} GPUs"
        return Layout(tensor, gpu_count // tensor, because, experts=spread)
    if gpu_count % data:
        return Unknown("gpus", f"{gpu_count} GPUs do not divide over {data} replicas")
    tensor = gpu_count // data
    return Layout(tensor, data, f"{gpu_count} GPUs over {data} replicas, taken as tensor parallel")


def _attention_apart(gpu_count: int, tensor: int, ranks: int) -> Layout | Unknown:
    if tensor % ranks:
        return Unknown("gpus", f"tensor parallel {tensor} does not divide over {ranks} ranks")
    each = tensor // ranks
    because = f"data-parallel attention: {ranks} ranks over tensor parallel {tensor}, as told"
    return Layout(each, gpu_count // each, because, experts=tensor)
