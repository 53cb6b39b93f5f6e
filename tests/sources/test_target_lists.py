"""Target groups -> servers: as Prometheus reads them, and what costs only itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.config import addresses
from monitor.config.discovery import FromLists
from monitor.config.target import OWN_LABELS, TargetConfig
from monitor.model import FoundServer
from monitor.sources import kubernetes_pods, target_lists
from monitor.sources.scrape_target import readable_url
from monitor.sources.target_lists import servers_of, unusable

PLAIN = FromLists()


def config(**keys: Any) -> FromLists:
    return FromLists.model_validate(keys)


def told(
    groups: Any, of: FromLists = PLAIN, discovered: dict[str, str] | None = None
) -> tuple[tuple[FoundServer, ...], tuple[str, ...]]:
    return servers_of(groups, of, "a.json", discovered)


def one(
    labels: dict[str, Any], of: FromLists = PLAIN, target: str = "10.0.0.1:8000"
) -> FoundServer:
    servers, faults = told([{"targets": [target], "labels": labels}], of)
    assert faults == ()
    (server,) = servers
    return server


def fault(groups: Any, of: FromLists = PLAIN) -> str:
    """The one fault of a list of which no server comes."""
    servers, faults = told(groups, of)
    assert servers == ()
    (line,) = faults
    assert line.startswith("a.json: ")
    return line.removeprefix("a.json: ")


def test_groups_come_to_servers_in_their_order() -> None:
    servers, faults = told(
        [
            {"targets": ["10.0.0.2:8000", "10.0.0.1:8000"], "labels": {"pod": "a", "empty": ""}},
            {"targets": ["gpu-1.example", "[fd00::1]:30000"], "labels": None},
            {"targets": [], "labels": {"pod": "b"}},
            {"labels": {"pod": "c"}},
            {},
            {"targets": None},
        ]
    )
    assert faults == ()
    assert servers == (
        FoundServer("http://10.0.0.2:8000/metrics", how="listed in a.json", labels={"pod": "a"}),
        FoundServer("http://10.0.0.1:8000/metrics", how="listed in a.json", labels={"pod": "a"}),
        FoundServer("http://gpu-1.example/metrics", how="listed in a.json"),
        FoundServer("http://[fd00::1]:30000/metrics", how="listed in a.json"),
    )


@pytest.mark.parametrize(
    ("labels", "url"),
    [
        ({"__scheme__": "https"}, "https://10.0.0.1:8000/metrics"),
        ({"__scheme__": "HTTP"}, "http://10.0.0.1:8000/metrics"),
        ({"__metrics_path__": "/engine/metrics"}, "http://10.0.0.1:8000/engine/metrics"),
        ({"__metrics_path__": "probe"}, "http://10.0.0.1:8000/probe"),
        ({"__metrics_path__": ""}, "http://10.0.0.1:8000/metrics"),
        ({"__metrics_path__": "/"}, "http://10.0.0.1:8000/."),
        ({"__metrics_path__": "/a?b=c#d@e %41"}, "http://10.0.0.1:8000/a%3Fb=c%23d%40e%20%2541"),
        ({"__param_b": "1 2", "__param_a": "x&y=z", "__param_c": ""}, "http://10.0.0.1:8000/metrics?a=x%26y%3Dz&b=1+2"),
        ({"__param_": "x"}, "http://10.0.0.1:8000/metrics"),
        ({"__address__": "10.9.9.9:1"}, "http://10.0.0.1:8000/metrics"),
    ],
)  # fmt: skip
def test_labels_that_make_the_address(labels: dict[str, str], url: str) -> None:
    server = one(labels)
    assert server.url == url
    assert server.labels == {}


def test_a_path_that_is_a_bare_slash_stays_one_in_the_configuration() -> None:
    target = TargetConfig.model_validate({"url": one({"__metrics_path__": "/"}).url})
    assert target.url == "http://10.0.0.1:8000/"


def test_which_labels_go_on() -> None:
    server = one(
        {
            "pod": "a",
            "__meta_x": "y",
            "__scrape_interval__": "5s",
            "gpu": "7",
            "target": "t",
            "engine": "e",
            "exported_engine": "mine",
        }
    )
    assert server.labels == {
        "pod": "a",
        "exported_gpu": "7",
        "exported_target": "t",
        "exported_exported_engine": "e",
        "exported_engine": "mine",
    }


def test_the_operators_labels_win() -> None:
    of = config(
        labels={"team": "search", "zone": "z", "rack": "none"},
        label_names={
            "rack": "__meta_rack",
            "host": "__address__",
            "node": "pod",
            "gone": "__meta_no",
        },
    )
    server = one({"zone": "from the list", "pod": "a", "__meta_rack": "r7"}, of)
    assert server.labels == {
        "zone": "z",
        "pod": "a",
        "team": "search",
        "rack": "r7",
        "node": "a",
        "host": "10.0.0.1:8000",
    }
    assert one({}, of).labels["rack"] == "none"


def test_what_discovery_tells_can_become_a_label() -> None:
    of = config(label_names={"file": "__meta_filepath"}, name_label="__meta_filepath")
    servers, faults = told(
        [{"targets": ["h:1"], "labels": {"__meta_filepath": "of the list"}}],
        of,
        {"__meta_filepath": "/etc/a.json"},
    )
    assert faults == ()
    assert (servers[0].labels, servers[0].name) == ({"file": "/etc/a.json"}, "etc.a.json")
    servers, faults = told([{"targets": ["h:1"]}], of, {"__meta_filepath": "/\udcff" + "x" * 300})
    assert (servers[0].labels, servers[0].name) == ({}, None)
    at = "a.json: [0].labels.__meta_filepath: "
    assert faults == (
        f"{at}fit for no name; the address is taken",
        f"{at}as label file: expected printable text of 1 to 200 characters",
    )


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("qwen-0", "qwen-0"),
        ("inference/qwen-0", "inference.qwen-0"),
        (" .hidden ", "hidden"),
        ("nvml", None),
        ("...", None),
        ("x" * 101, None),
    ],
)
def test_names(text: str, name: str | None) -> None:
    servers, faults = told(
        [{"targets": ["h:1"], "labels": {"pod": text}}, {"targets": ["i:1"]}],
        config(name_label="pod"),
    )
    assert [server.name for server in servers] == [name, None]
    assert len(faults) == (name is None)
    if name is not None:
        TargetConfig.model_validate({"url": "http://h:1", "name": name})


def test_the_address_as_a_name_and_names_that_several_have() -> None:
    servers, _ = told([{"targets": ["h:1", "i:1"]}], config(name_label="__address__"))
    assert [server.name for server in servers] == ["h:1", "i:1"]
    servers, faults = told(
        [
            {"targets": ["h:1", "i:1"], "labels": {"pod": "a"}},
            {"targets": ["j:1"], "labels": {"pod": "b"}},
        ],
        config(name_label="pod"),
    )
    assert [server.name for server in servers] == [None, None, "b"]
    assert faults == ('a.json: 2 servers have the pod "a"; their addresses name them',)


def test_keys_of_a_target() -> None:
    server = one(
        {
            "__floorwatch_gpu__": "h200-sxm-141gb",
            "__floorwatch_gpu_count__": "8",
            "__floorwatch_tensor_parallel": " 4 ",
            "__floorwatch_maintenance__": "true",
        }
    )
    assert server.settings == {
        "gpu": "h200-sxm-141gb",
        "gpu_count": "8",
        "tensor_parallel": "4",
        "maintenance": "true",
    }
    assert server.labels == {}
    assert target_lists.SETTINGS == kubernetes_pods.SETTINGS


@pytest.mark.parametrize("key", ["authorization", "url", "gpus", "tls", "headers", ""])
def test_how_a_server_is_asked_is_not_the_lists_to_say(key: str) -> None:
    servers, faults = told([{"targets": ["h:1"], "labels": {f"__floorwatch_{key}__": "x"}}])
    assert servers[0].settings == {}
    assert len(faults) == 1
    assert faults[0].startswith(f"a.json: [0].labels.__floorwatch_{key}__: unknown; ")


LOGIN_NOWHERE = (
    "expected HOST:PORT; the scheme stands in the label __scheme__, the path in __metrics_path__,"
    " a login nowhere"
)
METADATA = "a cloud's metadata service, never a server to watch"


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("", 'expected HOST:PORT, got ""'),
        (None, "expected HOST:PORT, got null"),
        (8000, "expected HOST:PORT, got 8000"),
        ({}, "expected HOST:PORT, got a map"),
        ("h" * 301, 'expected HOST:PORT, got "' + "h" * 57 + '..."'),
        ("http://h:1/metrics", f'"http://h:1/metrics": {LOGIN_NOWHERE}'),
        ("/etc/passwd", f'"/etc/passwd": {LOGIN_NOWHERE}'),
        ("h:1?x", f'"h:1?x": {LOGIN_NOWHERE}'),
        ("me:secret@h:1", f'"***@h:1": {LOGIN_NOWHERE}'),
        ("unix:///run/e.sock", '"unix:///run/e.sock": a unix socket is watched by targets: only'),
        ("unix:e.sock", '"unix:e.sock": a unix socket is watched by targets: only'),
        ("h:0", '"http://h:0": a port is a number from 1 to 65535'),
        ("h:port", '"http://h:port": a port is a number from 1 to 65535'),
        ("8000", '"http://8000": a number alone is no address; write 127.0.0.1:8000'),
        ("::1:80", '"http://::1:80": an IPv6 address needs square brackets, and its port follows them; write http://[::1]:30000'),
        ("a b:1", '"http://a b:1": an address holds no spaces and no control characters'),
        ("0xa9fea9fe", '"0xa9fea9fe": expected a host name or an IP address'),
        ("0xA9.0xfe.0xa9.0XFE:80", '"0xA9.0xfe.0xa9.0XFE:80": expected a host name or an IP address'),
        ("169.254.43518", '"http://169.254.43518": the IPv4 address is not valid'),
        ("169.254.169.254", f'"169.254.169.254": {METADATA}'),
        ("169.254.169.254:8000", f'"169.254.169.254:8000": {METADATA}'),
        ("[::ffff:169.254.169.254]:80", f'"[::ffff:169.254.169.254]:80": {METADATA}'),
        ("[64:ff9b::a9fe:a9fe]", f'"[64:ff9b::a9fe:a9fe]": {METADATA}'),
        ("[2002:a9fe:a9fe::]:80", f'"[2002:a9fe:a9fe::]:80": {METADATA}'),
        ("[fd00:ec2::254]:80", f'"[fd00:ec2::254]:80": {METADATA}'),
        ("Metadata.Google.Internal.:80", f'"Metadata.Google.Internal.:80": {METADATA}'),
    ],
)  # fmt: skip
def test_targets_that_are_refused(target: Any, why: str) -> None:
    assert fault([{"targets": [target]}]) == f"[0].targets[0]: {why}"
    servers, faults = told([{"targets": [target, "10.0.0.1:8000"]}])
    assert [server.url for server in servers] == ["http://10.0.0.1:8000/metrics"]
    assert len(faults) == 1


def test_other_link_local_addresses_are_servers_like_any() -> None:
    assert one({}, target="169.254.7.7:8000").url == "http://169.254.7.7:8000/metrics"
    assert one({}, target="[fe80::1%eth0]:8000").url == "http://[fe80::1%eth0]:8000/metrics"


@pytest.mark.parametrize(
    ("group", "why"),
    [
        (None, "[0]: expected a map with targets and labels, got null"),
        ("h:1", '[0]: expected a map with targets and labels, got "h:1"'),
        ({"targets": "h:1"}, '[0].targets: expected a list of HOST:PORT, got "h:1"'),
        ({"target": ["h:1"]}, '[0].target: unknown key; did you mean "targets"?'),
        ({"targets": ["h:1"], "labels": ["a"]}, "[0].labels: expected a map of labels to text, got a list"),
        ({"targets": ["h:1"], "labels": {"__scheme__": "ftp"}}, '[0].labels.__scheme__: expected http or https, got "ftp"'),
        ({"targets": ["h:1"], "labels": {"__metrics_path__": 1}}, "[0].labels.__metrics_path__: expected text, got 1; put it in quotes"),
        ({"targets": ["h:1"], "labels": {"__param_x": "a\nb"}}, "[0].labels.__param_x: expected printable text of 1 to 2000 characters"),
    ],
)  # fmt: skip
def test_a_group_that_is_not_well_costs_only_itself(group: Any, why: str) -> None:
    assert fault([group]) == why
    servers, _ = told([group, {"targets": ["10.0.0.1:8000"]}])
    assert [server.url for server in servers] == ["http://10.0.0.1:8000/metrics"]


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ({"port": 8000}, "labels.port: expected text, got 8000; put it in quotes"),
        ({"a-b": "x"}, 'labels["a-b"]: expected a label name of letters, digits and _ (not first a digit)'),
        ({"long": "x" * 201}, "labels.long: expected printable text of 1 to 200 characters"),
        ({"two": "a\nb"}, "labels.two: expected printable text of 1 to 200 characters"),
        ({"half": "\ud800"}, "labels.half: expected printable text of 1 to 200 characters"),
        ({"blank": "  "}, "labels.blank: expected printable text of 1 to 200 characters"),
    ],
)  # fmt: skip
def test_a_label_that_is_not_well_costs_only_itself(labels: dict[str, Any], why: str) -> None:
    servers, faults = told([{"targets": ["h:1"], "labels": {**labels, "pod": "a"}}])
    assert [server.labels for server in servers] == [{"pod": "a"}]
    assert faults == (f"a.json: [0].{why}",)


def test_labels_are_bounded() -> None:
    labels = {f"l{number}": "x" for number in range(51)}
    servers, faults = told([{"targets": ["h:1"], "labels": labels}])
    assert list(servers[0].labels) == [f"l{number}" for number in range(50)]
    assert faults == ("a.json: [0].labels: 51 labels, expected 50 at most",)


def test_an_address_that_stands_twice() -> None:
    servers, faults = told(
        [
            {"targets": ["h:80", "h:80", "h", "H:80"], "labels": {"pod": "a"}},
            {"targets": ["h:80"], "labels": {"pod": "b"}},
            {"targets": ["h:80"], "labels": {"__metrics_path__": "/other"}},
        ]
    )
    assert [(server.url, server.labels) for server in servers] == [
        ("http://h:80/metrics", {"pod": "a"}),
        ("http://h:80/other", {}),
    ]
    # The same in all is no more than said twice; another spelling or other labels are told.
    assert faults == (
        'a.json: [0].targets[2]: "h" stands in the list before; the first counts',
        'a.json: [0].targets[3]: "H:80" stands in the list before; the first counts',
        'a.json: [1].targets[0]: "h:80" stands in the list before; the first counts',
    )


def test_many_faults_are_counted() -> None:
    servers, faults = told([{"targets": [""] * 25 + ["h:1"]}])
    assert len(servers) == 1
    assert len(faults) == 21
    assert faults[20] == "a.json: 5 more faults"


@pytest.mark.parametrize("groups", [None, {}, "text", 3, {"targets": ["h:1"]}, True])
def test_what_is_no_list(groups: Any) -> None:
    why = unusable(groups)
    assert why is not None
    assert why.startswith('expected a list such as [{"targets": ["10.0.0.1:8000"]}], got ')
    assert told(groups) == ((), (f"a.json: {why}",))


def test_a_list_that_is_too_long_is_refused_as_a_whole() -> None:
    groups = [{"targets": ["h:1"] * 12_000}, {"targets": ["h:1"] * 8_000}]
    assert unusable(groups) is None
    groups.append({"targets": ["h:1"]})
    assert fault(groups) == "20001 targets, expected 20000 at most; part the list"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4)
    ),
    max_leaves=20,
)
_HOST = st.sampled_from(
    [
        "h",
        "10.0.0.1",
        "[::1]",
        "[fe80::1%eth0]",
        "b\xfccher.example",
        "UPPER",
        "-",
        "a..b",
        "[",
        "1",
        "\u2488com",
    ]
) | st.text(max_size=12)
_TARGET = st.builds(
    "{}{}".format, _HOST, st.sampled_from(["", ":", ":80", ":8000", ":99999", ":x"])
)
_NAME = st.sampled_from(
    ["pod", "gpu", "exported_gpu", "__scheme__", "__metrics_path__", "__param_a", "__floorwatch_gpu__",
     "__meta_x", "__address__", "9", "\xe9"]
) | st.text(max_size=8)  # fmt: skip
_VALUE = st.sampled_from(["http", "https", "/m", "?#@%", "//x", "/../x", "a/b"]) | st.text(
    max_size=20
)
_LIST = st.lists(
    st.fixed_dictionaries(
        {"targets": st.lists(_TARGET, max_size=4)},
        optional={"labels": st.dictionaries(_NAME, _VALUE | _JSON, max_size=5)},
    )
    | _JSON,
    max_size=4,
)
_CONFIGS = st.sampled_from(
    [
        PLAIN,
        config(
            name_label="pod",
            labels={"team": "a"},
            label_names={"x": "__meta_x", "y": "__address__"},
        ),
        config(name_label="__address__", label_names={"pod": "__metrics_path__"}),
    ]
)


@settings(max_examples=200)
@given(_LIST | _JSON, _CONFIGS)
def test_no_list_raises_or_yields_what_is_no_server(groups: Any, of: FromLists) -> None:
    servers, faults = servers_of(groups, of, "a.json", {"__meta_filepath": "/a.json"})
    for line in faults:
        assert line.isprintable()
        assert len(line) < 600
    identities = set()
    for server in servers:
        assert readable_url(server.url) is not None, server.url
        address = addresses.parse(server.url, default_path="/")
        assert (address.unix_socket, address.username) == (None, None)
        identities.add(address.identity)
        assert not OWN_LABELS.intersection(server.labels)
        entry = {"url": server.url, "labels": dict(server.labels)}
        TargetConfig.model_validate(
            entry if server.name is None else {**entry, "name": server.name}
        )
    names = [server.name for server in servers if server.name is not None]
    assert len(set(names)) == len(names)
