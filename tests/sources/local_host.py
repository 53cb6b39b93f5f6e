"""A host of files for the tests of discovery, and what its addresses answer."""

from __future__ import annotations

from dataclasses import dataclass, field

from monitor.model import Found, FoundServer, GpuProcess, GpuReading
from monitor.sources.local_servers import LocalServers, Probe
from tests.sources.proc_tree import OWN_PID, ProcTree

PYTHON = "/usr/bin/python3"
CONTAINER = "net:[4026533000]"


def gpu(index: int, *pids: int, name: str = "H200", used: int = 0) -> GpuReading:
    return GpuReading(
        index=index,
        uuid=f"GPU-{index}",
        name=name,
        memory_used_bytes=used,
        compute_procs=tuple(GpuProcess(pid=pid) for pid in pids),
    )


@dataclass
class Host:
    """A tree and what its addresses answer; everything else is unreachable."""

    tree: ProcTree
    ports: tuple[int, ...] = (8000, 30000)
    answers: dict[str, Probe] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    seconds: float = 0.0
    servers: LocalServers = field(init=False)

    def __post_init__(self) -> None:
        self.servers = LocalServers(
            self.probe, ports=self.ports, proc=self.tree.root, hostname="node", own_pid=OWN_PID
        )

    async def probe(self, url: str) -> Probe:
        self.asked.append(url.removeprefix("http://").removesuffix("/metrics"))
        return self.answers.get(self.asked[-1], Probe(None, "unreachable"))

    def engine(self, *addresses: str, engine: str = "vllm") -> None:
        self.answers.update(dict.fromkeys(addresses, Probe(engine)))

    async def look(self, *gpus: GpuReading, after: float = 5.0) -> Found:
        self.seconds += after
        return await self.servers.look(gpus, self.seconds)

    async def only(self, *gpus: GpuReading) -> FoundServer:
        found = await self.look(*gpus)
        assert len(found.servers) == 1, found
        return found.servers[0]


def vllm(tree: ProcTree, *options: str, pid: int = 20, inode: int = 900, port: int = 8000) -> None:
    """A server of one GPU: the API server, and the engine's core (pid + 1) below it."""
    tree.process(pid, 1, [PYTHON, "/bin/vllm", "serve", "m", *options], sockets=[inode])
    tree.process(pid + 1, pid, ["VLLM::EngineCore", ""], sockets=[inode + 1])
    tree.listen(port, inode)
    tree.listen(40000 + pid, inode + 1, "127.0.0.1")
