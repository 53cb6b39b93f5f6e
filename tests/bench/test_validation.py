"""The fit in force keeps its promises on every validation row (regression; 0.1 s)."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from monitor.expectation.step_time import StepFit, step_parts
from tests.bench.cases import Case, fits, read_cases, worst
from tests.bench.fit import fit_rows, start
from tests.bench.validate import (
    FLOOR_SHARE,
    draw,
    main,
    observed,
    percentile,
    report,
    spread,
    write_table,
)

CASES = read_cases()
FITS = fits()
IN_FORCE = next(iter(FITS.values()))
PUBLISHED = [case for case in CASES if not case.measured_here]
HERE = [case for case in CASES if case.measured_here]


def test_every_row_is_there() -> None:
    assert len(PUBLISHED) == 117
    assert sum(case.healthy for case in PUBLISHED) == 105
    assert sum(case.status == "fault" for case in PUBLISHED) == 4
    assert len(HERE) == 32
    assert sum(case.healthy for case in HERE) == 21


def test_published_rows_lie_where_the_data_file_says() -> None:
    s = spread(observed(PUBLISHED, IN_FORCE))
    assert s.p5 >= 0.70
    assert s.p95 <= 1.35
    assert 0.95 <= s.median <= 1.05


def test_healthy_h200_rows_lie_within_a_quarter() -> None:
    values = observed(HERE, IN_FORCE)
    assert min(values) >= 0.8
    assert max(values) <= 1.25


def test_the_floor_cries_at_no_healthy_row_and_misses_no_fault() -> None:
    healthy = [worst(case.of(IN_FORCE)) for case in CASES if case.healthy]
    assert min(healthy) >= FLOOR_SHARE
    faults = [case for case in CASES if case.fault]
    assert len(faults) == 4 + 3 + 3 + 1
    assert [case.name for case in faults if worst(case.of(IN_FORCE)) >= FLOOR_SHARE] == []


def test_the_published_fit_reads_as_when_it_was_made() -> None:
    """E_obs on H200 at batch 1, 8, 64, 256 was 1.19, 1.22, 1.43, 1.65; the cap had E_dem 0.16."""
    fit = FITS["2026-published"]
    by_name = {case.name: case.of(fit) for case in HERE}
    batches = [by_name[f"vllm bf16 c{n}"].efficiency_observed for n in (1, 8, 64, 256)]
    assert batches == pytest.approx([1.19, 1.22, 1.43, 1.65], abs=0.01)
    capped = by_name["vllm slot cap 8, 128 clients"]
    assert capped.efficiency_demand == pytest.approx(0.16, abs=0.005)
    s = spread(observed([case for case in PUBLISHED if _was_in_the_fit(case)], fit))
    assert (s.n, round(s.p5, 2), round(s.p95, 2)) == (91, 0.70, 1.41)


def _was_in_the_fit(case: Case) -> bool:
    return case.group not in ("speculative (MTP)", "64k context, cached")


def test_bytes_agree_with_the_dram_counter() -> None:
    """The model's MBU and GPM's DRAM activity: the byte model has no fitted constant.

    Activations, which it leaves out, grow with the batch; prefill is nothing but them.
    """
    for case in HERE:
        running = case.load.running or 0.0
        if running <= 64 and case.load.prompt_tokens == 128:
            near = 0.02 if running <= 40 else 0.06
            assert case.of(IN_FORCE).mbu == pytest.approx(case.dram_active, abs=near), case.name


@pytest.mark.parametrize(
    ("name", "milliseconds"),
    [
        # Weights and caches worked out by hand over the catalogue's bandwidth.
        # 51.248e9, and 0.9991 x (65536 x 1536 + 2 x 153.94e6), over 8e12.
        ("qwen27b/bf16/gb300-279gbx1/1024/1024/B0.9991", 6.457),
        # 6.98e9 x 2 + 0.5253e9 x 2 = 15.01e9, and 131072 x 200 x 0.7919, over 3.35e12.
        ("llama8b/bf16/h100-sxm5-80gbx1/100/200/B0.7919", 4.487),
    ],
)
def test_the_shapes_give_the_bytes_of_the_published_rooflines(
    name: str, milliseconds: float
) -> None:
    case = next(case for case in PUBLISHED if case.name == name)
    load = case.load
    assert load.running is not None
    assert load.context_tokens is not None
    parts = step_parts(case.machine, load.running, load.context_tokens)
    assert parts.memory * 1e3 == pytest.approx(milliseconds, rel=0.001)


def test_the_fit_stays_put_where_nothing_is_asked_of_it() -> None:
    begin = start()
    assert fit_rows([], begin) == begin
    assert begin.memory_efficiency == 0.93
    assert begin.compute_efficiency == 0.67


def test_a_percentile_lies_between_its_neighbours() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([1.0, 2.0], 0.25) == 1.25
    assert percentile([4.0], 0.95) == 4.0


def test_the_report_tells_both_fits_and_every_row_that_is_not_healthy() -> None:
    text = report(CASES)
    assert "Fit `2026-overlapped` (in force)" in text
    assert "Fit `2026-published` (not in force)" in text
    assert "0 of 126 healthy rows below it, 0 of 11 faults missed" in text
    assert "| vllm slot cap 8, 128 clients | slot_cap |" in text


def test_the_committed_table_is_the_present_one() -> None:
    readme = Path(__file__).parents[2] / "expectations" / "README.md"
    assert report(CASES) in readme.read_text(encoding="utf-8")


def test_the_table_goes_between_its_markers_and_nowhere_else(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("a\n<!-- validation: begin -->\nold\n<!-- validation: end -->\nb\n")
    write_table(readme, "new")
    assert readme.read_text() == (
        "a\n<!-- validation: begin -->\nnew\n<!-- validation: end -->\nb\n"
    )
    readme.write_text("no markers")
    with pytest.raises(SystemExit, match="expected the markers"):
        write_table(readme, "new")


def test_a_scatter_needs_matplotlib_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    fit: StepFit = replace(IN_FORCE, name="any")
    assert draw(CASES, fit, tmp_path / "v.png") == "no scatter: matplotlib is not installed"
    main(["--png", str(tmp_path / "v.png")])
    assert "no scatter" in capsys.readouterr().out
    assert not (tmp_path / "v.png").exists()
