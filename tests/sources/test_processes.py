"""Reading /proc: processes, who holds a socket, namespaces, variables; nothing ever raises."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from monitor.sources.engine_commands import Part
from monitor.sources.processes import (
    Processes,
    in_network_of_the_host,
    namespace,
    printable,
    read_owners,
    read_processes,
    user,
    variables,
)
from tests.sources.proc_tree import OWN_NETWORK, OWN_PID, ProcTree

WANTED = ("CUDA_VISIBLE_DEVICES",)


@pytest.fixture
def tree(tmp_path: Path) -> ProcTree:
    return ProcTree(tmp_path / "proc")


def test_a_process_has_a_parent_and_a_name_without_its_arguments(tree: ProcTree) -> None:
    tree.process(20, 1, ["/usr/bin/python3", "/bin/vllm", "serve", "--api-key", "sk-secret"])
    tree.process(21, 20, ["VLLM::EngineCore", "", ""], comm="VLLM::EngineCor")
    tree.process(22, 1, ["nginx: worker", "--secret"], comm="ng) S 7 (x")
    found = read_processes(tree.root).by_pid
    assert sorted(found) == [1, 20, 21, 22, OWN_PID]
    assert (found[20].parent, found[20].shown) == (1, "20 (vllm serve)")
    assert (found[21].parent, found[21].name) == (20, "VLLM::EngineCore")
    assert (found[22].parent, found[22].name) == (1, "ng) S 7 (x")
    assert found[20].command.part is Part.LAUNCH
    assert "secret" not in repr(found)


def test_the_kernels_own_and_the_dead_are_left_out(tree: ProcTree) -> None:
    for pid, parent, state in ((2, 0, "S"), (30, 2, "I"), (31, 1, "Z")):
        tree.process(pid, parent, [""], comm="kthread", state=state)
        (tree.root / str(pid) / "cmdline").write_bytes(b"")
    assert sorted(read_processes(tree.root).by_pid) == [1, OWN_PID]


@pytest.mark.parametrize("stat", ["", "40", "40 (x) S", "40 (x) S parent 1", "40 (x) S -1 1"])
def test_a_line_that_cannot_be_read_is_no_process(tree: ProcTree, stat: str) -> None:
    tree.process(40, 1, ["x"])
    (tree.root / "40" / "stat").write_text(stat)
    assert 40 not in read_processes(tree.root).by_pid


def test_a_process_that_goes_while_it_is_read_is_no_process(tree: ProcTree) -> None:
    tree.process(40, 1, ["x"])
    (tree.root / "40" / "cmdline").unlink()
    assert 40 not in read_processes(tree.root).by_pid


def test_there_may_be_no_proc(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_processes(tmp_path / "proc")


def test_the_line_of_parents_ends_even_in_a_circle(tree: ProcTree) -> None:
    tree.process(50, 51, ["a"])
    tree.process(51, 50, ["b"])
    tree.process(52, 99, ["c"])
    processes = read_processes(tree.root)
    assert [one.pid for one in processes.line(50)] == [50, 51]
    assert [one.pid for one in processes.line(52)] == [52]
    assert list(processes.line(77)) == []


def test_a_socket_may_be_held_by_several_and_by_nobody_who_can_be_seen(tree: ProcTree) -> None:
    tree.process(20, 1, ["vllm", "serve"], sockets=[900, 900, 901])
    tree.process(21, 20, ["vllm", "serve"], sockets=[900, 555])
    tree.process(22, 1, ["secret"], unreadable=True)
    owners = read_owners(tree.root, [20, 21, 22, 99], [900, 901, 902])
    assert owners.by_inode == {900: (20, 21), 901: (20,)}
    assert owners.unreadable == {22}


def test_namespaces_and_users(tree: ProcTree) -> None:
    tree.process(22, 1, ["secret"], unreadable=True)
    assert namespace(tree.root, OWN_PID, "net") == OWN_NETWORK
    assert namespace(tree.root, 22, "net") is None
    assert user(tree.root, 22) == os.getuid()
    assert user(tree.root, 99) is None


def test_only_the_variables_asked_for_are_kept(tree: ProcTree) -> None:
    tree.process(20, 1, ["vllm", "serve"], environment={"CUDA_VISIBLE_DEVICES": "0,1"})
    assert variables(tree.root, 20, WANTED) == {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert variables(tree.root, OWN_PID, WANTED) == {}
    assert variables(tree.root, 99, WANTED) is None


@pytest.mark.parametrize("text", ["", "\0\0\0", "EngineCore\0\0\0PATH=/bin\0", "=x\0"])
def test_an_overwritten_environment_tells_nothing(tree: ProcTree, text: str) -> None:
    (tree.root / str(OWN_PID) / "environ").write_text(text)
    assert variables(tree.root, OWN_PID, WANTED) is None


def test_foreign_text_is_cut_and_made_printable() -> None:
    assert printable("a\x1b[31m\nb" + "c" * 50) == "a?[31m?b" + "c" * 32


def test_which_network_is_the_hosts(tmp_path: Path) -> None:
    assert in_network_of_the_host(ProcTree(tmp_path / "host").root)
    assert not in_network_of_the_host(ProcTree(tmp_path / "pod", own_network=True).root)


def test_the_real_proc_tells_of_ourselves() -> None:
    proc = Path("/proc")
    processes = read_processes(proc)
    assert isinstance(processes, Processes)
    assert processes.by_pid[os.getpid()].parent == os.getppid()
    with socket.create_server(("127.0.0.1", 0)) as server:
        inode = os.fstat(server.fileno()).st_ino
        owners = read_owners(proc, [os.getpid()], [inode])
        assert owners.by_inode == {inode: (os.getpid(),)}
