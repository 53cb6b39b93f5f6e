"""`floorwatch version`, with and without a driver."""

from __future__ import annotations

import platform
import re

import pytest

from monitor import __version__
from monitor.sources.nvml import Nvml
from tests.command_line import CommandLine


def test_versions(floorwatch: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Nvml, "connect", lambda _: "no library")
    result = floorwatch("version")
    assert (result.code, result.err) == (0, "")
    name, python, driver, catalogue = result.out.splitlines()
    assert name == f"floorwatch {__version__}"
    assert python == f"Python {platform.python_version()}"
    assert driver == "no NVIDIA driver"
    assert re.fullmatch(r"GPU catalogue of 20\d\d-\d\d-\d\d", catalogue)


def test_a_driver_is_told(floorwatch: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []

    def connect(self: Nvml) -> None:
        self.driver_version = "580.65.06"

    monkeypatch.setattr(Nvml, "connect", connect)
    monkeypatch.setattr(Nvml, "close", lambda _: closed.append(True))
    assert floorwatch("version").out.splitlines()[2] == "NVIDIA driver 580.65.06"
    assert closed == [True]
