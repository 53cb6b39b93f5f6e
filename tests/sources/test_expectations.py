"""The shipped catalogue loads, and a file that could mislead is refused in one line."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from monitor.model import Confidence, Density, Figure, GpuSpec
from monitor.sources import expectations
from monitor.sources.expectations import (
    ExpectationInvalid,
    catalogue_date,
    default_directory,
    load_catalogue,
)

SHIPPED = {spec.id: spec for spec in load_catalogue(default_directory())}

ACME = """\
id = "acme-x"
vendor = "nvidia"
compute_capability = "9.9"
checked = 2026-11-01
unsupported_precisions = ["int8"]
notes = ["a card of this test"]

[match]
names = ["ACME X"]
pci_device_ids = ["a0a1"]
memory_mib = 81920

[memory]
value = 80
unit = "GB"
confidence = "datasheet"
sources = ["sheet"]

[memory_bandwidth]
value = 2000
unit = "GB/s"
confidence = "datasheet"
sources = ["sheet"]
disagreement = "1935 elsewhere"
note = "of five stacks"

[dense_peaks.fp4]
value = 2000
unit = "TFLOPS"
precision = "fp4"
density = "dense"
confidence = "derived"
sources = ["arithmetic", "sheet"]
note = "sparse / 2"

[sparse_peaks.fp4]
value = 4000
unit = "TFLOPS"
precision = "fp4"
density = "sparse"
confidence = "datasheet"
sources = ["sheet"]

[measured_peaks.fp4]
value = 1300
unit = "TFLOPS"
precision = "fp4"
density = "dense"
confidence = "measured"
sources = ["bench"]

[sources.sheet]
title = "vendor datasheet, page 2"
url = "https://acme.example/x.pdf"
kind = "datasheet"

[sources.arithmetic]
title = "shown in the note"
kind = "derived"

[sources.bench]
title = "our bench"
kind = "measured"

[sources.guess]
title = "engineer's guess"
kind = "memory, not verified"
"""


def folder(at: Path, text: str | bytes, name: str = "acme-x.toml") -> Path:
    (at / "gpus").mkdir(parents=True, exist_ok=True)
    (at / "gpus" / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return at


def acme(old: str = "", new: str = "") -> str:
    assert old in ACME
    return ACME.replace(old, new, 1) if old else ACME


def refusal(directory: Path) -> str:
    with pytest.raises(ExpectationInvalid) as refused:
        load_catalogue(directory)
    line = str(refused.value)
    assert line.startswith(str(directory))
    assert line.isprintable()
    return line


# ------------------------------------------------------------- the shipped catalogue


def test_the_shipped_catalogue_has_every_gpu() -> None:
    assert len(SHIPPED) == 50
    assert sum(spec.vendor == "nvidia" for spec in SHIPPED.values()) == 45
    assert sum(spec.vendor == "amd" for spec in SHIPPED.values()) == 5


def test_the_shipped_catalogue_tells_when_it_was_checked() -> None:
    assert catalogue_date(default_directory()) == dt.date(2026, 11, 30)


@pytest.mark.parametrize(
    ("gpu", "bandwidth", "precision", "dense", "watts", "multiprocessors"),
    [
        ("t4", 320, "fp16", 65, 70, 40),
        ("a100-sxm4-80gb", 2039, "bf16", 312, 400, 108),
        ("rtx-4090", 1008, "fp8", 330.3, 450, 128),
        ("l40s", 864, "fp8", 733, 350, 142),
        ("h100-sxm5-80gb", 3350, "bf16", 989.4, 700, 132),
        ("h200-sxm-141gb", 4800, "fp8", 1978.9, 700, 132),
        ("h20-96gb", 4000, "bf16", 148, 400, 78),
        ("b200-sxm-180gb", 7700, "fp4", 9000, 1000, 148),
        ("b300-sxm", 7700, "int8", 153.5, 1100, 148),
        ("gb300-279gb", 8000, "fp4", 15000, 1400, None),
        ("rtx-pro-6000-blackwell-ws", 1792, "fp4", 2015.2, 600, 188),
        ("rtx-pro-6000-blackwell-server", 1597, "bf16", 467.8, 600, 188),
        ("rtx-pro-6000-blackwell-maxq", 1792, "bf16", 438.9, 300, 188),
        ("gb10-dgx-spark", 273, "bf16", 118.9, 140, 48),
        ("mi300x", 5300, "fp8", 2614.9, 750, 304),
        ("mi355x", 8000, "fp4", 10100, 1400, 256),
    ],
)
def test_shipped_figures(
    gpu: str,
    bandwidth: float,
    precision: str,
    dense: float,
    watts: float,
    multiprocessors: int | None,
) -> None:
    spec = SHIPPED[gpu]
    assert spec.memory_bandwidth_gb_per_second is not None
    assert spec.memory_bandwidth_gb_per_second.value == bandwidth
    assert spec.dense_peaks[precision].value == dense
    assert spec.tdp_w is not None
    assert spec.tdp_w.value == watts
    count = None if spec.multiprocessors is None else spec.multiprocessors.value
    assert count == multiprocessors


@pytest.mark.parametrize("spec", SHIPPED.values(), ids=lambda spec: spec.id)
def test_every_shipped_figure_has_provenance(spec: GpuSpec) -> None:
    assert spec.memory_gb is not None
    assert spec.memory_bandwidth_gb_per_second is not None
    assert spec.dense_peaks
    figures = [spec.memory_gb, spec.memory_bandwidth_gb_per_second, *spec.dense_peaks.values()]
    figures += [
        figure
        for figure in (spec.tdp_w, spec.multiprocessors, spec.boost_clock_mhz)
        if figure is not None
    ]
    figures += [*spec.measured_peaks.values(), *spec.measured_bandwidth.values()]
    assert all(figure.sources for figure in figures)
    for measured in (*spec.measured_peaks.values(), *spec.measured_bandwidth.values()):
        assert measured.confidence is Confidence.MEASURED
    for precision, figure in spec.dense_peaks.items():
        assert (figure.precision, figure.density) == (precision, Density.DENSE)
    for precision, figure in spec.sparse_peaks.items():
        assert (figure.precision, figure.density) == (precision, Density.SPARSE)
        assert figure.value > spec.dense_peaks[precision].value


def test_sparse_fp4_of_blackwell_ultra_is_four_thirds_of_dense() -> None:
    assert SHIPPED["b300-sxm"].sparse_peaks["fp4"].value == 18000
    assert SHIPPED["rtx-pro-6000-blackwell-ws"].sparse_peaks["fp4"].value == 4030.4
    assert SHIPPED["t4"].sparse_peaks == {}


def test_the_shipped_disputes_are_kept() -> None:
    server = SHIPPED["rtx-pro-6000-blackwell-server"].memory_bandwidth_gb_per_second
    assert server is not None
    assert "1792" in (server.disagreement or "")


def test_what_an_h200_reaches_stands_beside_what_it_is_rated_at() -> None:
    h200 = SHIPPED["h200-sxm-141gb"]
    rated = h200.memory_bandwidth_gb_per_second
    assert rated is not None
    shares = {kind: one.value / rated.value for kind, one in h200.measured_bandwidth.items()}
    assert {kind: round(share, 2) for kind, share in shares.items()} == {"copy": 0.89, "read": 0.93}
    reached = {
        precision: round(peak.value / h200.dense_peaks[precision].value, 2)
        for precision, peak in h200.measured_peaks.items()
    }
    assert reached == {"tf32": 0.71, "bf16": 0.67, "fp8": 0.64}


def test_the_clock_that_nvml_tells_of_an_h100_is_not_its_rated_one() -> None:
    h100 = SHIPPED["h100-sxm5-80gb"]
    assert h100.boost_clock_mhz is not None
    assert h100.max_sm_clock_mhz is not None
    assert (h100.boost_clock_mhz.value, h100.max_sm_clock_mhz.value) == (1830, 1980)
    assert h100.boost_clock_mhz.confidence is Confidence.SECONDARY


def test_what_is_from_memory_says_so() -> None:
    unverified = {
        (spec.id, precision)
        for spec in SHIPPED.values()
        for precision, figure in spec.dense_peaks.items()
        if figure.confidence is Confidence.UNVERIFIED
    }
    assert unverified == {
        ("a10g", "bf16"),
        ("a10g", "fp16"),
        ("a10g", "int8"),
        ("a30", "tf32"),
        ("l40s", "tf32"),
        ("mi250x", "int8"),
    }


# ------------------------------------------------------------- what a file becomes


def test_a_file_becomes_a_spec(tmp_path: Path) -> None:
    (spec,) = load_catalogue(folder(tmp_path, ACME))
    assert (spec.id, spec.vendor, spec.names) == ("acme-x", "nvidia", ("ACME X",))
    assert (spec.pci_device_ids, spec.nvml_memory_mib) == (("a0a1",), 81920)
    assert spec.memory_bandwidth_gb_per_second == Figure(
        value=2000.0,
        unit="GB/s",
        sources=("vendor datasheet, page 2 <https://acme.example/x.pdf>",),
        confidence=Confidence.DATASHEET,
        disagreement="1935 elsewhere",
    )
    # The second story: a dense kernel is divided by the derived 2000, not by the printed 4000.
    dense, sparse = spec.dense_peaks["fp4"], spec.sparse_peaks["fp4"]
    assert (dense.value, dense.density) == (2000, Density.DENSE)
    assert (sparse.value, sparse.density) == (4000, Density.SPARSE)
    assert 1300 / dense.value == pytest.approx(0.65)
    assert 1300 / sparse.value == pytest.approx(0.325)
    assert spec.notes == (
        "a card of this test",
        "no tensor path for int8",
        "memory_bandwidth: of five stacks",
        "dense_peaks.fp4: sparse / 2",
    )
    assert spec.measured_peaks["fp4"] == Figure(
        1300, "TFLOPS", ("our bench",), Confidence.MEASURED, "fp4", Density.DENSE
    )
    assert spec.measured_bandwidth == {}
    assert (spec.tdp_w, spec.multiprocessors, spec.boost_clock_mhz) == (None, None, None)


def test_a_guess_loads_and_says_that_it_is_one(tmp_path: Path) -> None:
    guess = acme(
        'confidence = "derived"\nsources = ["arithmetic", "sheet"]',
        'confidence = "memory, not verified"\nsources = ["guess"]',
    )
    (spec,) = load_catalogue(folder(tmp_path, guess))
    assert spec.dense_peaks["fp4"].confidence is Confidence.UNVERIFIED


def test_later_folders_replace_by_id_and_add(tmp_path: Path) -> None:
    first = folder(tmp_path / "a", ACME)
    second = folder(
        tmp_path / "b", acme('value = 2000\nunit = "GB/s"', 'value = 1935\nunit = "GB/s"')
    )
    folder(second, acme('id = "acme-x"', 'id = "acme-y"'), "acme-y.toml")
    x, y = load_catalogue(first, second)
    assert (x.id, y.id) == ("acme-x", "acme-y")
    assert x.memory_bandwidth_gb_per_second is not None
    assert x.memory_bandwidth_gb_per_second.value == 1935


def test_an_own_folder_stands_beside_the_shipped_one(tmp_path: Path) -> None:
    assert len(load_catalogue(default_directory(), folder(tmp_path, ACME))) == 51


def test_hidden_files_folders_and_other_files_are_left_alone(tmp_path: Path) -> None:
    folder(tmp_path, ACME)
    folder(tmp_path, b"\x00\x05\x16\x07", "._acme-x.toml")
    folder(tmp_path, "not toml", "notes.txt")
    (tmp_path / "gpus" / "old.toml").mkdir()
    (tmp_path / "gpus" / "gone.toml").symlink_to(tmp_path / "nowhere")
    assert [spec.id for spec in load_catalogue(tmp_path)] == ["acme-x"]


def test_the_packaged_copy_goes_before_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "monitor"
    package.mkdir()
    monkeypatch.setattr(expectations, "_PACKAGE", package)
    assert default_directory() == tmp_path / "expectations"
    (package / "_expectations").mkdir()
    assert default_directory() == package / "_expectations"


# ------------------------------------------------------------- what is refused


def test_a_bare_peak_is_refused(tmp_path: Path) -> None:
    bare = acme() + "\n[dense_peaks]\nfp8 = 4000\n"
    line = refusal(folder(tmp_path, bare.replace("[dense_peaks.fp4]", "[measured_peaks.bf16]")))
    assert (
        "[dense_peaks] fp8: 4000 is not valid; expected a table with value, unit, precision" in line
    )


def test_a_flat_file_of_other_keys_is_refused_by_its_keys(tmp_path: Path) -> None:
    line = refusal(folder(tmp_path, 'gpu = "acme-x"\nfp4_tflops = 4000\n'))
    assert "gpu: unknown key; expected one of id, vendor" in line


FP4 = 'precision = "fp4"\ndensity = "dense"\n'
REFUSED = {
    "a peak without precision": (
        FP4,
        'density = "dense"\n',
        '[dense_peaks.fp4] precision: missing; a compute peak says both precision and density (which 2000?): add precision = "fp4", density = "dense"',
    ),
    "a peak without density": (FP4, 'precision = "fp4"\n', "[dense_peaks.fp4] density: missing;"),
    "a sparse figure in the dense table": (
        FP4,
        'precision = "fp4"\ndensity = "sparse"\n',
        '[dense_peaks.fp4] density: "sparse" does not belong here; expected "dense": move the figure to [sparse_peaks.fp4]',
    ),
    "a dense figure in the sparse table": (
        'density = "sparse"',
        'density = "dense"',
        '[sparse_peaks.fp4] density: "dense" does not belong here; expected "sparse": move the figure to [dense_peaks.fp4]',
    ),
    "a sparse value quoted as dense": (
        'value = 2000\nunit = "TFLOPS"',
        'value = 4000\nunit = "TFLOPS"',
        "[dense_peaks.fp4] value: 4000 is not below the sparse peak 4000",
    ),
    "a precision that differs from its table": (
        FP4,
        'precision = "fp8"\ndensity = "dense"\n',
        '[dense_peaks.fp4] precision: "fp8" differs from its table; expected "fp4"',
    ),
    "a precision that is not known": (
        "[dense_peaks.fp4]",
        "[dense_peaks.fp6]",
        '[dense_peaks.fp6] precision: "fp6" is not known; expected "tf32" or "bf16"',
    ),
    "a precision both listed and unsupported": (
        '["int8"]',
        '["fp4"]',
        '[dense_peaks.fp4] precision: "fp4" stands in unsupported_precisions too',
    ),
    "a density that is no density": (
        FP4,
        'precision = "fp4"\ndensity = "2:4"\n',
        '[dense_peaks.fp4] density: \'2:4\' is not valid; expected "dense" or "sparse"',
    ),
    "a figure without source": (
        'sources = ["sheet"]\n',
        "",
        "[memory] sources: missing; a figure without source is refused",
    ),
    "a figure with an empty list of sources": (
        '["sheet"]',
        "[]",
        "[memory] sources: missing; a figure without source is refused",
    ),
    "a source that is not there": (
        '["sheet"]',
        '["shet"]',
        '[memory] sources: "shet" has no [sources.shet] table; expected "sheet" or "arithmetic"',
    ),
    "a confidence above its sources": (
        '"datasheet"\nsources = ["sheet"]',
        '"datasheet"\nsources = ["guess"]',
        '[memory] confidence: "datasheet" is above its best source; expected "memory, not verified"',
    ),
    "a confidence that is not listed": (
        '"datasheet"\nsources',
        '"certain"\nsources',
        "[memory] confidence: 'certain' is not valid; expected one of \"measured\"",
    ),
    "a source that calls itself a guess": (
        'kind = "memory, not verified"',
        'kind = "guess"',
        "[sources.guess] kind: 'guess' is not valid; expected one of \"measured\"",
    ),
    "a figure without confidence": (
        'confidence = "datasheet"\n',
        "",
        "[memory] confidence: missing; expected one of",
    ),
    "a derived figure without arithmetic": (
        'note = "sparse / 2"\n',
        "",
        "[dense_peaks.fp4] note: missing; a derived figure says how",
    ),
    "a unit of another size": (
        '"GB/s"',
        '"TB/s"',
        '[memory_bandwidth] unit: "TB/s" is not known here; expected "GB/s"',
    ),
    "a peak in another unit": (
        '"TFLOPS"',
        '"PFLOPS"',
        '[dense_peaks.fp4] unit: "PFLOPS" is not known here; expected "TFLOPS"',
    ),
    "no unit": ('unit = "GB"\n', "", "[memory] unit: missing"),
    "zero": ("value = 80", "value = 0", "[memory] value: 0 is not valid; expected a finite"),
    "a negative value": ("value = 80", "value = -80", "[memory] value: -80 is not valid"),
    "infinity": ("value = 80", "value = inf", "[memory] value: inf is not valid"),
    "an overflow": ("value = 80", "value = 1e999", "[memory] value: inf is not valid"),
    "an integer beyond any float": ("value = 80", f"value = {'9' * 400}", "[memory] value:"),
    "not a number": ("value = 80", "value = nan", "[memory] value: nan is not valid"),
    "a number as text": ("value = 80", 'value = "80"', "[memory] value: '80' is not valid"),
    "a truth for a number": ("value = 80", "value = true", "[memory] value: True is not valid"),
    "a misspelt key": (
        'confidence = "datasheet"',
        'confidance = "datasheet"',
        '[memory] confidance: unknown key; expected one of value, unit, confidence, sources, precision, density, disagreement, note: did you mean "confidence"?',
    ),
    "a key that is near to none": (
        'vendor = "nvidia"',
        'vendor = "nvidia"\nzzz = 1',
        "zzz: unknown key; expected one of id, vendor",
    ),
    "a misspelt table": ("[memory]", "[memori]", "memori: unknown key"),
    "a misspelt key of match": ("names =", "name =", 'did you mean "names"?'),
    "a misspelt key of a source": ("url =", "ulr =", "[sources.sheet] ulr: unknown key"),
    "a missing figure": (
        ACME[ACME.index("[memory]") : ACME.index("[memory_bandwidth]")],
        "",
        "memory: missing; expected a table with value, unit, confidence and sources: add it",
    ),
    "no sources at all": (
        ACME[ACME.index("[sources.sheet]") :],
        "",
        "sources: missing; expected a table [sources]: add it",
    ),
    "an id unlike the file name": (
        'id = "acme-x"',
        'id = "acme-y"',
        'id: "acme-y" differs from the file name; expected "acme-x"',
    ),
    "an id in capitals": (
        'id = "acme-x"',
        'id = "ACME-X"',
        "id: 'ACME-X' is not valid; expected lower-case letters",
    ),
    "a vendor that is not known": ('"nvidia"', '"acme"', "vendor: 'acme' is not valid"),
    "a PCI id with vendor": ('"a0a1"', '"10de:a0a1"', "[match] pci_device_ids: '10de:a0a1' is not"),
    "memory in parts of a MiB": (
        "= 81920",
        "= 81920.5",
        "[match] memory_mib: 81920.5 is not valid",
    ),
    "a plain address": ("https://", "http://", "[sources.sheet] url: 'http://acme.example/x.pdf'"),
    "an empty title": ('"our bench"', '""', "[sources.bench] title: '' is not valid"),
    "a broken date": (
        "2026-11-01",
        '"soon"',
        "checked: 'soon' is not valid; expected a date such as",
    ),
    "text that is no TOML": ("[match]", "[match", "is not readable TOML"),
    "a key given twice": ("[memory]", 'vendor = "amd"\n[memory]\n[memory]', "is not readable TOML"),
}


@pytest.mark.parametrize(("old", "new", "expected"), REFUSED.values(), ids=REFUSED.keys())
def test_a_file_that_could_mislead_is_refused_in_one_line(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    directory = folder(tmp_path, acme(old, new))
    line = refusal(directory)
    assert line.startswith(f"{directory / 'gpus' / 'acme-x.toml'}: ")
    assert expected in line


def test_an_id_that_repeats_the_vendor_is_refused(tmp_path: Path) -> None:
    text = acme('id = "acme-x"', 'id = "nvidia-acme-x"')
    line = refusal(folder(tmp_path, text, "nvidia-acme-x.toml"))
    assert 'id: "nvidia-acme-x" repeats the vendor; expected "acme-x"' in line


def test_a_second_file_of_one_id_is_refused(tmp_path: Path) -> None:
    folder(tmp_path, ACME)
    line = refusal(folder(tmp_path, ACME, "copy.toml"))
    assert 'copy.toml: id: "acme-x" differs from the file name; expected "copy"' in line


def test_a_count_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    text = acme(
        "[dense_peaks.fp4]",
        '[multiprocessors]\nvalue = 13.5\nunit = "SM"\nconfidence = "datasheet"\n'
        'sources = ["sheet"]\n\n[dense_peaks.fp4]',
    )
    assert "[multiprocessors] value: 13.5 is not a count" in refusal(folder(tmp_path, text))


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe\x00", b"\x00", b"a = " + b"[" * 5000, b'"a\\nb" = 1', b'"\\u001b[31m" = 1'],
)
def test_bytes_that_are_no_catalogue_give_one_printable_line(
    tmp_path: Path, content: bytes
) -> None:
    assert "acme-x.toml: " in refusal(folder(tmp_path, content))


def test_a_long_value_is_cut_in_the_message(tmp_path: Path) -> None:
    line = refusal(folder(tmp_path, acme("value = 80", f'value = "{"8" * 5000}"')))
    assert "888..." in line
    assert len(line) < 400


def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere", folder(tmp_path / "x", "", "readme.md")):
        with pytest.raises(ExpectationInvalid, match=r"holds no gpus/\*.toml"):
            load_catalogue(place)
        with pytest.raises(ExpectationInvalid, match="give the folder above gpus/"):
            catalogue_date(place)
