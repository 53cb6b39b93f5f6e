"""`floorwatch version`."""

from __future__ import annotations

import platform

from monitor import __version__
from monitor.commands.console import show
from monitor.sources.expectations import catalogue_date, default_directory
from monitor.sources.nvml import Nvml


def version() -> int:
    """Show the versions of Floorwatch, Python and the driver, and the catalogue's date."""
    driver = "no NVIDIA driver"
    nvml = Nvml()
    if nvml.connect() is None:
        driver = f"NVIDIA driver {nvml.driver_version or 'unknown'}"
        nvml.close()
    show(f"floorwatch {__version__}")
    show(f"Python {platform.python_version()}")
    show(driver)
    show(f"GPU catalogue of {catalogue_date(default_directory()).isoformat()}")
    return 0
