"""What the documents' commands find where they run: a recording, files, a running demo."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor import demo
from tests.docs import incident
from tests.docs.documents import document


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `incident/`, `incident.tar.gz` and the files that the README writes out."""
    folder = tmp_path_factory.mktemp("docs")
    asyncio.run(incident.write(folder))
    for block in document("README.md").blocks():
        if named := re.fullmatch(r"file (\S+)", block.mark):
            (folder / named[1]).write_text(block.body, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def demo_servers(workplace: Path) -> Iterator[None]:
    """The demo's servers while a test looks at them; `config.yaml` names them."""
    up, over = threading.Event(), threading.Event()

    async def serve() -> None:
        running = await demo.start("mamba-cap", time.monotonic)
        (workplace / "config.yaml").write_text(running.config_text, encoding="utf-8")
        up.set()
        try:
            await asyncio.to_thread(over.wait)
        finally:
            await running.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert up.wait(10.0)
    yield
    over.set()
    thread.join(10.0)
