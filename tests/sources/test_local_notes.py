"""What discovery sees from a container or without rights, and what it says is ambiguous."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from monitor.model import Found, FoundServer
from monitor.sources.local_servers import LocalServers, Probe
from tests.sources.local_host import CONTAINER, PYTHON, Host, gpu, vllm
from tests.sources.proc_tree import POD_PIDS, ProcTree


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(ProcTree(tmp_path / "proc"))


@pytest.fixture
def pod(tmp_path: Path) -> Host:
    """A sidecar: our own PID namespace, the pod's network."""
    return Host(ProcTree(tmp_path / "proc", pids=POD_PIDS, own_network=True))


async def test_a_container_seen_from_the_host_is_asked_at_its_own_address(host: Host) -> None:
    tree = host.tree
    tree.process(20, 1, ["vllm", "serve"], sockets=[900], network=CONTAINER, pids="pid:[9]")
    tree.process(21, 20, ["VLLM::EngineCore"], network=CONTAINER, pids="pid:[9]")
    tree.listen(8000, 900, of_pid=20)
    tree.addresses(20, "172.17.0.2")
    host.engine("172.17.0.2:8000")
    server = await host.only(gpu(0, 21))
    assert (server.url, server.name) == ("http://172.17.0.2:8000/metrics", "node:8000")
    assert server.gpus == ("GPU-0",)


async def test_what_listens_on_a_containers_loopback_is_said(host: Host) -> None:
    tree = host.tree
    tree.process(20, 1, ["vllm", "serve"], sockets=[900], network=CONTAINER)
    tree.listen(8000, 900, "127.0.0.1", of_pid=20)
    tree.addresses(20, "172.17.0.2")
    found = await host.look()
    assert host.asked == []
    assert found.notes == (
        (
            "127.0.0.1:8000 (process 20 (vllm serve)) listens only inside its container: start it "
            "with --host 0.0.0.0, or run in its network namespace"
        ),
    )


async def test_a_containers_address_that_does_not_answer_is_said(host: Host) -> None:
    tree = host.tree
    tree.process(20, 1, ["vllm", "serve"], sockets=[900], network=CONTAINER)
    tree.listen(8000, 900, of_pid=20)
    tree.addresses(20, "10.0.2.100")
    found = await host.look()
    assert found.notes == (
        (
            "0.0.0.0:8000 (process 20 (vllm serve)) is not watched: its container's address does not "
            "answer from here: name it in targets: with its url that does"
        ),
    )


async def test_in_a_pod_every_port_but_the_privileged_is_asked(pod: Host) -> None:
    for inode, port in enumerate((80, 8000, 9999), start=900):
        pod.tree.listen(port, inode)
    pod.engine("127.0.0.1:9999")
    found = await pod.look(gpu(0, 4242))
    assert pod.asked == ["127.0.0.1:8000", "127.0.0.1:9999"]
    assert found.servers == (
        FoundServer(
            url="http://127.0.0.1:9999/metrics",
            name="node:9999",
            how=(
                "an engine's page answers on 0.0.0.0:9999; the owner of the port is not visible "
                "here"
            ),
            local=True,
            gpus_because=(
                "its process is not visible here: the host's PID namespace or CAP_SYS_PTRACE "
                "would tell, or gpus: in targets"
            ),
        ),
    )
    assert found.notes == (
        (
            "2 listening ports belong to processes outside of this PID namespace: the host's "
            "(hostPID: true, --pid host) or the pod's (shareProcessNamespace: true) would tell more: "
            "80, 8000"
        ),
        (
            "GPU 0 is held by pid 4242, which is not visible here: run in the host's PID namespace "
            "(hostPID: true, --pid host)"
        ),
    )


async def test_in_a_pod_a_usual_port_is_asked_for_good_and_the_others_three_times(
    pod: Host,
) -> None:
    pod.tree.listen(8000, 900)
    pod.tree.listen(9999, 901)
    for _ in range(40):
        await pod.look(after=10.0)
    assert pod.asked.count("127.0.0.1:9999") == 3
    assert pod.asked.count("127.0.0.1:8000") == 8  # at 0, 10, 20, 30, 50, 90, 160 and 290 s


async def test_on_the_hosts_network_only_usual_ports_are_asked(tmp_path: Path) -> None:
    host = Host(ProcTree(tmp_path / "proc", pids=POD_PIDS, own_network=False))
    for inode, port in enumerate((2379, 8000, 10250), start=900):
        host.tree.listen(port, inode)
    await host.look()
    assert host.asked == ["127.0.0.1:8000"]


async def test_nvmls_numbers_are_not_a_pods_unless_an_engine_has_them(pod: Host) -> None:
    vllm(pod.tree)
    pod.tree.process(60, 1, ["sleep"])
    pod.engine("127.0.0.1:8000")
    found = await pod.look(gpu(0, 21), gpu(1, 60))
    assert [one.gpus for one in found.servers] == [("GPU-0",)]
    assert found.notes == (
        (
            "GPU 1 is held by pid 60, which is not visible here: run in the host's PID namespace "
            "(hostPID: true, --pid host)"
        ),
    )


async def test_unprivileged_the_command_line_tells_the_port_and_the_tree_the_gpus(
    host: Host,
) -> None:
    tree = host.tree
    tree.process(20, 1, ["vllm", "serve", "--port", "8123"], unreadable=True)
    tree.process(21, 20, ["VLLM::EngineCore"], unreadable=True)
    tree.listen(8123, 900)
    tree.listen(8443, 901)
    tree.listen(45000, 902, "127.0.0.1")
    host.engine("127.0.0.1:8123")
    found = await host.look(gpu(0, 21))
    assert host.asked == ["127.0.0.1:8123"]
    assert [(one.name, one.gpus) for one in found.servers] == [("node:8123", ("GPU-0",))]
    assert found.servers[0].how == (
        "GPU process 21 (VLLM::EngineCore) on GPU 0; its ancestor 20 (vllm serve) names port 8123 "
        "in its command line, where its user listens on 0.0.0.0:8123"
    )
    assert found.notes == (
        (
            "2 listening ports belong to processes that this user cannot look into: CAP_SYS_PTRACE "
            "(or the same user) would tell more: 8443, 45000"
        ),
    )


async def test_a_port_is_not_anothers_for_its_number_alone(host: Host) -> None:
    tree = host.tree
    tree.process(20, 1, ["vllm", "serve", "--port", "8123"], unreadable=True)
    tree.process(30, 1, ["vllm", "serve", "--port", "8124"], unreadable=True)
    tree.process(40, 1, ["vllm", "serve", "--port", "8124"], unreadable=True)
    tree.listen(8123, 900, uid=os.getuid() + 1)
    tree.listen(8124, 901)
    found = await host.look()
    assert host.asked == []
    assert [note[:60] for note in found.notes] == [
        "2 listening ports belong to processes that this user cannot ",
        "process 20 (vllm serve) does not listen on port 8123 yet: it",
        "process 30 (vllm serve) does not listen on port 8124 yet: it",
        "process 40 (vllm serve) does not listen on port 8124 yet: it",
    ]
    assert found.notes[1].endswith("CAP_SYS_PTRACE (or the same user) would tell more")


async def test_a_usual_port_of_an_unknown_owner_is_asked_and_lists_are_cut(host: Host) -> None:
    host.tree.process(20, 1, ["secret"], unreadable=True)
    for at in range(12):
        host.tree.listen(8000 + at, 900 + at, "127.0.0.1")
    host.tree.listen(8000, 950, "::1")
    found = await host.look()
    assert host.asked == ["127.0.0.1:8000", "[::1]:8000"]
    assert found.notes[0].endswith("8000, 8001, 8002, 8003, 8004, 8005, 8006, 8007 and 4 more")


async def test_hidden_processes_are_said(tmp_path: Path) -> None:
    host = Host(ProcTree(tmp_path / "proc"))
    host.tree.end(1)
    host.tree.listen(8000, 900)
    host.engine("127.0.0.1:8000")
    found = await host.look(gpu(0, 4242))
    assert [one.gpus for one in found.servers] == [None]
    assert found.notes == (
        (
            "/proc shows only this user's processes (hidepid): CAP_SYS_PTRACE, or the group of the "
            "mount's gid= option, would tell whose ports are whose"
        ),
        (
            "GPU 0 is held by pid 4242, which is not visible here: it has just ended, or /proc hides "
            "it"
        ),
    )


async def test_without_a_proc_nothing_is_found_and_nothing_raises(tmp_path: Path) -> None:
    host = Host(ProcTree(tmp_path / "proc"))
    servers = LocalServers(host.probe, ports=(8000,), proc=tmp_path / "none", hostname="mac")
    assert await servers.look((gpu(0, 7),), 0.0) == Found(
        notes=(
            "/proc cannot be read (No such file or directory): servers of this host are not found",
        )
    )


async def test_a_process_that_goes_before_it_is_read_changes_nothing(host: Host) -> None:
    vllm(host.tree)
    host.engine("127.0.0.1:8000")
    host.tree.process(66, 20, ["gone"])
    (host.tree.root / "66" / "stat").unlink()
    assert (await host.only(gpu(0, 21, 66))).gpus == ("GPU-0",)


@pytest.mark.parametrize(
    "line",
    ["vllm serve m --headless -dp 4", "sglang serve --tp 16 --nnodes 2 --node-rank 1"],
)
async def test_a_further_host_has_no_page(host: Host, line: str) -> None:
    host.tree.process(20, 1, line.split(), sockets=[900])
    host.tree.process(21, 20, ["VLLM::EngineCore"])
    host.tree.listen(30000, 900)
    found = await host.look(gpu(3, 21))
    assert host.asked == []
    assert found.notes[0].startswith("GPU 3: process 20 (")
    assert found.notes[0].endswith(
        "is a further host of a server (headless or node rank above 0): its server's page is "
        "elsewhere"
    )


async def test_a_unix_socket_is_said(host: Host) -> None:
    host.tree.process(20, 1, ["vllm", "serve", "--uds", "/run/v.sock"])
    assert (await host.look()).notes == (
        (
            "process 20 (vllm serve) serves a unix socket: name it in targets: with its url "
            "(unix:///path)"
        ),
    )


async def test_a_router_is_said_and_its_servers_are_found(host: Host) -> None:
    tree = host.tree
    tree.process(20, 1, [PYTHON, "-m", "sglang_router.launch_server"], sockets=[900])
    tree.process(30, 20, [PYTHON, "-c", "spawn_main()"], comm="python3", sockets=[930])
    tree.process(31, 30, ["sglang::scheduler"])
    tree.listen(30000, 900)
    tree.listen(31000, 930)
    host.answers["127.0.0.1:30000"] = Probe(None, "router")
    host.engine("127.0.0.1:31000", engine="sglang")
    found = Found()
    for _ in range(5):
        found = await host.look(gpu(0, 31))
    assert [(one.name, one.gpus) for one in found.servers] == [("node:31000", ("GPU-0",))]
    assert found.notes == (
        (
            "0.0.0.0:30000 (process 20 (sglang_router.launch_server)) is a router or gateway: the "
            "servers behind it are watched, not it"
        ),
    )


@pytest.mark.parametrize(
    ("line", "problem", "fix"),
    [
        (
            "sglang serve --port 8000",
            "http_status",
            "it serves no metrics: start it with --enable-metrics",
        ),
        (
            "vllm serve --disable-log-stats",
            "no_engine_metrics",
            "it serves no metrics: start it without --disable-log-stats",
        ),
        (
            "vllm serve",
            "unauthorized",
            "its page wants credentials: name it in targets: with its url and authorization",
        ),
        ("vllm serve", "timeout", "its metrics page answers timeout; it is asked again"),
    ],
)
async def test_a_server_without_a_page_is_a_note_with_the_fix(
    host: Host, line: str, problem: str, fix: str
) -> None:
    host.tree.process(20, 1, line.split(), sockets=[900])
    host.tree.listen(8000, 900)
    host.answers["127.0.0.1:8000"] = Probe(None, problem)
    for _ in range(3):
        found = await host.look()
        assert found.servers == ()
        label = " ".join(line.split()[:2])
        assert found.notes == (f"0.0.0.0:8000 (process 20 ({label})) is not watched: {fix}",)


async def test_offline_use_of_an_engine_is_no_server(host: Host) -> None:
    host.tree.process(20, 1, [PYTHON, "batch.py"], comm="python3", sockets=[900])
    host.tree.process(21, 20, ["VLLM::EngineCore"])
    host.tree.listen(45000, 900, "127.0.0.1")
    host.answers["127.0.0.1:45000"] = Probe(None, "bad_body")
    found = Found()
    for _ in range(30):
        found = await host.look(gpu(0, 21))
    assert len(host.asked) == 3
    assert found.notes == (
        (
            "GPU 0: 20 (python3) has no server with a port on this host: a headless node, whose "
            "server's page is elsewhere, or no server at all"
        ),
    )


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ("--disaggregation-mode decode", {"role": "decode"}),
        ('--kv-transfer-config {"kv_role":"kv_producer"}', {"role": "prefill"}),
    ],
)
async def test_the_role_of_a_pair_is_handed_on(
    host: Host, options: str, settings: dict[str, str]
) -> None:
    vllm(host.tree, *options.split())
    host.engine("127.0.0.1:8000")
    assert (await host.only(gpu(0, 21))).settings == settings


async def test_a_role_that_is_not_told_is_said(host: Host) -> None:
    vllm(host.tree, "--kv-transfer-config", '{"kv_role": "kv_both"}')
    host.engine("127.0.0.1:8000")
    assert (await host.look(gpu(0, 21))).notes == (
        (
            "node:8000 may prefill, decode or do both (kv_role kv_both): say role: in targets where "
            "it does one"
        ),
    )


async def test_many_notes_of_a_kind_are_cut(host: Host) -> None:
    for at in range(20):
        host.tree.process(100 + at, 1, ["vllm", "serve", "--headless"])
    notes = (await host.look()).notes
    assert len(notes) == 17
    assert notes[-1] == "... and 4 more of the kind"


async def test_no_key_of_a_command_line_is_told(host: Host) -> None:
    vllm(host.tree, "--api-key", "sk-secret")
    host.engine("127.0.0.1:8000")
    found = await host.look(gpu(0, 21))
    assert "sk-secret" not in repr(found)


async def test_the_kernels_own_ports_are_nobodys_and_no_note(host: Host) -> None:
    host.tree.listen(2049, 900)
    assert await host.look() == Found()


async def test_a_container_whose_addresses_cannot_be_read_is_said(host: Host) -> None:
    host.tree.process(20, 1, ["vllm", "serve"], sockets=[900], network=CONTAINER)
    host.tree.listen(8000, 900, of_pid=20)
    assert (await host.look()).notes == (
        (
            "0.0.0.0:8000 (process 20 (vllm serve)) has no address to ask it at: start it with "
            "--host 0.0.0.0, or run in its network namespace"
        ),
    )


async def test_a_router_is_not_the_home_of_what_it_starts(host: Host) -> None:
    host.tree.process(20, 1, ["vllm-router", "--port", "8000"], sockets=[900])
    host.tree.process(30, 20, [PYTHON, "work.py"], comm="python3", sockets=[930])
    host.tree.listen(8000, 900)
    host.tree.listen(7000, 930)
    host.engine("127.0.0.1:7000")
    assert (await host.only(gpu(0, 30))).gpus == ("GPU-0",)
    assert sorted(host.asked) == ["127.0.0.1:7000", "127.0.0.1:8000"]
