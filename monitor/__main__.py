"""`python -m monitor` is `floorwatch`."""

from monitor.cli import main

main()
