"""Simulate when alarms go on: `python -m tests.simulate [--quick] [--out DIR]`.

Writes RESULTS.md (false pages a week and delay, by rule and fault) and, where matplotlib is at
hand, tradeoff.png. `--quick` simulates days instead of months and writes to build/simulate, so
that what is committed stays whole. Some minutes on two cores.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.simulate.report import document, draw
from tests.simulate.runs import FULL, QUICK, run

_HERE = Path(__file__).parent
_QUICK_OUT = Path("build/simulate")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the simulation and write what it found."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulate", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="days instead of months")
    parser.add_argument("--out", type=Path, help=f"the folder (else here; quick: {_QUICK_OUT})")
    parser.add_argument("--processes", type=int, default=2, help="processes at once (2)")
    options = parser.parse_args(arguments)
    out: Path = options.out or (_QUICK_OUT if options.quick else _HERE)
    out.mkdir(parents=True, exist_ok=True)
    results = run(QUICK if options.quick else FULL, options.processes)
    page = out / "RESULTS.md"
    page.write_text(document(results), encoding="utf-8")
    sys.stdout.write(f"table written to {page}\n{draw(results, out / 'tradeoff.png')}\n")


if __name__ == "__main__":
    main()
