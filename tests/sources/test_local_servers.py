"""Discovery of the servers of a host of files: the engines' layouts, what is asked, follow-up."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from monitor.model import Found, FoundServer
from monitor.sources.local_servers import AT_ONCE, LocalServers, Probe
from tests.sources.local_host import PYTHON, Host, gpu, vllm
from tests.sources.proc_tree import OWN_PID, ProcTree


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(ProcTree(tmp_path / "proc"))


async def test_a_vllm_server_is_found_from_its_gpu_process(host: Host) -> None:
    vllm(host.tree)
    host.engine("127.0.0.1:8000")
    assert await host.look(gpu(0, 21), gpu(1)) == Found(
        servers=(
            FoundServer(
                url="http://127.0.0.1:8000/metrics",
                name="node:8000",
                how=(
                    "GPU process 21 (VLLM::EngineCore) on GPU 0; "
                    "its ancestor 20 (vllm serve) listens on 0.0.0.0:8000"
                ),
                local=True,
                gpus=("GPU-0",),
                gpus_because="NVML lists its process 21 there",
            ),
        )
    )
    assert host.asked == ["127.0.0.1:8000"]


async def test_tensor_parallel_workers_below_the_core_are_the_servers_gpus(host: Host) -> None:
    vllm(host.tree, "--port", "8000", "-tp", "4")
    for rank in range(4):
        host.tree.process(30 + rank, 21, [f"VLLM::Worker_TP{rank}"], sockets=[950 + rank])
        host.tree.listen(29500 + rank, 950 + rank)
    host.engine("127.0.0.1:8000")
    server = await host.only(*(gpu(3 - rank, 30 + rank) for rank in range(4)))
    assert server.gpus == ("GPU-0", "GPU-1", "GPU-2", "GPU-3")
    assert server.gpus_because == "NVML lists its processes 30, 31, 32, 33 there"
    assert server.how == (
        "GPU processes 30 (VLLM::Worker_TP0), 31 (VLLM::Worker_TP1), 32 (VLLM::Worker_TP2), "
        "33 (VLLM::Worker_TP3) on GPUs 0, 1, 2, 3; "
        "their ancestor 20 (vllm serve) listens on 0.0.0.0:8000"
    )
    assert host.asked == ["127.0.0.1:8000"]


async def test_several_api_servers_on_one_port_are_one_server(host: Host) -> None:
    tree = host.tree
    tree.process(20, 1, ["vllm", "serve", "--port=8123", "-dp", "2"], sockets=[900])
    for rank in range(2):
        tree.process(30 + rank, 20, [f"VLLM::APIServer_{rank}"], sockets=[900, 901 + rank])
        tree.process(40 + rank, 20, [f"VLLM::EngineCore_DP{rank}"])
        tree.listen(8123, 901 + rank)
    tree.listen(8123, 900)
    host.engine("127.0.0.1:8123")
    server = await host.only(gpu(0, 40), gpu(1, 41))
    assert server.gpus == ("GPU-0", "GPU-1")
    assert "their ancestor 20 (vllm serve) listens on 0.0.0.0:8123" in server.how


async def test_one_command_with_a_port_for_each_replica_is_as_many_servers(host: Host) -> None:
    tree = host.tree
    options = ["--port", "9000", "-dp", "2", "--data-parallel-multi-port-external-lb"]
    tree.process(20, 1, ["vllm", "serve", "m", *options], sockets=[900])
    tree.listen(9100, 900)
    for rank in range(2):
        tree.process(30 + rank, 20, [PYTHON, "-c", "spawn_main()"], sockets=[901 + rank])
        tree.process(40 + rank, 30 + rank, [f"VLLM::EngineCore_DP{rank}"])
        tree.listen(9000 + rank, 901 + rank)
    host.engine("127.0.0.1:9000", "127.0.0.1:9001")
    found = await host.look(gpu(0, 40), gpu(1, 41))
    assert [(one.name, one.gpus) for one in found.servers] == [
        ("node:9000", ("GPU-0",)),
        ("node:9001", ("GPU-1",)),
    ]
    assert sorted(host.asked) == ["127.0.0.1:9000", "127.0.0.1:9001"]


async def test_gpu_processes_beside_several_servers_are_not_guessed(host: Host) -> None:
    tree = host.tree
    options = ["--port", "9000", "-dp", "2", "--data-parallel-multi-port-external-lb"]
    tree.process(20, 1, ["vllm", "serve", "m", *options])
    for rank in range(2):
        tree.process(30 + rank, 20, [f"VLLM::APIServer_{rank}"], sockets=[901 + rank])
        tree.process(40 + rank, 20, [f"VLLM::EngineCore_DP{rank}"])
        tree.listen(9000 + rank, 901 + rank)
    host.engine("127.0.0.1:9000", "127.0.0.1:9001")
    found = await host.look(gpu(0, 40), gpu(1, 41))
    assert [one.gpus for one in found.servers] == [None, None]
    assert found.servers[0].gpus_because == (
        "the processes on GPUs 0, 1 are not below process 30: which of the servers of process "
        "20 they work for cannot be told"
    )


async def test_an_sglang_launcher_answers_for_its_scheduler(host: Host) -> None:
    tree = host.tree
    tree.process(20, 1, [PYTHON, "-m", "sglang.launch_server", "--enable-metrics"], sockets=[900])
    tree.process(21, 20, ["sglang::scheduler"], sockets=[901])
    tree.process(22, 20, ["sglang::detokenizer"])
    tree.listen(30000, 900, "127.0.0.1")
    tree.listen(31234, 901)
    host.engine("127.0.0.1:30000", engine="sglang")
    server = await host.only(gpu(5, 21))
    assert (server.name, server.gpus) == ("node:30000", ("GPU-5",))
    assert host.asked == ["127.0.0.1:30000"]


async def test_forked_processes_keep_their_parents_command_line(host: Host) -> None:
    line = ["vllm", "serve", "m", "--port", "8000"]
    host.tree.process(20, 1, line, sockets=[900])
    host.tree.process(21, 20, line, sockets=[900, 901])
    host.tree.listen(8000, 900)
    host.tree.listen(45000, 901)
    host.engine("127.0.0.1:8000")
    server = await host.only(gpu(0, 21))
    assert server.gpus == ("GPU-0",)
    assert "its ancestor 20 (vllm serve)" in server.how


async def test_a_server_of_ones_own_is_found_above_the_engines_core(host: Host) -> None:
    tree = host.tree
    tree.process(19, 1, ["-bash"], comm="bash", sockets=[890])
    tree.process(20, 19, [PYTHON, "serve.py"], comm="python3", sockets=[900])
    tree.process(21, 20, ["VLLM::EngineCore"], sockets=[901])
    for inode, port in ((890, 7000), (900, 7001), (901, 7002)):
        tree.listen(port, inode)
    host.engine("127.0.0.1:7001")
    server = await host.only(gpu(0, 21))
    assert server.url == "http://127.0.0.1:7001/metrics"
    assert "ancestor 20 (python3)" in server.how
    assert host.asked == ["127.0.0.1:7001"]


async def test_ports_above_a_gpu_process_are_asked_as_far_as_a_shell(host: Host) -> None:
    tree = host.tree
    tree.process(18, 1, ["sshd: me"], comm="sshd", sockets=[880])
    tree.process(19, 18, ["-bash"], comm="bash", sockets=[890])
    tree.process(20, 19, [PYTHON, "launch.py"], comm="python3", sockets=[900])
    tree.process(21, 20, [PYTHON, "work.py"], comm="python3", sockets=[901])
    tree.process(22, 20, [PYTHON, "log.py"], comm="python3", sockets=[902])
    for at, inode in enumerate((880, 890, 900, 901, 902)):
        tree.listen(7000 + at, inode)
    host.engine("127.0.0.1:7002", engine="sglang")
    server = await host.only(gpu(0, 21))
    assert server.gpus == ("GPU-0",)
    assert sorted(host.asked) == ["127.0.0.1:7002", "127.0.0.1:7003"]


async def test_a_server_without_a_gpu_is_found_by_its_command_line(host: Host) -> None:
    vllm(host.tree, "--port", "8101", port=8101)
    host.engine("127.0.0.1:8101")
    server = await host.only(gpu(0))
    assert server.how == "process 20 (vllm serve) listens on 0.0.0.0:8101"
    assert (server.gpus, server.gpus_because) == ((), "NVML lists none of its processes on a GPU")


async def test_two_servers_have_their_own_gpus(host: Host) -> None:
    vllm(host.tree, "--port", "8000")
    vllm(host.tree, "--port", "8001", pid=30, inode=930, port=8001)
    host.engine("127.0.0.1:8000", "127.0.0.1:8001")
    found = await host.look(gpu(0, 31), gpu(1, 21))
    assert [(one.name, one.gpus) for one in found.servers] == [
        ("node:8000", ("GPU-1",)),
        ("node:8001", ("GPU-0",)),
    ]
    assert found.notes == ()


async def test_a_port_that_the_command_line_names_is_the_only_one_asked(host: Host) -> None:
    vllm(host.tree, "--port", "8123", port=40123)
    found = await host.look(gpu(0, 21))
    assert host.asked == []
    assert found.notes == (
        "GPU 0: process 20 (vllm serve) does not listen on port 8123 yet: it is starting",
    )


async def test_without_a_named_port_the_servers_own_ports_are_asked(host: Host) -> None:
    vllm(host.tree, "--config", "c.yaml", port=8777)
    host.engine("127.0.0.1:8777")
    assert (await host.only(gpu(0, 21))).name == "node:8777"
    assert host.asked == ["127.0.0.1:8777"]


async def test_what_only_a_computing_process_holds_is_never_asked(host: Host) -> None:
    host.tree.process(21, 1, ["VLLM::EngineCore"], sockets=[901])
    host.tree.listen(8000, 901)
    found = await host.look(gpu(0, 21))
    assert host.asked == []
    assert found.notes == (
        (
            "GPU 0: 21 (VLLM::EngineCore) has no server with a port on this host: a headless node, "
            "whose server's page is elsewhere, or no server at all"
        ),
    )


async def test_other_peoples_and_our_own_ports_are_not_asked(host: Host) -> None:
    host.tree.process(50, 1, ["nginx"], sockets=[950])
    host.tree.listen(8000, 950)
    (host.tree.root / str(OWN_PID) / "fd" / "9").symlink_to("socket:[951]")
    host.tree.listen(30000, 951)
    assert await host.look(gpu(0)) == Found()
    assert host.asked == []


async def test_a_socket_that_does_not_listen_is_not_asked(host: Host) -> None:
    vllm(host.tree)
    host.tree.close(900)
    host.tree.listen(8000, 900, state="01")
    await host.look(gpu(0, 21))
    assert host.asked == []


@pytest.mark.parametrize(
    ("bound", "answers", "asked"),
    [
        ("::", "127.0.0.1", ["127.0.0.1:8000"]),
        ("::", "[::1]", ["127.0.0.1:8000", "[::1]:8000"]),
        ("::1", "[::1]", ["[::1]:8000"]),
        ("10.0.0.5", "10.0.0.5", ["10.0.0.5:8000"]),
    ],
)
async def test_the_address_follows_from_what_a_socket_is_bound_to(
    host: Host, bound: str, answers: str, asked: list[str]
) -> None:
    vllm(host.tree)
    host.tree.close(900)
    host.tree.listen(8000, 900, bound)
    host.engine(f"{answers}:8000")
    server = await host.only(gpu(0, 21))
    assert host.asked == asked
    assert (server.url, server.name) == (f"http://{asked[-1]}/metrics", "node:8000")


async def test_a_server_with_a_certificate_is_asked_by_https(host: Host) -> None:
    vllm(host.tree, "--ssl-keyfile", "k.pem", "--ssl-certfile", "c.pem")
    host.answers["https://127.0.0.1:8000"] = Probe(None, "tls")
    found = await host.look(gpu(0, 21))
    assert found.notes == (
        (
            "0.0.0.0:8000 (process 20 (vllm serve)) is not watched: its certificate is not trusted: "
            "name it in targets: with its url and tls"
        ),
    )
    host.answers["https://127.0.0.1:8000"] = Probe("vllm")
    assert (await host.only(gpu(0, 21))).url == "https://127.0.0.1:8000/metrics"


async def test_no_more_than_a_few_are_asked_at_once(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path / "proc")
    for at in range(20):
        vllm(tree, "--port", str(8100 + at), pid=20 + 2 * at, inode=900 + 2 * at, port=8100 + at)
    now, most = 0, 0

    async def probe(url: str) -> Probe:
        nonlocal now, most
        now, most = now + 1, max(most, now + 1)
        await asyncio.sleep(0)
        now -= 1
        return Probe("vllm")

    servers = LocalServers(probe, ports=(), proc=tree.root, hostname="n", own_pid=OWN_PID)
    assert len((await servers.look((), 0.0)).servers) == 20
    assert most == AT_ONCE


async def test_a_found_server_is_not_asked_again_and_goes_with_its_socket(host: Host) -> None:
    vllm(host.tree, "--port", "8000")
    host.engine("127.0.0.1:8000")
    first = await host.look(gpu(0, 21))
    for _ in range(3):
        assert await host.look(gpu(0, 21)) == first
    assert host.asked == ["127.0.0.1:8000"]
    host.tree.end(20)
    host.tree.end(21)
    host.tree.close(900)
    host.tree.close(901)
    assert await host.look(gpu(0)) == Found()
    vllm(host.tree, "--port", "8000", pid=60, inode=960)
    again = await host.only(gpu(1, 61))
    assert (again.name, again.gpus) == ("node:8000", ("GPU-1",))


async def test_gpus_are_followed_while_the_server_stays(host: Host) -> None:
    vllm(host.tree)
    host.engine("127.0.0.1:8000")
    assert (await host.only(gpu(0, 21), gpu(1))).gpus == ("GPU-0",)
    host.tree.process(29, 20, ["VLLM::EngineCore"])
    assert (await host.only(gpu(0), gpu(1, 29))).gpus == ("GPU-1",)


async def test_processes_are_read_again_after_a_minute_only(host: Host) -> None:
    vllm(host.tree)
    host.engine("127.0.0.1:8000")
    before = (await host.only()).how
    (host.tree.root / "20" / "cmdline").write_text("vllm::APIServer\0")
    assert (await host.only()).how == before
    await host.look(after=60.0)
    assert "vllm::APIServer" in (await host.only()).how


async def test_an_engine_is_asked_again_after_growing_pauses(host: Host) -> None:
    vllm(host.tree)
    times = []
    for second in range(1200):
        before = len(host.asked)
        await host.look(gpu(0, 21), after=0.0 if second == 0 else 1.0)
        if len(host.asked) > before:
            times.append(second)
    assert times == [0, 2, 6, 14, 30, 62, 126, 254, 510, 810, 1110]


async def test_anything_else_is_asked_three_times(host: Host) -> None:
    host.tree.process(20, 1, [PYTHON, "train.py"], comm="python3", sockets=[900])
    host.tree.listen(29500, 900)
    found = Found()
    for _ in range(300):
        found = await host.look(gpu(0, 20), after=1.0)
    assert host.asked == ["127.0.0.1:29500"] * 3
    assert found.notes == ("GPU 0: held by process 20 (python3), which is no server found here",)


async def test_names_stay_and_another_servers_has_the_address(host: Host) -> None:
    tree = host.tree
    for pid, ip in ((20, "172.17.0.2"), (30, "172.17.0.3")):
        network = f"net:[{pid}]"
        tree.process(pid, 1, ["vllm", "serve"], sockets=[pid * 10], network=network, pids="pid:[9]")
        tree.listen(8000, pid * 10, of_pid=pid)
        tree.addresses(pid, ip)
        host.engine(f"{ip}:8000")
        await host.look(after=60.0)
    expected = {"172.17.0.2": "node:8000", "172.17.0.3": "node:172.17.0.3:8000"}
    assert names(await host.look()) == expected
    tree.process(40, 1, ["vllm", "serve"], sockets=[400])
    tree.listen(8000, 400)
    host.engine("127.0.0.1:8000")
    assert names(await host.look()) == {**expected, "127.0.0.1": "node:127.0.0.1:8000"}
    anew = LocalServers(host.probe, ports=(), proc=tree.root, hostname="node", own_pid=OWN_PID)
    assert names(await anew.look((), 0.0)) == {
        "127.0.0.1": "node:8000",
        "172.17.0.2": "node:172.17.0.2:8000",
        "172.17.0.3": "node:172.17.0.3:8000",
    }


def names(found: Found) -> Mapping[str, str | None]:
    return {one.url.split("/")[2].removesuffix(":8000"): one.name for one in found.servers}


async def test_what_we_started_ourselves_is_found_and_we_are_not_its_home(host: Host) -> None:
    vllm(host.tree)
    host.tree.process(60, OWN_PID, [PYTHON, "serve.py"], comm="python3", sockets=[960])
    host.tree.process(61, 60, ["VLLM::EngineCore"])
    host.tree.process(62, OWN_PID, ["VLLM::EngineCore"])
    host.tree.listen(7000, 960)
    host.engine("127.0.0.1:8000", "127.0.0.1:7000")
    found = await host.look(gpu(0, 21), gpu(1, 61), gpu(2, 62))
    assert [(one.name, one.gpus) for one in found.servers] == [
        ("node:7000", ("GPU-1",)),
        ("node:8000", ("GPU-0",)),
    ]


async def test_a_gpu_process_without_a_title_belongs_to_the_engine_above_it(host: Host) -> None:
    tree = host.tree
    tree.process(19, 1, [PYTHON, "all.py"], comm="python3", sockets=[890])
    tree.process(20, 19, [PYTHON, "serve.py"], comm="python3", sockets=[900])
    tree.process(21, 20, ["VLLM::EngineCore"])
    tree.process(22, 20, [PYTHON, "-c", "spawn_main()"], comm="python3")
    tree.listen(7000, 890)
    tree.listen(7001, 900)
    host.engine("127.0.0.1:7001")
    server = await host.only(gpu(0, 21), gpu(1, 22))
    assert server.gpus == ("GPU-0", "GPU-1")
    assert host.asked == ["127.0.0.1:7001"]


async def test_a_single_process_may_serve_and_compute(host: Host) -> None:
    host.tree.process(20, 1, ["sglang", "serve"], sockets=[900])
    host.tree.listen(30000, 900)
    host.engine("127.0.0.1:30000", engine="sglang")
    server = await host.only(gpu(0, 20))
    assert server.how == "GPU process 20 (sglang serve) on GPU 0 listens on 0.0.0.0:30000"


async def test_a_socket_handed_to_another_server_is_asked_once(host: Host) -> None:
    host.tree.process(20, 1, ["vllm", "serve", "--port", "8000"], sockets=[900])
    host.tree.process(30, 1, ["vllm", "serve", "--port=8000"], sockets=[900])
    host.tree.listen(8000, 900)
    host.engine("127.0.0.1:8000")
    assert (await host.only()).how == "process 20 (vllm serve) listens on 0.0.0.0:8000"
    assert host.asked == ["127.0.0.1:8000"]


async def test_another_process_of_a_namespace_speaks_for_one_that_is_gone(host: Host) -> None:
    tree = host.tree
    for pid in (20, 21):
        tree.process(pid, 1, ["vllm", "serve"], sockets=[900], network="net:[7]")
        tree.listen(8000, 900, of_pid=pid)
        tree.addresses(pid, "172.17.0.2")
    host.engine("172.17.0.2:8000")
    first = await host.look()
    tree.end(20)
    assert await host.look() == first
    tree.end(21)
    assert await host.look() == Found()
