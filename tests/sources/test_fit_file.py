"""The shipped constants load; a file that is wrong is told in one line."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from monitor.expectation.step_time import StepFit, StepForm
from monitor.model import Confidence, Density
from monitor.sources.expectations import ExpectationInvalid, default_directory
from monitor.sources.fit_file import FILE_NAME, load_fits

GOOD = """\
in_force = "one"
because = "it is the only one"

[fits.one]
form = "overlapped"
fitted_on = "rows"
method = "by hand"
accuracy = "none"

[fits.one.constants]
memory_efficiency = 0.9
compute_efficiency = 0.5
prefill_efficiency = 0.5
moe_prefill_efficiency = 1
layer_microseconds = 70
tensor_parallel_layer_microseconds = 0
moe_layer_microseconds = 90.5

[ceilings.memory_read]
value = 0.93
of = "bandwidth"
sources = ["a measurement"]
"""


def folder(tmp_path: Path, text: str) -> Path:
    (tmp_path / FILE_NAME).write_text(text, encoding="utf-8")
    return tmp_path


def test_the_shipped_file_names_the_fit_in_force_and_keeps_the_published_one() -> None:
    shipped = load_fits(default_directory())
    assert set(shipped.fits) == {"2026-published", "2026-overlapped"}
    assert shipped.in_force.name == "2026-overlapped"
    assert shipped.because
    published = shipped.fits["2026-published"].constants
    efficiencies = ("memory_efficiency", "compute_efficiency", "prefill_efficiency")
    assert [published[key] for key in efficiencies] == [0.9, 0.5, 0.5]
    overheads = (
        "layer_microseconds",
        "tensor_parallel_layer_microseconds",
        "moe_layer_microseconds",
        "sequence_microseconds",
        "host_microseconds",
    )
    assert [published[key] for key in overheads] == [70, 20, 90, 40, 0]


def test_measured_ceilings_are_figures_of_their_own_kind() -> None:
    ceilings = load_fits(default_directory()).ceilings
    assert {name: figure.value for name, figure in ceilings.items()} == {
        "memory_copy": 0.89,
        "memory_read": 0.93,
        "compute_bf16": 0.67,
        "compute_fp8": 0.64,
    }
    assert {figure.confidence for figure in ceilings.values()} == {Confidence.MEASURED}
    assert ceilings["compute_fp8"].precision == "fp8"
    assert ceilings["compute_fp8"].density is Density.DENSE
    assert ceilings["memory_read"].unit == "of bandwidth"
    assert ceilings["memory_read"].density is None
    assert all(figure.sources for figure in ceilings.values())


def test_every_constant_of_the_model_has_a_key_and_no_more(tmp_path: Path) -> None:
    record = load_fits(folder(tmp_path, GOOD)).in_force
    fit = StepFit(name=record.name, form=StepForm(record.form), **record.constants)
    assert {field.name for field in fields(fit)} == {"name", "form", *record.constants}
    assert fit.moe_prefill_efficiency == 1.0
    assert fit.host_microseconds == 0.0
    assert (record.fitted_on, record.method, record.accuracy) == ("rows", "by hand", "none")


@pytest.mark.parametrize(
    ("good", "bad", "told"),
    [
        (
            'in_force = "one"',
            'in_force = "two"',
            'in_force: "two" has no [fits.two] table; expected one of one: name one of these',
        ),
        (
            "memory_efficiency = 0.9",
            "memory_efficiency = 1.2",
            (
                "[fits.one.constants] memory_efficiency: 1.2 is not valid; expected a share above 0,"
                " at most 1: correct it"
            ),
        ),
        (
            "memory_efficiency = 0.9",
            "memory_efficiency = nan",
            (
                "[fits.one.constants] memory_efficiency: nan is not valid; expected a share above 0,"
                " at most 1: correct it"
            ),
        ),
        (
            "layer_microseconds = 70",
            "layer_microseconds = -1",
            (
                "[fits.one.constants] layer_microseconds: -1 is not valid; expected a duration of 0 to"
                " 1000000 microseconds: correct it"
            ),
        ),
        (
            "prefill_efficiency = 0.5\nmoe",
            "moe",
            (
                "[fits.one.constants] prefill_efficiency: missing; expected a share above 0, at most"
                " 1: add it"
            ),
        ),
        (
            "memory_efficiency = 0.9",
            "memory_eficiency = 0.9",
            "[fits.one.constants] memory_eficiency: unknown key; expected one of",
        ),
        ("memory_efficiency = 0.9", "memory_eficiency = 0.9", 'did you mean "memory_efficiency"?'),
        (
            'form = "overlapped"',
            'form = "sum"',
            (
                '[fits.one] form: \'sum\' is not valid; expected "additive" or "overlapped":'
                " correct it"
            ),
        ),
        (
            'method = "by hand"',
            'zzz = "by hand"',
            (
                "[fits.one] zzz: unknown key; expected one of form, fitted_on, method, accuracy,"
                " constants: remove it"
            ),
        ),
        ('because = "it is the only one"', "", "because: missing; expected a text: add it"),
        (
            'because = "it is the only one"',
            'because = "it"\nnote = ""',
            "note: unknown key; expected one of in_force, because, fits, ceilings: remove it",
        ),
        (
            'of = "bandwidth"',
            'of = "bandwidth"\nprecison = "fp8"',
            (
                "[ceilings.memory_read] precison: unknown key; expected one of value, of, sources,"
                ' precision, disagreement: did you mean "precision"?'
            ),
        ),
        (
            'sources = ["a measurement"]',
            "sources = []",
            (
                "[ceilings.memory_read] sources: [] is not valid; expected a list of texts, one at"
                " least: correct it"
            ),
        ),
        (
            'because = "it is the only one"',
            f"because = [{'1, ' * 40}]",
            (
                "because: [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,... is not valid;"
                " expected a text: correct it"
            ),
        ),
        ("[fits.one]", "[fits.one", "is not readable TOML"),
    ],
)
def test_a_fault_is_one_line_that_says_where_what_and_what_to_do(
    tmp_path: Path, good: str, bad: str, told: str
) -> None:
    assert good in GOOD
    with pytest.raises(ExpectationInvalid) as caught:
        load_fits(folder(tmp_path, GOOD.replace(good, bad)))
    line = str(caught.value)
    assert told in line
    assert line.startswith(f"{tmp_path / FILE_NAME}: ")
    assert "\n" not in line


def test_no_fit_at_all_is_told(tmp_path: Path) -> None:
    text = 'in_force = "one"\nbecause = "none is"\nfits = {}\n'
    with pytest.raises(ExpectationInvalid, match="expected one of none"):
        load_fits(folder(tmp_path, text))


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ExpectationInvalid, match="is not readable TOML"):
        load_fits(tmp_path)
