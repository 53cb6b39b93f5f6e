"""Which source of GPU facts a configuration asks for."""

from __future__ import annotations

from monitor.commands.gpu_source import NoGpus, gpu_source
from monitor.config import GpuSourceConfig, parse
from monitor.sources.dcgm import DcgmSource
from monitor.sources.nvml import NvmlPoller


def config(text: str) -> GpuSourceConfig:
    return parse(f"gpu_source: {text}", "test", {}).gpu_source


async def test_each_word_has_its_source() -> None:
    for text, kind in (
        ("nvml", NvmlPoller),
        ("none", NoGpus),
        ("{dcgm: 'http://127.0.0.1:9400'}", DcgmSource),
    ):
        source = gpu_source(config(text))
        assert isinstance(source, kind)
        await source.close()


async def test_none_is_said_to_be_the_operators_wish() -> None:
    source = gpu_source(config("none"))
    told = await source.read()
    assert (told.gpus, told.error) == ((), "`gpu_source: none` in the configuration")
    assert source.last_read_seconds is None
