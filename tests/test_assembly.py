"""From a configuration to scrape targets and plans."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.assembly import (
    catalogue_doubts,
    catalogue_of,
    info_reply,
    plan_for,
    plan_of,
    scrape_target_of,
)
from monitor.config import Config, parse
from monitor.config.errors import ConfigInvalid
from monitor.model import InfoReply, Instant, ServerInfo
from monitor.sources.expectations import ExpectationInvalid
from monitor.sources.scrape import BasicAuth, ScrapeTarget


def target_of(text: str, folder: Path | None = None) -> ScrapeTarget:
    return scrape_target_of(parse(f"targets: [{{{text}}}]", "test", {}, folder=folder).targets[0])


def test_a_bare_target() -> None:
    target = target_of("name: a, url: 'http://127.0.0.1:30000'")
    assert (target.name, target.url) == ("a", "http://127.0.0.1:30000/metrics")
    assert target.timeout_seconds == 5.0
    assert target.max_page_bytes == 16 * 2**20
    assert target.basic is None
    assert target.bearer_file is None
    assert target.unix_socket is None


def test_bearer_tls_and_headers(tmp_path: Path) -> None:
    target = target_of(
        "name: a, url: 'https://h:1', timeout: 2s, max_page_bytes: 1MiB, "
        "authorization: {bearer_file: token}, headers: {X-A: b}, header_files: {X-K: key}, "
        "tls: {ca_file: ca.pem, certificate_file: c.pem, key_file: k.pem, server_name: s, "
        "insecure_skip_verify: true}",
        tmp_path,
    )
    assert target.bearer_file == tmp_path / "token"
    assert target.headers == {"X-A": "b"}
    assert target.header_files == {"X-K": tmp_path / "key"}
    assert (target.ca_file, target.certificate_file, target.key_file) == (
        tmp_path / "ca.pem",
        tmp_path / "c.pem",
        tmp_path / "k.pem",
    )
    assert (target.server_name, target.insecure_skip_verify) == ("s", True)
    assert (target.timeout_seconds, target.max_page_bytes) == (2.0, 2**20)


def test_bearer_from_the_environment() -> None:
    target = target_of("url: 'http://h:1', authorization: {bearer_env: TOKEN}")
    assert target.bearer_env == "TOKEN"


def test_basic_from_a_file_and_from_the_url(tmp_path: Path) -> None:
    told = target_of(
        "url: 'http://h:1', authorization: {basic: {username: u, password_file: p}}", tmp_path
    )
    assert told.basic == BasicAuth("u", password_file=tmp_path / "p", password_env=None)
    inline = target_of("url: 'http://u:pw@h:1'")
    assert inline.basic == BasicAuth("u", password="pw")
    assert "pw" not in inline.url
    assert target_of("url: 'http://u@h:1'").basic == BasicAuth("u", password="")


def test_a_unix_socket() -> None:
    target = target_of("url: 'unix:/run/vllm.sock'")
    assert target.unix_socket == Path("/run/vllm.sock")


def test_the_plan_is_the_configuration() -> None:
    config = parse(
        "judgement: {warm_up: 7s}\ntargets: [{name: a, url: 'http://h:1', gpus: [0, 1]}]", "t", {}
    )
    plan = plan_of(config, catalogue_of(config))
    assert [(spec.name, spec.gpus) for spec in plan.targets] == [("a", (0, 1))]
    assert plan.settings.warm_up_seconds == 7.0
    assert plan.catalogue.by_id("b200-sxm-180gb") is not None


def test_a_bare_recording_has_targets_without_a_url() -> None:
    config = Config()
    plan = plan_for({"a": "http://h:1", "b": None}, config, catalogue_of(config))
    assert [(spec.name, spec.url) for spec in plan.targets] == [("a", "http://h:1"), ("b", "")]


def test_an_own_catalogue_folder_must_hold_entries(tmp_path: Path) -> None:
    config = parse(f"expectations: {tmp_path}", "test", {})
    with pytest.raises(ExpectationInvalid):
        catalogue_of(config)


def test_ids_that_the_catalogue_lacks_are_doubts() -> None:
    config = parse(
        "targets:\n"
        "  - {name: a, url: 'http://h:1', gpu: nosuch,"
        " floor: {at_least: 25%, of: {gpu: b200-sxm, tokens_per_second: 1}}}\n"
        "  - {name: b, url: 'http://h:2', gpu: nvidia-l4,"
        " floor: {reference: {gpu: zzz, tokens_per_second: 1}}}\n"
        "  - {name: c, url: 'http://h:3', floor: {reference: {id: zzz}}}\n"
        "  - {name: d, url: 'http://h:4', floor: {tokens_per_second: 1}}\n",
        "test",
        {},
    )
    doubts = catalogue_doubts(config, catalogue_of(config))
    assert doubts == (
        "a (h:1): gpu: no GPU 'nosuch' in the catalogue",
        "a (h:1): floor.of.gpu: no GPU 'b200-sxm' in the catalogue; nearest: b200-sxm-180gb",
        "b (h:2): floor.reference.gpu: no GPU 'zzz' in the catalogue",
        "c (h:3): floor.reference.id: no reference 'zzz' in the catalogue",
    )


def test_models_are_read_and_those_that_cannot_be_are_all_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    entry = "  - {{name: {0}, url: 'http://h:{1}', model: {2}}}\n"
    good = entry.format("a", 1, "config.json") + entry.format("b", 2, "{layers: 64}")
    plan_text = "targets:\n" + good + entry.format("c", 3, "auto")
    config = parse(plan_text, "test", {}, folder=tmp_path)
    plan = plan_of(config, catalogue_of(config))
    assert [(spec.model, spec.model_declared) for spec in plan.targets] == [
        ({"model_type": "llama"}, False),
        ({"layers": 64}, True),
        (None, False),
    ]
    bad = "targets:\n" + entry.format("a", 1, "nosuch") + entry.format("b", 2, "neither")
    config = parse(bad, "test", {}, folder=tmp_path)
    with pytest.raises(ConfigInvalid) as caught:
        plan_of(config, catalogue_of(config))
    first, second = str(caught.value).splitlines()
    assert first.startswith(f"target a: model: {tmp_path}/nosuch: No such file or directory; ")
    assert second.startswith(f"target b: model: {tmp_path}/neither: No such file or directory; ")


# --------------------------------------------------------------- the model that a server names

AT = Instant(1.0, 2.0)


async def told(text: str, path: str | None) -> InfoReply:
    (target,) = parse(f"targets: [{{name: a, {text}}}]", "test", {}).targets
    return await info_reply(target, ServerInfo(model_path=path), AT)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://[::1]:1", "unix:/run/vllm.sock"])
async def test_a_server_of_this_host_names_its_model(tmp_path: Path, url: str) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    reply = await told(f"url: '{url}', model: auto", str(tmp_path))
    assert reply == InfoReply(
        "a",
        AT,
        ServerInfo(model_path=str(tmp_path)),
        {"model_type": "llama"},
        f"{tmp_path}, as the server tells",
    )
    # It is the default.
    assert await told(f"url: '{url}'", str(tmp_path)) == reply


async def test_a_hub_id_is_looked_for_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    folder = tmp_path / "hub" / "models--a--b" / "snapshots" / "0123456"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    reply = await told("url: 'http://127.0.0.1:1'", "a/b")
    assert reply.model_config == {}


async def test_another_host_s_paths_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    reply = await told("url: 'http://192.0.2.1:1'", str(tmp_path))
    assert reply.model_config is None
    because = "the server runs on another host, so its files are not here"
    assert reply.model_config_because == because


async def test_the_operator_s_model_needs_no_other(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    reply = await told("url: 'http://127.0.0.1:1', model: {layers: 64}", str(tmp_path))
    assert reply == InfoReply("a", AT, ServerInfo(model_path=str(tmp_path)))
