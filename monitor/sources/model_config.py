"""Reads a model's `config.json`, and the quantisation that stands in a file beside it.

Rules of this file:

1. Local disk only: nothing is looked up on a hub. A hub's id that a server names is looked for in
   this host's copy of the hub, where the operator's `model:` must be a path.
2. Only regular files are read, at most 4 MiB of each: a pipe would stop the daemon.
3. What comes out is a plain mapping, unchecked; what it means is `monitor.expectation`'s
   business. Errors are one line: what, where, what was expected, what to do.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

MAX_BYTES = 4 * 2**20
CONFIG = "config.json"
QUANTISATION = "quantization_config"

# ModelOpt, GPTQ and AWQ checkpoints may keep their quantisation in a file of its own.
_BESIDE = {
    "hf_quant_config.json": "modelopt",
    "quantize_config.json": "gptq",
    "quant_config.json": "awq",
}


# "name" or "owner/name"; two dots in a row could leave the folder.
_HUB_ID = re.compile(r"(?!.*\.\.)[A-Za-z0-9][\w.-]{0,95}(?:/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)
_REVISION = re.compile(r"[0-9a-f]{7,64}")
_MOST_SNAPSHOTS = 64


class ModelConfigUnreadable(Exception):
    """A model config that cannot be read: one line that says where, what and what to do.

    `where` and `fault` are the first two parts of it.
    """

    def __init__(self, line: str, where: Path, fault: str) -> None:
        """Keep the parts."""
        super().__init__(line)
        self.where = where
        self.fault = fault


class FoundConfig(NamedTuple):
    """The config of the model that a server names; `because`: where it is, or why there is none."""

    config: dict[str, Any] | None
    because: str


def hub_folder(environment: Mapping[str, str]) -> Path | None:
    """Where this host keeps its copy of the Hugging Face hub, as `huggingface_hub` decides it.

    None where not even a home directory is known.
    """
    for key, *below in (
        ("HF_HUB_CACHE",),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface", "hub"),
        ("HOME", ".cache", "huggingface", "hub"),
    ):
        if environment.get(key):
            return Path(environment[key], *below)
    return None


def find_model_config(told: str | None, hub: Path | None) -> FoundConfig:
    """Read the config of the model that a server of this host names. Never raises.

    `told` is the server's model path: a folder or file of this host, or a hub's id, which is
    looked for under `hub`, this host's copy of the hub. May block: run it in a thread.
    """
    if not told:
        return FoundConfig(None, "the server names no model path")
    if told.startswith("/"):
        return _read_told(Path(told), f"{told}, as the server tells")
    if hub is None or _HUB_ID.fullmatch(told) is None:
        return FoundConfig(None, f"the server's {told[:100]!r} is no path of this host")
    folder = hub / f"models--{told.replace('/', '--')}"
    snapshot = _snapshot(folder)
    if snapshot is None:
        return FoundConfig(None, f"the server's {told} is not in this host's hub folder {hub}")
    return _read_told(snapshot, f"{told}, as the server tells, at {snapshot}")


def _read_told(path: Path, because: str) -> FoundConfig:
    try:
        return FoundConfig(read_model_config(path), because)
    except ModelConfigUnreadable as unreadable:
        because = f"the server's model path: {unreadable.where}: {unreadable.fault}"
        return FoundConfig(None, _one_line(because))


def _snapshot(folder: Path) -> Path | None:
    """The snapshot that `main` stands for, else the only one; None where there is no one."""
    snapshots = folder / "snapshots"
    try:
        revision = _bytes(folder / "refs" / "main").decode("ascii").strip()
    except (OSError, ValueError):
        revision = ""
    if _REVISION.fullmatch(revision) and _mode(snapshots / revision / CONFIG):
        return snapshots / revision
    try:
        with os.scandir(snapshots) as entries:
            names = [entry.name for entry, _ in zip(entries, range(_MOST_SNAPSHOTS), strict=False)]
    except OSError:
        return None
    whole = [snapshots / name for name in names if _mode(snapshots / name / CONFIG)]
    return whole[0] if len(whole) == 1 else None


def read_model_config(path: Path) -> dict[str, Any]:
    """Read `config.json`, given as the file or as the folder that holds it.

    The quantisation of a file beside it is put under `quantization_config`, where the config
    itself says nothing, or less. Raises ModelConfigUnreadable.
    """
    file = path / CONFIG if stat.S_ISDIR(_mode(path)) else path
    config = _table(file)
    if file.name != CONFIG:
        return config
    for name, method in _BESIDE.items():
        beside = file.with_name(name)
        if _mode(beside):
            return _joined(config, _table(beside), method)
    return config


def recorded_model_config(path: str, side_file: Callable[[str], bytes | None]) -> dict[str, Any]:
    """Read a `config.json` that lies beside a recording's pages, as `read_model_config` does.

    `side_file` gives a file's bytes by its relative path, None where it is not there; then
    the path is one of this disk. Raises ModelConfigUnreadable.
    """
    data = side_file(path)
    if data is None:
        return read_model_config(Path(path))
    config = _parsed(Path(path), data)
    for name, method in _BESIDE.items():
        beside = str(Path(path).with_name(name))
        if (told := side_file(beside)) is not None:
            return _joined(config, _parsed(Path(beside), told), method)
    return config


def _joined(config: dict[str, Any], beside: dict[str, Any], method: str) -> dict[str, Any]:
    told = beside.get("quantization", beside)
    own = config.get(QUANTISATION)
    if own is None and isinstance(told, dict):
        return {**config, QUANTISATION: {"quant_method": method, **told}}
    if not isinstance(own, dict) or not isinstance(told, dict):
        return config
    # ModelOpt writes both; each may lack what the other has (the KV cache's scheme, say).
    if own.get("quant_method", method) == method == "modelopt":
        return {**config, QUANTISATION: {**told, **own}}
    return config


def _mode(path: Path) -> int:
    """The kind of a file; 0 where there is none that this user can see."""
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return 0


def _table(path: Path) -> dict[str, Any]:
    try:
        data = _bytes(path)
    except OSError as fault:
        raise _unreadable(path, fault.strerror or "not readable") from None
    return _parsed(path, data)


def _parsed(path: Path, data: bytes) -> dict[str, Any]:
    try:
        table = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise _unreadable(path, "not UTF-8 text") from None
    except (ValueError, RecursionError) as fault:
        raise _unreadable(path, f"not JSON ({str(fault)[:80] or 'too deeply nested'})") from None
    if not isinstance(table, Mapping):
        raise _unreadable(path, f"holds a {type(table).__name__}, not an object")
    return dict(table)


def _bytes(path: Path) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError:
        raise OSError(0, "a path cannot hold a null character") from None
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(0, "not a regular file")
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise OSError(0, f"larger than {MAX_BYTES // 2**20} MiB")
    return data


def _unreadable(path: Path, fault: str) -> ModelConfigUnreadable:
    line = (
        f"{path}: {fault}; expected the config.json of a Hugging Face model: set `model:` to it,"
        " to the folder that holds it, or to a map such as {active_parameters: 27e9, layers: 64}"
    )
    return ModelConfigUnreadable(_one_line(line), path, fault)


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))
