"""From a configuration to the things that run: the plan, the scrape targets, the catalogue."""

from __future__ import annotations

from pathlib import Path

from monitor.config import Config
from monitor.config.target import TargetConfig
from monitor.expectation.matching import Catalogue
from monitor.model import TargetSpec
from monitor.pipeline import Plan
from monitor.sources.expectations import default_directory, load_catalogue
from monitor.sources.reference_file import load_references
from monitor.sources.scrape import BasicAuth, ScrapeTarget


def plan_of(config: Config, catalogue: Catalogue) -> Plan:
    """What to watch and how to judge it."""
    return Plan(
        targets=tuple(target.spec() for target in config.targets),
        settings=config.settings(),
        catalogue=catalogue,
    )


def plan_for(targets: dict[str, str | None], config: Config, catalogue: Catalogue) -> Plan:
    """A plan for targets that no configuration describes (a bare recording)."""
    specs = tuple(TargetSpec(name=name, url=url or "") for name, url in targets.items())
    return Plan(targets=specs, settings=config.settings(), catalogue=catalogue)


def catalogue_of(config: Config) -> Catalogue:
    """The shipped catalogue, the operator's own entries over it. Raises ExpectationInvalid."""
    own = () if config.expectations is None else (Path(config.expectations),)
    specs = load_catalogue(default_directory(), *own)
    return Catalogue(specs, load_references(specs, default_directory(), *own))


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
