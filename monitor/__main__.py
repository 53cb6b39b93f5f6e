"""`python -m monitor` is `floorwatch`."""

from monitor.cli import main

if __name__ == "__main__":
    main()
