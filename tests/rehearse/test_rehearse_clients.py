"""A rehearsal's plan: the connections that a site can hold, its rate, the bytes that change."""

from pathlib import Path

from nginx_tune.conf.scopes import servers
from nginx_tune.conf.tree import ConfTree, read_tree
from nginx_tune.documents.loadplan import Arrivals, LoadClass, LoadPlan, Paths, Target, Tls
from nginx_tune.experiment.rehearse.change import (
    FRESH,
    answered_by_either,
    as_read,
    at_rate,
    change_between,
    held_clients,
    without_bpf,
)
from nginx_tune.experiment.validate.site_requests import SiteRequest
from nginx_tune.host.live import LiveHost
from nginx_tune.nginx.subject import ConfigurationFiles

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


def tree_of(directory: Path, **files: str) -> ConfTree:
    directory.mkdir(exist_ok=True)
    for name, text in files.items():
        path = directory / name.replace("_", "/")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return read_tree(str(directory / "main"), ConfigurationFiles(LiveHost()), prefix=None)


def test_another_file_beside_it_is_laid_over_the_main_one(tmp_path: Path) -> None:
    old = tree_of(tmp_path, main="include d/*; a 1;", d_x="b 1;")
    (tmp_path / "new").write_text("include d/*; a 2;")
    new = read_tree(str(tmp_path / "new"), ConfigurationFiles(LiveHost()), prefix=None)
    found = change_between(old, new)
    assert found == {str(tmp_path / "main"): b"include d/*; a 2;"}


def test_another_directory_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.write_text("s 1;")
    line = f"include d/*; include {shared};"
    old = tree_of(tmp_path / "old", main=line, d_same="a;", d_gone="b;", d_other="c 1;")
    new = tree_of(tmp_path / "new", main=line, d_same="a;", d_made="e;", d_other="c 2;")
    found = change_between(old, new)
    home = tmp_path / "old" / "d"
    assert found == {
        str(home / "gone"): b"", str(home / "made"): b"e;", str(home / "other"): b"c 2;",
    }  # fmt: skip


def test_what_the_sandbox_cannot_have_is_off_before_and_after(tmp_path: Path) -> None:
    """Only that word changes, in whichever file it stands."""
    on, off = "quic_bpf  on; # keys\ninclude d/*;", "quic_bpf  off; # keys\ninclude d/*;"
    main = str(tmp_path / "old" / "main")
    old = tree_of(tmp_path / "old", main=on, d_x="a 1;")
    same = tree_of(tmp_path / "same", main=on, d_x="a 2;")
    without = tree_of(tmp_path / "without", main="include d/*;", d_x="a 1;")
    other = str(tmp_path / "old" / "d" / "x")
    laid = {main: off.encode()}
    assert without_bpf(old, same, change_between(old, same)) == (laid, {**laid, other: b"a 2;"})
    changed = {main: b"include d/*;"}
    assert without_bpf(old, without, change_between(old, without)) == (laid, changed)
    there = str(tmp_path / "without" / "main")
    assert without_bpf(without, old, change_between(without, old)) == ({}, {there: off.encode()})
    assert without_bpf(without, without, {}) == ({}, {})


def test_a_message_about_a_file_that_was_laid_elsewhere_has_the_name_it_was_read_by() -> None:
    def said(path: str, *, read: str) -> str:
        return as_read(f'unknown directive "a in b:1" in {path}:7', laid="/o/main", read=read)

    assert said("/o/main", read="/o/new").endswith(" in /o/new:7")
    assert said("/o/d/x", read="/o/new").endswith(" in /o/d/x:7")
    assert said("/o/d/x", read="/n/new").endswith(" in /n/d/x:7")
    assert said("/etc/x", read="/n/new").endswith(" in /etc/x:7")
    assert as_read("no events", laid="/o/main", read="/n/new") == "no events"
