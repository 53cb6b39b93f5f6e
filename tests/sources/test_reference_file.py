"""Published throughputs: the shipped files, an entry of one's own, and every refusal."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.model import Parallelism, ReferenceConfidence, ReferenceThroughput
from monitor.sources.expectations import ExpectationInvalid, default_directory, load_catalogue
from monitor.sources.reference_file import load_references

GPUS = load_catalogue(default_directory())
SHIPPED = {entry.id: entry for entry in load_references(GPUS, default_directory())}

OURS = """
[sources.paper]
title = "A paper"
url = "https://example.com/paper"
seen_as = "the abstract"

[[reference]]
id = "acme-70b-fp8-h100"
gpu = "h100-sxm5-80gb"
model = "Acme-70B"
precision = "fp8"
math_precision = "bf16"
parallelism = { gpus = 4, tensor_parallel = 2, data_parallel = 2 }
isl = 1000
osl = 200.5
load = { concurrency = 64 }
tokens = "output"
tokens_per_second_per_gpu = 2103
engine = "vLLM"
engine_version = "0.32.0"
sources = ["paper"]
confidence = "derived"
conditions = "closed loop"
"""


def folder(at: Path, text: str, name: str = "acme.toml") -> Path:
    (at / "references").mkdir(parents=True, exist_ok=True)
    (at / "references" / name).write_text(text)
    return at


def ours(old: str, new: str) -> str:
    assert old in OURS
    return OURS.replace(old, new, 1)


def refusal(directory: Path) -> str:
    with pytest.raises(ExpectationInvalid) as refused:
        load_references(GPUS, directory)
    line = str(refused.value)
    assert line.startswith(str(directory))
    assert line.isprintable()
    return line


# ------------------------------------------------------------- the shipped references


def test_the_shipped_references_cover_the_cards_that_are_rented() -> None:
    assert len(SHIPPED) == 75
    cards = {entry.gpu for entry in SHIPPED.values()}
    assert cards >= {
        "b200-sxm-180gb",
        "b300-sxm",
        "gb200-186gb",
        "gb300-279gb",
        "h200-sxm-141gb",
        "h100-sxm5-80gb",
        "rtx-pro-6000-blackwell-server",
        "a100-sxm4-80gb",
        "mi300x",
    }


def test_a_shipped_entry_has_what_the_document_says() -> None:
    entry = SHIPPED["llama-3.3-70b-fp8-h100-tp2-1000-1000-trtllm-1.0"]
    # The document gives 4205 tokens/s for both GPUs.
    assert entry.tokens_per_second_per_gpu == 2102.5
    assert entry.parallelism == Parallelism(2, tensor_parallel=2)
    assert (entry.prompt_tokens, entry.output_tokens) == (1000, 1000)
    assert (entry.load_kind, entry.load) == ("max", None)
    assert entry.confidence is ReferenceConfidence.VENDOR


@pytest.mark.parametrize("entry", SHIPPED.values(), ids=SHIPPED)
def test_every_shipped_entry_is_plausible(entry: ReferenceThroughput) -> None:
    assert 50 < entry.tokens_per_second_per_gpu < 60_000
    assert entry.parallelism.gpus in (1, 2, 4, 8)
    assert "https://" in entry.sources[0]
    assert ("total" in entry.id) == (entry.tokens == "total")
    assert f"-{entry.precision}-" in entry.id
    assert f"-{entry.prompt_tokens:g}-{entry.output_tokens:g}-" in entry.id
    assert ("report" in entry.id) == (entry.confidence is ReferenceConfidence.CASE_REPORT)


# ------------------------------------------------------------- an entry of one's own


def test_one_entry_is_all_it_takes(tmp_path: Path) -> None:
    (entry,) = load_references(GPUS, folder(tmp_path, OURS))
    assert entry == ReferenceThroughput(
        id="acme-70b-fp8-h100",
        gpu="h100-sxm5-80gb",
        model="Acme-70B",
        precision="fp8",
        parallelism=Parallelism(4, tensor_parallel=2, data_parallel=2),
        prompt_tokens=1000,
        output_tokens=200.5,
        load_kind="concurrency",
        load=64,
        tokens="output",
        tokens_per_second_per_gpu=2103,
        engine="vLLM",
        engine_version="0.32.0",
        sources=("A paper <https://example.com/paper> (the abstract)",),
        confidence=ReferenceConfidence.DERIVED,
        conditions="closed loop",
        math_precision="bf16",
    )


@pytest.mark.parametrize(
    ("written", "kind", "load"), [('"max"', "max", None), ("{ batch = 58.7 }", "batch", 58.7)]
)
def test_forms_of_load(tmp_path: Path, written: str, kind: str, load: float | None) -> None:
    text = ours("load = { concurrency = 64 }", f"load = {written}")
    (entry,) = load_references(GPUS, folder(tmp_path, text))
    assert (entry.load_kind, entry.load) == (kind, load)


def test_a_throughput_of_all_tokens_loads(tmp_path: Path) -> None:
    (entry,) = load_references(GPUS, folder(tmp_path, ours('"output"', '"total"')))
    assert entry.tokens == "total"


def test_a_later_folder_replaces_its_namesake_and_adds(tmp_path: Path) -> None:
    first = folder(tmp_path / "a", OURS)
    second = folder(tmp_path / "b", ours("= 2103", "= 2500"))
    other = folder(second, ours("acme-70b-fp8-h100", "acme-70b-other"), "other.toml")
    entries = load_references(GPUS, first, other)
    rates = {entry.id: entry.tokens_per_second_per_gpu for entry in entries}
    assert rates == {"acme-70b-fp8-h100": 2500, "acme-70b-other": 2103}


def test_a_folder_without_references_gives_none(tmp_path: Path) -> None:
    (tmp_path / "references").mkdir()
    (tmp_path / "references" / ".hidden.toml").write_text("x = ")
    assert load_references(GPUS, tmp_path, tmp_path / "nowhere") == ()


def test_a_folder_of_ones_own_may_hold_references_only(tmp_path: Path) -> None:
    mine = folder(tmp_path, OURS)
    assert load_catalogue(default_directory(), mine) == GPUS
    with pytest.raises(ExpectationInvalid, match=r"holds no gpus/\*.toml"):
        load_catalogue(mine)
    with pytest.raises(ExpectationInvalid, match=r"holds no gpus/\*.toml"):
        load_catalogue(default_directory(), tmp_path / "nowhere")


# ------------------------------------------------------------- refusals

WHERE = 'acme.toml: [[reference]] "acme-70b-fp8-h100" '
REFUSALS = {
    "without precision": (
        'precision = "fp8"\n',
        "",
        (
            "precision: missing; expected one of bf16, fp16, fp8, fp4, nvfp4, mxfp4, int8, int4 (what"
            " the weights are): add it"
        ),
    ),
    "without sources": (
        'sources = ["paper"]\n',
        "",
        "sources: missing; expected a list of keys of [sources.<key>] tables, one at least: add it",
    ),
    "no sources": ('["paper"]', "[]", "sources: [] is not valid; expected a list of keys"),
    "without the kind of tokens": (
        'tokens = "output"\n',
        "",
        'tokens: missing; expected "output" (generated tokens) or "total" (prompt tokens too)',
    ),
    "without load": (
        "load = { concurrency = 64 }\n",
        "",
        'load: missing; expected load = "max", or { concurrency = 64 }, or { batch = 64 }: add it',
    ),
    "without isl": ("isl = 1000\n", "", "isl: missing; expected a number of tokens above 0"),
    "without osl": ("osl = 200.5\n", "", "osl: missing; expected a number of tokens above 0"),
    "without parallelism": (
        "parallelism = { gpus = 4, tensor_parallel = 2, data_parallel = 2 }\n",
        "",
        "parallelism: missing; expected a table such as { gpus = 2, tensor_parallel = 2 }: add it",
    ),
    "without engine version": (
        'engine_version = "0.32.0"\n',
        "",
        "engine_version: missing; expected a text: add it",
    ),
    "an unknown load": (
        "{ concurrency = 64 }",
        '"high"',
        "load: 'high' is not valid; expected load = \"max\"",
    ),
    "an empty load": ("{ concurrency = 64 }", "{}", 'load: expected load = "max", or'),
    "two loads": (
        "{ concurrency = 64 }",
        "{ concurrency = 64, batch = 3 }",
        'load: expected load = "max", or { concurrency = 64 }, or { batch = 64 }: give one',
    ),
    "a load of none": (
        "{ concurrency = 64 }",
        "{ concurrency = 0 }",
        "load: {'concurrency': 0} is not valid; expected load = \"max\", or { concurrency = 64 }, or",
    ),
    "an unknown load key": (
        "{ concurrency = 64 }",
        "{ concurency = 64 }",
        (
            "load.concurency: unknown key; expected one of concurrency, batch: did you mean"
            ' "concurrency"?'
        ),
    ),
    "an unknown gpu": (
        "h100-sxm5-80gb",
        "h100-sxm-80gb",
        'gpu: "h100-sxm-80gb" has no file in gpus/; expected "h100-sxm5-80gb"?: correct it',
    ),
    "a gpu far from all": (
        "h100-sxm5-80gb",
        "zzz",
        'gpu: "zzz" has no file in gpus/; expected one that has: add it',
    ),
    "an unknown key": (
        'engine = "vLLM"\n',
        'engine = "vLLM"\nengin_version = "1"\n',
        "engin_version: unknown key; expected one of id, gpu, model, precision,",
    ),
    "a key far from all": (
        'engine = "vLLM"\n',
        'engine = "vLLM"\nzzz = 1\n',
        "conditions: remove it",
    ),
    "an unknown key of parallelism": (
        "tensor_parallel = 2",
        "tensor_paralel = 2",
        (
            "parallelism.tensor_paralel: unknown key; expected one of gpus, tensor_parallel,"
            ' pipeline_parallel, data_parallel, expert_parallel: did you mean "tensor_parallel"?'
        ),
    ),
    "parallelism that is no count": (
        "gpus = 4",
        "gpus = true",
        "parallelism.gpus: True is not valid; expected a whole number above 0",
    ),
    "parallelism that does not add up": (
        "gpus = 4",
        "gpus = 8",
        (
            "parallelism: gpus = 8 is not tensor_parallel x pipeline_parallel x data_parallel"
            " (2 x 1 x 2); expected 4: correct one of them"
        ),
    ),
    "a rate in quotes": (
        "= 2103",
        '= "2103"',
        "tokens_per_second_per_gpu: '2103' is not valid; expected a finite number above 0",
    ),
    "a rate that is no number": ("= 2103", "= nan", "tokens_per_second_per_gpu: nan is not valid"),
    "an unknown precision": ('"fp8"', '"w4a5"', "precision: 'w4a5' is not valid; expected one of"),
    "an unknown confidence": (
        '"derived"',
        '"sure"',
        (
            'confidence: \'sure\' is not valid; expected one of "audited benchmark", "vendor-'
            'published", "derived", "case report": correct it'
        ),
    ),
    "a source that is not there": (
        '["paper"]',
        '["papers"]',
        'sources: "papers" has no [sources.papers] table; expected "paper"?: correct it',
    ),
}


@pytest.mark.parametrize(("old", "new", "expected"), REFUSALS.values(), ids=REFUSALS)
def test_an_entry_that_is_refused(tmp_path: Path, old: str, new: str, expected: str) -> None:
    line = refusal(folder(tmp_path, ours(old, new)))
    assert WHERE in line
    assert expected in line


FILE_REFUSALS = {
    "no TOML": ("[[reference", "acme.toml: is not readable TOML"),
    "nothing": ("", "sources: missing; expected tables [sources.<key>]: add it"),
    "sources alone": (
        "sources = {}",
        "reference: missing; expected [[reference]] tables, one at least: add it",
    ),
    "a number too long to read": (f"x = {'8' * 5000}", "acme.toml: is not readable TOML"),
    "no entries": ("sources = {}\nreference = []", "reference: [] is not valid; expected [[refer"),
    "a table": ("sources = {}\nreference = {}", "reference: {} is not valid; expected [[reference"),
    "an entry that is no table": (
        "sources = {}\nreference = [3]",
        "[[reference]] number 1 table: 3 is not valid",
    ),
    "a misspelt table": (
        OURS.replace("[[reference]]", "[[references]]"),
        'references: unknown key; expected one of sources, reference: did you mean "reference"?',
    ),
    "no sources": ("reference = []", "sources: missing; expected tables [sources.<key>]: add it"),
    "a source without address": (
        OURS.replace('url = "https://example.com/paper"\n', ""),
        "sources.paper.url: missing; expected an https:// address: add it",
    ),
    "a misspelt key of a source": (
        OURS.replace("seen_as", "seen_at"),
        'sources.paper.seen_at: unknown key; expected one of title, url, seen_as: did you mean "se',
    ),
    "an entry without id": (
        OURS.replace('id = "acme-70b-fp8-h100"\n', ""),
        "[[reference]] number 1 id: missing; expected lower-case letters, digits, dots and hyphens",
    ),
    "an id with spaces": (
        OURS.replace("acme-70b-fp8-h100", "Acme 70B"),
        "[[reference]] \"Acme 70B\" id: 'Acme 70B' is not valid; expected lower-case letters",
    ),
    "a long value": (
        OURS.replace("= 2103", f'= "{"8" * 5000}"'),
        "888... is not valid",
    ),
}


@pytest.mark.parametrize(("text", "expected"), FILE_REFUSALS.values(), ids=FILE_REFUSALS)
def test_a_file_that_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    line = refusal(folder(tmp_path, text))
    assert expected in line
    assert len(line) < 500


def test_an_id_stands_once_in_a_folder(tmp_path: Path) -> None:
    folder(tmp_path, OURS)
    line = refusal(folder(tmp_path, OURS, "copy.toml"))
    assert 'copy.toml: [[reference]] "acme-70b-fp8-h100" id: stands in acme.toml already' in line
    entry = OURS[OURS.index("[[reference]]") :]
    twice = refusal(folder(tmp_path / "x", OURS + entry))
    assert "id: stands in acme.toml already; expected once: rename one" in twice
