"""HTTPS targets: what is trusted, what the monitor shows of itself, and what each fault is called.

The certificates in data/tls are for these tests only: a private authority, a server
certificate for `engine.test` and 127.0.0.1 (valid for a hundred years), one for the name alone,
an expired one, and a client's.
"""

from __future__ import annotations

import os
import shutil
import ssl
from pathlib import Path

import pytest
from aiohttp import web

from monitor.model import Failure, Page, Problem, ProblemReason
from monitor.sources.scrape import Scraper
from tests.sources.served import MakeScraper, Serve

TLS = Path(__file__).parent / "data" / "tls"
CA = TLS / "ca.pem"


def server_side(certificate: str, *, wants_client: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(TLS / certificate)
    if wants_client:
        context.load_verify_locations(CA)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def good(_: web.Request) -> web.Response:
    return web.Response(text="a 1\n", headers={"Content-Type": "text/plain"})


async def tls_problem(scraper: Scraper) -> Problem:
    result = await scraper.fetch()
    assert isinstance(result, Failure)
    assert result.problem.reason is ProblemReason.TLS, result.problem
    assert "\n" not in result.problem.detail + result.problem.hint
    return result.problem


async def test_a_private_authority_is_trusted_when_named(
    serve: Serve, scraper: MakeScraper
) -> None:
    served = await serve(good, tls=server_side("server.pem"))
    problem = await tls_problem(scraper(served.url()))
    assert "certificate is not accepted" in problem.detail
    assert "ca_file" in problem.hint
    one = scraper(served.url(), ca_file=CA)
    for _ in range(3):
        assert isinstance(await one.fetch(), Page)
    assert served.connections == 1


async def test_the_name_must_fit_unless_another_is_given(
    serve: Serve, scraper: MakeScraper
) -> None:
    served = await serve(good, tls=server_side("other-name.pem"))
    problem = await tls_problem(scraper(served.url(), ca_file=CA))
    assert "server_name" in problem.hint
    named = scraper(served.url(), ca_file=CA, server_name="engine.test")
    assert isinstance(await named.fetch(), Page)


async def test_an_expired_certificate_is_named_so(serve: Serve, scraper: MakeScraper) -> None:
    served = await serve(good, tls=server_side("expired.pem"))
    problem = await tls_problem(scraper(served.url(), ca_file=CA))
    assert "expired" in problem.detail
    assert "renew" in problem.hint
    blind = scraper(served.url(), insecure_skip_verify=True)
    assert isinstance(await blind.fetch(), Page)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_client_certificate_is_shown(
    serve: Serve, scraper: MakeScraper, version: ssl.TLSVersion
) -> None:
    """TLS 1.3 servers refuse after the handshake: the alert may or may not arrive."""
    context = server_side("server.pem", wants_client=True)
    context.maximum_version = version
    served = await serve(good, tls=context)
    refused = await scraper(served.url(), ca_file=CA).fetch()
    assert isinstance(refused, Failure)
    if version is ssl.TLSVersion.TLSv1_2:
        assert refused.problem.reason is ProblemReason.TLS
    assert refused.problem.reason in {ProblemReason.TLS, ProblemReason.UNREACHABLE}
    assert "certificate_file: FILE, key_file: FILE" in refused.problem.hint
    known = scraper(
        served.url(), ca_file=CA, certificate_file=TLS / "client.pem", key_file=TLS / "client.key"
    )
    assert isinstance(await known.fetch(), Page)


async def test_certificates_are_read_again_when_they_change(
    serve: Serve, scraper: MakeScraper, tmp_path: Path
) -> None:
    served = await serve(good, tls=server_side("server.pem"))
    own_ca = tmp_path / "ca.pem"
    shutil.copy(TLS / "client.pem", own_ca)
    one = scraper(served.url(), ca_file=own_ca)
    await tls_problem(one)
    shutil.copy(CA, own_ca)
    os.utime(own_ca, ns=(1, 1))
    assert isinstance(await one.fetch(), Page)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"ca_file": Path("/no/such/ca.pem")}, "ca_file /no/such/ca.pem: No such file"),
        ({"ca_file": TLS}, "not a regular file"),
        ({"ca_file": TLS / "client.key"}, "no certificates in it"),
        ({"certificate_file": TLS / "client.pem"}, "not a matching pair"),
        (
            {"certificate_file": TLS / "client.pem", "key_file": Path("/no/such.key")},
            "key_file /no/such.key: No such file",
        ),
        (
            {"certificate_file": TLS / "client.pem", "key_file": TLS / "server.pem"},
            "not a matching pair",
        ),
        (
            {"certificate_file": TLS / "client.pem", "key_file": TLS / "client-encrypted.key"},
            "not a matching pair",
        ),
    ],
)
async def test_a_file_that_cannot_be_used_is_named(
    serve: Serve, scraper: MakeScraper, settings: dict[str, Path], says: str
) -> None:
    served = await serve(good, tls=server_side("server.pem"))
    problem = await tls_problem(scraper(served.url(), **settings))
    assert says in problem.detail
    assert served.requests == []


async def test_https_asked_of_a_plain_port(serve: Serve, scraper: MakeScraper) -> None:
    served = await serve(good)
    problem = await tls_problem(scraper(f"https://127.0.0.1:{served.port}/metrics"))
    assert "begin with http://" in problem.hint


async def test_plain_http_asked_of_a_tls_port(serve: Serve, scraper: MakeScraper) -> None:
    served = await serve(good, tls=server_side("server.pem"))
    result = await scraper(f"http://127.0.0.1:{served.port}/metrics").fetch()
    assert isinstance(result, Failure)
    assert result.problem.reason in {ProblemReason.UNREACHABLE, ProblemReason.BAD_BODY}
    assert "https://" in result.problem.hint
