"""What the daemon costs, from a /proc of the test's own and from the real one."""

from __future__ import annotations

import os
from pathlib import Path

from monitor.own_cost import process_cost

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def test_figures_of_a_written_proc(tmp_path: Path) -> None:
    (tmp_path / "statm").write_text("5000 300 100 1 0 200 0\n")
    (tmp_path / "fd").mkdir()
    for number in range(3):
        (tmp_path / "fd" / str(number)).touch()
    cost = process_cost(tmp_path)
    assert cost["process_resident_bytes"] == 300 * PAGE_BYTES
    assert cost["process_open_fds"] == 3


def test_without_proc_it_is_not_known(tmp_path: Path) -> None:
    cost = process_cost(tmp_path / "nowhere")
    assert cost["process_resident_bytes"] is None
    assert cost["process_open_fds"] is None
    assert cost["process_cpu_seconds"] is not None


def test_an_odd_statm_is_not_known(tmp_path: Path) -> None:
    for text in ("", "5000", "5000 many"):
        (tmp_path / "statm").write_text(text)
        assert process_cost(tmp_path)["process_resident_bytes"] is None


def test_this_process() -> None:
    before = process_cost()
    sum(range(200_000))
    after = process_cost()
    assert before["process_cpu_seconds"] is not None
    assert after["process_cpu_seconds"] is not None
    assert after["process_cpu_seconds"] >= before["process_cpu_seconds"]
    assert after["process_resident_bytes"] is not None
    assert 5e6 < after["process_resident_bytes"] < 4e9
    assert after["process_open_fds"] is not None
    assert after["process_open_fds"] >= 3
