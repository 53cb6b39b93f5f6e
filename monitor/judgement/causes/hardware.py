"""Causes that lie in the GPUs: lost or failing, held down, behind a bad link, or shared.

Rules of this file:

1. A GPU is named by index, UUID and PCI address.
2. A PCIe link matters to GPUs that exchange data over it. One GPU by itself reads its weights
   from its own memory: a narrow link is then no cause.
3. The members of a tensor-parallel group exchange the same bytes, so NVLink traffic that differs
   shows a bad link.
"""

from __future__ import annotations

from statistics import median

from monitor.judgement.causes.row import Cause, told_info
from monitor.judgement.evidence import Evidence, GpuFault
from monitor.judgement.symptoms import grouped, link_degraded, slow_gpu
from monitor.judgement.throttling import Kind, limit_lowered, name_of, throttles
from monitor.model import GpuActivity, JudgementSettings

FULL_CLOCK_RATIO = 0.97
"""Above it a clock is as good as full."""

NVLINK_XID = 74

NVLINK_PART = 0.5
"""Of the median of the others: a member with less NVLink traffic has links down."""

NEIGHBOUR_SHARE = 0.1
"""From this part of its own floor on a neighbour's work is felt."""


# ------------------------------------------------------------------------ faults


def _gpu_lost(evidence: Evidence, _: JudgementSettings) -> str | None:
    return _joined([f"{_faulty(one)}: {one.what}" for one in evidence.gpu_faults if one.lost])


def _xid(evidence: Evidence, _: JudgementSettings) -> str | None:
    return _joined([_error(one) for one in evidence.gpu_faults if one.xid is not None])


def _error(fault: GpuFault) -> str:
    number = f"XID {fault.xid}"
    told = fault.what if number in fault.what else f"{number} {fault.what}".rstrip()
    return f"{_faulty(fault)}: {told}"


def _faulty(fault: GpuFault) -> str:
    return name_of(GpuActivity(fault.index, uuid=fault.uuid, pci_bus_id=fault.pci_bus_id))


# ------------------------------------------------------------------------ clocks


def _thermal_throttle(evidence: Evidence, settings: JudgementSettings) -> str | None:
    return _held_down(evidence, settings, Kind.THERMAL)


def _hardware_slowdown(evidence: Evidence, settings: JudgementSettings) -> str | None:
    return _held_down(evidence, settings, Kind.HARDWARE)


def _power_cap(evidence: Evidence, settings: JudgementSettings) -> str | None:
    return _held_down(evidence, settings, Kind.POWER)


def _held_down(evidence: Evidence, settings: JudgementSettings, kind: Kind) -> str | None:
    found = [one for one in throttles(evidence, settings) if one.kind is kind]
    if not found:
        return None
    told = "; ".join(one.text for one in found)
    expected = evidence.expectation.expected_tokens_per_second
    clocks = [one.gpu.sm_clock_ratio for one in found if one.gpu.sm_clock_ratio is not None]
    if expected is None or not clocks or min(clocks) > FULL_CLOCK_RATIO:
        return told
    # Work that waits for memory does not slow down with the SM clock: this is the least.
    return (
        f"{told}; expected at that clock: {min(clocks) * expected:.0f} of {expected:.0f} "
        "tokens/s per GPU, more where memory is the limit"
    )


def _more_power(evidence: Evidence) -> str:
    raised = [
        f"nvidia-smi -i {gpu.index} -pl {gpu.default_power_limit_w:.0f}"
        for gpu in evidence.gpus
        if limit_lowered(gpu)
    ]
    if not raised:
        return (
            "the limit is the card's default: look at its power supply and cooling, and at what "
            "else makes it draw power"
        )
    return (
        f"raise the power limit to the default ({'; '.join(raised)}) where supply and cooling "
        "allow; where the limit is meant, judge by a floor that fits it"
    )


def _slow_gpu_in_group(evidence: Evidence, settings: JudgementSettings) -> str | None:
    return slow_gpu(evidence, settings)


# ------------------------------------------------------------------------ links


def _pcie_link(evidence: Evidence, _: JudgementSettings) -> str | None:
    return link_degraded(evidence) if grouped(evidence) else None


def _nvlink(evidence: Evidence, _: JudgementSettings) -> str | None:
    failed = [_error(one) for one in evidence.gpu_faults if one.xid == NVLINK_XID]
    # The stages of a pipeline, and replicas with other work, exchange other amounts.
    alike = (told_info(evidence).pipeline_parallel or 1) == 1 and len(evidence.short.replicas) < 2
    if not failed and alike and grouped(evidence):
        failed = _less_traffic(evidence.gpus)
    return _joined(failed)


def _less_traffic(gpus: tuple[GpuActivity, ...]) -> list[str]:
    traffic = {
        gpu.index: gpu.nvlink_receive_mib_per_second
        for gpu in gpus
        if gpu.nvlink_receive_mib_per_second is not None
    }
    found = []
    for gpu in gpus:
        others = [rate for index, rate in traffic.items() if index != gpu.index]
        if gpu.index not in traffic or not others:
            continue
        usual = median(others)
        if traffic[gpu.index] < NVLINK_PART * usual:
            part = traffic[gpu.index] / usual
            found.append(f"{name_of(gpu)} receives {part:.0%} of the others' NVLink traffic")
    return found


# ------------------------------------------------------------------------ neighbours


def _shared_gpu(evidence: Evidence, _: JudgementSettings) -> str | None:
    told = [f"not of this server: {one}" for one in evidence.strangers]
    others = evidence.others_short
    if evidence.shared_with and others is not None and others >= NEIGHBOUR_SHARE:
        names = ", ".join(evidence.shared_with)
        told.append(f"{names} on the same GPU makes {others:.2f} of the floor there")
    return _joined(told)


def _joined(texts: list[str]) -> str | None:
    return "; ".join(texts) or None


GPU_LOST = Cause(
    "gpu_lost",
    _gpu_lost,
    "look at the kernel log (dmesg, NVRM) for the reason; drain the host, reset the GPU or reboot, "
    "and restart the server on the GPUs that are left",
    of_standstill=True,
)
XID = Cause(
    "xid",
    _xid,
    "look the XID up in the kernel log and in NVIDIA's list; device faults need a GPU reset or a "
    "replacement, application faults a look at the engine's log; restart the server",
    of_standstill=True,
)
THERMAL_THROTTLE = Cause(
    "thermal_throttle",
    _thermal_throttle,
    "look at fans, airflow, dust, inlet temperature and what runs beside the GPU; lower its power "
    "limit until that is mended: it then runs steadily",
)
HARDWARE_SLOWDOWN = Cause(
    "hardware_slowdown",
    _hardware_slowdown,
    "look at the power supply and its cables (power brake) and at locked clocks (nvidia-smi -q -d "
    "PERFORMANCE,CLOCK; nvidia-smi -rgc and -rmc unlock them)",
)
POWER_CAP = Cause("power_cap", _power_cap, _more_power)
SLOW_GPU_IN_GROUP = Cause(
    "slow_gpu_in_group",
    _slow_gpu_in_group,
    "mend that GPU (cooling, power, link) or move the server to a group without it: all the "
    "others wait for it at every layer",
)
PCIE_LINK = Cause(
    "pcie_link",
    _pcie_link,
    "reseat the card or riser, look at the slot's width and the BIOS setting of its generation; "
    "tensor parallelism without NVLink exchanges all its data over this link",
)
NVLINK = Cause(
    "nvlink",
    _nvlink,
    "look at nvidia-smi nvlink --status and --errorcounters, and at the fabric manager's log; "
    "restart the server after the links are up",
    of_standstill=True,
)
SHARED_GPU = Cause(
    "shared_gpu",
    _shared_gpu,
    "stop the other process or move it to another GPU; where it is meant, lower the floor to the "
    "part of the GPU that is left",
)
