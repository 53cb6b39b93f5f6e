"""A GPU is found by PCI id and whole name; a near name is never enough."""

from __future__ import annotations

from dataclasses import replace

import pytest

from monitor.expectation.matching import (
    Catalogue,
    bandwidth_check,
    bandwidth_from_nvml,
    match,
    pci_device_id,
)
from monitor.model import Confidence, GpuReading, GpuSpec, Unknown
from monitor.sources.expectations import default_directory, load_catalogue

MIB = 1024 * 1024
CATALOGUE = Catalogue(load_catalogue(default_directory()))


def gpu(
    name: str | None = None,
    pci: str | None = None,
    mib: int | None = None,
    watts: int | None = None,
) -> GpuReading:
    return GpuReading(
        index=0,
        name=name,
        pci_device_id=pci,
        memory_total_bytes=None if mib is None else mib * MIB,
        default_power_limit_mw=None if watts is None else watts * 1000,
    )


def matched(reading: GpuReading, catalogue: Catalogue = CATALOGUE) -> str | None:
    spec = match(reading, catalogue)
    return spec.id if isinstance(spec, GpuSpec) else None


def spec(text: str) -> GpuSpec:
    found = CATALOGUE.by_id(text)
    assert isinstance(found, GpuSpec)
    return found


@pytest.mark.parametrize("entry", CATALOGUE.specs, ids=lambda entry: entry.id)
def test_every_entry_is_found_by_each_of_its_names_alone(entry: GpuSpec) -> None:
    assert entry.names
    for name in entry.names:
        assert matched(gpu(name)) == entry.id


@pytest.mark.parametrize("entry", CATALOGUE.specs, ids=lambda entry: entry.id)
def test_every_pci_id_with_its_name_and_label_memory_finds_its_entry(entry: GpuSpec) -> None:
    assert entry.memory_gb is not None
    mib = entry.nvml_memory_mib or int(entry.memory_gb.value * 1024)
    for pci in entry.pci_device_ids:
        assert matched(gpu(entry.names[0], f"0x{pci}10de", mib)) == entry.id


def test_fp16_and_bf16_run_at_one_rate_wherever_both_are_listed() -> None:
    for entry in CATALOGUE.specs:
        if "bf16" in entry.dense_peaks:
            assert entry.dense_peaks["bf16"].value == entry.dense_peaks["fp16"].value


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("NVIDIA H100 PCIe", "h100-pcie-80gb"),
        ("NVIDIA H100 NVL", "h100-nvl-94gb"),
        ("NVIDIA H200", "h200-sxm-141gb"),
        ("NVIDIA H200 NVL", "h200-nvl-141gb"),
        ("NVIDIA H20", "h20-96gb"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm4-40gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40", "l40"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GH200 480GB", "gh200-96gb"),
        ("NVIDIA GH200 144G HBM3e", "gh200-144gb"),
        ("NVIDIA B300 SXM6 AC", "b300-sxm"),
        ("NVIDIA GB300", "gb300-279gb"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000-blackwell-ws"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-blackwell-server"),
        (
            "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
            "rtx-pro-6000-blackwell-maxq",
        ),
    ],
)
def test_names_that_hold_one_another_are_told_apart(name: str, expected: str) -> None:
    assert matched(gpu(name)) == expected


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA H100",
        "NVIDIA H20-3e",
        "NVIDIA H200 NVL 2",
        "NVIDIA B300",
        "NVIDIA A100",
        "H200",
        "nvidia h200",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA RTX PRO 6000 Blackwell",
        "",
        "   ",
    ],
)
def test_a_name_that_is_not_listed_whole_is_unknown(name: str) -> None:
    assert matched(gpu(name)) is None


def test_an_unknown_gpu_says_what_was_seen_and_what_to_do() -> None:
    found = match(gpu("NVIDIA H100", "0x233910DE", 65536), CATALOGUE)
    assert isinstance(found, Unknown)
    assert found.what == "gpu"
    assert "'NVIDIA H100' (PCI device id 0x233910DE, 65536 MiB)" in found.reason
    assert "`gpu:`" in found.reason


def test_a_gpu_without_name_and_id_is_unknown() -> None:
    found = match(gpu(), CATALOGUE)
    assert isinstance(found, Unknown)
    assert "a GPU without a name" in found.reason


def test_the_pci_id_goes_before_the_name() -> None:
    # A driver older than the card gives a generic name; the PCI id is still right.
    assert matched(gpu("NVIDIA Graphics Device", "0x2bb510de", 97887)) == (
        "rtx-pro-6000-blackwell-server"
    )


def test_an_unlisted_pci_id_leaves_it_to_the_name() -> None:
    assert matched(gpu("NVIDIA H100 80GB HBM3", "0x999910de", 81559)) == "h100-sxm5-80gb"


def test_memory_tells_cards_of_one_pci_id_apart() -> None:
    assert matched(gpu("NVIDIA something", "2bb3", 48935)) == "rtx-pro-5000-blackwell-48gb"
    assert matched(gpu("NVIDIA something", "2bb3", 73415)) == "rtx-pro-5000-blackwell-72gb"


def test_without_memory_the_name_tells_them_apart_and_without_a_name_nothing_does() -> None:
    named = gpu("NVIDIA RTX PRO 5000 72GB Blackwell", "2bb3")
    assert matched(named) == "rtx-pro-5000-blackwell-72gb"
    found = match(gpu(None, "2bb3"), CATALOGUE)
    assert isinstance(found, Unknown)
    assert "rtx-pro-5000-blackwell-48gb, rtx-pro-5000-blackwell-72gb" in found.reason


def test_the_power_limit_tells_apart_what_pci_id_name_and_memory_do_not() -> None:
    h200 = spec("h200-sxm-141gb")
    assert h200.tdp_w is not None
    hot = replace(h200, id="h200-sxm-141gb-1000w", tdp_w=replace(h200.tdp_w, value=1000.0))
    both = Catalogue((h200, hot))
    assert matched(gpu("NVIDIA H200", "2335", 143771, 1000), both) == "h200-sxm-141gb-1000w"
    assert matched(gpu("NVIDIA H200", "2335", 143771, 700), both) == "h200-sxm-141gb"
    assert matched(gpu("NVIDIA H200", "2335", 143771), both) is None


def test_a_power_cap_alone_does_not_hide_a_card() -> None:
    capped = replace(
        gpu("NVIDIA RTX PRO 6000 Blackwell Server Edition", "2bb5", 97887),
        enforced_power_limit_mw=450_000,
    )
    assert matched(capped) == "rtx-pro-6000-blackwell-server"


def test_a_slice_of_a_known_card_is_not_the_card() -> None:
    found = match(gpu("NVIDIA A100-SXM4-80GB", "20b2", 9728), CATALOGUE)
    assert isinstance(found, Unknown)
    assert "a100-sxm4-80gb (81920 MiB)" in found.reason


def test_ecc_on_gddr_takes_memory_and_the_card_is_still_found() -> None:
    # 46068 of 49152 MiB on an A40, 15360 of 16384 on a T4.
    assert matched(gpu("NVIDIA A40", "2235", 46068)) == "a40"
    assert matched(gpu("Tesla T4", "1eb8", 15360)) == "t4"


def test_unified_memory_reports_no_total_and_is_found() -> None:
    assert matched(gpu("NVIDIA GB10", "2e12")) == "gb10-dgx-spark"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2335", "2335"),
        ("0x2335", "2335"),
        ("0x233510DE", "2335"),
        ("0x233510de", "2335"),
        ("10de:2335", "2335"),
        ("10DE:2BB5", "2bb5"),
        ("1002:740f", "740f"),
        ("0x233510de00", None),
        ("10de", "10de"),
        ("23", None),
        ("gpu0", None),
        ("", None),
        (None, None),
    ],
)
def test_pci_ids_are_read_in_any_usual_spelling(text: str | None, expected: str | None) -> None:
    assert pci_device_id(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("b200-sxm-180gb", "b200-sxm-180gb"),
        ("nvidia-b200-sxm-180gb", "b200-sxm-180gb"),
        ("amd-mi300x", "mi300x"),
        (" B200-SXM-180GB ", "b200-sxm-180gb"),
    ],
)
def test_ids_are_accepted_with_and_without_the_vendor(text: str, expected: str) -> None:
    assert spec(text).id == expected


@pytest.mark.parametrize("text", ["amd-b200-sxm-180gb", "b200", "", "nvidia-"])
def test_an_id_that_is_not_listed_is_unknown(text: str) -> None:
    found = CATALOGUE.by_id(text)
    assert isinstance(found, Unknown)
    assert repr(text) in found.reason


def test_an_unknown_id_names_the_nearest() -> None:
    found = CATALOGUE.by_id("b200-sxm-180g")
    assert isinstance(found, Unknown)
    assert "nearest: b200-sxm-180gb" in found.reason


def clocked(mem_mhz: int | None, bits: int | None) -> GpuReading:
    return GpuReading(index=0, max_mem_clock_mhz=mem_mhz, memory_bus_width_bits=bits)


def test_bandwidth_from_nvml_is_twice_clock_times_bus_width() -> None:
    # H200: 2 x 3201 MHz x 6016 bit / 8 = 4.814304e12 bytes/s, 0.3 % over 4800 GB/s.
    h200 = clocked(3201, 6016)
    assert bandwidth_from_nvml(h200) == pytest.approx(4.814304e12)
    assert bandwidth_check(h200, spec("h200-sxm-141gb")) == pytest.approx(1.00298, abs=1e-5)


def test_the_bandwidth_check_tells_server_from_workstation() -> None:
    # 2 x 12481 MHz x 512 bit / 8 = 1.597568e12 bytes/s: 1597 GB/s, not 1792.
    card = clocked(12481, 512)
    assert bandwidth_check(card, spec("rtx-pro-6000-blackwell-server")) == pytest.approx(
        1.00036, abs=1e-5
    )
    assert bandwidth_check(card, spec("rtx-pro-6000-blackwell-ws")) == pytest.approx(
        0.89150, abs=1e-5
    )


@pytest.mark.parametrize(("mhz", "bits"), [(None, 6016), (3201, None), (0, 6016), (3201, 0)])
def test_without_clock_or_bus_width_there_is_no_bandwidth(
    mhz: int | None, bits: int | None
) -> None:
    assert bandwidth_from_nvml(clocked(mhz, bits)) is None
    assert bandwidth_check(clocked(mhz, bits), spec("l4")) is None


# ------------------------------------------------------------------------ by its shape


def shaped(
    capability: str, cores: int, mib: int | None = None, watts: int | None = None
) -> GpuReading:
    """A GPU whose name and PCI device id no entry lists."""
    unheard_of = gpu("NVIDIA Something New", "0xffff10de", mib, watts)
    return replace(unheard_of, compute_capability=capability, cuda_cores=cores)


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        (shaped("9.0", 16896, 143771, 700), "h200-sxm-141gb"),
        (shaped("9.0", 16896, 143771, 600), "h200-nvl-141gb"),
        (shaped("9.0", 16896, 95830, 400), "h100-nvl-94gb"),
        (shaped("9.0", 9984, 97871), "h20-96gb"),
        (shaped("12.1", 6144), "gb10-dgx-spark"),
        (shaped("8.9", 16384, 24564), "rtx-4090"),
        (shaped("7.5", 2560, 15360), "t4"),
    ],
)
def test_capability_and_multiprocessors_name_a_card(reading: GpuReading, expected: str) -> None:
    found = match(reading, CATALOGUE)
    assert isinstance(found, GpuSpec)
    assert found.id == expected
    # Of equal shape is not of equal make: its figures may raise no alarm.
    assert {peak.confidence for peak in found.dense_peaks.values()} == {Confidence.UNVERIFIED}


@pytest.mark.parametrize(
    "reading",
    [
        shaped("9.0", 16000, 143771, 700),  # 125 multiprocessors
        shaped("9.1", 16896, 143771, 700),  # a capability that nobody knows
        shaped("9.0", 16896, 70_000, 700),  # the shape of an H100, and no card's memory
        shaped("8.0", 16896 // 2, 143771, 700),  # 132 of Ampere
        replace(shaped("9.0", 16896, 143771, 700), cuda_cores=None),
        replace(shaped("9.0", 16896, 143771, 700), compute_capability=None),
        # The shape and memory of an H200 at the bandwidth of an H100.
        replace(
            shaped("9.0", 16896, 143771, 700), max_mem_clock_mhz=2619, memory_bus_width_bits=5120
        ),
    ],
)
def test_another_shape_is_unknown(reading: GpuReading) -> None:
    found = match(reading, CATALOGUE)
    assert isinstance(found, Unknown)
    assert "is not in the catalogue: add a file" in found.reason


def test_a_shape_of_several_cards_names_them_all() -> None:
    found = match(shaped("9.0", 16896, 81559), CATALOGUE)
    assert isinstance(found, Unknown)
    assert found.reason == (
        "'NVIDIA Something New' (PCI device id 0xffff10de, 81559 MiB) is not in the catalogue; by"
        " compute capability 9.0 and 132 multiprocessors it could be any of h100-sxm5-80gb,"
        " h800-sxm5-80gb: set `gpu:` to one, or add a file to expectations/gpus"
    )
    # A power limit that is none of theirs decides nothing.
    assert isinstance(match(shaped("9.0", 16896, 81559, 123), CATALOGUE), Unknown)


def test_the_shape_is_not_asked_where_id_or_name_speak() -> None:
    # An A100 by its id, of a shape that is an H200's: the id stands, its memory does not.
    odd = replace(shaped("9.0", 16896, 143771, 700), pci_device_id="0x20b210de")
    found = match(odd, CATALOGUE)
    assert isinstance(found, Unknown)
    assert "looks like a100-sxm4-80gb" in found.reason


def test_what_nvml_contradicts_comes_back_with_less_confidence() -> None:
    # A Server Edition at the Workstation Edition's clock: 2 x 14001 x 512 / 8 = 1792.1 GB/s.
    server = spec("rtx-pro-6000-blackwell-server")
    card = replace(
        gpu(server.names[0], "2bb5", 97887), max_mem_clock_mhz=14001, memory_bus_width_bits=512
    )
    found = match(card, CATALOGUE)
    assert isinstance(found, GpuSpec)
    listed, doubted = (one.memory_bandwidth_gb_per_second for one in (server, found))
    assert listed is not None
    assert doubted is not None
    assert (listed.confidence, doubted.confidence) == (Confidence.DATASHEET, Confidence.SECONDARY)
    assert (doubted.value, found.dense_peaks) == (1597, server.dense_peaks)
    assert "NVML reads 1792.1 GB/s on this GPU, 12.2% more" in (doubted.disagreement or "")
    assert match(gpu(server.names[0], "2bb5", 97887), CATALOGUE) is server


def test_the_shortest_valid_catalogue_is_empty_and_knows_nothing() -> None:
    assert matched(gpu("NVIDIA H200", "2335", 143771), Catalogue()) is None
