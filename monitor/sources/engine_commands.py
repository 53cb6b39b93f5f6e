"""What a command line says of an inference server: which engine, which part of it, which options.

Rules of this file:

1. Words in, values out: nothing is read here, and only the options named below are understood.
   The rest of a command line is neither kept nor returned, for it holds keys and tokens.
2. A process is an engine's by the place of the words, never because a word stands somewhere:
   `vllm serve`, `python -m sglang.launch_server`, or a title that the engine gives itself
   (`VLLM::EngineCore`, `sglang::scheduler_TP0`).
3. Options that a file holds (`--config`) are unknown, not their defaults.

Options: vLLM's and SGLang's launch arguments; both take `--name value` and `--name=value`, vLLM
also `_` for `-`. The last of several wins, as with argparse.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath

DEFAULT_PORTS = {"vllm": 8000, "sglang": 30000}
"""Where each engine listens without `--port`."""


class Part(StrEnum):
    """What a process is to a server.

    LAUNCH: it was started as one, with the options. FRONT: by its title it talks HTTP. INNER: by
    its title it computes, and its ports are no HTTP. ROUTER: it hands requests on.
    """

    LAUNCH = "launch"
    FRONT = "front"
    INNER = "inner"
    ROUTER = "router"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Launch:
    """The options of a launch. `port` None: not said; `by_file`: a file may say what is not.

    `data_local`: data-parallel replicas of this host. `split`: each server has one replica
    (external balancing); `hybrid`: each has its host's; `port_each`: one command, one port per
    replica from `port` on. `silent`: its options switch the metrics off.
    """

    engine: str
    port: int | None = None
    by_file: bool = False
    unix_socket: bool = False
    tls: bool = False
    headless: bool = False
    nodes: int = 1
    node_rank: int = 0
    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    data_local: int | None = None
    data_attention: bool = False
    split: bool = False
    hybrid: bool = False
    port_each: bool = False
    ray: bool = False
    base_gpu: int = 0
    gpu_step: int = 1
    role: str | None = None
    both_roles: bool = False
    silent: bool = False

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports that serve metrics; empty when the command line does not tell."""
        if self.unix_socket or self.port == 0 or (self.port is None and self.by_file):
            return ()
        first = self.port or DEFAULT_PORTS[self.engine]
        count = (self.data_local or self.data) if self.port_each else 1
        return tuple(range(first, first + count))

    @property
    def without_page(self) -> bool:
        """Whether it is a further host of a server whose page is elsewhere."""
        return self.headless or self.node_rank > 0

    @property
    def ranks(self) -> int | None:
        """How many GPUs one of its pages speaks for, on all hosts; None: not told."""
        if self.by_file:
            return None
        group = self.tensor * self.pipeline
        if self.split or self.port_each or self.data_attention:
            return group
        if self.hybrid:
            return None if self.data_local is None else group * self.data_local
        return group * self.data

    @property
    def ranks_here(self) -> int | None:
        """How many of them are of this host."""
        if self.ranks is None or self.split or self.hybrid:
            return self.ranks
        if self.data_local is not None and not self.port_each:
            return self.tensor * self.pipeline * self.data_local
        return self.ranks // max(self.nodes, 1)


@dataclass(frozen=True, slots=True)
class Command:
    """A command line, understood. `label`: what to call the process, without its arguments."""

    part: Part = Part.OTHER
    engine: str | None = None
    label: str = ""
    launch: Launch | None = None


_VALUES = {
    "--port": "port",
    "--config": "config",
    "--uds": "uds",
    "--ssl-keyfile": "tls",
    "--ssl-certfile": "tls",
    "--nnodes": "nodes",
    "--node-rank": "node_rank",
    "--tensor-parallel-size": "tensor",
    "--tp-size": "tensor",
    "--tp": "tensor",
    "-tp": "tensor",
    "--pipeline-parallel-size": "pipeline",
    "--pp-size": "pipeline",
    "--pp": "pipeline",
    "-pp": "pipeline",
    "--data-parallel-size": "data",
    "--dp-size": "data",
    "--dp": "data",
    "-dp": "data",
    "--data-parallel-size-local": "data_local",
    "-dpl": "data_local",
    "--data-parallel-rank": "data_rank",
    "-dpn": "data_rank",
    "--distributed-executor-backend": "executor",
    "--base-gpu-id": "base_gpu",
    "--gpu-id-step": "gpu_step",
    "--disaggregation-mode": "role",
    "--kv-transfer-config": "kv_transfer",
    "--kv-transfer-config.kv-role": "kv_role",
}
_FLAGS = frozenset(
    {
        "--headless",
        "--enable-metrics",
        "--disable-log-stats",
        "--enable-dp-attention",
        "--data-parallel-external-lb",
        "-dpe",
        "--data-parallel-hybrid-lb",
        "-dph",
        "--data-parallel-multi-port-external-lb",
        "--use-ray",
    }
)
_TITLE = re.compile(r"(vllm|sglang)::(\S{0,60})", re.IGNORECASE)
_FRONT_TITLE = re.compile(r"api|http|server|(?<!de)tokenizer|front", re.IGNORECASE)
_PYTHON = re.compile(r"(python|pypy)[\d.]*t?")
_MODULES = {
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.api_server": "vllm",
    "sglang.launch_server": "sglang",
    "sglang.srt.entrypoints.http_server": "sglang",
}
_WITH_SERVE = {
    "vllm": "vllm",
    "vllm.entrypoints.cli.main": "vllm",
    "vllm-rs": "vllm",
    "sglang": "sglang",
    "sglang.cli.main": "sglang",
}
_SCRIPTS = {
    ("vllm", "entrypoints", "openai", "api_server.py"): "vllm",
    ("sglang", "launch_server.py"): "sglang",
}
_ROUTERS = frozenset(
    {
        *("sglang_router.launch_router", "sglang_router.launch_server", "vllm_router.app"),
        *("sglang-router", "sgl-router", "sgl-model-gateway", "smg", "vllm-router"),
    }
)
_KV_ROLE = re.compile(r'"kv_role"\s*:\s*"(\w{1,20})"')
_ROLES = {
    "prefill": "prefill",
    "decode": "decode",
    "kv_producer": "prefill",
    "kv_consumer": "decode",
}


def understood(argv: Sequence[str]) -> Command:
    """What the words of a command line say."""
    if not argv:
        return Command()
    title = _TITLE.match(argv[0])
    if title is not None:
        part = Part.FRONT if _FRONT_TITLE.search(title[2]) else Part.INNER
        return Command(part, title[1].lower(), title[0])
    found = _launched(argv)
    if found is None and " " in argv[0]:
        # A process that writes over its title leaves one word, with the blanks in it.
        found = _launched([*argv[0].split(), *argv[1:]])
    return found or Command()


def _launched(words: Sequence[str]) -> Command | None:
    start = _program(words)
    if start is None:
        return None
    name, at = start
    path = PurePosixPath(name)
    if name in _ROUTERS or path.name in _ROUTERS:
        return Command(Part.ROUTER, None, path.name)
    engine = _MODULES.get(name)
    for parts, of in _SCRIPTS.items():
        if path.parts[-len(parts) :] == parts:
            engine, name = of, path.name
    if engine is None and words[at : at + 1] == ["serve"]:
        engine, name, at = _WITH_SERVE.get(path.name), f"{path.name} serve", at + 1
    if engine is None:
        return None
    return Command(Part.LAUNCH, engine, name, _launch(engine, words[at:]))


def _program(words: Sequence[str]) -> tuple[str, int] | None:
    """The program or module that runs, and where its own words begin."""
    if not words or not _PYTHON.fullmatch(PurePosixPath(words[0]).name):
        return (words[0], 1) if words else None
    at = 1
    while at < len(words):
        word = words[at]
        if word == "-m":
            return (words[at + 1], at + 2) if at + 1 < len(words) else None
        if word == "-c":
            return None
        if not word.startswith("-"):
            return word, at + 1
        at += 2 if word in ("-X", "-W") else 1
    return None


def _launch(engine: str, words: Sequence[str]) -> Launch:
    told, flags = _options(words)
    kv_role = _KV_ROLE.search(told.get("kv_transfer", ""))
    role = told.get("role") or told.get("kv_role") or (kv_role[1] if kv_role else "")
    split = "data_rank" in told or bool(flags & {"--data-parallel-external-lb", "-dpe"})
    silent = (
        "--enable-metrics" not in flags if engine == "sglang" else ("--disable-log-stats" in flags)
    )
    local = told.get("data_local")
    return Launch(
        engine=engine,
        port=_number(told["port"], 0) if "port" in told else None,
        by_file="config" in told,
        unix_socket="uds" in told,
        tls="tls" in told,
        headless="--headless" in flags,
        nodes=_number(told.get("nodes"), 1),
        node_rank=_number(told.get("node_rank"), 0),
        tensor=_number(told.get("tensor"), 1),
        pipeline=_number(told.get("pipeline"), 1),
        data=_number(told.get("data"), 1),
        data_local=None if local is None else _number(local, 1),
        data_attention="--enable-dp-attention" in flags,
        split=split,
        hybrid=bool(flags & {"--data-parallel-hybrid-lb", "-dph"}),
        port_each="--data-parallel-multi-port-external-lb" in flags,
        ray=told.get("executor") == "ray" or "--use-ray" in flags,
        base_gpu=_number(told.get("base_gpu"), 0),
        gpu_step=_number(told.get("gpu_step"), 1),
        role=_ROLES.get(role),
        both_roles=role == "kv_both",
        silent=silent,
    )


def _options(words: Sequence[str]) -> tuple[dict[str, str], set[str]]:
    """The wanted options with a value, and the wanted flags; nothing else of the words."""
    told: dict[str, str] = {}
    flags: set[str] = set()
    for at, word in enumerate(words):
        if not word.startswith("-"):
            continue
        name, equals, value = word.partition("=")
        name = name.replace("_", "-")
        if name in _FLAGS:
            flags.add(name)
        elif name in _VALUES and (equals or at + 1 < len(words)):
            told[_VALUES[name]] = value if equals else words[at + 1]
    return told, flags


def _number(text: str | None, default: int) -> int:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,6}", text) else default
