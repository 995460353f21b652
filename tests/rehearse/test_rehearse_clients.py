"""Which long connections a site can hold, and at what rate it is asked."""

from __future__ import annotations

from nginx_tune.conf.scopes import servers
from nginx_tune.conf.tree import ConfTree, read_tree
from nginx_tune.documents.loadplan import Arrivals, LoadClass, LoadPlan, Paths, Target, Tls
from nginx_tune.experiment.rehearse.change import FRESH, answered_by_either, at_rate, held_clients
from nginx_tune.experiment.validate.site_requests import SiteRequest

CONF = b"""events {} http { proxy_set_header Upgrade $http_upgrade; server { listen 443 ssl;
  location /up { proxy_pass http://a:1; }
  location /own { proxy_pass http://a:1; proxy_set_header Host x; }
  location /php { fastcgi_pass a:2; } location /files { root /srv; } }
  server { listen 80; location /up { return 301 https://a; } } }"""
TARGET = Target(address="127.0.0.1", port=443, tls=Tls(verify=False))


class One:
    """A configuration of one file."""

    def read_bytes(self, _: str) -> bytes:
        return CONF

    def list_dir(self, _: str) -> list[str]:
        return []


def request(tree: ConfTree, location: str, server: int = 0) -> SiteRequest:
    block = servers(tree)[server][1]
    return SiteRequest(location.strip("/"), "", location, TARGET, location, block=block)


def of_class(name: str, kind: str = "closed", **paths: object) -> LoadClass:
    return LoadClass(
        name=name,
        arrivals=Arrivals(kind=kind, users=2),  # type: ignore[arg-type]
        paths=Paths(kind="uniform", paths=[f"/{name}"], **paths),  # type: ignore[arg-type]
        connections=2,
    )


def plan_of(*classes: LoadClass) -> LoadPlan:
    return LoadPlan(target=TARGET, classes=list(classes), duration_seconds=1.0)


def test_each_kind_is_held_where_the_site_can() -> None:
    tree = read_tree("/nginx.conf", One(), prefix=None)
    names = ("up", "own", "php", "files")
    plan = plan_of(*map(of_class, names), of_class("big", bytes=[5 << 20]))
    held = held_clients(tree, plan, [request(tree, f"/{name}") for name in names], idle=3, active=2)
    urls = {
        kind: [one.url for one in held.clients if one.kind == kind]
        for kind in ("idle", "silent", "keepalive", "download", "websocket", "upload")
    }
    assert (len(urls["idle"]), len(urls["silent"]), len(urls["keepalive"])) == (3, 2, 2)
    assert urls["download"] == ["/big", "/big"]
    assert urls["websocket"] == ["/up", "/up"], "an inner line drops the outer ones"
    assert urls["upload"] == ["/up", "/own"]
    assert not held.left_out


def test_a_server_of_the_same_name_that_sends_all_away_holds_nothing() -> None:
    tree = read_tree("/nginx.conf", One(), prefix=None)
    held = held_clients(tree, plan_of(of_class("up")), [request(tree, "/up", 1)], idle=0, active=1)
    assert {one.kind for one in held.clients} == {"silent", "keepalive"}


def test_why_a_kind_is_not_held_is_said() -> None:
    tree = read_tree("/nginx.conf", One(), prefix=None)
    plan = plan_of(of_class("files", bytes=[4000]))
    held = held_clients(
        tree, plan, [request(tree, "/files"), request(tree, "/up")], idle=0, active=1
    )
    assert {one.kind for one in held.clients} == {"silent", "keepalive"}
    assert held.left_out.keys() == {"download", "websocket", "upload"}, "/up is not asked"
    none = held_clients(tree, plan, [], idle=0, active=0)
    assert (none.clients, none.left_out) == ([], {})


def test_the_rate_is_shared_and_one_class_opens_connections() -> None:
    plan = at_rate(plan_of(of_class("a"), of_class("b"), of_class("c", "replay")), 90.0)
    rates = {one.name: one.arrivals.rate_per_second for one in plan.classes}
    assert rates == {"c": None, "a": 30.0, "b": 30.0, FRESH: 30.0}
    fresh = next(one for one in plan.classes if one.name == FRESH)
    assert (fresh.keepalive, fresh.connection_use) == (False, "latest")


def test_an_answer_of_either_configuration_is_no_failure_and_an_error_is() -> None:
    (one,) = answered_by_either(plan_of(of_class("a", bytes=[5], files=["/a"])), {}).classes
    assert {200, 204, 301, 302, 307, 308} <= set(one.status)
    assert not {400, 404, 499, 500, 503} & set(one.status)
    assert (one.paths.bytes, one.paths.files) == (None, None), "a redirect has a body of its own"
