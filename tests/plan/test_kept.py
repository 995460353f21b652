"""Connections are kept to upstreams that are always asked as the same client, and to no others."""

import msgspec
from made_decisions import decide
from rows import each_row
from situations import host, load, nginx

from nginx_tune.change.plan.changing import as_changes
from nginx_tune.change.plan.solver import site_in
from nginx_tune.conf.tree import parse_text
from nginx_tune.decide.defaults import complete_site
from nginx_tune.documents.base import Provenance
from nginx_tune.documents.decisions import Decision, Setting
from nginx_tune.documents.site import Site

KEPT = ("keepalive", "proxy_http_version", "proxy_set_header")
GROUP = "upstream app { server 10.0.0.1:80; server 10.0.0.2:80; %s}"


def conf(locations: str, group: str = "", more: str = "") -> str:
    return (
        f"events {{}}\nhttp {{\n{more}\n{GROUP % group}\n"
        f"server {{ listen 80; server_name a.test b.test;\n{locations}\n}} }}\n"
    )


def kept(
    text: str, provenance: Provenance = "declared", version: str = "1.26.3", *, rate: float = 400
) -> Decision:
    """What ``plan`` decides about connections to upstreams."""
    tree = parse_text(text, file="/n.conf")
    facts = host(nginx=nginx(version, ["--with-threads", "--with-http_ssl_module"]))
    ports = {**facts.kernel.sysctls, "net.ipv4.ip_local_port_range": "32768 60999"}
    kernel = msgspec.structs.replace(facts.kernel, sysctls=ports)
    facts = msgspec.structs.replace(facts, kernel=kernel)
    workload = load(rate=rate)
    concurrency = msgspec.structs.replace(workload.concurrency, peak=60.0, provenance=provenance)
    workload = msgspec.structs.replace(workload, kind="proxy", concurrency=concurrency)
    own = complete_site(site_in(tree, Site(roots=[])), facts, "proxy")
    decisions = as_changes(decide(facts, workload, site=own), tree).decisions
    return next(one for one in decisions if one.id == "upstream-keepalive")


def lines(decision: Decision) -> list[Setting]:
    return [one for one in decision.settings if one.directive in KEPT]


def said(decision: Decision) -> str:
    return " ".join([decision.summary, *decision.risks])


PLAIN = "location / { proxy_pass http://app; }"
MAPPED = "map $http_x_user $who { default /c/a.pem; b /c/b.pem; }"


def test_an_upstream_asked_as_one_client_keeps_connections() -> None:
    assert {one.directive for one in lines(kept(conf(PLAIN)))} == {*KEPT}


@each_row(
    ("locations", "line"),
    [
        (
            "location / { proxy_bind $remote_addr transparent; proxy_pass http://app; }",
            "/n.conf:6 proxy_bind $remote_addr transparent",
        ),
        (
            "proxy_bind $remote_addr;\nlocation / { proxy_pass http://app; }",
            "/n.conf:6 proxy_bind $remote_addr",
        ),
        ("location / { grpc_bind $remote_addr; grpc_pass grpc://app; }", "grpc_bind $remote_addr"),
        (
            (
                "location / { proxy_ssl_certificate /c/$arg_u.pem; proxy_ssl_certificate_key /c/k;"
                " proxy_pass https://app; }"
            ),
            "proxy_ssl_certificate /c/$arg_u.pem",
        ),
        (
            "location / { proxy_ssl_certificate $who; proxy_pass https://app; }",
            "proxy_ssl_certificate $who",
        ),
        (
            (
                "location / { proxy_ssl_certificate /c/a; proxy_ssl_certificate_key data:$ssl_user;"
                " proxy_pass https://app; }"
            ),
            "proxy_ssl_certificate_key",
        ),
        (
            (
                "location / { proxy_ssl_server_name on; proxy_ssl_name $host;"
                " proxy_pass https://app; }"
            ),
            "proxy_ssl_name $host",
        ),
        (
            "location / { proxy_ssl_verify on; proxy_ssl_name $host; proxy_pass https://app; }",
            "proxy_ssl_name $host",
        ),
        (
            "location / { proxy_ssl_certificate /c/$arg_u.pem; proxy_pass $scheme://app; }",
            "proxy_ssl_certificate /c/$arg_u.pem",
        ),
        # A second place, of the whole group's connections one kind; a group by an unknown name.
        (
            f"{PLAIN} location /b {{ proxy_bind $remote_addr; proxy_pass http://app; }}",
            "proxy_bind $remote_addr",
        ),
        (
            f"{PLAIN} location /b {{ proxy_bind $remote_addr; proxy_pass http://$arg_to; }}",
            "proxy_bind $remote_addr",
        ),
        (
            (
                f"{PLAIN} location /b {{ limit_except GET {{ proxy_pass http://app; }}"
                " proxy_bind $remote_addr; }"
            ),
            "proxy_bind $remote_addr",
        ),
        (
            (
                "location /a { proxy_ssl_certificate /c/a.pem; proxy_pass https://app; }"
                " location /b { proxy_ssl_certificate /c/b.pem; proxy_pass https://app; }"
            ),
            "proxy_ssl_certificate /c/a.pem",
        ),
        (
            (
                "location /a { proxy_ssl_certificate /c/a.pem; proxy_pass https://app; }"
                " location /b { proxy_pass https://app; }"
            ),
            "proxy_ssl_certificate /c/a.pem",
        ),
    ],
)
def test_an_upstream_asked_as_one_client_or_another_keeps_none(locations: str, line: str) -> None:
    """A kept connection would make a request as the client that it was opened for."""
    decision = kept(conf(locations, more=MAPPED))
    assert lines(decision) == []
    assert line in said(decision)
    assert "different clients" in said(decision)
    [zone] = [one for one in decision.settings if one.directive == "zone"]
    assert line in zone.reason, "the plan's diff says it beside the upstream"


@each_row(
    "locations",
    [
        "location / { proxy_bind 10.0.0.9; proxy_pass http://app; }",
        "location / { proxy_bind off; proxy_pass http://app; }",
        "set $me 10.0.0.9; location / { proxy_bind $me; proxy_pass http://app; }",
        "location / { proxy_ssl_name $host; proxy_pass https://app; }",
        "location / { proxy_ssl_server_name on; proxy_pass https://app; }",
        (
            "location / { proxy_ssl_server_name on; proxy_ssl_name $proxy_host; proxy_pass https://app;"
            " } location /b { proxy_ssl_server_name on; proxy_pass https://app; }"
        ),
        (
            "location / { proxy_ssl_server_name on; proxy_ssl_name $server_name;"
            " proxy_pass https://app; }"
        ),
        "location / { proxy_ssl_certificate /c/$arg_u.pem; proxy_pass http://app; }",
        f"{PLAIN} location /b {{ proxy_bind $remote_addr; proxy_pass http://10.0.0.9$request_uri; }}",  # noqa: E501
        f"{PLAIN} location /b {{ proxy_bind $remote_addr; proxy_pass http://10.0.0.9:$arg_p; }}",
    ],
)
def test_what_is_always_the_same_or_does_nothing_keeps_them(locations: str) -> None:
    assert {one.directive for one in lines(kept(conf(locations)))} == {*KEPT}


def test_the_other_upstreams_of_a_site_keep_theirs() -> None:
    more = "upstream own { server 10.0.0.5:80; }"
    locations = f"{PLAIN} location /b {{ proxy_bind $remote_addr; proxy_pass http://own; }}"
    decision = kept(conf(locations, more=more))
    places = [place.text for one in lines(decision) for place in one.places]
    assert places == ["upstream app", "location /", "location /"]
    assert any('upstream "own"' in risk for risk in decision.risks)


@each_row("kind", ["fastcgi", "scgi", "uwsgi", "memcached"])
@each_row("group", ["", "keepalive 2; "])
def test_servers_with_a_process_for_each_connection_are_left_alone(kind: str, group: str) -> None:
    """An idle connection holds one of their processes, and nobody knows how many there are."""
    location = f"location / {{ fastcgi_keep_conn on; {kind}_pass app; }}"
    decision = kept(conf(location, group), "measured")
    assert lines(decision) == []
    assert f"{kind}_pass app: an idle connection may occupy one" in said(decision)
    assert ("keepalive 2 stays" in said(decision)) is bool(group)


def test_an_upstream_for_both_kinds_is_left_alone_too() -> None:
    decision = kept(conf(f"{PLAIN} location /php {{ fastcgi_pass app; }}"), "measured")
    assert lines(decision) == []


@each_row("server", ["unix:/run/a", "127.0.0.1:80", "localhost:80", "[::1]:80"])
def test_a_server_of_this_host_keeps_none_unless_it_did(server: str) -> None:
    """A connection there costs no round trip, as up-keepalive-missing has it."""
    text = conf(PLAIN, "%s").replace("server 10.0.0.1:80; server 10.0.0.2:80;", f"server {server};")
    bare = kept(text % "", "measured")
    assert lines(bare) == []
    # A new one for each request, of which the port stays taken for a minute: 25,406 of 28,232.
    crowded = lines(kept(text % "", "measured", rate=424))
    assert bool(crowded) is not server.startswith("unix:")
    assert "within this host costs little" in said(bare)
    assert {one.directive for one in lines(kept(text % "keepalive 2; "))} > {*KEPT} - {"keepalive"}
    assert {one.directive for one in lines(kept(conf(PLAIN), "measured"))} == {*KEPT}


@each_row("provenance", ["assumed", "learnt", "measured", "declared"])
def test_a_number_is_changed_for_requests_that_are_known(provenance: Provenance) -> None:
    decision = kept(conf(PLAIN, "keepalive 2; "), provenance)
    changed = [one for one in lines(decision) if one.directive == "keepalive"]
    assert bool(changed) is (provenance != "assumed")


@each_row(
    "more",
    [
        "location /b { proxy_pass http://10.0.0.7:80; }",
        "location /b { fastcgi_pass 127.0.0.1:9000; }",
        "location /b { proxy_pass http://$arg_any; }",
    ],
)
def test_a_number_stays_where_requests_go_to_others_too(more: str) -> None:
    """Those under way are counted together, and idle connections of 60 s may hold few threads."""
    decision = kept(conf(f"{PLAIN} {more}", "keepalive 2; "), "measured")
    assert [one for one in lines(decision) if one.directive == "keepalive"] == []
    assert "keepalive 2 stays: the peak of that upstream alone" in said(decision)
    alone = kept(conf(f"{PLAIN} location /b {{ proxy_pass http://app; }}", "keepalive 2; "))
    assert [one.directive for one in lines(alone)][:1] == ["keepalive"]
    assert "keepalive 2 stays" not in said(alone)
    larger = kept(conf(f"{PLAIN} {more}", "keepalive 200; "), "measured")
    assert "how many of the requests" not in said(larger)


@each_row("version", ["1.26.3", "1.30.0"])
def test_keepalive_0_stays(version: str) -> None:
    decision = kept(conf(PLAIN, "keepalive 0; "), "measured", version)
    assert lines(decision) == []
    assert "keepalive 0 turns it off" in said(decision)


@each_row(
    ("to", "is_kept"),
    [
        ("http://app", True),
        ("http://app$request_uri", True),
        ("http://$known", True),
        ("http://$address", False),
        ("http://$arg_any", False),
        ("http://10.0.0.9:80$request_uri", False),
    ],
)
def test_only_places_that_are_known_to_ask_an_upstream_get_the_lines(
    to: str, *, is_kept: bool
) -> None:
    more = "map $uri $known { default app; /b 10.0.0.9; } map $uri $address { default 10.0.0.9; }"
    locations = f"location /a {{ proxy_pass http://app; }}\nlocation /b {{ proxy_pass {to}; }}"
    found = lines(kept(conf(locations, more=more)))
    [version] = [one for one in found if one.directive == "proxy_http_version"]
    assert [one.text for one in version.places] == [
        "location /a",
        *(["location /b"] if is_kept else []),
    ]


def of(text: str, directive: str) -> list[str]:
    return [one.block for one in kept(text).settings if one.directive == directive]


TWO = "upstream app { %s server 10.0.0.1:80%s; server 10.0.0.2:80; }"
SERVER = "server { listen 80; location / { %s proxy_pass http://app; } }"


def whole(group: tuple[str, str], main: str = "", location: str = "") -> str:
    return f"{main} events {{}} http {{\n{TWO % group}\n{SERVER % location} }}"


@each_row("main", ["worker_processes auto;", "worker_processes 4;"])
def test_a_bound_that_each_worker_counts_is_not_made_one_of_all(main: str) -> None:
    d = kept(whole(("", " max_conns=50"), main))
    assert d.settings == []
    assert "counts per worker" in said(d)
    assert "and idle ones count" in said(d)


def test_a_bound_that_one_worker_counts_stays_the_same_with_more() -> None:
    assert of(whole(("", " max_conns=50")), "zone") == ["app"]
    assert of(whole(("", " max_conns=50")), "keepalive") == []
    assert of(whole(("", " max_conns=0"), "worker_processes 4;"), "keepalive") == [""]


@each_row(
    "line",
    ["check interval=3000 type=http;", "sticky;", "fair;", "balancer_by_lua_file /b.lua;", "ntlm;"],
)
def test_a_group_with_a_method_of_others_is_left_as_it_is(line: str) -> None:
    d = kept(whole((line, "")))
    assert d.settings == []
    assert line.rstrip(";") in said(d)


def test_one_address_has_nothing_to_share() -> None:
    one = GROUP.replace(" server 10.0.0.2:80;", "")
    text = f"events {{}} http {{\n{one % ''}\n{SERVER % ''} }}"
    assert of(text, "zone") == []
    assert of(text, "keepalive") == [""]
    assert of(text.replace("10.0.0.1:80", "app.internal"), "zone") == ["app"]


MAP = "map $http_upgrade $up { default upgrade; '' %s; }"
UPGRADES = "proxy_http_version 1.1; proxy_set_header Connection $up;"


@each_row(
    ("location", "more", "is_kept"),
    [
        ("proxy_http_version 1.0;", "", False),
        ("proxy_set_header Connection close;", "", False),
        (UPGRADES, MAP % "close", False),
        (UPGRADES, MAP % "''", True),
        ("proxy_http_version 1.1; proxy_set_header Connection $http_connection;", "", True),
    ],
)
def test_nothing_is_kept_where_no_request_leaves_a_connection(
    location: str, more: str, *, is_kept: bool
) -> None:
    d = kept(conf(f"location / {{ {location} proxy_pass http://app; }}", more=more))
    assert [one.directive for one in lines(d)] == ["keepalive"] * is_kept
    both = conf(f"location /w {{ {location} proxy_pass http://app; }} {PLAIN}", more=more)
    assert "keepalive" in {one.directive for one in lines(kept(both))}
