"""Spellings of addresses: each with the endpoint that it names, or the line that refuses it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from monitor.config.addresses import Address, AddressInvalid, parse, without_credentials


def test_ipv6_loopback_with_port_and_path() -> None:
    assert parse("http://[::1]:8000/metrics") == Address(
        url="http://[::1]:8000/metrics",
        request_url="http://[::1]:8000/metrics",
        display="[::1]:8000",
        identity="http://[::1]:8000/metrics",
        same_server_hint="http://localhost:8000/metrics",
    )


def test_the_path_defaults_to_metrics() -> None:
    address = parse("http://[fd00:12::7]:30000")
    assert address.url == "http://[fd00:12::7]:30000/metrics"
    assert address.display == "[fd00:12::7]:30000"


def test_the_scheme_defaults_to_http() -> None:
    assert parse("[::1]:8000").url == "http://[::1]:8000/metrics"
    assert parse("engine:30000").url == "http://engine:30000/metrics"


def test_a_bare_ipv6_address_is_refused() -> None:
    with pytest.raises(AddressInvalid) as refused:
        parse("::1")
    assert str(refused.value) == (
        '"::1": an IPv6 address needs square brackets, and its port follows them; '
        "write http://[::1]:30000"
    )


@pytest.mark.parametrize(
    "text", ["http://[fe80::1%25eth0]:8000/metrics", "http://[fe80::1%eth0]:8000"]
)
def test_a_zone_is_kept_as_resolvers_take_it(text: str) -> None:
    address = parse(text)
    assert address.url == "http://[fe80::1%eth0]:8000/metrics"
    assert address.display == "[fe80::1%eth0]:8000"
    # What the HTTP client connects to is its raw host: a %25 there would be looked up as a name.
    assert URL(address.request_url).raw_host == "fe80::1%eth0"


def test_localhost_is_not_resolved_but_hinted() -> None:
    name, number = parse("http://localhost:8000"), parse("http://127.0.0.1:8000")
    assert name.url == "http://localhost:8000/metrics"
    assert name.identity != number.identity
    assert name.same_server_hint == number.same_server_hint == parse("[::1]:8000").same_server_hint
    assert parse("http://127.0.0.1:8001").same_server_hint != number.same_server_hint


def test_a_trailing_slash_is_kept_in_the_request_and_not_in_the_identity() -> None:
    address = parse("http://127.0.0.1:8000/metrics/")
    assert address.request_url == "http://127.0.0.1:8000/metrics/"
    assert address.identity == parse("http://127.0.0.1:8000").identity


def test_host_in_lower_case_and_dot_segments_resolved() -> None:
    address = parse("https://Engine.Example.NET:8443/v1/../metrics")
    assert address.url == "https://engine.example.net:8443/metrics"
    assert address.display == "engine.example.net:8443"


def test_unix_socket() -> None:
    assert parse("unix:///run/engine.sock") == Address(
        url="unix:///run/engine.sock:/metrics",
        request_url="http://localhost/metrics",
        display="unix:engine.sock",
        identity="unix:///run/engine.sock:/metrics",
        same_server_hint="unix:///run/engine.sock:/metrics",
        unix_socket="/run/engine.sock",
    )


def test_unix_socket_with_a_path() -> None:
    address = parse("unix:///run/../run/engine.sock:/v1/metrics/")
    assert address.unix_socket == "/run/engine.sock"
    assert address.request_url == "http://localhost/v1/metrics/"
    assert address.identity == parse("unix:/run/engine.sock:/v1/metrics").identity


def test_credentials_are_taken_out() -> None:
    address = parse("http://user:s3cret@10.0.0.5:8000/metrics")
    assert (address.username, address.password) == ("user", "s3cret")
    assert address.url == "http://10.0.0.5:8000/metrics"
    assert address.identity == parse("http://10.0.0.5:8000").identity
    assert "s3cret" not in f"{address!r} {address}"


@pytest.mark.parametrize(
    ("text", "username", "password"),
    [
        ("http://u:p%40s%2Fs@h", "u", "p@s/s"),
        ("http://u:a:b@h", "u", "a:b"),
        ("http://u:a@b@h", "u", "a@b"),
        ("http://u:@h", "u", ""),
        ("http://u@h", "u", None),
        ("http://h", None, None),
    ],
)
def test_spellings_of_credentials(text: str, username: str | None, password: str | None) -> None:
    address = parse(text)
    assert (address.username, address.password) == (username, password)
    assert address.url == "http://h/metrics"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://h", "http://h:80/metrics"),
        ("https://h", "https://h:443/"),
        ("http://H.example.", "h.example"),
        ("http://[0:0:0:0:0:0:0:1]:1", "[::1]:1"),
        ("http://[FD00::A]:1", "[fd00::a]:1"),
        ("http://h/%6Detrics", "http://h/metrics"),
        ("http://h/a%2fb", "http://h/a%2Fb"),
        ("http://h/a/%2E%2e/metrics", "http://h/metrics"),
        ("http://h/./metrics/.", "http://h/metrics"),
        ("http://bücher.example", "http://xn--bcher-kva.example"),
        ("HTTP://h", "http://h"),
    ],
)
def test_one_endpoint_in_two_spellings(one: str, other: str) -> None:
    assert parse(one).identity == parse(other).identity


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://h", "https://h"),
        ("http://h:80", "http://h:8000"),
        ("http://h/metrics", "http://h/Metrics"),
        ("http://h/a%2Fb", "http://h/a/b"),
        ("http://h/metrics?part=a", "http://h/metrics?part=b"),
        ("http://[fe80::1%eth0]", "http://[fe80::1%eth1]"),
        ("unix:///a.sock", "unix:///b/a.sock"),
    ],
)
def test_two_endpoints(one: str, other: str) -> None:
    assert parse(one).identity != parse(other).identity


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://my_service:8000", "http://my_service:8000/metrics"),
        ("http://h:/x", "http://h/x"),
        ("http://h?format=text", "http://h/metrics?format=text"),
        ("http://h/a//b", "http://h/a//b"),
        ("http://h/..", "http://h/"),
        ("http://h/a/../../b/..", "http://h/"),
        ("http://h/schön", "http://h/sch%C3%B6n"),
        ("http://[::ffff:10.0.0.1]:1", "http://[::ffff:10.0.0.1]:1/metrics"),
    ],
)
def test_urls(text: str, url: str) -> None:
    # Python writes an IPv4-mapped address as ::ffff:a00:1 before 3.13, and dotted since.
    assert parse(text).url.replace("::ffff:a00:1]", "::ffff:10.0.0.1]") == url


def test_a_default_path_of_ones_own() -> None:
    assert parse("http://am:9093", default_path="").url == "http://am:9093"
    assert parse("http://am:9093/", default_path="").url == "http://am:9093"
    assert parse("http://am:9093/prefix", default_path="").url == "http://am:9093/prefix"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the address is empty"),
        ("http://a b", "no spaces"),
        ("http://a\n", "no control characters"),
        (":8000", "there is no host"),
        ("http:///metrics", "there is no host"),
        ("8000", "a number alone is no address; write 127.0.0.1:8000"),
        ("http:/h", "two slashes follow the scheme"),
        ("ftp://h", "only http://, https:// and unix:// are understood"),
        ("http://h:0", "a port is a number from 1 to 65535"),
        ("http://h:65536", "a port is a number from 1 to 65535"),
        ("http://h:٣", "a port is a number from 1 to 65535"),
        ("http://h:+80", "a port is a number from 1 to 65535"),
        ("http://::1:8000", "an IPv6 address needs square brackets"),
        ("http://[::1", "an IPv6 address stands in [ ]"),
        ("http://[::1]8000", "an IPv6 address stands in [ ]"),
        ("http://[]:80", "the IPv6 address in [ ] is not valid"),
        ("http://[1.2.3.4]:80", "the IPv6 address in [ ] is not valid"),
        ("http://[v1.a]:80", "the IPv6 address in [ ] is not valid"),
        ("http://[fe80::1%]:80", "the zone after %"),
        ("http://[fe80::1%a/b]:80", "an IPv6 address stands in [ ]"),
        ("http://127.1", "the IPv4 address is not valid"),
        ("http://256.0.0.1", "the IPv4 address is not valid"),
        ("http://a..b", "the host name is not valid"),
        ("http://-a", "the host name is not valid"),
        ("http://" + "a" * 64, "the host name is not valid"),
        ("http://" + "ü" * 80, "the host name is not valid"),
        ("http:\\\\h", "two slashes follow the scheme"),
        ("http://h/%zz", "a % in a path or query is followed by two hex digits"),
        ("http://h#a", "a fragment (#...) is no part of an endpoint"),
        ("unix:///", "a unix socket is written unix:///run/engine.sock"),
        ("unix://", "a unix socket is written unix:///run/engine.sock"),
        ("unix:", "a unix socket is written unix:///run/engine.sock"),
        ("unix:///run/", "a unix socket is written unix:///run/engine.sock"),
        ("unix://host/run/engine.sock", "a unix socket is written unix:///run/engine.sock"),
        ("unix:run/engine.sock", "a unix socket is written unix:///run/engine.sock"),
        ("unix:///" + "a" * 107, "a socket's path holds at most 107 bytes"),
    ],
)
def test_what_names_no_endpoint_is_refused(text: str, why: str) -> None:
    with pytest.raises(AddressInvalid) as refused:
        parse(text)
    message = str(refused.value)
    assert why in message
    assert message.isprintable()


@pytest.mark.parametrize(
    "text",
    [
        "http://user:s3cret@h:port",
        "http://user:s3cret#x@h",
        "http://user:12/s3cret@h",
        "http://user:s3cret?x@h",
        "http://us%3Aer:s3cret@h",
        "user:s3cret@",
        "http://user:s3cret@::1",
        "ftp://user:s3cret@h",
        "http://user:s3cret @h",
        "unix://user:s3cret@h",
    ],
)
def test_no_refusal_shows_a_password(text: str) -> None:
    with pytest.raises(AddressInvalid) as refused:
        parse(text)
    assert "s3cret" not in str(refused.value)


def test_masking() -> None:
    assert without_credentials("http://u:a@b@h/x") == "***@h/x"
    assert without_credentials("http://h/x") == "http://h/x"


def read(text: str) -> Address | str:
    try:
        return parse(text)
    except AddressInvalid as refusal:
        return str(refusal)


_LIKE_ADDRESSES = st.tuples(
    st.sampled_from(["", "http://", "unix://"]),
    st.text(alphabet="ahu:/@[]%25.#?1-", max_size=30),
).map("".join)


@given(st.text(max_size=80) | _LIKE_ADDRESSES)
def test_any_text_is_an_address_or_refused_in_one_line(text: str) -> None:
    address = read(text)
    if isinstance(address, str):
        assert address.isprintable()
    else:
        again = parse(address.url)
        assert (again.url, again.display) == (address.url, address.display)
        assert again.identity == address.identity
