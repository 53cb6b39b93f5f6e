"""From a configuration to the things that run: the plan, the scrape targets, the catalogue."""

from __future__ import annotations

import asyncio
import difflib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from monitor.config import Config
from monitor.config.errors import ConfigInvalid
from monitor.config.target import TargetConfig
from monitor.expectation.matching import Catalogue
from monitor.expectation.step_time import StepFit, StepForm
from monitor.found_targets import Watched
from monitor.model import FoundServer, InfoReply, Instant, ServerInfo, TargetSpec, Unknown
from monitor.pipeline import Plan
from monitor.sources.expectations import ExpectationInvalid, default_directory, load_catalogue
from monitor.sources.fit_file import FILE_NAME, load_fits
from monitor.sources.model_config import (
    FoundConfig,
    ModelConfigUnreadable,
    find_model_config,
    hub_folder,
    read_model_config,
)
from monitor.sources.reference_file import load_references
from monitor.sources.scrape import BasicAuth, ScrapeTarget
from monitor.target_state import is_local

ReadModel = Callable[[str], Mapping[str, Any]]
"""From the text of `model:` to the model's config; raises ModelConfigUnreadable."""


def model_on_disk(path: str) -> Mapping[str, Any]:
    """A model's config from this host's disk."""
    return read_model_config(Path(path))


def plan_of(
    config: Config,
    catalogue: Catalogue,
    read_model: ReadModel = model_on_disk,
    watched: Watched | None = None,
) -> Plan:
    """What to watch and how to judge it. Raises ConfigInvalid where a `model:` is not readable.

    A recording brings its models along: `recorded_model_config` reads those. `watched`: the
    targets with those that were found; without it the configuration's own.
    """
    watched = watched or Watched(config.targets)
    told = {target.name for target in config.targets}
    specs, faults, notes = [], [], list(watched.notes)
    for target in watched.targets:
        try:
            spec = _with_model(target, read_model)
        except ModelConfigUnreadable as fault:
            if target.name not in told and target.name in watched.found:
                notes.append(f"{target.name}: model: {fault}")
                specs.append(_with_find(target.spec(), watched.found[target.name]))
                continue
            faults.append(f"target {target.name}: model: {fault}")
        else:
            specs.append(_with_find(spec, watched.found.get(target.name)))
    if faults:
        raise ConfigInvalid(faults)
    return Plan(
        targets=tuple(specs),
        settings=config.settings(),
        catalogue=catalogue,
        fit=fit_of(config),
        discovery_notes=tuple(notes),
    )


def _with_find(spec: TargetSpec, find: FoundServer | None) -> TargetSpec:
    if find is None:
        return spec
    return replace(
        spec,
        found=find.how,
        local=find.local or None,
        gpus_found=find.gpus,
        gpus_because=find.gpus_because,
    )


def plan_for(targets: dict[str, str | None], config: Config, catalogue: Catalogue) -> Plan:
    """A plan for targets that no configuration describes (a bare recording)."""
    specs = tuple(TargetSpec(name=name, url=url or "") for name, url in targets.items())
    return Plan(targets=specs, settings=config.settings(), catalogue=catalogue, fit=fit_of(config))


def _with_model(target: TargetConfig, read_model: ReadModel) -> TargetSpec:
    spec, told = target.spec(), target.model
    if told == "auto":
        return spec
    if isinstance(told, str):
        return replace(spec, model=read_model(told))
    return replace(spec, model=told, model_declared=True)


async def info_reply(
    target: TargetConfig, info: ServerInfo, at: Instant, *, here: bool | None = None
) -> InfoReply:
    """A server's word on itself and, with `model: auto`, the config of the model that it names.

    Only for a server of this host: another host's paths mean nothing here. `here`: whether it is
    one, where discovery told.
    """
    if target.model != "auto":
        return InfoReply(target.name, at, info)
    if not (is_local(target.url) if here is None else here):
        found = FoundConfig(None, "the server runs on another host, so its files are not here")
    else:
        hub = hub_folder(os.environ)
        found = await asyncio.to_thread(find_model_config, info.model_path, hub)
    return InfoReply(target.name, at, info, found.config, found.because)


def fit_of(config: Config) -> StepFit:
    """The load model's constants: the operator's own file before the shipped one.

    Raises ExpectationInvalid.
    """
    own = None if config.expectations is None else Path(config.expectations)
    folder = own if own is not None and (own / FILE_NAME).exists() else default_directory()
    record = load_fits(folder).in_force
    return StepFit(name=record.name, form=StepForm(record.form), **record.constants)


def catalogue_of(config: Config) -> Catalogue:
    """The shipped catalogue, the operator's own entries over it. Raises ExpectationInvalid."""
    own = () if config.expectations is None else (Path(config.expectations),)
    for folder in own:
        if not folder.is_dir():
            raise ExpectationInvalid(
                f"expectations: {folder}: there is no such folder; expected one with gpus/*.toml "
                "or references/*.toml"
            )
    specs = load_catalogue(default_directory(), *own)
    return Catalogue(specs, load_references(specs, default_directory(), *own))


def catalogue_doubts(config: Config, catalogue: Catalogue) -> tuple[str, ...]:
    """Ids in the configuration that the catalogue lacks, one line each, with the nearest."""
    return tuple(
        f"{target.shown}: {key}: {reason}"
        for target in config.targets
        for key, reason in _unknown_ids(target, catalogue)
    )


def _unknown_ids(target: TargetConfig, catalogue: Catalogue) -> Iterator[tuple[str, str]]:
    floor = target.floor
    of = None if floor is None else floor.of
    reference = None if floor is None else floor.reference
    for key, gpu in (
        ("gpu", target.gpu),
        ("floor.of.gpu", None if of is None else of.gpu),
        ("floor.reference.gpu", None if reference is None else reference.gpu),
    ):
        found = None if gpu is None else catalogue.by_id(gpu)
        if isinstance(found, Unknown):
            yield key, found.reason
    known = [one.id for one in catalogue.references]
    if reference is not None and reference.id is not None and reference.id not in known:
        near = difflib.get_close_matches(reference.id, known, n=1)
        hint = f"; nearest: {near[0]}" if near else ""
        yield "floor.reference.id", f"no reference {reference.id!r} in the catalogue{hint}"


def scrape_target_of(target: TargetConfig) -> ScrapeTarget:
    """How to ask one target for its page."""
    login, address = target.authorization, target.address
    basic = None
    if login is not None and login.basic is not None:
        basic = BasicAuth(
            login.basic.username,
            password_file=_path(login.basic.password_file),
            password_env=login.basic.password_env,
        )
    elif address.username is not None:
        basic = BasicAuth(address.username, password=address.password or "")
    return ScrapeTarget(
        name=target.name,
        url=address.request_url,
        unix_socket=_path(address.unix_socket),
        timeout_seconds=target.timeout_seconds,
        max_page_bytes=target.max_page_bytes,
        bearer_file=None if login is None else _path(login.bearer_file),
        bearer_env=None if login is None else login.bearer_env,
        basic=basic,
        headers=target.headers,
        header_files=target.header_files,
        ca_file=_path(target.tls.ca_file),
        certificate_file=_path(target.tls.certificate_file),
        key_file=_path(target.tls.key_file),
        insecure_skip_verify=target.tls.insecure_skip_verify,
        server_name=target.tls.server_name,
    )


def _path(text: str | Path | None) -> Path | None:
    return None if text is None else Path(text)
