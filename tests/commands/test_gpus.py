"""`floorwatch gpus`: the list, one entry, and files for GPUs that are missing."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from monitor.commands import gpus as command
from monitor.expectation.matching import Catalogue, match
from monitor.model import GpuReading, GpuSpec
from monitor.outputs.catalogue_entry import catalogue_entry, entry_id
from monitor.sources.expectations import ExpectationInvalid, default_directory, load_catalogue
from monitor.sources.nvml import Nvml
from tests.command_line import CommandLine
from tests.sources.fake_pynvml import GPU_IS_LOST, FakeGpu, FakePynvml, h200

TODAY = dt.date(2026, 11, 30)


def host(monkeypatch: pytest.MonkeyPatch, *gpus: FakeGpu) -> FakePynvml:
    fake = FakePynvml(*gpus)
    monkeypatch.setattr(command, "Nvml", lambda gpm: Nvml(fake, gpm=gpm))
    return fake


def unheard_of(index: int = 0) -> FakeGpu:
    """An H200 by its figures, under a name and a PCI id that no file has."""
    gpu = h200(index)
    gpu.answers["nvmlDeviceGetName"] = "NVIDIA H999 SXM"
    gpu.answers["nvmlDeviceGetPciInfo"] = SimpleNamespace(
        pciDeviceId=0xFFFF10DE, busId=f"00000000:{index}1:00.0"
    )
    return gpu


# ---------------------------------------------------------------------------- the list


def test_the_list_has_a_line_per_gpu_and_a_legend(floorwatch: CommandLine) -> None:
    result = floorwatch("gpus")
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0].split() == [
        *("ID", "VENDOR", "GB", "GB/s", "FP4", "FP8", "INT8", "BF16", "FP16", "TF32")
    ]
    (ours,) = (line for line in lines if line.startswith("rtx-pro-6000-blackwell-ws "))
    assert ours.split() == [
        *("rtx-pro-6000-blackwell-ws", "nvidia", "96d", "1792d"),
        *("2015.2w*", "1007.6w", "1007.6w", "503.8w", "503.8w", "251.9w"),
    ]
    listed = lines[1 : lines.index("")]
    assert f"{len(listed)} GPUs. " in result.out
    assert "Confidence: m measured, d datasheet, w whitepaper, v vendor-repo" in result.out


def test_the_list_as_json(floorwatch: CommandLine) -> None:
    result = floorwatch("gpus", "--json")
    listed = json.loads(result.out)["gpus"]
    (ours,) = (gpu for gpu in listed if gpu["id"] == "rtx-pro-6000-blackwell-ws")
    assert ours["memory_bandwidth"]["value"] == 1792
    assert ours["memory_bandwidth"]["confidence"] == "datasheet"
    assert ours["dense_peaks"]["fp4"]["density"] == "dense"
    assert ours["sparse_peaks"]["fp4"]["value"] == 4030.4
    assert (ours["multiprocessors"], ours["boost_clock_mhz"]) == (188, 2617)
    assert (ours["multiprocessor_count"]["value"], ours["boost_clock"]["value"]) == (188, 2617)
    assert ours["multiprocessor_count"]["sources"]
    assert (ours["measured_bandwidth"], ours["max_sm_clock"]) == ({}, None)
    (bare,) = (gpu for gpu in listed if gpu["id"] == "gb300-279gb")
    assert (bare["multiprocessors"], bare["multiprocessor_count"]) == (None, None)
    assert (bare["boost_clock_mhz"], bare["boost_clock"]) == (None, None)


# ------------------------------------------------------------------------------- one


@pytest.mark.parametrize("gpu_id", ["b200-sxm-180gb", "nvidia-b200-sxm-180gb", " B200-SXM-180GB"])
def test_one_with_every_source(floorwatch: CommandLine, gpu_id: str) -> None:
    result = floorwatch("gpus", gpu_id)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0] == "b200-sxm-180gb (nvidia)"
    place = lines.index("  memory bandwidth: 7700 GB/s, confidence datasheet")
    assert lines[place + 1].startswith("    source: NVIDIA Blackwell datasheet 3384703")
    assert any(line.startswith("    others say: 8000 (DGX B200 page") for line in lines)
    assert "    bf16: 2250 TFLOPS, dense bf16, confidence datasheet" in lines
    assert "  sparse (2:4) peaks, never a denominator" in lines


def test_counts_and_clocks_have_their_sources(floorwatch: CommandLine) -> None:
    lines = floorwatch("gpus", "h100-sxm5-80gb").out.splitlines()
    for line in (
        "  multiprocessors: 132 SM, confidence secondary",
        "  boost clock: 1830 MHz, confidence secondary",
        "  highest SM clock: 1980 MHz, confidence secondary",
    ):
        assert lines[lines.index(line) + 1].startswith("    source: ")
    unknown = floorwatch("gpus", "gb300-279gb").out.splitlines()
    assert "  multiprocessors: unknown" in unknown
    assert "  boost clock: unknown" in unknown
    assert not any("highest SM clock" in line or "measured" in line for line in unknown)


def test_measured_ceilings_stand_apart(floorwatch: CommandLine) -> None:
    lines = floorwatch("gpus", "h200-sxm-141gb").out.splitlines()
    place = lines.index("  measured ceilings, never a denominator")
    told = [line for line in lines[place:] if ": " in line and line.startswith("    ")]
    assert [line for line in told if "confidence" in line] == [
        "    copy (0.89 of the rated): 4275 GB/s, confidence measured",
        "    read (0.93 of the rated): 4456 GB/s, confidence measured",
        "    tf32 (0.71 of the rated): 350 TFLOPS, dense tf32, confidence measured",
        "    bf16 (0.67 of the rated): 667 TFLOPS, dense bf16, confidence measured",
        "    fp8 (0.64 of the rated): 1265 TFLOPS, dense fp8, confidence measured",
    ]
    found = json.loads(floorwatch("gpus", "h200-sxm-141gb", "--json").out)
    assert found["measured_bandwidth"]["read"]["value"] == 4456
    assert found["measured_peaks"]["bf16"]["confidence"] == "measured"


def test_a_measured_peak_without_a_rated_one_has_no_share(
    floorwatch: CommandLine, tmp_path: Path
) -> None:
    listed = (default_directory() / "gpus" / "rtx-4090.toml").read_text()
    dense = listed[listed.index("[dense_peaks.tf32]") : listed.index("[dense_peaks.bf16]")]
    (tmp_path / "gpus").mkdir()
    (tmp_path / "gpus" / "rtx-4090.toml").write_text(listed.replace(dense, ""))
    config = tmp_path / "config.yaml"
    config.write_text("expectations: .\n")
    lines = floorwatch("gpus", "rtx-4090", "--config", config).out.splitlines()
    assert "    tf32: 90 TFLOPS, dense tf32, confidence measured" in lines


def test_one_as_json(floorwatch: CommandLine) -> None:
    found = json.loads(floorwatch("gpus", "nvidia-l4", "--json").out)
    assert (found["id"], found["vendor"]) == ("l4", "nvidia")
    assert found["memory"]["sources"]


def test_an_unknown_id_names_the_nearest(floorwatch: CommandLine) -> None:
    result = floorwatch("gpus", "b200")
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "floorwatch: gpus: no GPU 'b200' in the catalogue; nearest: b200-sxm-180gb;"
        " floorwatch gpus lists them\n"
    )
    assert "nearest: rtx-4090" in floorwatch("gpus", "rtx4090").err


# --------------------------------------------------------------------------- missing


def test_without_a_driver_it_says_so(
    floorwatch: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Nvml, "connect", lambda _: "no NVIDIA driver")
    result = floorwatch("gpus", "--missing")
    assert (result.code, result.err) == (0, "")
    assert result.out == "GPUs of this host: unknown: no NVIDIA driver\n"
    found = json.loads(floorwatch("gpus", "--missing", "--json").out)
    assert found == {
        "nvml": {"up": False, "reason": "no NVIDIA driver"},
        "known": [],
        "unreadable": [],
        "missing": [],
    }


def test_known_gpus_are_named(floorwatch: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = host(monkeypatch, h200(0), h200(1))
    result = floorwatch("gpus", "--missing")
    assert (result.code, result.err) == (0, "")
    assert result.out == (
        "the catalogue knows every GPU of this host: GPU 0 h200-sxm-141gb, GPU 1 h200-sxm-141gb\n"
    )
    assert (fake.initialised, fake.forbidden) == (0, [])


def test_a_host_without_gpus(floorwatch: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    host(monkeypatch)
    assert floorwatch("gpus", "--missing").out == "this host has no GPUs\n"


def test_gpus_of_one_kind_need_one_file(
    floorwatch: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    host(monkeypatch, unheard_of(0), h200(1), unheard_of(2))
    result = floorwatch("gpus", "--missing")
    assert (result.code, result.err) == (0, "floorwatch: missing: GPU 0, 2\n")
    assert result.out.count("[match]") == 1
    assert 'id = "h999-sxm"' in result.out.splitlines()
    assert 'pci_device_ids = ["ffff"]' in result.out.splitlines()
    assert "# NVML reads 4814.3 GB/s: 2 x highest memory" in result.out.splitlines()
    found = json.loads(floorwatch("gpus", "--missing", "--json").out)
    assert found["known"] == [{"gpu": 1, "id": "h200-sxm-141gb"}]
    assert [entry["gpus"] for entry in found["missing"]] == [[0, 2]]


def test_a_gpu_known_by_its_shape_alone_needs_a_file_too(
    floorwatch: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    host(monkeypatch, unheard_of())
    lines = floorwatch("gpus", "--missing").out.splitlines()
    assert lines[0] == (
        "# NVIDIA H999 SXM: taken for h200-sxm-141gb by compute capability 9.0 and 132"
        " multiprocessors alone: set `gpu: h200-sxm-141gb` if it is that card"
    )
    assert 'compute_capability = "9.0"' in lines
    place = lines.index("# NVML reads 132 multiprocessors.")
    assert lines[place + 1] == "#[multiprocessors]"


def test_a_gpu_of_no_known_shape_says_so(
    floorwatch: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = unheard_of()
    gpu.answers["nvmlDeviceGetCudaComputeCapability"] = (99, 0)
    host(monkeypatch, gpu)
    lines = floorwatch("gpus", "--missing").out.splitlines()
    assert "is not in the catalogue: add a file to expectations/gpus" in lines[0]
    assert 'compute_capability = "99.0"' in lines
    assert not any("multiprocessors" in line for line in lines)


def test_a_gpu_that_cannot_be_read_is_told(
    floorwatch: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = h200(1)
    lost.lost = GPU_IS_LOST
    host(monkeypatch, h200(0), lost)
    result = floorwatch("gpus", "--missing")
    assert result.code == 0
    assert result.err.startswith("floorwatch: GPU 1 cannot be read: ")
    assert "knows every GPU" not in result.out
    found = json.loads(floorwatch("gpus", "--missing", "--json").out)
    assert [entry["gpu"] for entry in found["unreadable"]] == [1]


def test_missing_takes_no_id(floorwatch: CommandLine) -> None:
    result = floorwatch("gpus", "l4", "--missing")
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "floorwatch: gpus: --missing looks at this host's GPUs; leave out the ID\n"
    )


def test_own_entries_count(
    floorwatch: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host(monkeypatch, unheard_of())
    written = floorwatch("gpus", "--missing").out
    (tmp_path / "gpus").mkdir()
    (tmp_path / "gpus" / "h999-sxm.toml").write_text(filled(written))
    config = tmp_path / "config.yaml"
    config.write_text("expectations: .\n")
    result = floorwatch("gpus", "--missing", "--config", config)
    assert result.out == "the catalogue knows every GPU of this host: GPU 0 h999-sxm\n"
    assert floorwatch("gpus", "h999-sxm", "--config", config).code == 0


# ----------------------------------------------------------------- the file to fill in

READING = GpuReading(
    0,
    name="NVIDIA H999 SXM",
    pci_device_id="0xFFFF10DE",
    memory_total_bytes=143_771 * 1024 * 1024,
    default_power_limit_mw=700_000,
)


def entry(reading: GpuReading = READING, pci: str | None = "ffff") -> str:
    return catalogue_entry(
        reading,
        pci_device_id=pci,
        bandwidth_bytes_per_second=None,
        reason="is not in the catalogue",
        today=TODAY,
    )


def filled(text: str) -> str:
    """What an operator makes of the file: the marks off, a figure and an address written."""
    text = re.sub(r"^#(?! )", "", text, flags=re.MULTILINE)
    sizes = {"fp8": 400, "fp4": 800}
    for table in re.findall(r"^\[((?:memory|power|dense|multi)\S*)\]", text, re.MULTILINE):
        value = sizes.get(table.rpartition(".")[2], 141)
        text = re.sub(rf"(\[{re.escape(table)}\]\nvalue = )0", rf"\g<1>{value}", text)
    return text.replace('"https://"', '"https://vendor.example/h999.pdf"')


def loaded(folder: Path, text: str) -> GpuSpec:
    (folder / "gpus").mkdir(exist_ok=True)
    (folder / "gpus" / "h999-sxm.toml").write_text(text, encoding="utf-8")
    (spec,) = load_catalogue(folder)
    return spec


def test_a_filled_file_loads_and_fits_the_gpu(tmp_path: Path) -> None:
    spec = loaded(tmp_path, filled(entry()))
    assert (spec.id, spec.names, spec.pci_device_ids) == (
        "h999-sxm",
        ("NVIDIA H999 SXM",),
        ("ffff",),
    )
    assert spec.nvml_memory_mib == 143_771
    assert match(READING, Catalogue((spec,))) is spec
    assert set(spec.dense_peaks) == {"bf16", "fp16", "fp8", "fp4"}
    assert spec.dense_peaks["fp4"].value == 800


def test_the_loader_names_what_is_not_filled_yet(tmp_path: Path) -> None:
    with pytest.raises(ExpectationInvalid, match=r"memory: missing; expected a table"):
        loaded(tmp_path, entry())
    marks_off = re.sub(r"^#(?! )", "", entry(), flags=re.MULTILINE)
    with pytest.raises(
        ExpectationInvalid, match=r"\[memory\] value: 0 is not valid; expected a finite number"
    ):
        loaded(tmp_path, marks_off)
    no_address = filled(entry()).replace("https://vendor.example/h999.pdf", "https://")
    with pytest.raises(ExpectationInvalid, match=r"url: 'https://' is not valid"):
        loaded(tmp_path, no_address)


def test_what_nvml_does_not_tell_is_left_out(tmp_path: Path) -> None:
    text = entry(GpuReading(0), None)
    assert "memory_mib" not in text
    assert "NVML reads" not in text
    assert "names = []" in text.splitlines()
    assert 'id = "unnamed-gpu"' in text.splitlines()


def test_a_hostile_name_stays_a_text(tmp_path: Path) -> None:
    text = entry(GpuReading(0, name='x"]\nid = "y"\\ \x7f\ud800é'))
    tables = loaded(tmp_path, filled(text).replace('id = "x-id-y"', 'id = "h999-sxm"'))
    assert tables.names == ('x"] id = "y"\\   é',)


def test_ids_of_names() -> None:
    assert entry_id("NVIDIA H100 80GB HBM3") == "h100-80gb-hbm3"
    assert entry_id("NVIDIA") == "nvidia"
    assert entry_id("Tesla T4") == "tesla-t4"
