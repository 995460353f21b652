"""Which limits for each client a load from one address meets."""

from typing import Any

import msgspec
from rows import each_row

from nginx_tune.conf.tree import parse_text
from nginx_tune.documents.loadplan import Arrivals, LoadClass, LoadPlan, Paths, Target
from nginx_tune.experiment.validate.client_limits import ClientLimits

ZONE = "limit_req_zone $binary_remote_addr zone=r:1m rate=10r/s;"
AT = Target(address="127.0.0.1", port=80, host="a.test")


def limits(http: str, before: str = "", *, of_all: bool = False) -> ClientLimits:
    texts = (f"events {{}} http {{ {before} }}", f"events {{}} http {{ {http} }}")
    trees = [parse_text(text, file="/n/nginx.conf") for text in texts]
    return ClientLimits(trees, of_all=of_all)


def server(body: str, listen: str = "80", name: str = "a.test") -> str:
    return f"server {{ listen {listen}; server_name {name}; {body} }}"


def test_a_limit_by_the_address_of_the_client_is_met() -> None:
    table: list[tuple[str, str, set[int]]] = [
        (ZONE + server("limit_req zone=r burst=20;"),
         "limit_req zone=r (10r/s for each $binary_remote_addr)", {503}),
        (ZONE + "limit_req zone=r; limit_req_status 429;" + server("location / { }"),
         "limit_req zone=r (10r/s for each $binary_remote_addr)", {429}),
        ("limit_conn_zone $remote_addr$host zone=c:1m;" + server("location /d { limit_conn c 3; }"),
         "limit_conn c (3 for each $remote_addr$host)", {503}),
        # Some clients are left out.
        ('geo $own { default 1; 10.0.0.0/8 0; } map $own $key { 0 ""; 1 $binary_remote_addr; }'
         "limit_req_zone $key zone=r:1m rate=5r/m;" + server("limit_req zone=r;"),
         "limit_req zone=r (5r/m for each $key)", {503}),
    ]  # fmt: skip
    wrong = []
    for http, said, statuses in table:
        found = limits(http)
        met = [(one.text, name) for one, name in found.at(AT).items()]
        if (met, found.statuses(AT)) != ([(said, "a.test")], statuses):
            wrong.append((http, met))
    assert wrong == []


def test_another_limit_is_not() -> None:
    others = [
        server("location / { }"),
        ZONE + server("location / { }"),
        ZONE + server("limit_req zone=r; limit_req_dry_run on;"),
        ZONE + server("limit_req zone=other;"),
        # Of all clients together, or of others.
        "limit_req_zone $server_name zone=r:1m rate=10r/s;" + server("limit_req zone=r;"),
        "limit_req_zone $http_x_key zone=r:1m rate=10r/s;" + server("limit_req zone=r;"),
        "map $a $b { default $c; } map $b $a { default $b; }"
        "limit_req_zone $a zone=r:1m rate=10r/s;" + server("limit_req zone=r;"),
        # At another place.
        ZONE + server("limit_req zone=r;", "81") + server("location / { }"),
        ZONE + server("limit_req zone=r;", name="b.test") + server("location / { }"),
        ZONE + server("limit_req zone=r;", "unix:/s"),
    ]
    assert [http for http in others if limits(http).statuses(AT)] == []


def test_what_it_refused_is_told_with_its_rate_where_it_refused_something() -> None:
    found = limits(ZONE + server("limit_req zone=r;", "[::1]:80") + server("limit_req zone=r;"))
    plan = LoadPlan(
        target=AT,
        classes=[
            LoadClass(
                name=name,
                arrivals=Arrivals(kind="closed", users=1),
                paths=Paths(kind="fixed", paths=["/"]),
                connections=1,
                target=target,
            )
            for name, target in (
                ("a", None),
                ("b", AT),
                ("six", Target(address="::1", port=80, host="a.test")),
                ("other", Target(unix="/s")),
            )
        ],
        duration_seconds=1.0,
    )
    assert found.statuses_of(plan) == {"a": [503], "b": [503], "six": [503]}
    (line,) = found.met(plan, {"a": 1200, "b": 34})
    assert line.startswith("1,234 requests were refused with 503 by limit_req zone=r (10r/s for")
    assert found.met(plan, {}) == []
    assert len(found.notes(plan)) == 1
    assert limits(server("location / { }")).notes(plan) == []


def plan(*classes: LoadClass) -> LoadPlan:
    return LoadPlan(target=AT, classes=list(classes), duration_seconds=1.0)


def load(name: str, url: str, **arrivals: Any) -> LoadClass:
    arrivals = arrivals or {"kind": "closed", "users": 4, "think_seconds": 0.02}
    return LoadClass(
        name=name,
        arrivals=Arrivals(**arrivals),
        paths=Paths(kind="fixed", paths=[url]),
        connections=4,
    )


ALL = "limit_req_zone $server_name zone=r:1m rate=%s; server { listen 80; %s }"


@each_row(
    ("http", "before", "asked"),
    [
        # Only the location that is asked, at four fifths of the rate; the lower of both variants.
        (ALL % ("20r/s", "location /v1/ { limit_req zone=r burst=1; }"), "",
         {"hot": None, "v1": 16.0}),
        (ALL % ("20r/s", "location /v1/ { limit_req zone=r burst=1; }"),
         ALL % ("10r/s", "location /v1/ { limit_req zone=r burst=9; }"), {"hot": None, "v1": 8.0}),
        # Without a burst at half of it, and one class alone: two may arrive at one moment.
        (ALL % ("20r/s", "location /v1/ { limit_req zone=r; }"), "", {"hot": None, "v1": 10.0}),
        (ALL % ("100r/s", "limit_req zone=r;"), "", {"hot": 50.0}),
        # All classes of a zone share it.
        (ALL % ("100r/s", "limit_req zone=r burst=1;"), "", {"hot": 40.0, "v1": 40.0}),
        # Or as many as can ask once a second then.
        (ALL % ("2r/s", "limit_req zone=r burst=5;"), "", {"hot": 1.6}),
        # A rate that the load cannot come to, and one that leaves too few answers.
        (ALL % ("900r/s", "limit_req zone=r burst=5;"), "", {"hot": 200.0, "v1": 200.0}),
        (ALL % ("30r/m", "location /v1/ { limit_req zone=r; }"), "", {"hot": None}),
        # A key that nothing of the load has.
        (ALL.replace("$server_name", "$cookie_a") % ("1r/s", "limit_req zone=r;"), "",
         {"hot": None, "v1": None}),
    ],
)  # fmt: skip
def test_the_load_stays_below_a_limit(
    http: str, before: str, asked: dict[str, float | None]
) -> None:
    whole = plan(load("hot", "/a"), load("v1", "/v1/"))
    found = limits(http, before, of_all=True).below({"baseline": whole, "candidate": whole})
    for made in found.plans.values():
        assert {one.name: one.arrivals.rate_per_second for one in made.classes} == asked
    assert set(found.paced) == {name for name, rate in asked.items() if rate}
    assert bool(found.refused) is ("v1" not in asked)
    assert all("v1 (/v1/)" in label for label in found.refused)


def test_random_arrivals_below_a_limit_are_spaced_evenly() -> None:
    http = ALL % ("20r/s", "location /v1/ { limit_req zone=r; }")
    api = load("v1", "/v1/", kind="poisson", rate_per_second=4.0)
    found = limits(http, of_all=True).below({"baseline": plan(api)})
    (made,) = found.plans["baseline"].classes
    assert made.arrivals == Arrivals(kind="constant", rate_per_second=4.0)


def test_no_more_are_asked_at_once_than_a_limit_lets_pass() -> None:
    zone = "limit_conn_zone $binary_remote_addr zone=c:1m; server { listen 80; limit_conn c 3; }"
    many = load("m", "/m", kind="poisson", rate_per_second=500.0)
    found = limits(zone).below({"baseline": plan(load("hot", "/a"), many)})
    hot, other = found.plans["baseline"].classes
    assert (hot.connections, hot.arrivals.users, other.connections) == (1, 1, 1)
    assert (found.paced, found.refused) == ([], {})


def test_recorded_requests_keep_their_times() -> None:
    recorded = msgspec.structs.replace(
        load("site", "/v1/", kind="replay"), paths=Paths(kind="manifest", manifest="m")
    )
    http = ALL % ("20r/s", "limit_req zone=r;")
    found = limits(http, of_all=True).below({"baseline": plan(recorded)})
    assert found.plans["baseline"].classes == [recorded]
