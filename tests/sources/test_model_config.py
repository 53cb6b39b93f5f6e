"""A model's config from real files: as a file, as a folder, with quantisation beside it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from monitor.sources.model_config import (
    MAX_BYTES,
    FoundConfig,
    ModelConfigUnreadable,
    find_model_config,
    hub_folder,
    read_model_config,
)

CONFIG = {"model_type": "llama", "hidden_size": 4096}


def write(folder: Path, name: str, table: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps(table))
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ModelConfigUnreadable) as caught:
        read_model_config(path)
    line = str(caught.value)
    assert "\n" not in line
    assert "set `model:` to it" in line
    return line


def test_a_file_and_the_folder_that_holds_it_are_the_same(tmp_path: Path) -> None:
    path = write(tmp_path, "config.json", CONFIG)
    assert read_model_config(path) == CONFIG
    assert read_model_config(tmp_path) == CONFIG
    assert read_model_config(write(tmp_path, "mine.json", CONFIG)) == CONFIG


def test_modelopt_s_file_becomes_the_quantisation(tmp_path: Path) -> None:
    write(tmp_path, "config.json", CONFIG)
    told = {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    write(tmp_path, "hf_quant_config.json", {"producer": {}, "quantization": told})
    assert read_model_config(tmp_path) == {
        **CONFIG,
        "quantization_config": {"quant_method": "modelopt", **told},
    }


@pytest.mark.parametrize(
    ("name", "method"), [("quantize_config.json", "gptq"), ("quant_config.json", "awq")]
)
def test_older_checkpoints_keep_it_flat(tmp_path: Path, name: str, method: str) -> None:
    write(tmp_path, "config.json", CONFIG)
    write(tmp_path, name, {"bits": 4, "group_size": 128})
    read = read_model_config(tmp_path)
    assert read["quantization_config"] == {"quant_method": method, "bits": 4, "group_size": 128}


def test_two_words_of_modelopt_are_joined_the_config_s_first(tmp_path: Path) -> None:
    own = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}
    write(tmp_path, "config.json", {**CONFIG, "quantization_config": own})
    told = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
    write(tmp_path, "hf_quant_config.json", {"quantization": told})
    assert read_model_config(tmp_path)["quantization_config"] == {
        **own,
        "kv_cache_quant_algo": "FP8",
    }


@pytest.mark.parametrize("own", [{"quant_method": "fp8"}, "strange"])
def test_another_method_of_the_config_stays_alone(tmp_path: Path, own: Any) -> None:
    write(tmp_path, "config.json", {**CONFIG, "quantization_config": own})
    write(tmp_path, "hf_quant_config.json", {"quantization": {"quant_algo": "FP8"}})
    assert read_model_config(tmp_path)["quantization_config"] == own


def test_a_strange_file_beside_it_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path, "config.json", CONFIG)
    write(tmp_path, "hf_quant_config.json", {"quantization": 4})
    assert read_model_config(tmp_path) == CONFIG


def test_what_real_files_hold_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b'\xef\xbb\xbf{"time_step_limit": [0.0, Infinity]}')
    assert read_model_config(path)["time_step_limit"] == [0.0, float("inf")]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[1]", "holds a list, not an object"),
        (b"null", "holds a NoneType, not an object"),
        (b"\xff\xfe{}", "not UTF-8 text"),
        (b"[" * 100_000, "not JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
        (b" " * (MAX_BYTES + 1), "larger than 4 MiB"),
    ],
    ids=["empty", "cut", "list", "null", "utf-16", "nested", "huge number", "huge"],
)
def test_what_is_no_config_is_refused_in_one_line(
    tmp_path: Path, content: bytes, fault: str
) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    assert f"{path}: {fault}" in refusal(path)


def test_a_broken_file_beside_it_is_named(tmp_path: Path) -> None:
    write(tmp_path, "config.json", CONFIG)
    (tmp_path / "hf_quant_config.json").write_text("{")
    assert "hf_quant_config.json: not JSON" in refusal(tmp_path)


def test_a_hub_id_or_a_missing_path_is_refused(tmp_path: Path) -> None:
    assert "No such file or directory" in refusal(Path("Qwen/Qwen3.5-27B"))
    assert "config.json: No such file or directory" in refusal(tmp_path)
    assert "null character" in refusal(Path("a\0b"))
    assert "File name too long" in refusal(tmp_path / ("x" * 300))
    assert "a?b" in refusal(Path("a\x07b"))


def test_a_pipe_does_not_stop_the_program(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    os.mkfifo(path)
    assert "not a regular file" in refusal(path)


# --------------------------------------------------------------- the model that a server names

SHA = "0123456789abcdef0123456789abcdef01234567"
OTHER = "f" * 40


def snapshot(hub: Path, name: str, revision: str, *, main: bool = False) -> Path:
    """A folder as `huggingface_hub` keeps it: the snapshot's files are links into blobs."""
    folder = hub / f"models--{name.replace('/', '--')}"
    blobs, files = folder / "blobs", folder / "snapshots" / revision
    for path in (blobs, files, folder / "refs"):
        path.mkdir(parents=True, exist_ok=True)
    write(blobs, revision[:8], CONFIG)
    (files / "config.json").symlink_to(Path("../../blobs") / revision[:8])
    if main:
        (folder / "refs" / "main").write_text(revision)
    return files


def test_a_path_of_this_host_is_read(tmp_path: Path) -> None:
    write(tmp_path, "config.json", CONFIG)
    told = str(tmp_path)
    assert find_model_config(told, None) == FoundConfig(CONFIG, f"{told}, as the server tells")
    assert find_model_config(f"{told}/config.json", None).config == CONFIG


def test_a_path_that_is_not_here_is_said_in_one_line(tmp_path: Path) -> None:
    found = find_model_config(str(tmp_path / "gone"), tmp_path)
    assert found == FoundConfig(
        None, f"the server's model path: {tmp_path}/gone: No such file or directory"
    )
    (tmp_path / "config.json").write_text("{")
    found = find_model_config(f"{tmp_path}/./config.json\n", tmp_path)
    assert found.config is None
    assert "\n" not in found.because
    assert "null character" in find_model_config("/a\0b", tmp_path).because


@pytest.mark.parametrize("name", ["Qwen/Qwen3.5-27B", "gpt2"])
def test_a_hub_id_is_looked_for_in_this_host_s_copy(tmp_path: Path, name: str) -> None:
    files = snapshot(tmp_path, name, SHA)
    assert find_model_config(name, tmp_path) == FoundConfig(
        CONFIG, f"{name}, as the server tells, at {files}"
    )
    assert find_model_config("other/model", tmp_path) == FoundConfig(
        None, f"the server's other/model is not in this host's hub folder {tmp_path}"
    )


def test_of_several_snapshots_main_is_taken_or_none(tmp_path: Path) -> None:
    snapshot(tmp_path, "a/b", OTHER)
    files = snapshot(tmp_path, "a/b", SHA)
    assert find_model_config("a/b", tmp_path).config is None
    snapshot(tmp_path, "a/b", "e" * 40, main=True)
    (files.parent / ("e" * 40) / "config.json").unlink()
    assert find_model_config("a/b", tmp_path).config is None
    (tmp_path / "models--a--b" / "refs" / "main").write_text(f"{SHA}\n")
    assert find_model_config("a/b", tmp_path).because.endswith(str(files))


@pytest.mark.parametrize("main", [b"../../../../etc", b"\xff", b""])
def test_a_strange_reference_is_passed_over(tmp_path: Path, main: bytes) -> None:
    files = snapshot(tmp_path, "a/b", SHA, main=True)
    (tmp_path / "models--a--b" / "refs" / "main").write_bytes(main)
    assert find_model_config("a/b", tmp_path).because.endswith(str(files))


@pytest.mark.parametrize("told", ["../etc", "a/b/c", "a/..", "~/m", "s3://a/b", "a b", "a/b\0"])
def test_what_is_neither_path_nor_id_is_not_looked_for(tmp_path: Path, told: str) -> None:
    found = find_model_config(told, tmp_path)
    assert found == FoundConfig(None, f"the server's {told!r} is no path of this host")


@pytest.mark.parametrize("told", [None, ""])
def test_a_server_that_names_no_path(tmp_path: Path, told: str | None) -> None:
    assert find_model_config(told, tmp_path).because == "the server names no model path"


def test_without_a_hub_folder_no_id_is_looked_for() -> None:
    assert find_model_config("a/b", None).because == "the server's 'a/b' is no path of this host"


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"HF_HUB_CACHE": "/c", "HF_HOME": "/h"}, "/c"),
        ({"HF_HOME": "/h", "HOME": "/root"}, "/h/hub"),
        ({"HF_HOME": "", "XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub"),
        ({"HOME": "/root"}, "/root/.cache/huggingface/hub"),
    ],
)
def test_where_the_hub_s_copy_is(environment: dict[str, str], folder: str) -> None:
    assert hub_folder(environment) == Path(folder)
    assert hub_folder({}) is None
