"""dcgm-exporter in the place of NVML: its page, its units, its blanks, and what goes wrong.

data/dcgm/two-h100-one-mig.prom is written by hand in the form of dcgm-exporter 4.8: GPU 0 is whole
and has a pod, GPU 1 is in MIG mode and has two slices.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from monitor.config.discovery import GpuSourceConfig
from monitor.expectation.matching import Catalogue, match
from monitor.model import GpuReading, GpuRound, GpuSpec
from monitor.sources.dcgm import DcgmSource
from monitor.sources.dcgm_page import PageUnusable, read_page
from monitor.sources.expectations import default_directory, load_catalogue
from tests.sources.served import TEXT, Serve
from tests.sources.test_scrape_tls import CA, server_side

PAGE = (Path(__file__).parent / "data" / "dcgm" / "two-h100-one-mig.prom").read_text()
MIB = 1024 * 1024


def row(field: str, value: object, **labels: str) -> str:
    given = {"gpu": "0", "UUID": "GPU-1", "modelName": "NVIDIA H200", "Hostname": "a", **labels}
    inside = ",".join(f'{name}="{text}"' for name, text in given.items())
    return f"DCGM_FI_{field}{{{inside}}} {value}\n"


def only(page: str) -> GpuReading:
    (reading,) = read_page(page)
    return reading


# ---------------------------------------------------------------------- the page


def test_a_whole_gpu_is_told_in_our_units() -> None:
    whole, _ = read_page(PAGE)
    assert whole == GpuReading(
        index=0,
        uuid="GPU-8a1b0000-0000-4000-8000-000000000000",
        name="NVIDIA H100 80GB HBM3",
        pci_device_id="0x233010de",
        pci_bus_id="00000000:1B:00.0",
        compute_capability="9.0",
        memory_total_bytes=(5213 + 75818 + 528) * MIB,
        memory_used_bytes=75818 * MIB,
        utilization_gpu_pct=97.0,
        utilization_mem_pct=61.0,
        power_mw=698_532,
        energy_mj=4_361_092_287_642,
        enforced_power_limit_mw=700_000,
        default_power_limit_mw=700_000,
        sm_clock_mhz=1665,
        max_sm_clock_mhz=1980,
        mem_clock_mhz=2619,
        max_mem_clock_mhz=2619,
        clocks_event_reasons=4,
        temperature_c=64.0,
        memory_temperature_c=71.0,
        pcie_gen=5,
        pcie_gen_max=5,
        pcie_width=8,
        pcie_width_max=16,
        ecc_uncorrected=2,
        remapped_rows=4,
        row_remap_pending=True,
        xid=31,
        gpm_pct={
            "graphics": 98.438,
            "sm": 90.625,
            "occ": 18.75,
            "tensor": 14.062,
            "dram": 62.5,
            "pcie_tx": 3.0,
            "pcie_rx": 1.0,
            "nvl_rx": 100.0,
        },
    )


def test_a_gpu_in_mig_mode_is_named_and_its_slices_are_not_mixed_in() -> None:
    _, sliced = read_page(PAGE)
    assert sliced == GpuReading(
        index=1,
        uuid="GPU-8a1b0000-0000-4000-8000-000000000001",
        name="NVIDIA H100 80GB HBM3",
        pci_bus_id="00000000:43:00.0",
        mig_mode=1,
    )


@pytest.mark.parametrize(
    ("page", "entry"),
    [
        (PAGE, "h100-sxm5-80gb"),
        # 143 771 MiB in all; old exporters tell no FB_RESERVED.
        (
            row("DEV_FB_USED", 120_000) + row("DEV_FB_FREE", 23_171) + row("DEV_FB_RESERVED", 600),
            "h200-sxm-141gb",
        ),
        (row("DEV_FB_USED", 120_000) + row("DEV_FB_FREE", 23_171), "h200-sxm-141gb"),
        (row("DEV_FB_TOTAL", 143_771), "h200-sxm-141gb"),
        # --replace-blanks-in-model-name
        (row("DEV_PCI_COMBINED_ID", 0x233510DE, modelName="NVIDIA-H200"), "h200-sxm-141gb"),
    ],
)
def test_a_gpu_is_found_in_the_catalogue(page: str, entry: str) -> None:
    found = match(read_page(page)[0], Catalogue(load_catalogue(default_directory())))
    assert isinstance(found, GpuSpec), found
    assert found.id == entry


@pytest.mark.parametrize(
    "blank",
    [
        "2147483632",
        "2147483634",
        "140737488355328.000000",
        "140737488355330.000000",
        "9223372036854775792",
        "9223372036854775794",
        "9.223372036854775794e+18",
        "NaN",
        "+Inf",
        "-1",
        "FAILED",
    ],
)
def test_a_blank_is_not_told(blank: str) -> None:
    fields = (
        *("DEV_GPU_TEMP", "DEV_MEMORY_TEMP", "DEV_POWER_USAGE", "DEV_FB_TOTAL", "DEV_XID_ERRORS"),
        *("DEV_ROW_REMAP_PENDING", "PROF_DRAM_ACTIVE", "PROF_NVLINK_RX_BYTES", "DEV_SM_CLOCK"),
        *("DEV_UNCORRECTABLE_REMAPPED_ROWS", "DEV_PCI_COMBINED_ID", "DEV_CUDA_COMPUTE_CAPABILITY"),
    )
    page = "".join(row(field, blank) for field in fields)
    assert only(page) == GpuReading(index=0, uuid="GPU-1", name="NVIDIA H200")


def test_an_energy_counter_beyond_32_bits_is_no_blank() -> None:
    assert only(row("DEV_TOTAL_ENERGY_CONSUMPTION", 2147483648)).energy_mj == 2147483648
    assert only(row("DEV_TOTAL_ENERGY_CONSUMPTION", 2147483631)).energy_mj == 2147483631


def test_zero_is_told_but_for_a_sensor_that_is_not_there() -> None:
    page = (
        row("DEV_MEMORY_TEMP", 0) + row("PROF_DRAM_ACTIVE", "0.000000") + row("DEV_XID_ERRORS", 0)
    )
    reading = only(page + row("DEV_ROW_REMAP_PENDING", 0) + row("DEV_CLOCK_THROTTLE_REASONS", 0))
    assert reading.memory_temperature_c is None
    assert reading.gpm_pct == {"dram": 0.0}
    assert (reading.xid, reading.xid_count) == (0, None)
    assert reading.row_remap_pending is False
    assert reading.clocks_event_reasons == 0


def test_a_ratio_above_one_is_no_ratio() -> None:
    assert only(row("PROF_SM_ACTIVE", "1.5")).gpm_pct == {}
    assert only(row("PROF_SM_ACTIVE", "1.000000")).gpm_pct == {"sm": 100.0}


def test_renamed_fields_and_labels_of_either_spelling_are_read() -> None:
    new = (
        row("DEV_BOARD_POWER_WATTS", "350.25")
        + row("DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS", "600")
        + row("DEV_BOARD_POWER_LIMIT_DEFAULT_WATTS", "700")
        + row("DEV_CLOCKS_EVENT_REASONS", "12")
        + row("DEV_GPU_UTIL_RATIO", "55")
        + row("DEV_GPU_TEMP_CELSIUS", "61")
        + row("DEV_XID_ERROR", "79")
        + row("DEV_ROW_REMAP_UNCORRECTABLE_TOTAL", "1")
        + row("DEV_ROW_REMAP_CORRECTABLE_TOTAL", "0")
        + row("CUDA_GPU_COMPUTE_CAPABILITY", 8 << 16 | 9)
        + row("PROF_DRAM_UTIL_RATIO", "0.5")
    )
    reading = only(new.replace("UUID=", "uuid=").replace("Hostname=", "hostname="))
    assert reading == GpuReading(
        index=0,
        uuid="GPU-1",
        name="NVIDIA H200",
        compute_capability="8.9",
        power_mw=350_250,
        enforced_power_limit_mw=600_000,
        default_power_limit_mw=700_000,
        clocks_event_reasons=12,
        utilization_gpu_pct=55.0,
        temperature_c=61.0,
        xid=79,
        remapped_rows=1,
        gpm_pct={"dram": 50.0},
    )


def test_the_limit_in_force_goes_before_the_one_asked_for() -> None:
    asked = row("DEV_POWER_MGMT_LIMIT", "500.0")
    assert only(asked).enforced_power_limit_mw == 500_000
    both = asked + row("DEV_ENFORCED_POWER_LIMIT", "450.0")
    assert only(both).enforced_power_limit_mw == 450_000


def test_counters_of_throttled_time_are_left_to_the_bit_mask() -> None:
    page = row("DEV_POWER_VIOLATION", 5) + row("DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS", 5)
    assert only(page + row("DEV_CLOCK_THROTTLE_REASONS", 4)).throttle_ns == {}


def test_the_row_of_the_whole_gpu_stands_before_those_of_its_pods() -> None:
    page = row("DEV_FB_USED", 900) + row("DEV_FB_USED", 300, pod="a") + row("DEV_FB_USED", 600)
    assert only(page).memory_used_bytes == 900 * MIB


def test_a_gpu_with_rows_of_its_own_and_slices_keeps_its_own() -> None:
    page = row("DEV_GPU_TEMP", 50, GPU_I_ID="3", GPU_I_PROFILE="1g.10gb") + row("DEV_GPU_TEMP", 60)
    reading = only(page)
    assert (reading.mig_mode, reading.temperature_c) == (1, 60.0)


def test_old_spelling_blank_labels_and_rows_that_are_none() -> None:
    page = (
        '# DCGM_FI_DEV_GPU_TEMP{gpu="9"} 1\n'
        'DCGM_FI_DEV_SM_CLOCK{gpu="0", UUID="GPU-1",modelName="<<<NULL>>>",pci_bus_id=""} 139 17\r\n'
        'DCGM_FI_DEV_MEM_CLOCK{gpu="0", UUID="GPU-1",note="a } \\" b"} 405\n'
        'DCGM_FI_DEV_MEM_CLOCK{gpu="x"} 1\n'
        'DCGM_FI_DEV_MEM_CLOCK{gpu="00001"} 1\n'
        "DCGM_FI_DEV_MEM_CLOCK 1\n"
        'DCGM_FI_DEV_GPU_TEMP{gpu="0"\n'
        'go_threads{gpu="3"} 8\n'
    )
    assert only(page) == GpuReading(index=0, uuid="GPU-1", sm_clock_mhz=139, mem_clock_mhz=405)


def test_of_a_page_of_several_hosts_one_must_be_named() -> None:
    page = row("DEV_GPU_TEMP", 50) + row("DEV_GPU_TEMP", 60, Hostname="b", UUID="GPU-2")
    with pytest.raises(PageUnusable, match=r"several hosts \('a', 'b'\): set `hostname`"):
        read_page(page)
    (reading,) = read_page(page, "b")
    assert (reading.uuid, reading.temperature_c) == ("GPU-2", 60.0)
    with pytest.raises(PageUnusable, match=r"no GPU has the host name 'c'; the page has 'a', 'b'"):
        read_page(page, "c")


@pytest.mark.parametrize("page", ["", "\n", "# HELP x y\n", "go_threads 8\n", "DCGM_FI_DEV_X 1\n"])
def test_a_page_without_gpus_says_so(page: str) -> None:
    with pytest.raises(PageUnusable, match="no rows of GPUs"):
        read_page(page)
    with pytest.raises(PageUnusable, match="of 'a' or any other host"):
        read_page(page, "a")


def test_host_names_are_told_in_ascii_and_not_endlessly() -> None:
    hosts = ["\x1b[31m" + "x" * 200, "b", "c", "d"]
    page = "".join(row("DEV_GPU_TEMP", 50, Hostname=host) for host in hosts)
    with pytest.raises(PageUnusable) as caught:
        read_page(page)
    text = str(caught.value)
    assert "\x1b" not in text
    assert "and 1 more" in text
    assert len(text) < 250


def test_more_gpus_than_a_host_can_have_are_refused() -> None:
    page = "".join(row("DEV_GPU_TEMP", 50, gpu=str(index)) for index in range(1025))
    with pytest.raises(PageUnusable, match="more than 1024 GPUs"):
        read_page(page)


@pytest.mark.parametrize(
    "line",
    [
        "DCGM_FI_DEV_X{" + "a" * 60_000 + "} 1",
        "DCGM_FI_DEV_X{" + 'a="' * 20_000 + "} 1",
        "DCGM_FI_DEV_X{" + "} " * 30_000,
        "DCGM_FI_DEV_X{" + 'a="\\"' * 12_000 + "} 1 1 1",
        "DCGM_FI_DEV_X{}" + " " * 60_000 + "x y",
        "DCGM_FI_DEV_X{" + "a" * 2_000_000 + "} 1",
    ],
)
def test_a_hostile_line_costs_little(line: str) -> None:
    began = time.perf_counter()
    assert only(line + "\n" + row("DEV_GPU_TEMP", 50)).temperature_c == 50.0
    assert time.perf_counter() - began < 1.0


# ---------------------------------------------------------------------- the source


@pytest.fixture
async def sources() -> AsyncIterator[list[DcgmSource]]:
    made: list[DcgmSource] = []
    yield made
    for one in made:
        await one.close()


def config(url: str, **more: Any) -> GpuSourceConfig:
    return GpuSourceConfig.model_validate({"dcgm": url, **more})


async def page(_: web.BaseRequest) -> web.Response:
    return web.Response(text=PAGE, headers=TEXT)


async def error_of(source: DcgmSource) -> str:
    result = await source.read()
    assert result.gpus == ()
    assert result.error is not None
    assert "\n" not in result.error
    return result.error


async def test_one_get_a_round_over_one_connection(serve: Serve, sources: list[DcgmSource]) -> None:
    served = await serve(page)
    source = DcgmSource(config(f"127.0.0.1:{served.port}"))
    sources.append(source)
    assert source.last_read_seconds is None
    first, second = await source.read(), await source.read()
    assert first.error is None
    assert first.gpus == read_page(PAGE)
    assert first.at.monotonic_seconds < second.at.monotonic_seconds
    assert served.requests == ["/metrics", "/metrics"]
    assert served.connections == 1
    assert source.last_read_seconds is not None
    assert 0.0 < source.last_read_seconds < 5.0


async def test_the_host_is_chosen_by_name(serve: Serve, sources: list[DcgmSource]) -> None:
    served = await serve(page)
    sources += [DcgmSource(config(served.url(), hostname=name)) for name in ("node-a", "node-b")]
    assert len((await sources[0].read()).gpus) == 2
    error = await error_of(sources[1])
    assert error == (
        f"dcgm-exporter {served.url()}: no GPU has the host name 'node-b'; the page has 'node-a'"
    )


async def test_failures_are_one_line_and_are_logged_at_the_edges(
    serve: Serve, sources: list[DcgmSource]
) -> None:
    answers = [503, 503, 200, 200, 404]

    async def answer(request: web.BaseRequest) -> web.Response:
        status = answers.pop(0)
        return web.Response(status=status, text=PAGE, headers=TEXT)

    served = await serve(answer)
    source = DcgmSource(config(served.url()))
    sources.append(source)
    with capture_logs() as logs:
        rounds = [await source.read() for _ in range(5)]
    error = f"dcgm-exporter: {served.url()}: HTTP status 503"
    assert [one.error for one in rounds] == [error, error, None, None, error.replace("503", "404")]
    assert [(entry["event"], entry.get("reason") or entry["gpus"]) for entry in logs] == [
        ("dcgm_failed", error),
        ("dcgm_recovered", 2),
        ("dcgm_failed", error.replace("503", "404")),
    ]


async def test_nobody_there_a_slow_answer_and_another_page(
    serve: Serve, sources: list[DcgmSource]
) -> None:
    async def slow(_: web.BaseRequest) -> web.Response:
        await asyncio.sleep(0.2)
        return web.Response(text=PAGE, headers=TEXT)

    async def html(_: web.BaseRequest) -> web.Response:
        return web.Response(text="<html>", content_type="text/html")

    late, other = await serve(slow), await serve(html)
    sources += [
        DcgmSource(config("http://127.0.0.1:1")),
        DcgmSource(config(late.url(), timeout=0.1)),
        DcgmSource(config(other.url())),
    ]
    refused, timeout, foreign = [await error_of(source) for source in sources]
    assert "http://127.0.0.1:1/metrics" in refused
    assert "no full answer within 0.1 s" in timeout
    assert foreign.startswith(f"dcgm-exporter {other.url()}: content type is text/html")


async def test_credentials_and_certificates_are_sent_as_for_a_target(
    serve: Serve, sources: list[DcgmSource], tmp_path: Path
) -> None:
    seen: list[str | None] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        seen.append(request.headers.get("Authorization"))
        return web.Response(text=PAGE, headers=TEXT)

    served = await serve(answer, tls=server_side("server.pem"))
    token, password = tmp_path / "token", tmp_path / "password"
    token.write_text("one\n")
    password.write_text("secret\n")
    tls = {"ca_file": str(CA)}
    basic = {"username": "floorwatch", "password_file": str(password)}
    sources += [
        DcgmSource(config(served.url(), tls=tls, authorization={"bearer_file": str(token)})),
        DcgmSource(config(served.url(), tls=tls, authorization={"basic": basic})),
        DcgmSource(config(served.url().replace("://", "://me:it@"), tls=tls)),
        DcgmSource(config(served.url())),
    ]
    rounds: list[GpuRound] = [await source.read() for source in sources[:3]]
    token.write_text("two\n")
    rounds.append(await sources[0].read())
    assert [one.error for one in rounds] == [None] * 4
    assert seen == [
        "Bearer one",
        "Basic Zmxvb3J3YXRjaDpzZWNyZXQ=",
        "Basic bWU6aXQ=",
        "Bearer two",
    ]
    assert "certificate is not accepted" in await error_of(sources[3])


async def test_an_exporter_behind_a_unix_socket(
    serve: Serve, sources: list[DcgmSource], tmp_path: Path
) -> None:
    await serve(page, unix=tmp_path / "dcgm.sock")
    sources.append(DcgmSource(config(f"unix://{tmp_path}/dcgm.sock")))
    assert len((await sources[0].read()).gpus) == 2


def test_without_an_address_there_is_no_source() -> None:
    with pytest.raises(ValueError, match="no dcgm address"):
        DcgmSource(GpuSourceConfig())
