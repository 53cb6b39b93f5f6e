"""`floorwatch run`: what goes before the daemon; the daemon itself is in tests/e2e."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.command_line import CommandLine


def test_doubts_and_a_taken_port_are_a_line_each(floorwatch: CommandLine, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config.write_text(
            f"listen: {{address: '127.0.0.1:{taken.getsockname()[1]}'}}\n"
            "targets: [{name: a, url: 'http://127.0.0.1:1'}, {name: b, url: 'http://localhost:1'},"
            " {name: c, url: 'http://127.0.0.1:2', gpu: nosuch}]"
        )
        result = floorwatch("run", "--config", config)
    assert (result.code, result.out) == (1, "")
    doubt, unknown, fault = result.err.splitlines()
    assert doubt.startswith("floorwatch: a (127.0.0.1:1) and b (")
    assert unknown.startswith("floorwatch: c (127.0.0.1:2): gpu: no GPU 'nosuch' in the catalogue")
    assert fault.startswith("floorwatch: cannot listen on 127.0.0.1:")
