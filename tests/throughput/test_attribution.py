"""Which GPUs serve a target, and how its rate falls on them: tables worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from monitor.model import (
    Attribution,
    GpuProcess,
    GpuReading,
    GpuShare,
    MigDevice,
    ServerInfo,
    TargetSpec,
)
from monitor.throughput.attribution import attribute, share_gpus, world_size

H100 = "NVIDIA H100 80GB HBM3"
KEY = "set `gpus: [...]` (or `gpu_count:` for a server on other hosts)"


def gpu(index: int, *processes: str | None) -> GpuReading:
    held_by = tuple(GpuProcess(4100 + index, name=name) for name in processes)
    return GpuReading(index, uuid=f"GPU-{index}", name=H100, compute_procs=held_by)


def gpus(count: int, *processes: str | None) -> tuple[GpuReading, ...]:
    return tuple(gpu(index, *processes) for index in range(count))


def spec(
    wanted: Sequence[int | str] | None = None,
    *,
    count: int | None = None,
    tensor: int | None = None,
    pipeline: int | None = None,
    data: int | None = None,
    kind: str | None = None,
    replica_gpus: Mapping[str, tuple[int | str, ...]] | None = None,
) -> TargetSpec:
    return TargetSpec(
        "t",
        "http://127.0.0.1:8000",
        gpus=None if wanted is None else tuple(wanted),
        gpu_count=count,
        gpu=kind,
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        data_parallel=data,
        replica_gpus=replica_gpus or {},
    )


def found(
    target: TargetSpec,
    readings: Sequence[GpuReading] = (),
    replicas: Sequence[str] = (),
    *,
    info: ServerInfo | None = None,
    engine: str | None = "vllm",
    local: bool = True,
    alone: bool = True,
) -> Attribution:
    return attribute(target, engine, info, readings, replicas, local=local, alone=alone)


def fractions(attribution: Attribution) -> list[tuple[int | None, str, str | None, float]]:
    return [
        (share.gpu, share.attribution, share.replica, share.fraction)
        for share in attribution.shares
    ]


# ---------------------------------------------------------------------- how many GPUs


@pytest.mark.parametrize(
    ("target", "info", "replicas", "world"),
    [
        (spec(), None, 0, None),
        (spec(), ServerInfo(data_parallel=4), 4, None),
        (spec(tensor=4), None, 0, 4),
        (spec(), ServerInfo(tensor_parallel=4), 0, 4),
        (spec(tensor=2), ServerInfo(tensor_parallel=4), 0, 2),
        (spec(tensor=4, pipeline=2), None, 0, 8),
        (spec(), ServerInfo(tensor_parallel=4, pipeline_parallel=2), 0, 8),
        (spec(tensor=4), None, 2, 8),
        (spec(tensor=2), ServerInfo(data_parallel=4), 0, 8),
        (spec(tensor=2, data=3), ServerInfo(data_parallel=4), 4, 6),
        (
            spec(),
            ServerInfo(tensor_parallel=8, data_parallel=8, data_parallel_attention=True),
            8,
            8,
        ),
    ],
)
def test_world_size(
    target: TargetSpec, info: ServerInfo | None, replicas: int, world: int | None
) -> None:
    assert world_size(target, info, replicas) == world


# ------------------------------------------------------------------ seen by discovery


def seen(*uuids: str, because: str = "its process 41 holds them", **more: Any) -> TargetSpec:
    return replace(spec(**more), gpus_found=uuids, gpus_because=because)


def test_gpus_that_discovery_saw_go_before_counting() -> None:
    two = found(seen("GPU-1", "GPU-3"), gpus(4), alone=False)
    assert (two.gpu_count, two.how) == (2, "its process 41 holds them")
    assert fractions(two) == [(1, "share", None, 0.5), (3, "share", None, 0.5)]


def test_what_the_operator_lists_goes_before_what_discovery_saw() -> None:
    assert found(replace(seen("GPU-1"), gpus=(0,)), gpus(2)).how == "configured"
    spans = found(seen("GPU-0", "GPU-1", count=4), gpus(2))
    assert (spans.gpu_count, [share.fraction for share in spans.shares]) == (4, [0.25, 0.25])
    fewer = found(seen("GPU-0", "GPU-1", count=1), gpus(2))
    assert (fewer.gpu_count, fewer.how) == (1, "configured gpu_count")


def test_more_ranks_than_gpus_here_span_hosts() -> None:
    spans = found(seen("GPU-0", tensor=2), gpus(1))
    assert (spans.gpu_count, [share.fraction for share in spans.shares]) == (2, [0.5])


def test_a_server_on_no_gpu_gets_none() -> None:
    none = found(seen(because="its processes are seen"), gpus(1))
    assert (none.gpu_count, none.shares) == (None, ())
    assert none.unknown is not None
    assert none.unknown.reason == (
        f"its processes are on no GPU of this host; its processes are seen: {KEY}"
    )


def test_why_discovery_saw_none_is_told() -> None:
    blind = replace(spec(), gpus_because="pid 41 is not visible here")
    unknown = found(blind, gpus(2)).unknown
    assert unknown is not None
    assert unknown.reason.endswith(f"; pid 41 is not visible here: {KEY}")


# ----------------------------------------------------------------------- configured GPUs


def test_one_gpu_is_measured() -> None:
    alone = found(spec([0]), gpus(1))
    assert alone == Attribution(1, (GpuShare(0, "GPU-0", H100, "single", 1.0),), "configured")


def test_tensor_parallel_gpus_have_equal_shares() -> None:
    eight = found(spec(range(8)), gpus(8))
    assert (eight.gpu_count, eight.how) == (8, "configured")
    assert fractions(eight) == [(index, "share", None, 1 / 8) for index in range(8)]
    assert 9600.0 * eight.shares[0].fraction == 1200.0


def test_all_gpus_of_the_host() -> None:
    every = found(spec(["all"]), gpus(4), alone=False)
    assert (every.gpu_count, every.how) == (4, "configured: all")
    assert [share.uuid for share in every.shares] == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]


def test_all_gpus_of_a_host_without_any() -> None:
    none = found(spec(["all"]))
    assert (none.gpu_count, none.shares) == (None, ())
    assert none.unknown is not None
    assert (none.unknown.what, none.unknown.reason) == (
        "gpus",
        f"`gpus: all`, but no GPU of this host is known: {KEY}",
    )


def test_gpus_by_uuid_and_by_index() -> None:
    pair = found(spec(["GPU-3", 1]), gpus(4))
    assert [(share.gpu, share.uuid) for share in pair.shares] == [(3, "GPU-3"), (1, "GPU-1")]


def test_gpus_that_nvml_does_not_list() -> None:
    pair = found(spec([7, "GPU-x"], kind="h100-sxm"), gpus(1))
    assert pair.shares == (
        GpuShare(7, "", "h100-sxm", "share", 0.5),
        GpuShare(None, "GPU-x", "h100-sxm", "share", 0.5),
    )
    assert found(spec([0])).shares == (GpuShare(0, "", "", "single", 1.0),)


def test_a_mig_slice() -> None:
    card = replace(gpu(1), mig_devices=(MigDevice("MIG-a", 0), MigDevice("MIG-b", 1)))
    slice_ = found(spec(["MIG-b"]), (gpu(0), card))
    assert slice_.shares == (GpuShare(1, "MIG-b", f"{H100} MIG", "single", 1.0),)
    nameless = replace(card, name=None)
    assert found(spec(["MIG-b"]), (nameless,)).shares[0].name == "GPU MIG"


def test_a_server_that_spans_hosts_divides_by_all_its_gpus() -> None:
    both = found(spec(["all"], count=16), gpus(8))
    assert both.gpu_count == 16
    assert fractions(both) == [(index, "share", None, 1 / 16) for index in range(8)]


def test_more_ranks_than_gpus_here_divide_by_the_ranks() -> None:
    here = found(spec(["all"]), gpus(8), info=ServerInfo(tensor_parallel=16))
    assert (here.gpu_count, here.shares[0].fraction) == (16, 1 / 16)


# ---------------------------------------------------------------------------- lost GPUs


@pytest.mark.parametrize("wanted", [range(8), ["all"]])
@pytest.mark.parametrize(
    "lost",
    [
        GpuReading(3, uuid="GPU-3", name=H100, error="GPU is lost"),
        GpuReading(3, error="GPU is lost"),
    ],
)
def test_a_lost_gpu_keeps_the_denominator(wanted: Sequence[int | str], lost: GpuReading) -> None:
    """5600 tok/s are 700 for each of eight, not 800 for each of seven."""
    left = tuple(reading for reading in gpus(8) if reading.index != 3)
    seen = found(spec(wanted), (*left[:3], lost, *left[3:]))
    assert seen.gpu_count == 8
    assert [5600.0 * share.fraction for share in seen.shares] == [700.0] * 8


def test_a_gpu_that_stands_there_twice_is_one() -> None:
    """NVML tells a lost GPU by its index; what is remembered of it has the UUID."""
    readings = (GpuReading(0, error="GPU is lost"), gpu(0), gpu(1))
    for wanted in (["all"], [0, 1]):
        seen = found(spec(wanted), readings)
        assert [share.uuid for share in seen.shares] == ["GPU-0", "GPU-1"]


def test_a_gpu_lost_before_the_start_is_still_counted() -> None:
    seen = found(spec(["all"]), gpus(7), info=ServerInfo(tensor_parallel=8))
    assert (seen.gpu_count, 5600.0 * seen.shares[0].fraction) == (8, 700.0)


# --------------------------------------------------------------------- data parallelism


def test_replicas_sit_on_neighbouring_gpus_in_order_of_rank() -> None:
    """4800 and 2400 tok/s on four GPUs each: 1200 and 600, not 900."""
    both = found(spec(range(8)), gpus(8), ("0", "1"))
    assert fractions(both) == [
        (index, "replica", "0" if index < 4 else "1", 0.25) for index in range(8)
    ]


def test_ten_replicas_are_in_numeric_order() -> None:
    ten = found(spec(range(10)), gpus(10), [str(rank) for rank in (*range(2, 10), 0, 1)])
    assert [share.replica for share in ten.shares] == [str(rank) for rank in range(10)]


def test_replicas_where_the_operator_says_they_are() -> None:
    layout: dict[str, tuple[int | str, ...]] = {"0": (0, 2, "GPU-3"), "1": (1,)}
    both = found(spec(range(4), replica_gpus=layout), gpus(4), ("0", "1"))
    assert fractions(both) == [
        (0, "replica", "0", 1 / 3),
        (1, "replica", "1", 1.0),
        (2, "replica", "0", 1 / 3),
        (3, "replica", "0", 1 / 3),
    ]


@pytest.mark.parametrize(
    "layout", [{"0": (0,), "1": (1,)}, {"a": (0, 1), "b": (2, 3)}, {"0": (0, 1, 2, 3)}]
)
def test_a_layout_that_does_not_fit_gives_equal_shares(
    layout: dict[str, tuple[int | str, ...]],
) -> None:
    """A GPU without a replica must not get a share of the whole beside the others' replicas."""
    both = found(spec(range(4), replica_gpus=layout), gpus(4), ("0", "1"))
    assert fractions(both) == [(index, "share", None, 0.25) for index in range(4)]


def test_data_parallel_attention_shares_all_gpus() -> None:
    info = ServerInfo(tensor_parallel=8, data_parallel=8, data_parallel_attention=True)
    ranks = [str(rank) for rank in range(8)]
    seen = found(spec(["all"]), gpus(8), ranks, info=info, engine="sglang")
    assert seen.gpu_count == 8
    assert fractions(seen) == [(index, "share", None, 1 / 8) for index in range(8)]


def test_ranks_that_have_no_series_yet_keep_their_gpus() -> None:
    info = ServerInfo(tensor_parallel=2, data_parallel=4)
    seen = found(spec(["all"]), gpus(8), ("0", "3"), info=info)
    assert [share.replica for share in seen.shares] == list("00112233")
    assert {share.fraction for share in seen.shares} == {0.5}


@pytest.mark.parametrize(
    ("target", "count", "replicas", "info"),
    [
        (spec(range(8)), 8, ("0", "1", "2"), None),
        (spec(["all"], count=16), 8, ("0", "1"), None),
        (spec(["all"]), 8, ("8", "9"), ServerInfo(data_parallel=4)),
        (spec(range(8)), 8, ("0",), None),
    ],
)
def test_replicas_that_cannot_be_placed_give_equal_shares(
    target: TargetSpec, count: int, replicas: Sequence[str], info: ServerInfo | None
) -> None:
    seen = found(target, gpus(count), replicas, info=info)
    assert {share.attribution for share in seen.shares} == {"share"}
    assert {share.fraction for share in seen.shares} == {1 / (seen.gpu_count or 0)}


# ---------------------------------------------------------------------- GPUs to be found


def test_the_only_gpu_serves() -> None:
    only = found(spec(), gpus(1))
    assert (only.gpu_count, only.how) == (1, "all GPUs of this host")
    assert fractions(only) == [(0, "single", None, 1.0)]


def test_as_many_gpus_as_the_server_needs() -> None:
    four = found(spec(), gpus(4), info=ServerInfo(tensor_parallel=4))
    assert (four.gpu_count, four.how) == (4, "all GPUs of this host")


@pytest.mark.parametrize(
    ("engine", "title"),
    [
        ("vllm", "VLLM::EngineCore"),
        ("vllm", "VLLM::Worker_TP1"),
        ("vllm", "vllm serve meta/llama"),
        ("sglang", "sglang::scheduler_TP0"),
    ],
)
@pytest.mark.parametrize("info", [None, ServerInfo(tensor_parallel=2)])
def test_gpus_that_run_the_engines_processes(
    engine: str, title: str, info: ServerInfo | None
) -> None:
    readings = (gpu(0), gpu(1, "python3", title), gpu(2, title), gpu(3, None, "other::worker"))
    two = found(spec(), readings, info=info, engine=engine)
    assert two.how == "GPUs that run this engine's processes (NVML)"
    assert fractions(two) == [(1, "share", None, 0.5), (2, "share", None, 0.5)]


@pytest.mark.parametrize(
    ("readings", "info", "engine", "alone", "count", "reason"),
    [
        (gpus(8), None, "vllm", True, None, "8 GPUs on this host, parallelism unknown"),
        (gpus(8), None, None, True, None, "8 GPUs on this host, parallelism unknown"),
        (
            gpus(8),
            ServerInfo(tensor_parallel=4),
            "vllm",
            True,
            4,
            "8 GPUs on this host, parallelism 4",
        ),
        (
            gpus(3, "VLLM::EngineCore"),
            ServerInfo(tensor_parallel=2),
            "vllm",
            True,
            2,
            "3 GPUs on this host, parallelism 2",
        ),
        (
            gpus(1),
            None,
            "vllm",
            False,
            None,
            "several servers on this host leave their GPUs to be found",
        ),
        (
            gpus(8),
            ServerInfo(tensor_parallel=4),
            "vllm",
            False,
            4,
            "several servers on this host leave their GPUs to be found",
        ),
    ],
)
def test_what_cannot_be_told_apart_is_unknown_and_says_which_key_settles_it(
    readings: Sequence[GpuReading],
    info: ServerInfo | None,
    engine: str | None,
    alone: bool,
    count: int | None,
    reason: str,
) -> None:
    """The number may be known; which of this host's GPUs they are must not be made up."""
    seen = found(spec(), readings, info=info, engine=engine, alone=alone)
    assert (seen.gpu_count, seen.shares) == (count, ())
    assert seen.unknown is not None
    assert seen.unknown.reason == f"{reason}: {KEY}"


def test_a_server_on_another_host_has_numbered_gpus() -> None:
    there = found(
        spec(kind="b200-sxm-180gb"), gpus(8), info=ServerInfo(tensor_parallel=2), local=False
    )
    assert there == Attribution(
        2,
        (
            GpuShare(0, "", "b200-sxm-180gb", "share", 0.5),
            GpuShare(1, "", "b200-sxm-180gb", "share", 0.5),
        ),
        "the server's parallelism",
    )


def test_a_host_without_nvml_has_numbered_gpus() -> None:
    blind = found(spec(), info=ServerInfo(tensor_parallel=2), replicas=("0", "1"))
    assert fractions(blind) == [
        (0, "replica", "0", 0.5),
        (1, "replica", "0", 0.5),
        (2, "replica", "1", 0.5),
        (3, "replica", "1", 0.5),
    ]


def test_a_configured_number_of_gpus() -> None:
    three = found(spec(count=3), gpus(8))
    assert (three.gpu_count, three.how, three.unknown) == (3, "configured gpu_count", None)
    assert fractions(three) == [(index, "share", None, 1 / 3) for index in range(3)]


@pytest.mark.parametrize(
    ("local", "reason"),
    [(False, "the server is on another host"), (True, "no GPU of this host is known")],
)
def test_nothing_is_known_of_the_gpus(local: bool, reason: str) -> None:
    seen = found(spec(), local=local)
    assert (seen.gpu_count, seen.shares, seen.how) == (None, (), "")
    assert seen.unknown is not None
    assert seen.unknown.reason == f"{reason}: {KEY}"


# --------------------------------------------------------------------------- shared GPUs


def test_two_servers_on_one_gpu_name_each_other() -> None:
    shared = share_gpus(
        {
            "a": found(spec([0]), gpus(2)),
            "b": found(spec(["GPU-0"]), gpus(2)),
            "c": found(spec([1]), gpus(2)),
        }
    )
    assert shared["a"].shares == (GpuShare(0, "GPU-0", H100, "shared", 1.0, None, ("b",)),)
    assert shared["b"].shares == (GpuShare(0, "GPU-0", H100, "shared", 1.0, None, ("a",)),)
    assert shared["c"].shares[0].attribution == "single"
    assert (shared["a"].gpu_count, shared["a"].how) == (1, "configured")


def test_servers_on_other_slices_or_other_hosts_share_nothing() -> None:
    card = replace(gpu(0), mig_devices=(MigDevice("MIG-a", 0), MigDevice("MIG-b", 1)))
    apart = {
        "a": found(spec(["MIG-a"]), (card,)),
        "b": found(spec(["MIG-b"]), (card,)),
        "c": found(spec(count=1), local=False),
        "d": found(spec(count=1), local=False),
    }
    assert share_gpus(apart) == apart


def listed(*indices: int) -> Attribution:
    shares = tuple(GpuShare(index, "", "", "single", 1.0) for index in indices)
    return Attribution(len(indices), shares, "configured")


def test_without_nvml_a_listed_index_is_one_gpu_for_the_servers_of_this_host() -> None:
    marked = share_gpus({"a": listed(0), "b": listed(0, 1), "far": listed(0)}, ["a", "b"])
    assert marked["a"].shares[0].shared_with == ("b",)
    assert marked["a"].shares[0].attribution == "shared"
    assert [share.shared_with for share in marked["b"].shares] == [("a",), ()]
    assert marked["far"] == listed(0)


def test_counted_gpus_are_nobodys_neighbours() -> None:
    counted = replace(listed(0), how="configured gpu_count")
    assert share_gpus({"a": counted, "b": counted}, ["a", "b"]) == {"a": counted, "b": counted}
