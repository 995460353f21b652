"""The pure parts of a validation: what is asked, what is stubbed, what is added to a tree."""

import struct
from collections.abc import Sequence
from typing import Literal

import pytest

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.tree import ConfTree, read_tree
from nginx_tune.documents.loadplan import Http2, Http3, ProxyProtocol, Target, Tls
from nginx_tune.documents.scenario import MultiplexedVersion
from nginx_tune.errors import UsageError
from nginx_tune.experiment.target import (
    EntryPoint,
    file_places,
    plan_entry,
    spoken_at,
    target_of,
    why_unreachable,
)
from nginx_tune.experiment.validate.site_load import default_load, over_protocols, replay_load
from nginx_tune.experiment.validate.site_requests import (
    CommonRequests,
    SiteRequests,
    common_requests,
    plan_requests,
)
from nginx_tune.experiment.validate.successors import find_successors
from nginx_tune.experiment.validate.workbench_notes import plan_outgoing, unspoken
from nginx_tune.experiment.view import with_worker_header
from nginx_tune.nginx.lab.stub_server import RESOLVED, resolve


class Files:
    """A reader of texts."""

    def __init__(self, texts: dict[str, str]) -> None:
        self._texts = texts

    def read_bytes(self, path: str) -> bytes:
        return self._texts[path].encode()

    def list_dir(self, path: str) -> list[str]:
        return [name.rpartition("/")[2] for name in self._texts if name.startswith(f"{path}/")]


def tree_of(http: str, *, main: str = "", name: str = "/nginx.conf", **more: str) -> ConfTree:
    texts = {f"/{file}.conf": text for file, text in more.items()}
    texts[name] = f"{main} events {{}} http {{ {http} }}"
    return read_tree(name, Files(texts))


def entry_of(tree: ConfTree, protocols: Sequence[MultiplexedVersion] = ()) -> EntryPoint:
    """At the first place, as if every directory had files."""
    first = next(iter(file_places(tree, protocols=protocols)), None)
    return plan_entry(tree, first, default_error_log=None, protocols=protocols)


def requests_of(http: str) -> SiteRequests:
    tree = tree_of(http)
    return plan_requests(tree, entry_of(tree))


def test_every_other_place_is_asked_by_a_url_of_its_own() -> None:
    requests = requests_of(
        "server { listen 80; server_name a; root /srv/a; location /img/ { expires 1d; }"
        " location = /ping { return 200; } location ~ \\.php$ { fastcgi_pass 127.0.0.1:9000; }"
        " location @named { proxy_pass http://b; } location /in { internal; }"
        " location /api/ { proxy_pass http://b; } location ~ ^/v[0-9]+/ { proxy_pass http://b; }"
        " location ~ ^/(?=x)y { proxy_pass http://b; }"
        " location /more { alias /srv/more/; } location /status { stub_status; } }"
        "server { listen 8080; server_name b.example; location / { root /srv/b; } }"
        "server { listen 80; server_name c; return 301 https://c$uri; location /x { root /x; } }"
    )
    assert [(one.name, one.url, one.root) for one in requests.requests] == [
        ("a-php", "/index.php", None),
        ("a-api", "/api/", None),
        ("a-v-0-9", "/v0/", None),
        ("a-more", "/more", "/srv/more"),
        ("b-example", "/", "/srv/b"),
        ("c", "/", None),
    ]
    assert requests.requests[4].target == at("127.0.0.1", 8080, "b.example")
    assert requests.left_out == {"a ~ ^/(?=x)y": "no URL is known that its pattern matches"}


def test_names_of_classes_are_their_own() -> None:
    requests = requests_of(
        "server { listen 80; location = /hot { return 301 /; } location = /a-b { return 302 /; }"
        " location = /a_b { return 302 /; } }"
    )
    assert [one.name for one in requests.requests] == ["hot-2", "a-b", "a-b-2"]


def test_long_names_of_a_host_s_classes_lose_their_middle() -> None:
    """At their ends they differ, and a narrow terminal shows those."""
    places = "".join(
        f" location /catalogue/v1/{one}/ {{ return 302 /; }}" for one in ("a", "b", "c")
    )
    host = "shop.customers.europe.example.com"
    names = [
        one.name
        for one in requests_of(f"server {{ listen 80; server_name {host};{places} }}").requests
    ]
    assert [name[-2:] for name in names] == ["-a", "-b", "-c"]
    assert all(name.startswith("shop-customers") and len(name) <= 40 for name in names)


def common_of(baseline: str, candidate: str) -> CommonRequests:
    trees = [tree_of(http) for http in (baseline, candidate)]
    own = [plan_requests(tree, entry_of(tree)) for tree in trees]
    return common_requests(own[0], own[1], find_successors(trees[0], trees[1]))


def test_what_the_baseline_alone_has_is_asked_as_its_clients_ask() -> None:
    both = "server { listen 80; location = /a { return 301 /; } %s }"
    pairs, alone, left = common_of(
        both % "location = /b { return 301 /; }", both % "location = /c { return 301 /; }"
    )
    assert [one.location for one, _ in pairs] == ["= /a", "= /b"]
    assert pairs[1][0] == pairs[1][1]
    assert left == {"= /c": "only the candidate has it"}
    # A client of the baseline that asks for it gets what another place answers.
    assert [(one.url, other.url) for one, other in alone] == [("/c", "/c")]


def test_servers_of_one_name_are_asked_each_by_its_own() -> None:
    """A redirect on port 80 and the site beside it, as nearly every site has them."""
    http = (
        "server { listen 8080; server_name a; return 301 http://a:8081/; }"
        " server { listen 8081; server_name a; location / { proxy_pass http://b; } }"
        " server { listen 8082; server_name a; return 301 http://a:8081/; }"
    )
    pairs, _, left = common_of(http, http)
    assert [(one.target.port, other.target.port) for one, other in pairs] == [
        (8080, 8080), (8081, 8081), (8082, 8082),
    ]  # fmt: skip
    assert left == {}


def test_a_place_among_the_files_of_the_first_root_is_no_news_of_the_candidate() -> None:
    http = "server { listen 80; server_name a; root /srv; location /d/ { %s } }"
    pairs, alone, left = common_of(http % "", http % "return 503;")
    assert pairs == []
    assert [one.location for one, _ in alone] == ["/d/"]
    assert left == {"a /d/": "in the baseline, its files belong to the first root"}
    _, alone, left = common_of(
        "server { listen 80; server_name a; root /srv; }", http % "deny all;"
    )
    assert left == {"a /d/": "only the candidate has it"}


def at(
    address: str,
    port: int,
    host: str,
    *,
    tls: bool = False,
    proxied: bool = False,
    unix: str | None = None,
) -> Target:
    spoken = ProxyProtocol(version=1, source=None if unix is None else "127.0.0.1")
    return Target(
        address=address,
        port=port,
        host=host,
        unix=unix,
        tls=Tls(verify=False) if tls else None,
        proxy_protocol=spoken if proxied else None,
    )


def first_server(tree: ConfTree, number: int = 0) -> Directive:
    block = tree.main.all("http")[0].block
    assert block is not None
    return block.all("server")[number]


def test_a_server_is_asked_where_it_speaks_http_1_1() -> None:
    table = [
        ("", at("127.0.0.1", 80, "localhost")),
        ("listen 443 ssl http2; server_name *.a.example;",
         at("127.0.0.1", 443, "www.a.example", tls=True)),
        ("listen 443 ssl; listen 81; server_name .b;", at("127.0.0.1", 81, "b")),
        ("listen [::]:81;", at("::1", 81, "localhost")),
        ("listen 80 http2;", None),
        ("listen 80 proxy_protocol;", at("127.0.0.1", 80, "localhost", proxied=True)),
        ("listen 80 proxy_protocol; listen 81;", at("127.0.0.1", 81, "localhost")),
        ("listen 443 ssl; listen 80 proxy_protocol;",
         at("127.0.0.1", 80, "localhost", proxied=True)),
        ("listen 443 ssl proxy_protocol;",
         at("127.0.0.1", 443, "localhost", tls=True, proxied=True)),
        ("listen unix:/run/X;", at("", 0, "localhost", unix="/run/X")),
        ("listen UNIX:/run/X ssl proxy_protocol; server_name a;",
         at("", 0, "a", tls=True, proxied=True, unix="/run/X")),
        ("listen unix:/run/x; listen 443 ssl;", at("127.0.0.1", 443, "localhost", tls=True)),
        ("listen unix:/run/x http2;", None),
        ("listen unix:x;", None),
    ]  # fmt: skip
    wrong = []
    for server, target in table:
        tree = tree_of(f"server {{ {server} }}")
        if (found := target_of(tree, first_server(tree))) != target:
            wrong.append((server, found))
    assert wrong == []


OTHER = "server { listen 80 default_server; server_name _; return 444; }"


def test_a_server_is_asked_by_a_host_that_comes_to_it() -> None:
    table = [
        (r"server_name ~^[abc]\.x\.test$;", OTHER, ("127.0.0.1", "a.x.test")),
        (r"server_name ~^(?<who>\w+)\.x$;", OTHER, ("127.0.0.1", "any.x")),
        ("server_name mail.*;", OTHER, ("127.0.0.1", "mail.com")),
        (r"server_name ~^b$ a;", OTHER, ("127.0.0.1", "a")),
        # Another server has the pattern's first host.
        ("server_name *.x;", OTHER + "server { listen 80; server_name www.x; }",
         ("127.0.0.1", "any-other.x")),
        # No host is known, or none can be said.
        ("server_name ~^(?=x)y$;", OTHER, None),
        ("server_name $hostname;", OTHER, None),
        ("", OTHER, None),
        ("server_name ~^(?=x)y$;", "", ("127.0.0.1", "localhost")),
        ("server_name a;", "server { listen 80; server_name a; }", None),
        # Whom 127.0.0.1 belongs to, not everybody comes to.
        ("server_name a;", "server { listen 127.0.0.1:80; server_name s; }", ("127.0.0.2", "a")),
    ]  # fmt: skip
    for server, around, asked in table:
        text = f"{around} server {{ listen 80; {server} }}"
        tree = tree_of(text)
        own = first_server(tree, -1)
        target = target_of(tree, own)
        assert (None if target is None else (target.address, target.host)) == asked, text
        if asked is None:
            assert "another server would answer" in why_unreachable(tree, own), text
        secure = tree_of(text.replace("80", "443 ssl http2"))
        spoken = spoken_at(secure, first_server(secure, -1)).http2
        assert (None if spoken is None else (spoken.address, spoken.host)) == asked, text


def test_what_answers_without_a_file_answers_who_asks() -> None:
    urls = {
        "location = /e { return 200 ok; }": "/e",
        "location = /e { return 404; } location = /f { return 204; }": "/f",
        "location = /e { internal; return 204; } location = /f { return 200; }": "/f",
        "location /i/ { internal; location /i/e { return 204; } }": None,
        "location = /e { if ($arg_k = '') { return 403; } return 200; }": "/e",
        "location = /e { deny all; return 200; } location = /f { return 200; }": "/f",
        "return 301 /; location = /e { return 200 ok; }": None,
    }
    found = {
        server: entry_of(tree_of(f"server {{ listen 80; {server} }}")).memory_url for server in urls
    }
    assert found == urls


def test_where_a_server_speaks_more_than_http_1_1() -> None:
    table = [
        ("listen 443 ssl;", None, None),
        ("listen 443 ssl http2;", 443, None),
        ("listen 443 ssl; http2 on;", 443, None),
        ("listen 443 ssl; http2 off;", None, None),
        ("listen 80 http2;", None, None),  # browsers do not, and neither is it asked
        ("listen 80; http2 on;", None, None),
        ("listen 443 ssl; listen 443 quic reuseport;", None, 443),
        ("listen 443 ssl; listen 8443 quic; http2 on;", 443, 8443),
        ("listen 443 ssl; listen 444 ssl http2;", 444, None),
    ]
    for server, *ports in table:
        tree = tree_of(f"server {{ {server} }}")
        wanted = [
            None if port is None else at("127.0.0.1", port, "localhost", tls=True) for port in ports
        ]
        assert list(spoken_at(tree, first_server(tree))) == wanted, server


def test_a_server_that_speaks_what_is_wanted_is_asked_before_one_in_cleartext() -> None:
    tree = tree_of(
        "server { listen 80; root /srv; } server { listen 443 ssl; root /srv; }"
        "server { listen 444 ssl; listen 444 quic; http2 on; root /srv; }"
    )

    def port(*protocols: Literal["2", "3"]) -> int:
        return entry_of(tree, protocols).target.port

    assert [port(), port("2"), port("3"), port("2", "3")] == [80, 444, 444, 444]


def test_over_two_protocols_each_class_is_two_and_a_rate_is_shared() -> None:
    load = over_protocols(default_load(), ["2", "3"])
    assert [item.name for item in load.classes] == [
        f"{name}-http{protocol}" for name in ("cold", "hot", "memory") for protocol in (2, 3)
    ]
    assert load.primary_metric == "hot-http2.requests_per_second"
    memory = load.classes[-1]
    assert (memory.http2, memory.http3) == (None, Http3())
    assert memory.arrivals.rate_per_second == 100.0
    assert memory.connection_use == "latest"
    one = over_protocols(default_load(), ["3"])
    assert [item.name for item in one.classes] == ["cold", "hot", "memory"]
    assert one.primary_metric == "hot.requests_per_second"
    assert over_protocols(default_load(), []) == default_load()


def test_recorded_requests_go_over_one_protocol() -> None:
    recorded = replay_load("/m", speed=1.0)
    assert over_protocols(recorded, ["2"]).classes[0].http2 == Http2()
    with pytest.raises(UsageError, match="over one protocol"):
        over_protocols(recorded, ["2", "3"])


def test_who_is_asked_is_known_with_protocol_and_port() -> None:
    tree = tree_of(
        "resolver 10.0.0.53 [2001:db8::53]:5353 valid=10s;"
        "access_log syslog:server=logs.internal,facility=local7;"
        "error_log syslog:tag=a,server=unix:/dev/log,nohostname;"
        "upstream app { server app1:9000; server unix:/run/app.sock; server 127.0.0.1:8080; }"
        "server { listen 8080; location / { proxy_pass http://app/x; }"
        " location /s { proxy_pass https://s.internal/; }"
        " location /own { proxy_pass http://localhost:8080; }"
        " location /l { fastcgi_pass localhost:9001; }"
        " location /g { grpc_pass grpcs://g:50051; }"
        " location /v { proxy_pass https://$host; } location /m { memcached_pass m:11211; }"
        " location /us { proxy_pass http://unix:/run/Own.sock; } }"
        "server { listen unix:/run/Own.sock; }"
    )
    found = {(one.protocol, one.name, one.address, one.port or one.path)
             for one in plan_outgoing(tree)}  # fmt: skip
    assert found == {
        ("dns", "dns 10.0.0.53:53", "", 53),
        ("dns", "dns [2001:db8::53]:5353", "", 5353),
        ("syslog", "syslog logs.internal:514", "", 514),
        ("syslog", "syslog unix:/dev/log", "", "/dev/log"),
        ("http", "app1:9000", "", 9000),
        ("http", "unix:/run/app.sock", "", "/run/app.sock"),
        ("https", "s.internal:443", "", 443),
        ("fastcgi", "localhost:9001", "127.0.0.1", 9001),
        ("fastcgi", "localhost:9001", "::1", 9001),
        ("grpcs", "g:50051", "", 50051),
        ("https", "https://$host", "", 443),
    }
    assert unspoken(tree) == ["memcached_pass m:11211"]


def test_the_worker_s_number_changes_no_inheritance() -> None:
    line = "add_header X-Probe-Worker $pid always;"
    tree = tree_of(
        "include /more.conf; server { location /a { add_header A 1; add_header B 2; } }",
        more="server { add_header C 3; location / { if ($x) { add_header D 4; } } }",
    )
    [headed] = with_worker_header([tree])
    files = {name: data.decode() for name, data in headed.items()}
    assert files == {
        "/nginx.conf": f" events {{}} http {{ {line} include /more.conf; server {{ location /a {{"
        f" add_header A 1; {line} add_header B 2; }} }} }}",
        "/more.conf": f"server {{ add_header C 3; {line} location / {{ if ($x) {{"
        f" add_header D 4; {line} }} }} }}",
    }


def test_the_worker_s_number_is_left_out_where_it_would_make_a_difference() -> None:
    shared = {"more": "add_header A 1;"}
    one = tree_of("server { include /more.conf; }", name="/a.conf", **shared)
    other = tree_of("server { add_header B 1; include /more.conf; }", name="/b.conf", **shared)
    assert [sorted(files) for files in with_worker_header([one, other])] == [
        ["/a.conf", "/more.conf"],
        ["/b.conf"],
    ]
    merging = tree_of("add_header_inherit merge; server { add_header B 1; }")
    assert with_worker_header([one, merging]) == [{}, {}]


def test_every_name_resolves_to_one_address() -> None:
    head = b"\x12\x34\x01\x00\0\x01\0\0\0\0\0\0"
    name = b"\x03app\x08internal\0"
    answer = resolve(head + name + b"\0\x01\0\x01")
    assert answer[:2] == b"\x12\x34"
    assert struct.unpack("!H", answer[6:8]) == (1,)
    assert ".".join(map(str, answer[-4:])) == RESOLVED
    assert struct.unpack("!H", resolve(head + name + b"\0\x1c\0\x01")[6:8]) == (0,)
    for broken in (b"", head, head + name, b"\xff" * 40):
        assert resolve(broken) == b""
