"""The parts of the documents that are written by a program, from the code itself.

`python -m tests.docs.generated` writes them anew between their marks; the tests compare.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

from monitor.outputs.metric_table import METRICS

ROOT = Path(__file__).parents[2]

_MARKED = re.compile(r"(<!-- generated: (\w+) -->\n)(.*?)(<!-- end -->\n)", re.DOTALL)


def metrics() -> str:
    """The README's table of metrics, a row each."""
    rows = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(f"| `{metric.name}` | {metric.type} | {labels} | {metric.help} |")
    return "\n".join(rows) + "\n"


def layers() -> str:
    """The layers of the import contract, from the top."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (contract,) = (one for one in contracts if one["type"] == "layers")
    return "\n".join(["```text", *contract["layers"], "```"]) + "\n"


PARTS: dict[str, Callable[[], str]] = {"layers": layers, "metrics": metrics}


def parts_of(text: str) -> dict[str, str]:
    """Name -> what stands between its marks."""
    return {found[2]: found[3] for found in _MARKED.finditer(text)}


def with_parts(text: str) -> str:
    """The document with every part written anew."""
    return _MARKED.sub(lambda found: found[1] + PARTS[found[2]]() + found[4], text)


def main() -> None:
    """Write the parts of every document that has some."""
    for path in sorted(ROOT.glob("*.md")):
        old = path.read_text(encoding="utf-8")
        new = with_parts(old)
        if new != old:
            path.write_text(new, encoding="utf-8")
            print(f"{path.name}: written anew")


if __name__ == "__main__":
    main()
