"""Options of ``listen`` where a wildcard takes what comes to a more specific address as well.

An option would have nginx bind that address too, beside the wildcard: it does not start any more.
"""

from typing import Any

from rows import each_row

from nginx_tune.audit.engine import audit
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import linux
from nginx_tune.change.generate.nginx_conf import emit_plain
from nginx_tune.change.plan.changing import as_changes
from nginx_tune.change.plan.current import CurrentTree
from nginx_tune.change.plan.naming import listen_options
from nginx_tune.change.plan.placing import find_places
from nginx_tune.conf.listeners import listeners, socket_name
from nginx_tune.conf.tree import ConfTree, parse_text
from nginx_tune.documents.decisions import Decision, Decisions, Setting
from nginx_tune.documents.site import Site, SiteTls

BACKLOG = Setting(context="server", directive="listen", args=["backlog=4096"])
REUSEPORT = Setting(context="server", directive="listen", args=["reuseport"])
QUIC = Setting(context="server", directive="listen", args=["quic", "reuseport"])


def conf(*listens: str, server: str = "") -> ConfTree:
    lines = " ".join(f"listen {one};" for one in listens)
    return parse_text(
        f"worker_processes 4; events {{}} http {{ server {{ {lines} return 204; }} {server} }}"
    )


def placed(tree: ConfTree, wanted: Setting) -> list[str]:
    """The lines that get an option."""
    return [str(one.directive) for one in find_places(CurrentTree(tree), wanted, ())]


SIBLINGS = [
    (["80", "10.0.0.5:80"], ["80"]),
    (["*:80", "127.0.0.1", "localhost:80"], ["*:80"]),
    (["0.0.0.0:80 default_server", "10.0.0.5:80 default_server"], ["0.0.0.0:80 default_server"]),
    (["[::]:80", "[::1]:80"], ["[::]:80"]),
    (["[::0]:80", "[::ffff:127.0.0.1]:80"], ["[::0]:80"]),
    (["8080-8090", "127.0.0.1:8085"], ["8080-8090"]),
    (["8085", "127.0.0.1:8080-8090"], ["8085"]),
    (["443 ssl", "10.0.0.5:443 ssl http2"], ["443 ssl"]),
]
"""Addresses, and those of them that have a socket."""
OWN = [
    ["80", "[::1]:80"],
    ["80", "[::]:80"],
    ["[::]:80 ipv6only=off", "10.0.0.5:80"],
    ["80", "10.0.0.5:81"],
    ["10.0.0.5:80", "10.0.0.6:80"],
    ["8080-8084", "127.0.0.1:8085"],
    ["80 reuseport", "10.0.0.5:80 reuseport"],
    ["80", "10.0.0.5:80 bind"],
    ["443 quic", "10.0.0.5:443 ssl"],
]
"""Addresses that each have one: another family, port or protocol, or options already."""


@each_row(("listens", "own"), SIBLINGS)
@each_row("wanted", [BACKLOG, REUSEPORT])
def test_an_option_goes_on_the_wildcard_alone_and_its_siblings_have_it(
    listens: list[str], own: list[str], wanted: Setting
) -> None:
    tree = conf(*listens)
    assert placed(tree, wanted) == [f"listen {one}" for one in own]
    assert listen_options(wanted, tree).lines
    after = conf(*(f"{one} {wanted.args[0]}" if one in own else one for one in listens))
    assert not listen_options(wanted, after).lines


@each_row("listens", OWN)
def test_an_address_with_a_socket_of_its_own_gets_the_option(listens: list[str]) -> None:
    tcp = [f"listen {one}" for one in listens if "quic" not in one]
    assert placed(conf(*listens), BACKLOG) == tcp


def test_an_option_on_another_line_of_the_address_gives_it_a_socket_and_is_the_one_line() -> None:
    tree = conf("80", "10.0.0.5:80", server="server { listen 10.0.0.5:80 rcvbuf=64k; }")
    assert placed(tree, BACKLOG) == ["listen 80", "listen 10.0.0.5:80 rcvbuf=64k"]


def test_a_server_that_names_no_address_listens_on_every_one() -> None:
    tree = conf("10.0.0.5:80", "10.0.0.5:81", server="server { return 204; }")
    assert placed(tree, BACKLOG) == ["listen 10.0.0.5:81"]
    tree = conf("10.0.0.5:80", "10.0.0.5:81", server="server { listen 82; }")
    assert len(placed(tree, BACKLOG)) == 3


def test_nothing_is_asked_where_no_line_has_a_socket() -> None:
    tree = conf("10.0.0.5:80", server="server { return 204; }")
    decision = Decision(id="backlog", verdict="raise", summary="4096.", settings=[BACKLOG])
    held = as_changes(Decisions(kind="static", decisions=[decision]), tree)
    assert held.decisions[0].settings == []


def test_http2_is_an_option_of_each_address() -> None:
    http2 = Setting(context="server", directive="listen", args=["http2"])
    assert len(placed(conf("443 ssl", "10.0.0.5:443 ssl"), http2)) == 2


def test_quic_has_wildcards_of_its_own() -> None:
    tree = conf("443 quic", "10.0.0.5:443 quic", "443 ssl", "10.0.0.5:443 ssl")
    assert placed(tree, QUIC) == ["listen 443 quic"]
    tree = conf("10.0.0.5:443 quic", "443 ssl")
    assert placed(tree, QUIC) == ["listen 10.0.0.5:443 quic"]


def test_a_range_of_ports_is_of_every_address() -> None:
    assert str(socket_name("8080-8090")) == "*:8080-8090"
    assert [one.address for one in listeners(conf("8080-8090"))] == ["*:8080-8090"]


@each_row(
    ("rule", "listens", "version"),
    [
        ("ls-reuseport-candidate", ["80", "10.0.0.5:80"], "1.18.0"),
        ("ls-quic-no-reuseport", ["443 quic", "10.0.0.5:443 quic"], "1.26.3"),
    ],
)
def test_the_audit_advises_an_option_for_the_wildcard_alone(
    rule: str, listens: list[str], version: str
) -> None:
    facts = linux(cpus=16, version=version)

    def found(*listens: str) -> list[str]:
        report = audit(conf(*listens), facts, ALL)
        return [one.message for one in report.findings if one.rule == rule]

    assert len(found(*listens)) == 1
    assert len(found("10.0.0.6" + listens[1][8:], listens[1])) == 2


def test_a_backlog_that_nobody_listens_with_is_not_said_to_be_cut() -> None:
    facts = linux(sysctls={"net.core.somaxconn": "128"})

    def cut(*listens: str) -> list[str]:
        report = audit(conf(*listens), facts, ALL)
        return [one.message for one in report.findings if one.rule == "ls-backlog-capped"]

    assert [one.split()[6] for one in cut("10.0.0.5:80", "80")] == ["*:80"]


def generated(**parts: Any) -> list[str]:
    text = emit_plain(Site(**parts), forced=[BACKLOG, QUIC])
    return [line.strip() for line in text.splitlines() if line.strip().startswith("listen ")]


def test_generated_addresses_leave_the_option_to_the_wildcard() -> None:
    tls = SiteTls(certificate="/c", certificate_key="/k")
    assert generated(
        listen=["443", "10.0.0.5:443", "[::1]:443", "10.0.0.6:443 rcvbuf=64k"], tls=tls
    ) == [
        "listen 443 ssl backlog=4096;",
        "listen 10.0.0.5:443 ssl;",
        "listen [::1]:443 ssl backlog=4096;",
        "listen 10.0.0.6:443 rcvbuf=64k ssl backlog=4096;",
        "listen 443 quic reuseport;",
        "listen 10.0.0.5:443 quic;",
        "listen [::1]:443 quic reuseport;",
        "listen 10.0.0.6:443 quic;",
    ]
