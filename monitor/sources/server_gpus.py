"""Which GPUs a server of this host runs on, and how that is known.

Rules of this file, the first that tells wins:

1. NVML lists the processes on each GPU and MIG slice; those of the server's tree are its own.
   NVML's numbers are the host's: where ours are not, only a process that is an engine's by its
   command line is taken for the listed one.
2. NVML lists every process, none is the server's and all belong elsewhere: it has no GPU.
3. CUDA_VISIBLE_DEVICES, with the parallel sizes and SGLang's `--base-gpu-id` of the command
   line. UUIDs are taken as they stand. Numbers count CUDA's order, which is NVML's only where
   all GPUs are of one model or CUDA_DEVICE_ORDER is PCI_BUS_ID.
4. Otherwise None, with the reason: the operator says it (`gpus:` of the target).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from monitor.model import GpuReading
from monitor.sources.engine_commands import Launch
from monitor.sources.host_view import HostView
from monitor.sources.processes import Process
from monitor.sources.server_processes import Home

MEMORY_WITH_NOBODY_BYTES = 2 << 30
"""GPU memory in use that a driver and its services never need: some process holds it."""

SHOWN_AT_MOST = 8
"""Members of a list that people are shown."""

Told = tuple[tuple[str, ...] | None, str]
"""The UUIDs, None where they are not known, and how that is known or why not."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A process on a GPU, as NVML lists it. `uuid`: the GPU's or its slice's; None: not told."""

    pid: int
    gpu: int
    uuid: str | None
    sliced: bool = False


@dataclass(frozen=True, slots=True)
class HostFacts:
    """All the evidence of one look."""

    view: HostView
    homes: Sequence[Home]
    gpus: Sequence[GpuReading]
    holds: Sequence[Hold]

    @property
    def ours(self) -> list[Hold]:
        """The holds of processes that are visible here."""
        return [hold for hold in self.holds if self.is_ours(hold)]

    @property
    def all_placed(self) -> bool:
        """Whether every process that NVML lists belongs to an engine that is visible here."""
        engines = [home.members for home in self.homes if home.engine is not None]
        return all(any(hold.pid in members for members in engines) for hold in self.holds)

    def is_ours(self, hold: Hold) -> bool:
        """Whether the process that NVML lists is the one with that number here."""
        if hold.pid not in self.view.processes.by_pid:
            return False
        return self.view.pids_of_host is True or any(
            home.engine is not None and hold.pid in home.members for home in self.homes
        )


def holds_of(gpus: Sequence[GpuReading]) -> tuple[Hold, ...]:
    """Every process on every GPU and slice, each once a place."""
    found: dict[Hold, None] = {}
    for gpu in sorted(gpus, key=lambda one: one.index):
        in_slices = {
            Hold(process.pid, gpu.index, mig.uuid, sliced=True): None
            for mig in gpu.mig_devices
            for process in mig.compute_procs
        }
        found |= in_slices
        pids_in_slices = {hold.pid for hold in in_slices}
        for process in gpu.compute_procs or ():
            if process.pid not in pids_in_slices:
                # A GPU that is cut up runs nothing but in its slices.
                cut = bool(gpu.mig_mode)
                found[Hold(process.pid, gpu.index, None if cut else gpu.uuid, cut)] = None
    return tuple(found)


def silent(gpus: Sequence[GpuReading]) -> list[int]:
    """The GPUs whose memory is in use and for which NVML lists no process."""
    return [
        gpu.index
        for gpu in gpus
        if not gpu.compute_procs
        and not any(mig.compute_procs for mig in gpu.mig_devices)
        and (gpu.memory_used_bytes or 0) > MEMORY_WITH_NOBODY_BYTES
    ]


def bounded(items: Iterable[object], at_most: int = SHOWN_AT_MOST) -> str:
    """A list for people, cut."""
    shown = [str(item) for item in items]
    more = f" and {len(shown) - at_most} more" if len(shown) > at_most else ""
    return ", ".join(shown[:at_most]) + more


def listed(numbers: Collection[int], one: str, several: str) -> str:
    """`GPU 0`, `GPUs 0, 1`."""
    return f"{one if len(numbers) == 1 else several} {bounded(sorted(numbers))}"


def gpus_of(home: Home, owner: Process, facts: HostFacts, *, alone: bool) -> Told:
    """The GPUs of the server that `owner` answers for. `alone`: its home has no other server."""
    view, gpus = facts.view, facts.gpus
    if not gpus:
        return None, "NVML shows no GPU here"
    of_home = [hold for hold in facts.ours if hold.pid in home.members]
    mine = of_home if alone else [hold for hold in of_home if is_below(view, hold.pid, owner.pid)]
    if mine:
        return _held(mine)
    if of_home:
        where = listed({hold.gpu for hold in of_home}, "GPU", "GPUs")
        return None, (
            f"the processes on {where} are not below process {owner.pid}: which of the servers "
            f"of process {home.process.pid} they work for cannot be told"
        )
    told = all(gpu.compute_procs is not None for gpu in gpus) and not silent(gpus)
    if told and facts.all_placed and view.pids_of_host:
        return (), "NVML lists none of its processes on a GPU"
    if home.launch is not None and home.launch.ray:
        return None, "Ray starts its GPU processes, which are not below its own"
    return _by_environment(home, view, gpus)


def is_below(view: HostView, pid: int, above: int) -> bool:
    """Whether a process is another's descendant, or that process itself."""
    return any(process.pid == above for process in view.processes.line(pid))


def _held(holds: Sequence[Hold]) -> Told:
    shown = listed({hold.pid for hold in holds}, "process", "processes")
    uuids: dict[str, None] = {}
    for hold in holds:
        if hold.uuid is None:
            why = "which of its MIG slices" if hold.sliced else "the GPU's UUID"
            return None, f"NVML lists {shown} on GPU {hold.gpu} and does not tell {why}"
        uuids[hold.uuid] = None
    return tuple(uuids), f"NVML lists its {shown} there"


def _by_environment(home: Home, view: HostView, gpus: Sequence[GpuReading]) -> Told:
    pid, launch = home.process.pid, home.launch
    environment = view.variables.get(pid)
    if environment is None:
        return None, (
            f"NVML lists none of its processes, and the environment of process {pid} cannot be "
            "read (the same user or CAP_SYS_PTRACE would tell)"
        )
    text = environment.get("CUDA_VISIBLE_DEVICES")
    if text is not None and text.strip() in ("", "-1", "NoDevFiles"):
        return (), f"CUDA_VISIBLE_DEVICES is {text.strip() or 'empty'}"
    said = "CUDA_VISIBLE_DEVICES is not set" if text is None else f"CUDA_VISIBLE_DEVICES={text}"
    words = [] if text is None else [word.strip() for word in text.split(",")]
    if words and all(word.startswith(("GPU-", "MIG-")) for word in words):
        return _of_ranks([_whole(word, gpus) for word in words], launch, said)
    pool, why_not = _numbered(pid, view, environment, gpus)
    if why_not:
        return None, f"{said}, but {why_not}"
    if text is None:
        return _of_ranks(pool, launch, said)
    if not all(word.isdecimal() and int(word) < len(pool) for word in words):
        return None, f"{said}, but {len(pool)} GPUs are seen here"
    return _of_ranks([pool[int(word)] for word in words], launch, said)


def _whole(word: str, gpus: Sequence[GpuReading]) -> str:
    """A UUID that may be cut short, as CUDA takes it."""
    known = [gpu.uuid for gpu in gpus if gpu.uuid]
    known += [mig.uuid for gpu in gpus for mig in gpu.mig_devices]
    fitting = [uuid for uuid in known if uuid.startswith(word)]
    return fitting[0] if len(fitting) == 1 else word


def _numbered(
    pid: int, view: HostView, environment: Mapping[str, str], gpus: Sequence[GpuReading]
) -> tuple[list[str], str]:
    """The UUIDs in the order in which CUDA numbers them for a process, or why that is unknown."""
    given = environment.get("NVIDIA_VISIBLE_DEVICES", "all").split(",")
    ordered = sorted(gpus, key=lambda gpu: gpu.index)
    if all(word.startswith("GPU-") for word in given):
        ordered = [gpu for gpu in ordered if gpu.uuid in given]
        if len(ordered) < len(given):
            return [], "GPUs of its container are not seen here"
    elif pid not in view.beside_us or given != ["all"]:
        return [], "its numbers are those of another container"
    uuids = [gpu.uuid for gpu in ordered if gpu.uuid is not None]
    if len(uuids) < len(ordered) or any(gpu.mig_mode for gpu in ordered):
        return [], "CUDA numbers MIG slices and GPUs without UUID in an order of its own"
    names = {gpu.name for gpu in ordered}
    by_bus = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    if not by_bus and (len(names) > 1 or None in names):
        return [], (
            "the GPUs are of several models, which CUDA numbers fastest first "
            "(CUDA_DEVICE_ORDER=PCI_BUS_ID would make the numbers NVML's)"
        )
    return uuids, ""


def _of_ranks(devices: Sequence[str], launch: Launch | None, said: str) -> Told:
    """Those of the visible devices that the launch's ranks take."""
    count = None if launch is None else launch.ranks_here
    if launch is None or count is None or launch.split or launch.hybrid or launch.port_each:
        if len(devices) == (count or 1):
            return tuple(devices), said
        return None, f"{said}, and which of the {len(devices)} it uses is not told"
    first, step = (launch.base_gpu, launch.gpu_step) if launch.engine == "sglang" else (0, 1)
    places = [first + step * rank for rank in range(count)]
    if not places or places[-1] >= len(devices):
        return None, f"{said}: {len(devices)} GPUs, too few for {count} ranks from GPU {first} on"
    taken = "" if len(devices) == count else f"; it takes {count} of {len(devices)}"
    return tuple(devices[place] for place in places), said + taken
