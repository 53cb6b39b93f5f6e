"""What a target's URL comes to: address, credentials, what may be shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.sources.connections import Connections
from monitor.sources.http_client import HttpClient
from monitor.sources.scrape import BasicAuth, ScrapeTarget


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://127.0.0.1:30000/metrics", "http://127.0.0.1:30000/metrics"),
        ("http://127.0.0.1:30000/metrics/", "http://127.0.0.1:30000/metrics/"),
        ("http://[fd00:12::7]:30000/metrics", "http://[fd00:12::7]:30000/metrics"),
        ("http://[fe80::1%25eth0]:8000/metrics", "http://[fe80::1%25eth0]:8000/metrics"),
        ("https://Engine.Example.NET/v1/../metrics", "https://engine.example.net/metrics"),
        ("http://u:secret@h:1/metrics?token=secret#secret", "http://h:1/metrics"),
    ],
)
def test_what_is_shown_of_a_url(url: str, shown: str) -> None:
    assert ScrapeTarget(name="qwen", url=url).shown == shown


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ("user:p%40ss@", BasicAuth("user", "p@ss")),
        ("user@", BasicAuth("user", "")),
        (":token@", BasicAuth("", "token")),
        ("", None),
    ],
)
def test_credentials_in_the_url_move_out_of_it(user: str, expected: BasicAuth | None) -> None:
    target = ScrapeTarget(name="qwen", url=f"http://{user}h:8000/metrics")
    assert target.basic == expected
    assert target.url == "http://h:8000/metrics"
    assert target.authenticated is (expected is not None)


def test_given_credentials_go_before_those_in_the_url() -> None:
    given = BasicAuth("monitor", password_file=Path("/run/secrets/password"))
    target = ScrapeTarget(name="qwen", url="http://u:p@h/metrics", basic=given)
    assert target.basic == given


@pytest.mark.parametrize(
    ("host", "encoding"),
    [
        ("127.0.0.1", "identity"),
        ("127.3.0.9", "identity"),
        ("[::1]", "identity"),
        ("LocalHost", "identity"),
        ("engine.localhost.", "identity"),
        ("10.0.0.5", "gzip"),
        ("[fd00:12::7]", "gzip"),
        ("localhost.example.net", "gzip"),
    ],
)
def test_compression_is_asked_for_where_it_saves_something(host: str, encoding: str) -> None:
    target = ScrapeTarget(name="qwen", url=f"http://{host}:8000/metrics")
    headers = HttpClient(target, Connections())._headers(target.address, "text/plain")
    assert headers["Accept-Encoding"] == encoding


@pytest.mark.parametrize(
    "url", ["", "metrics", "h:8000", "::1", "unix:///run/x", "ftp://h/", "http://", "http://h:x/"]
)
def test_a_url_that_cannot_be_used(url: str) -> None:
    with pytest.raises(ValueError, match="target qwen: url must be http://HOST:PORT/PATH"):
        ScrapeTarget(name="qwen", url=url)


@pytest.mark.parametrize(
    ("page", "beside"),
    [
        ("http://h:1/metrics", "http://h:1/version"),
        ("http://h:1/metrics/", "http://h:1/version"),
        ("http://h:1/a/metrics?k=v", "http://h:1/a/version?k=v"),
        ("http://h:1/stats", "http://h:1/version"),
        ("http://h:1/metrics/all", "http://h:1/version"),
        ("http://h:1/", "http://h:1/version"),
    ],
)
def test_other_pages_of_the_same_server(page: str, beside: str) -> None:
    client = HttpClient(ScrapeTarget(name="qwen", url=page), Connections())
    assert str(client.beside("/version")) == beside
