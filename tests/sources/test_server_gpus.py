"""Which GPUs a found server has: by NVML, by MIG slice, by its environment; and when not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from monitor.model import GpuProcess, GpuReading, MigDevice
from tests.sources.local_host import Host, gpu, vllm
from tests.sources.proc_tree import ProcTree


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(ProcTree(tmp_path / "proc"))


@dataclass(frozen=True)
class Case:
    """What a server is started with, and the GPUs that follow."""

    said: str
    options: str
    environment: Mapping[str, str]
    gpus: tuple[str, ...] | None
    because: str
    models: tuple[str, ...] = ("H200",) * 4


CVD = "CUDA_VISIBLE_DEVICES"


def cases() -> Iterator[Case]:
    yield Case("uuids", "", {CVD: "GPU-2"}, ("GPU-2",), f"{CVD}=GPU-2")
    yield Case("a cut uuid", "", {CVD: "MIG-abc"}, ("MIG-abc",), f"{CVD}=MIG-abc")
    yield Case("numbers", "-tp 2", {CVD: "3,1"}, ("GPU-3", "GPU-1"), f"{CVD}=3,1")
    yield Case(
        "more than it takes",
        "-tp 2",
        {CVD: "3,1,0"},
        ("GPU-3", "GPU-1"),
        f"{CVD}=3,1,0; it takes 2 of 3",
    )
    yield Case(
        "too few",
        "-tp 4",
        {CVD: "3,1"},
        None,
        f"{CVD}=3,1: 2 GPUs, too few for 4 ranks from GPU 0 on",
    )
    yield Case("beyond", "", {CVD: "7"}, None, f"{CVD}=7, but 4 GPUs are seen here")
    yield Case("none", "", {CVD: ""}, (), f"{CVD} is empty")
    yield Case("not set", "-tp 2", {}, ("GPU-0", "GPU-1"), f"{CVD} is not set; it takes 2 of 4")
    yield Case(
        "one of several replicas",
        "--data-parallel-rank 1",
        {CVD: "0,1"},
        None,
        f"{CVD}=0,1, and which of the 2 it uses is not told",
    )
    yield Case("its own replica", "--data-parallel-rank 1", {CVD: "1"}, ("GPU-1",), f"{CVD}=1")
    yield Case(
        "options in a file",
        "--config c",
        {CVD: "0,1"},
        None,
        f"{CVD}=0,1, and which of the 2 it uses is not told",
    )
    mixed = ("H200", "RTX", "H200", "H200")
    yield Case(
        "several models",
        "",
        {CVD: "0"},
        None,
        f"{CVD}=0, but the GPUs are of several models, which CUDA numbers fastest first "
        "(CUDA_DEVICE_ORDER=PCI_BUS_ID would make the numbers NVML's)",
        mixed,
    )
    by_bus = {CVD: "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    yield Case("by bus", "", by_bus, ("GPU-1",), f"{CVD}=1", mixed)
    given = {"NVIDIA_VISIBLE_DEVICES": "GPU-2,GPU-3"}
    yield Case("a container's", "", {**given, CVD: "1"}, ("GPU-3",), f"{CVD}=1")
    yield Case("a container's whole", "-tp 2", given, ("GPU-2", "GPU-3"), f"{CVD} is not set")
    yield Case(
        "unseen",
        "",
        {CVD: "0", "NVIDIA_VISIBLE_DEVICES": "GPU-9"},
        None,
        f"{CVD}=0, but GPUs of its container are not seen here",
    )
    yield Case(
        "numbers of a container",
        "",
        {CVD: "0", "NVIDIA_VISIBLE_DEVICES": "2,3"},
        None,
        f"{CVD}=0, but its numbers are those of another container",
    )
    yield Case(
        "Ray",
        "--distributed-executor-backend ray",
        {CVD: "0"},
        None,
        "Ray starts its GPU processes, which are not below its own",
    )


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.said)
async def test_gpus_by_the_environment(host: Host, case: Case) -> None:
    host.tree.process(
        20,
        1,
        ["vllm", "serve", "--port", "8000", *case.options.split()],
        sockets=[900],
        environment=case.environment,
    )
    host.tree.listen(8000, 900)
    host.engine("127.0.0.1:8000")
    seen = [replace(gpu(i, name=name), compute_procs=None) for i, name in enumerate(case.models)]
    server = await host.only(*seen)
    assert (server.gpus, server.gpus_because) == (case.gpus, case.because)
    assert "hf_secret" not in repr(vars(host.servers)) + repr(server)


async def test_sglang_counts_from_a_base_in_steps(host: Host) -> None:
    line = "sglang serve --enable-metrics --tp 2 --base-gpu-id 1 --gpu-id-step 2"
    host.tree.process(20, 1, line.split(), sockets=[900], environment={CVD: "7,6,5,4"})
    host.tree.listen(30000, 900)
    host.engine("127.0.0.1:30000", engine="sglang")
    server = await host.only(*(replace(gpu(i), compute_procs=None) for i in range(8)))
    assert server.gpus == ("GPU-6", "GPU-4")
    assert server.gpus_because == f"{CVD}=7,6,5,4; it takes 2 of 4"


async def test_an_environment_that_cannot_be_read_is_said(host: Host) -> None:
    host.tree.process(20, 1, ["vllm", "serve"], unreadable=True)
    host.tree.listen(8000, 900)
    host.engine("127.0.0.1:8000")
    server = await host.only(replace(gpu(0), compute_procs=None))
    assert server.gpus is None
    assert server.gpus_because == (
        "NVML lists none of its processes, and the environment of process 20 cannot be read (the "
        "same user or CAP_SYS_PTRACE would tell)"
    )


async def test_memory_in_use_by_nobody_makes_nvmls_list_no_proof(host: Host) -> None:
    vllm(host.tree)
    host.engine("127.0.0.1:8000")
    found = await host.look(gpu(0, used=70 << 30))
    assert found.servers[0].gpus == ("GPU-0",)
    assert found.servers[0].gpus_because == f"{CVD} is not set"
    assert found.notes == (
        "NVML lists no processes on GPU 0 though memory is in use: the driver does not tell them",
    )


async def test_without_nvml_the_missing_device_nodes_are_said(host: Host) -> None:
    vllm(host.tree)
    host.engine("127.0.0.1:8000")
    (host.tree.root / "driver/nvidia").mkdir(parents=True)
    (host.tree.root / "driver/nvidia/version").write_text("NVRM version: 580\n")
    found = await host.look()
    assert (found.servers[0].gpus, found.servers[0].gpus_because) == (
        None,
        "NVML shows no GPU here",
    )
    assert found.notes[0].startswith("the NVIDIA driver is loaded but NVML shows no GPU here")


def sliced(*slices: tuple[int, ...], on_gpu: tuple[int, ...] = ()) -> GpuReading:
    return replace(
        gpu(0, *on_gpu),
        mig_mode=1,
        mig_devices=tuple(
            MigDevice(f"MIG-{at}", at, compute_procs=tuple(GpuProcess(pid=pid) for pid in pids))
            for at, pids in enumerate(slices)
        ),
    )


async def test_a_mig_slice_is_the_servers_not_its_gpu(host: Host) -> None:
    vllm(host.tree)
    host.engine("127.0.0.1:8000")
    server = await host.only(sliced((), (21,), on_gpu=(21,)))
    assert server.gpus == ("MIG-1",)


async def test_a_process_that_nvml_puts_in_no_slice_is_not_guessed(host: Host) -> None:
    vllm(host.tree)
    host.engine("127.0.0.1:8000")
    server = await host.only(sliced((), (), on_gpu=(21,)))
    assert server.gpus is None
    assert server.gpus_because == (
        "NVML lists process 21 on GPU 0 and does not tell which of its MIG slices"
    )


async def test_two_servers_on_one_gpu_are_said(host: Host) -> None:
    vllm(host.tree)
    vllm(host.tree, "--port", "8001", pid=30, inode=930, port=8001)
    host.engine("127.0.0.1:8000", "127.0.0.1:8001")
    found = await host.look(gpu(0, 21, 31))
    assert [one.gpus for one in found.servers] == [("GPU-0",), ("GPU-0",)]
    assert found.notes == ("GPU 0 serves 2 servers: node:8000, node:8001",)
    found = await host.look(sliced((21, 31)))
    assert found.notes == ("MIG slice 0 of GPU 0 serves 2 servers: node:8000, node:8001",)


async def test_a_server_that_spans_hosts_counts_with_all_its_ranks(host: Host) -> None:
    vllm(host.tree, "-tp", "8", "-pp", "2")
    host.engine("127.0.0.1:8000")
    found = await host.look(*(gpu(i, 21) for i in range(8)))
    assert found.servers[0].settings == {"gpu_count": "16"}
    assert found.notes == (
        (
            "node:8000 has 16 ranks by its command line and 8 GPUs here: it spans hosts, and counts "
            "as 16 GPUs"
        ),
    )


async def test_numbers_are_no_slices(host: Host) -> None:
    vllm(host.tree)
    host.engine("127.0.0.1:8000")
    server = await host.only(replace(gpu(0), compute_procs=None, mig_mode=1))
    assert server.gpus is None
    assert server.gpus_because == (
        f"{CVD} is not set, but CUDA numbers MIG slices and GPUs without UUID in an order of its "
        "own"
    )


async def test_two_servers_behind_one_port_are_one_target_with_unknown_gpus(host: Host) -> None:
    vllm(host.tree, "--port", "8000")
    vllm(host.tree, "--port", "8000", "-tp", "1", pid=30, inode=930)
    host.engine("127.0.0.1:8000")
    found = await host.look(gpu(0, 21), gpu(1, 31))
    assert [(one.name, one.gpus, one.gpus_because) for one in found.servers] == [
        ("node:8000", None, "2 servers listen on its port")
    ]
    assert found.notes == (
        (
            "2 servers listen on 0.0.0.0:8000, processes 20 (vllm serve), 30 (vllm serve): each "
            "request reaches one of them by chance; give each its own --port"
        ),
    )
