"""Wrong entries of every kind: one line that names file, key and fix, and never a traceback.

The kinds were found by putting wrong values at every key of a right file.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import tomllib
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from monitor.sources.expectations import ExpectationInvalid, default_directory, load_catalogue
from monitor.sources.reference_file import load_references

GPU = """\
id = "acme-x"
vendor = "nvidia"
compute_capability = "9.0"
checked = 2026-11-01
unsupported_precisions = ["int8"]
notes = ["a card of this test"]

[match]
names = ["ACME X"]
pci_device_ids = ["a0a1"]
memory_mib = 81559

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

[multiprocessors]
value = 132
unit = "SM"
confidence = "datasheet"
sources = ["sheet"]

[boost_clock]
value = 1830
unit = "MHz"
confidence = "datasheet"
sources = ["sheet"]

[max_sm_clock]
value = 1980
unit = "MHz"
confidence = "measured"
sources = ["bench"]

[dense_peaks.fp8]
value = 2000
unit = "TFLOPS"
precision = "fp8"
density = "dense"
confidence = "datasheet"
sources = ["sheet"]

[measured_peaks.fp8]
value = 1300
unit = "TFLOPS"
precision = "fp8"
density = "dense"
confidence = "measured"
sources = ["bench"]

[measured_bandwidth.read]
value = 1850
unit = "GB/s"
confidence = "measured"
sources = ["bench"]

[sources.sheet]
title = "vendor datasheet, page 2"
url = "https://acme.example/x.pdf"
kind = "datasheet"

[sources.bench]
title = "our bench"
kind = "measured"
"""

REFERENCE = """
[sources.paper]
title = "A paper"
url = "https://example.com/paper"

[[reference]]
id = "acme-70b"
gpu = "h100-sxm5-80gb"
model = "Acme-70B"
precision = "fp8"
math_precision = "bf16"
parallelism = { gpus = 4, tensor_parallel = 2, data_parallel = 2 }
isl = 1000
osl = 200
load = { concurrency = 64 }
tokens = "output"
tokens_per_second_per_gpu = 2103
engine = "vLLM"
engine_version = "0.32.0"
sources = ["paper"]
confidence = "derived"
conditions = "closed loop"
"""

SHIPPED = load_catalogue(default_directory())
NUMBER = "a finite number above 0, from 0.001 to 1e9"


def loaded(folder: Path, kind: str, text: str) -> None:
    (folder / kind).mkdir(exist_ok=True)
    (folder / kind / "acme-x.toml").write_text(text, encoding="utf-8")
    if kind == "gpus":
        load_catalogue(folder)
    else:
        load_references(SHIPPED, folder)


def refusal(folder: Path, kind: str, text: str) -> str:
    with pytest.raises(ExpectationInvalid) as refused:
        loaded(folder, kind, text)
    return said(folder / kind / "acme-x.toml", refused.value)


def said(path: Path, invalid: ExpectationInvalid) -> str:
    line = str(invalid)
    file = f"{path}: "
    assert line.startswith(file)
    assert line.isprintable()
    assert len(line) < len(file) + 400
    return line.removeprefix(file)


def test_the_right_files_load(tmp_path: Path) -> None:
    loaded(tmp_path, "gpus", GPU)
    loaded(tmp_path, "references", REFERENCE)


COUNT = '[multiprocessors]\nvalue = 132\nunit = "SM"\nconfidence = "datasheet"\n'
CLOCK = '[boost_clock]\nvalue = 1830\nunit = "MHz"\nconfidence = "datasheet"\n'
READ = '[measured_bandwidth.read]\nvalue = 1850\nunit = "GB/s"\n'

GPUS = {
    "a count without source": (
        f'{COUNT}sources = ["sheet"]',
        COUNT,
        "[multiprocessors] sources: missing; a figure without source is refused",
    ),
    "a clock without source": (
        f'{CLOCK}sources = ["sheet"]',
        f"{CLOCK}sources = []",
        "[boost_clock] sources: missing; a figure without source is refused",
    ),
    "a bare count": (
        f'{COUNT}sources = ["sheet"]',
        "[multiprocessors]",
        "[multiprocessors] value: missing; expected a finite number",
    ),
    "a count without confidence": (
        COUNT,
        COUNT.replace('confidence = "datasheet"\n', ""),
        '[multiprocessors] confidence: missing; expected one of "measured"',
    ),
    "half a multiprocessor": (
        "value = 132",
        "value = 131.5",
        "[multiprocessors] value: 131.5 is not a count; expected a whole number: correct it",
    ),
    "a count in another unit": (
        'unit = "SM"',
        'unit = "cores"',
        '[multiprocessors] unit: "cores" is not known here; expected "SM" or "CU": correct it',
    ),
    "a clock in GHz": (
        'value = 1830\nunit = "MHz"',
        'value = 1.83\nunit = "GHz"',
        '[boost_clock] unit: "GHz" is not known here; expected "MHz": correct it',
    ),
    "a highest clock under the boost": (
        "value = 1980",
        "value = 1780",
        (
            "[max_sm_clock] value: 1780 is below the boost clock 1830; expected no less: correct"
            " one of them"
        ),
    ),
    "a precision of a memory size": (
        'unit = "GB"\n',
        'unit = "GB"\nprecision = "fp8"\n',
        "[memory] precision: belongs to compute peaks only; expected no such key: remove it",
    ),
    "a density of a bandwidth": (
        'unit = "GB/s"\n',
        'unit = "GB/s"\ndensity = "dense"\n',
        "[memory_bandwidth] density: belongs to compute peaks only; expected no such key",
    ),
    "a ceiling that nobody measured": (
        f'{READ}confidence = "measured"\nsources = ["bench"]',
        f'{READ}confidence = "datasheet"\nsources = ["sheet"]',
        (
            '[measured_bandwidth.read] confidence: "datasheet" does not belong here; expected'
            ' "measured": give the measurement as source, or leave the figure out'
        ),
    ),
    "a ceiling measured by a data sheet": (
        f'{READ}confidence = "measured"\nsources = ["bench"]',
        f'{READ}confidence = "measured"\nsources = ["sheet"]',
        (
            '[measured_bandwidth.read] confidence: "measured" is above its best source; expected'
            ' "datasheet" or less'
        ),
    ),
    "a ceiling of another kind": (
        "measured_bandwidth.read",
        "measured_bandwidth.write",
        '[measured_bandwidth.write] "write" is not known here; expected "copy" or "read"',
    ),
    "a ceiling in another unit": (
        READ,
        READ.replace("GB/s", "TB/s"),
        '[measured_bandwidth.read] unit: "TB/s" is not known here; expected "GB/s"',
    ),
    "a bare ceiling": (
        "[measured_bandwidth.read]",
        "[measured_bandwidth]\nread = 1850\n[measured_bandwidth.copy]",
        (
            "[measured_bandwidth] read: 1850 is not valid; expected a table with value, unit,"
            " confidence and sources: correct it"
        ),
    ),
    "ceilings that are no tables": (
        GPU,
        f"measured_bandwidth = 3\n{GPU[: GPU.index(READ)]}{GPU[GPU.index('[sources.sheet]') :]}",
        (
            "measured_bandwidth: 3 is not valid; expected tables [measured_bandwidth.copy] or"
            " [measured_bandwidth.read]: correct it"
        ),
    ),
    "peaks that are no tables": (
        "[match]",
        "sparse_peaks = 4000\n\n[match]",
        "sparse_peaks: 4000 is not valid; expected tables [sparse_peaks.<precision>]: correct it",
    ),
    "notes that are no list": (
        'notes = ["a card of this test"]',
        'notes = "a card of this test"',
        "notes: 'a card of this test' is not valid; expected a list of texts: correct it",
    ),
    "a blank note": ('"a card of this test"', '"  "', "notes: ' ' is not valid; expected a list"),
    "a source that is no table": (
        "[sources.bench]",
        '[sources]\nbench2 = "our bench"\n[sources.bench]',
        (
            "[sources] bench2: 'our bench' is not valid; expected a table with title, kind and,"
            " where there is one, url: correct it"
        ),
    ),
    "a blank title": (
        '"our bench"',
        '" "',
        "[sources.bench] title: ' ' is not valid; expected a text of one line that is not blank",
    ),
    "a title of two lines": (
        '"our bench"',
        '"our\\nbench"',
        "[sources.bench] title: 'our\\nbench' is not valid; expected a text of one line",
    ),
    "a name with a blank": (
        '["ACME X"]',
        '["ACME X "]',
        '[match] names: "ACME X " begins or ends with a blank; expected "ACME X"',
    ),
    "a blank name": ('["ACME X"]', '[" "]', "[match] names: ' ' is not valid; expected a list"),
    "a name with a control character": (
        '["ACME X"]',
        '["ACME\\u0007X"]',
        "[match] names: 'ACME\\x07X' is not valid; expected a list of whole NVML names",
    ),
    "a name that stands twice": (
        '["ACME X"]',
        '["ACME X", "ACME X"]',
        '[match] names: "ACME X" stands twice; expected once: remove one',
    ),
    "an id that stands twice": (
        '["a0a1"]',
        '["a0a1", "a0a1"]',
        '[match] pci_device_ids: "a0a1" stands twice; expected once: remove one',
    ),
    "nothing to match by": (
        'names = ["ACME X"]\npci_device_ids = ["a0a1"]',
        "names = []\npci_device_ids = []",
        "[match] names: [] and no pci_device_ids; no GPU would be found: give one of them",
    ),
    "memory that is not the memory": (
        "memory_mib = 81559",
        "memory_mib = 40960",
        (
            "[match] memory_mib: 40960 MiB (42.9 GB) is not the memory of 80 GB; expected both to"
            " agree within 15%: correct one of them"
        ),
    ),
    "memory in bytes": (
        "memory_mib = 81559",
        "memory_mib = 85899345920",
        "[match] memory_mib: 85899345920 is not valid; expected a whole number of MiB above 0",
    ),
    "a capability that NVML never gives": (
        '"9.0"',
        '"sm_90"',
        'compute_capability: "sm_90" is not valid; expected as "9.0": correct it',
    ),
    "a capability as a number": (
        '"9.0"',
        "9.0",
        'compute_capability: 9.0 is not valid; expected a text such as "9.0": correct it',
    ),
    "a number for a date": (
        "checked = 2026-11-01",
        "checked = 0",
        "checked: 0 is not valid; expected a date such as 2026-11-30: correct it",
    ),
    "a time for a date": (
        "checked = 2026-11-01",
        "checked = 10:30:00",
        "checked: datetime.time(10, 30) is not valid; expected a date",
    ),
    "an absurdly large value": (
        'value = 2000\nunit = "GB/s"',
        'value = 1e308\nunit = "GB/s"',
        f"[memory_bandwidth] value: 1e+308 is not valid; expected {NUMBER}: correct it",
    ),
    "a value next to nothing": (
        'value = 2000\nunit = "GB/s"',
        'value = 5e-324\nunit = "GB/s"',
        f"[memory_bandwidth] value: 5e-324 is not valid; expected {NUMBER}: correct it",
    ),
    "a precision that is a number": (
        'precision = "fp8"',
        "precision = 8",
        (
            "[dense_peaks.fp8] precision: 8 is not valid; expected one of tf32, bf16, fp16, fp8,"
            " fp4, int8, as in the name of its table: correct it"
        ),
    ),
    "a unit left out": (
        'value = 80\nunit = "GB"\n',
        "value = 80\n",
        '[memory] unit: missing; expected "GB": add it',
    ),
    "a peak's unit left out": (
        'value = 2000\nunit = "TFLOPS"\n',
        "value = 2000\n",
        '[dense_peaks.fp8] unit: missing; expected "TFLOPS": add it',
    ),
    "a ceiling's unit left out": (
        READ,
        READ.replace('unit = "GB/s"\n', ""),
        '[measured_bandwidth.read] unit: missing; expected "GB/s": add it',
    ),
}


@pytest.mark.parametrize(("old", "new", "expected"), GPUS.values(), ids=GPUS)
def test_a_gpu_that_is_refused(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in GPU
    assert expected in refusal(tmp_path, "gpus", GPU.replace(old, new, 1))


WHERE = '[[reference]] "acme-70b" '
REFERENCES = {
    "a source that is no table": (
        '[sources.paper]\ntitle = "A paper"\nurl =',
        "[sources]\npaper =",
        (
            "sources.paper: 'https://example.com/paper' is not valid; expected a table with title"
            " and url: correct it"
        ),
    ),
    "an entry that is no table": (
        REFERENCE,
        "reference = [3]\n[sources]",
        "[[reference]] number 1 table: 3 is not valid; expected a table [[reference]]: correct it",
    ),
    "a blank title": (
        '"A paper"',
        '""',
        "sources.paper.title: '' is not valid; expected a text of one line that is not blank",
    ),
    "a blank model": (
        '"Acme-70B"',
        '" "',
        f"{WHERE}model: ' ' is not valid; expected the model's name: correct it",
    ),
    "conditions of two lines": (
        '"closed loop"',
        '"closed\\nloop"',
        f"{WHERE}conditions: 'closed\\nloop' is not valid; expected a text: how it was measured",
    ),
    "a blank engine": (
        '"vLLM"',
        '""',
        f"{WHERE}engine: '' is not valid; expected a text of one line that is not blank",
    ),
    "an absurd rate": (
        "= 2103",
        "= 1e300",
        f"{WHERE}tokens_per_second_per_gpu: 1e+300 is not valid; expected {NUMBER}: correct it",
    ),
    "a rate next to nothing": (
        "= 2103",
        "= 1e-9",
        f"{WHERE}tokens_per_second_per_gpu: 1e-09 is not valid; expected {NUMBER}: correct it",
    ),
    "an infinite length": (
        "isl = 1000",
        "isl = inf",
        f"{WHERE}isl: inf is not valid; expected a number of tokens above 0, at most 1e9",
    ),
    "a truth for a length": ("osl = 200", "osl = true", f"{WHERE}osl: True is not valid"),
    "a load of absurd size": (
        "{ concurrency = 64 }",
        "{ batch = 1e12 }",
        f"{WHERE}load: {{'batch': 1000000000000.0}} is not valid; expected load = \"max\"",
    ),
    "experts over more GPUs than there are": (
        "data_parallel = 2 }",
        "data_parallel = 2, expert_parallel = 8 }",
        (
            f"{WHERE}parallelism: expert_parallel = 8 is more than gpus = 4; expected no more,"
            " since the experts lie over the same GPUs: correct one of them"
        ),
    ),
    "an id in capitals": (
        '"acme-70b"',
        '"ACME-70b"',
        "[[reference]] \"ACME-70b\" id: 'ACME-70b' is not valid; expected lower-case letters",
    ),
    "a GPU with the vendor's prefix": (
        '"h100-sxm5-80gb"',
        '"nvidia-h100-sxm5-80gb"',
        f'{WHERE}gpu: "nvidia-h100-sxm5-80gb" has no file in gpus/; expected "h100-sxm5-80gb"?',
    ),
    "a precision that no weights have": (
        'precision = "fp8"',
        'precision = "tf32"',
        f"{WHERE}precision: 'tf32' is not valid; expected one of bf16, fp16, fp8, fp4",
    ),
    "an address without https": (
        "https://example.com",
        "http://example.com",
        "sources.paper.url: 'http://example.com/paper' is not valid; expected an https:// address",
    ),
}


@pytest.mark.parametrize(("old", "new", "expected"), REFERENCES.values(), ids=REFERENCES)
def test_a_reference_that_is_refused(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in REFERENCE
    assert expected in refusal(tmp_path, "references", REFERENCE.replace(old, new, 1))


# ----------------------------------------------------------------- any value anywhere

ODD: tuple[Any, ...] = (0, -1, 10**30, 5e-324, math.nan, True, "", "x\n\x07", [1], {}, {"a": 1})


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(k)} = {toml(v)}' for k, v in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    return json.dumps(value) if isinstance(value, str | bool) else repr(value)


def keys(tables: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key in tables if isinstance(tables, dict) else range(len(tables)):
        yield (*above, key)
        if isinstance(tables[key], dict | list):
            yield from keys(tables[key], (*above, key))


def with_value(tables: Any, at: tuple[Any, ...], value: Any) -> str:
    changed = deepcopy(tables)
    place = changed
    for key in at[:-1]:
        place = place[key]
    place[at[-1]] = value
    return "\n".join(f"{key} = {toml(item)}" for key, item in changed.items())


@pytest.mark.parametrize(("kind", "text"), [("gpus", GPU), ("references", REFERENCE)])
def test_an_odd_value_at_any_key_loads_or_is_one_line(tmp_path: Path, kind: str, text: str) -> None:
    tables = tomllib.loads(text)
    refused = 0
    for at in keys(tables):
        for value in ODD:
            try:
                loaded(tmp_path, kind, with_value(tables, at, value))
            except ExpectationInvalid as invalid:
                refused += 1
                line = said(tmp_path / kind / "acme-x.toml", invalid)
                named = [str(key) for key in at if isinstance(key, str)]
                assert any(key in line for key in (*named, "sources")), (at, value, line)
                assert re.search(r": (correct|remove|add|name|give|move|each)|expected", line)
    assert refused > 200
