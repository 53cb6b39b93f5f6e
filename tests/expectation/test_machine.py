"""What a target runs on: NVML's figures against the catalogue's, and how a server lies over GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from monitor.expectation.machine import Layout, OnGpu, hardware_of, layout_of
from monitor.model import (
    Confidence,
    Density,
    Figure,
    GpuReading,
    GpuSpec,
    ServerInfo,
    Step,
    TargetSpec,
    Unknown,
)

MIB = 1024 * 1024
SPEC = TargetSpec("a", "http://127.0.0.1:1")


def figure(value: float, unit: str = "GB/s", **changes: object) -> Figure:
    made = Figure(value, unit, ("a datasheet",), Confidence.DATASHEET)
    return replace(made, **changes)  # type: ignore[arg-type]


def peak(value: float, precision: str, **changes: object) -> Figure:
    return figure(value, "TFLOPS", precision=precision, density=Density.DENSE, **changes)


CARD = GpuSpec(
    id="card",
    vendor="nvidia",
    names=("Card",),
    pci_device_ids=(),
    compute_capability=None,
    memory_gb=figure(141.0, "GB"),
    memory_bandwidth_gb_per_second=figure(4800.0),
    dense_peaks={"bf16": peak(989.4, "bf16"), "fp8": peak(1978.9, "fp8")},
    sparse_peaks={},
    tdp_w=None,
    multiprocessors=None,
)
# 2 x 3201 MHz x 6016 bit / 8 = 4814.304 GB/s.
READING = GpuReading(
    0, max_mem_clock_mhz=3201, memory_bus_width_bits=6016, memory_total_bytes=150_000_000_000
)


def found(
    gpu: GpuSpec = CARD, *readings: GpuReading, math_precision: str = "bf16"
) -> dict[str, Step]:
    on_gpu = hardware_of(gpu, readings, math_precision)
    assert isinstance(on_gpu, OnGpu)
    return {step.what: step for step in on_gpu.steps}


def test_nvml_tells_bandwidth_and_memory() -> None:
    slower = replace(READING, max_mem_clock_mhz=3000, memory_total_bytes=140_000_000_000)
    on_gpu = hardware_of(CARD, (READING, slower), "fp8")
    assert isinstance(on_gpu, OnGpu)
    # The least of both: 2 x 3000 MHz x 6016 bit / 8.
    assert on_gpu.hardware.bandwidth_bytes_per_second == pytest.approx(4.512e12)
    assert on_gpu.hardware.memory_bytes == pytest.approx(140e9)
    assert on_gpu.hardware.dense_peaks == {"fp8": 1978.9e12, "bf16": 989.4e12}
    assert on_gpu.weak == ()
    step = found(CARD, READING)["memory bandwidth"]
    assert step.value == pytest.approx(4814.304)
    assert step.because == "NVML: 2 x highest memory clock x bus width / 8; catalogue: 4800 GB/s"


def test_without_nvml_the_catalogue_tells() -> None:
    told = found()
    assert told["memory bandwidth"].value == 4800.0
    assert told["memory bandwidth"].because.startswith("card: confidence datasheet")
    assert told["total memory"].value == 141.0
    seen = found(replace(CARD, nvml_memory_mib=143_771))["total memory"]
    assert seen.value == pytest.approx(143_771 * MIB / 1e9)
    assert seen.because == "card: as NVML tells on this card"
    assert "total memory" not in found(replace(CARD, memory_gb=None))


@pytest.mark.parametrize("clock", [6402, 1600])
def test_a_bandwidth_far_from_the_catalogues_is_not_believed(clock: int) -> None:
    step = found(CARD, replace(READING, max_mem_clock_mhz=clock))["memory bandwidth"]
    assert step.value == 4800.0
    # 2 x 6402 MHz x 752 bytes = 9628.6 GB/s; 2 x 1600 MHz x 752 bytes = 2406.4.
    told = {6402: "9629", 1600: "2406"}[clock]
    assert step.because.endswith(f"; NVML's clocks give {told} GB/s, which is not believed")


def test_a_card_without_a_bandwidth_takes_nvmls() -> None:
    bare = replace(CARD, memory_bandwidth_gb_per_second=None)
    step = found(bare, READING)["memory bandwidth"]
    assert step.value == pytest.approx(4814.304)
    assert step.because == "NVML: 2 x highest memory clock x bus width / 8"
    assert hardware_of(bare, (), "bf16") == Unknown(
        "gpu", "card has no memory bandwidth in the catalogue"
    )


def test_figures_from_memory_are_named() -> None:
    weak = replace(
        CARD,
        memory_bandwidth_gb_per_second=figure(4800.0, confidence=Confidence.UNVERIFIED),
        dense_peaks={
            "bf16": peak(989.4, "bf16", confidence=Confidence.UNVERIFIED),
            "fp8": peak(1978.9, "fp8"),
        },
    )
    on_gpu = hardware_of(weak, (), "fp8")
    assert isinstance(on_gpu, OnGpu)
    assert on_gpu.weak == ("memory bandwidth", "dense peak for bf16")
    measured = hardware_of(weak, (READING,), "fp8")
    assert isinstance(measured, OnGpu)
    assert measured.weak == ("dense peak for bf16",)


def test_four_bit_floats_are_multiplied_at_sixteen_where_the_card_has_no_path() -> None:
    step = found(math_precision="nvfp4")["dense peak for nvfp4"]
    assert step.value == 989.4


def test_what_is_not_known_of_the_gpu() -> None:
    assert hardware_of(None, (), "bf16") == Unknown(
        "gpu", "the GPU that serves is not known: set `gpu:`"
    )
    other = Unknown("gpu", "two kinds")
    assert hardware_of(other, (), "bf16") is other
    assert hardware_of(CARD, (), "int8") == Unknown(
        "compute peak", "card has no dense int8 peak (listed: bf16, fp8)"
    )


@pytest.mark.parametrize(
    ("spec", "info", "gpu_count", "replicas_seen", "expected"),
    [
        (SPEC, None, 1, 0, Layout(1, 1, "1 GPUs over 1 replicas, taken as tensor parallel")),
        (SPEC, None, 8, 2, Layout(4, 2, "8 GPUs over 2 replicas, taken as tensor parallel")),
        (SPEC, ServerInfo(tensor_parallel=4), 8, 0, Layout(4, 2, "tensor parallel 4, as told")),
        (
            SPEC,
            ServerInfo(tensor_parallel=4, expert_parallel=4),
            8,
            0,
            Layout(4, 2, "tensor parallel 4, as told"),
        ),
        (
            SPEC,
            ServerInfo(tensor_parallel=2, data_parallel=4, expert_parallel=8),
            8,
            4,
            Layout(2, 4, "tensor parallel 2, as told; experts over 8 GPUs", experts=8),
        ),
        (
            replace(SPEC, tensor_parallel=2),
            ServerInfo(tensor_parallel=4),
            8,
            0,
            Layout(2, 4, "tensor parallel 2, as told"),
        ),
        (SPEC, None, None, 0, "how many GPUs serve it is not known"),
        (replace(SPEC, pipeline_parallel=2), None, 8, 0, "pipeline parallelism is not modelled"),
        (SPEC, ServerInfo(pipeline_parallel=2), 8, 0, "pipeline parallelism is not modelled"),
        (
            SPEC,
            ServerInfo(data_parallel=2, data_parallel_attention=True),
            8,
            0,
            Layout(
                4, 2, "data-parallel attention: 2 ranks over tensor parallel 8, as told", experts=8
            ),
        ),
        (
            SPEC,
            ServerInfo(tensor_parallel=8, data_parallel=8, data_parallel_attention=True),
            16,
            0,
            Layout(
                1, 16, "data-parallel attention: 8 ranks over tensor parallel 8, as told", experts=8
            ),
        ),
        (
            SPEC,
            ServerInfo(tensor_parallel=4, data_parallel=3, data_parallel_attention=True),
            4,
            0,
            "tensor parallel 4 does not divide over 3 ranks",
        ),
        (
            SPEC,
            ServerInfo(tensor_parallel=1, data_parallel_attention=True),
            1,
            0,
            Layout(1, 1, "tensor parallel 1, as told"),
        ),
        (
            replace(SPEC, tensor_parallel=3),
            None,
            8,
            0,
            "8 GPUs are no multiple of tensor parallel 3",
        ),
        (SPEC, None, 8, 3, "8 GPUs do not divide over 3 replicas"),
    ],
)
def test_how_a_server_lies_over_gpus(
    spec: TargetSpec,
    info: ServerInfo | None,
    gpu_count: int | None,
    replicas_seen: int,
    expected: Layout | str,
) -> None:
    layout = layout_of(spec, info, gpu_count, replicas_seen)
    if isinstance(expected, str):
        assert layout == Unknown("gpus", expected)
    else:
        assert layout == expected
