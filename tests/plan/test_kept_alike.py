"""No connection is kept that another protocol, or a place that verifies nothing, would leave."""

from rows import each_row
from test_kept import KEPT, PLAIN, conf, kept, lines, said

from nginx_tune.documents.decisions import Decision

VERSIONS = ["1.26.3", "1.30.0"]
WRITTEN = {"1.26.3": {*KEPT}, "1.30.0": {"keepalive"}}
VERIFIES = "proxy_ssl_verify on; proxy_ssl_trusted_certificate /c/ca.pem;"


def grpc(text: str) -> str:
    """The same of gRPC."""
    return text.replace("proxy_", "grpc_").replace("https://", "grpcs://")


def two(first: str, second: str, to: str = "https://app") -> str:
    return (
        f"location /a {{ {first} proxy_pass {to}; }}\nlocation /b {{ {second} proxy_pass {to}; }}"
    )


TRUST = [
    ("", VERIFIES, "/n.conf:7 proxy_ssl_verify on"),
    (VERIFIES, VERIFIES.replace("ca", "other"), "proxy_ssl_trusted_certificate /c/ca.pem"),
    (VERIFIES, f"{VERIFIES} proxy_ssl_crl /c/crl.pem;", "proxy_ssl_crl /c/crl.pem"),
    (VERIFIES, f"{VERIFIES} proxy_ssl_verify_depth 3;", "proxy_ssl_verify_depth 3"),
    ("", "proxy_ssl_protocols TLSv1.3;", "proxy_ssl_protocols TLSv1.3"),
    ("proxy_ssl_ciphers HIGH;", "", "proxy_ssl_ciphers HIGH"),
    ("", "proxy_ssl_conf_command MinProtocol TLSv1.3;", "proxy_ssl_conf_command MinProtocol"),
    ("", "proxy_ssl_server_name on;", "proxy_ssl_server_name on"),
]


@each_row("version", VERSIONS)
@each_row(("first", "second", "line"), TRUST)
@each_row("is_grpc", [False, True])
def test_a_place_that_asks_more_of_tls_gets_no_connection_of_another(
    first: str, second: str, line: str, version: str, *, is_grpc: bool
) -> None:
    locations = two(first, second)
    text, line = (grpc(locations), grpc(line)) if is_grpc else (locations, line)
    decision = kept(conf(text), "measured", version)
    assert lines(decision) == []
    assert line in said(decision)
    assert "verify the server's TLS differently, and all requests share" in said(decision)


ALIKE = [
    (VERIFIES, VERIFIES),
    ("", "proxy_ssl_verify off;"),
    ("", "proxy_ssl_trusted_certificate /c/ca.pem;"),
    ("", "proxy_ssl_ciphers DEFAULT;"),
    (VERIFIES, f"{VERIFIES} proxy_ssl_verify_depth 1;"),
    ("proxy_ssl_protocols TLSv1.2 TLSv1.3;", "proxy_ssl_protocols TLSv1.3 TLSv1.2;"),
]


@each_row("version", VERSIONS)
@each_row(("first", "second"), ALIKE)
def test_places_that_ask_the_same_of_tls_share_theirs(
    first: str, second: str, version: str
) -> None:
    found = lines(kept(conf(two(first, second)), "measured", version))
    assert {one.directive for one in found} == WRITTEN[version]


def test_what_is_said_of_tls_does_nothing_without_it() -> None:
    decision = kept(conf(two("", VERIFIES, "http://app")))
    assert {one.directive for one in lines(decision)} == {*KEPT}


SCHEME = "location / { proxy_pass $scheme://app; }"
BY_MAP = "map $uri $up { default http://app; /s https://app; }"
BY_OTHER = "map $uri $up { default http://app; /s https://other; }"
SECOND = "location /b { %s; }"


@each_row("version", VERSIONS)
@each_row(
    ("locations", "more", "line"),
    [
        (f"{PLAIN} {SECOND % 'proxy_pass https://app'}", "", "proxy_pass https://app"),
        (f"{PLAIN} {SECOND % 'proxy_pass https://app$request_uri'}", "", "proxy_pass https://app$"),
        (f"{PLAIN} {SECOND % 'grpc_pass grpc://app'}", "", "grpc_pass grpc://app"),
        (f"{PLAIN} {SECOND % 'grpc_pass app'}", "", "grpc_pass app"),
        (
            f"{SECOND % 'grpc_pass app'} location /c {{ grpc_pass grpcs://app; }}",
            "",
            "grpc_pass grpcs://app",
        ),
        (
            f"{PLAIN} {SECOND % 'proxy_http_version 2; proxy_pass http://app'}",
            "",
            "proxy_http_version 2",
        ),
        ("location / { proxy_pass $up; }", BY_MAP, "proxy_pass $up"),
        (f"listen 443 ssl; {SCHEME}", "", "proxy_pass $scheme://app"),
        (f"{PLAIN} {SECOND % 'grpc_pass $arg_to'}", "", "grpc_pass $arg_to"),
        (
            f"{PLAIN} location /b {{ limit_except GET {{ proxy_pass https://app; }} }}",
            "",
            "proxy_pass https://app",
        ),
    ],
)
def test_a_group_that_is_spoken_to_in_two_protocols_keeps_nothing(
    locations: str, more: str, line: str, version: str
) -> None:
    decision = kept(conf(locations, more=more), "measured", version)
    assert lines(decision) == []
    assert line in said(decision)
    assert "uses another protocol than other requests" in said(decision)


@each_row("version", VERSIONS)
@each_row(
    ("locations", "more"),
    [
        (SCHEME, ""),
        (f"{PLAIN} {SCHEME.replace('/ {', '/b {')}", ""),
        ("location / { proxy_pass $up; }", f"{BY_OTHER} upstream other {{ server 10.0.0.9; }}"),
        (f"{PLAIN} {SECOND % 'grpc_pass other'}", "upstream other { server 10.0.0.9; }"),
        (f"{PLAIN} {SECOND % 'proxy_pass https://10.0.0.9:443'}", ""),
    ],
)
def test_one_protocol_for_each_group_keeps_connections(
    locations: str, more: str, version: str
) -> None:
    found = lines(kept(conf(locations, more=more), "measured", version))
    assert "keepalive" in {one.directive for one in found}


def versions_at(decision: Decision) -> list[str]:
    return [
        place.text
        for one in decision.settings
        if one.directive == "proxy_http_version"
        for place in one.places
    ]


SPLIT = "split_clients $remote_addr $ab { 10%% b; * %s; } upstream b { server 10.0.0.5:80; %s }"
BOUND = "location /own { proxy_bind 10.0.0.9; proxy_pass http://b; }"
OWN_B = "location /b { proxy_pass http://b; }"
CHOOSES = "location /ab { proxy_pass http://$ab; }"


@each_row("group", ["", "keepalive 4;"])
@each_row("place", [CHOOSES, "location /any { proxy_pass http://app$arg_more; }"])
def test_a_place_that_may_ask_a_refused_group_is_left_as_it_is(place: str, group: str) -> None:
    """Its requests would fill the pool that stands in that group and was never used."""
    more = SPLIT % ("app", group)
    more = more.replace("upstream b", "upstream app_b") if "$arg" in place else more
    bound = BOUND.replace("http://b", "http://app_b") if "$arg" in place else BOUND
    asks_b = "location /b { proxy_pass http://%s; }" % ("app_b" if "$arg" in place else "b")
    decision = kept(conf(f"{PLAIN}\n{place}\n{bound}\n{asks_b}", more=more))
    assert versions_at(decision) == ["location /"]


KEEPS = 'proxy_http_version 1.1; proxy_set_header Connection "";'


@each_row(
    ("place", "more", "is_kept"),
    [
        (CHOOSES, "", False),
        (CHOOSES.replace("{", f"{{ {KEEPS}"), "", True),
        (CHOOSES, PLAIN, True),
        (CHOOSES, "location /c { proxy_pass http://$ac; }", True),
    ],
)
def test_a_group_whose_places_are_all_left_keeps_nothing(
    place: str, more: str, *, is_kept: bool
) -> None:
    """A pool that no request fills is only a finding of the audit."""
    tables = SPLIT % ("app", "") + " split_clients $uri $ac { 10% app2; * app; }"
    tables += " upstream app2 { server 10.0.0.7; }"
    decision = kept(conf(f"{place}\n{more}\n{BOUND.replace('9', '8')}\n{OWN_B}", more=tables))
    names = [p.text for s in decision.settings if s.directive == "keepalive" for p in s.places]
    assert ("upstream app" in names) is is_kept
    assert ("upstream app2" in names) is ("$ac" in more)
    assert is_kept or "may also use upstream b" in said(decision)


@each_row(
    ("other", "place"),
    [
        ("app", CHOOSES),
        ("10.0.0.9", CHOOSES),
        ("app", "location /ab { proxy_pass http://app$request_uri; }"),
        ("app", "location /ab { proxy_pass http://app${uri}; }"),
    ],
)
def test_a_place_of_groups_that_keep_theirs_is_changed(other: str, place: str) -> None:
    """A path behind a group's name leads to no group whose name goes on."""
    more = SPLIT % (other, "") + " upstream app2 { server 10.0.0.6; keepalive 2; }"
    refused = "location /own { proxy_bind $remote_addr; proxy_pass http://app2; }"
    decision = kept(conf(f"{PLAIN}\n{place}\n{refused}", more=more))
    assert versions_at(decision) == ["location /", "location /ab"]


UNBUFFERED = "proxy_request_buffering off;"


@each_row(
    ("server", "location", "is_left"),
    [
        ("", UNBUFFERED, True),
        (UNBUFFERED, "", True),
        (UNBUFFERED, "proxy_request_buffering on;", False),
        ("", f"{UNBUFFERED} proxy_http_version 1.1;", False),
        ("proxy_http_version 1.1;", UNBUFFERED, False),
    ],
)
def test_bodies_that_are_passed_on_as_they_come_stay_of_known_length(
    server: str, location: str, *, is_left: bool
) -> None:
    """With HTTP/1.1 they would be chunked, which some servers refuse."""
    plain = "location / { proxy_request_buffering on; proxy_pass http://app; }"
    put = f"location /put {{ {location} proxy_pass http://app; }}"
    decision = kept(conf(f"{server}\n{plain}\n{put}"))
    assert "location /put" not in versions_at(decision) or not is_left
    headers = [one for one in decision.settings if one.directive == "proxy_set_header"]
    assert ("location /put" in [p.text for one in headers for p in one.places]) is not is_left
    told = [one for one in decision.risks if "stays without proxy_http_version 1.1" in one]
    assert len(told) == is_left
    assert all("would send bodies chunked" in one for one in told)


def test_nothing_is_kept_where_all_bodies_are_passed_on_as_they_come() -> None:
    decision = kept(conf(f"location / {{ {UNBUFFERED} proxy_pass http://app; }}"))
    assert lines(decision) == []
    assert "/n.conf:6 proxy_request_buffering off: an unbuffered request" in said(decision)


@each_row("version", VERSIONS)
def test_what_the_servers_must_bear_is_said(version: str) -> None:
    decision = kept(conf(PLAIN), "measured", version)
    [keepalive] = [one for one in decision.settings if one.directive == "keepalive"]
    [risk] = [one for one in decision.risks if "add up at the servers" in one]
    count, each = risk.split(": ")[1].split(" (", 1)
    workers = int(each.split(" worker")[0])
    assert int(count) == workers * int(keepalive.args[0])
    assert f"x keepalive {keepalive.args[0]})" in each
    assert "Apache prefork" in risk
