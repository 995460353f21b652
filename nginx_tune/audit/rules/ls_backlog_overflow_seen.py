"""``ls-backlog-overflow-seen``."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.listeners import ListenAddress
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.facts_machine import Listener as Listening

_FEW = 100
"""Overflows in the whole life of a socket, which may be months, that call for nothing today."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Listening sockets of nginx that have turned connections away."""
    listeners = [one for one in context.listeners if not (one.is_quic or one.is_unix)]
    if not listeners or context.is_linux is False:
        return
    if not context.has_facts:
        yield MissingFacts(("listeners",))
        return
    for listener in listeners:
        found = [one for one in context.facts.listeners if _is_of(one, listener)]
        drops = sum(one.drops or 0 for one in found)
        if drops >= (1 if context.profile == "strict" else _FEW):
            backlogs = [one.backlog for one in found if one.backlog is not None]
            evidence = [Evidence(fact=f"drops at {listener.address}", value=drops)]
            if backlogs:
                evidence.append(Evidence(fact="effective backlog", value=min(backlogs)))
            yield Hit(
                listener.lines[0],
                f"{listener.address} has dropped connections {drops} times since it listens",
                evidence,
                severity="info" if drops < _FEW else None,
            )


def _is_of(found: Listening, listener: ListenAddress) -> bool:
    """True if a socket of the host is this address of the configuration."""
    if found.of_nginx is False or found.port not in listener.socket.ports:
        return False
    host = listener.socket.host
    wanted = {"*": "0.0.0.0"}.get(host, host.strip("[]"))  # noqa: S104  # compared with
    return found.address.strip("[]") in {wanted, f"::ffff:{wanted}"}


_CONF = "events { } http { server { listen 80; root /srv/www; } }"


def _host(drops: int) -> Listening:
    return Listening(address="0.0.0.0", port=80, backlog=511, drops=drops, of_nginx=True)  # noqa: S104


RULE = Rule(
    id="ls-backlog-overflow-seen",
    severity="warning",
    title="a listener has dropped connections",
    why="Nearly always the accept queue was full: the kernel then drops what would complete a "
    "connection, and the client tries again after one second, then two, four. No log of nginx "
    "tells of it.",
    fix="See why workers are late to accept (a blocked event loop, too few workers), and give a "
    "burst more room: net.core.somaxconn, then listen ... backlog=.",
    sources=(
        "Linux: net/ipv4/tcp_ipv4.c tcp_v4_syn_recv_sock, include/net/tcp.h tcp_listendrop",
        "listen(2)",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="The count is of the socket (SK_MEMINFO_DROPS), so it is nginx's own; the counters "
    "ListenOverflows and ListenDrops of the whole namespace are not blamed on one listener. It "
    "counts tries, not clients, and starts again with a new socket. Facts without "
    "sockets leave the rule silent. Fewer than a hundred are told in the strict profile alone, as "
    "info: since when they were counted is not known, and each costs one client a second.",
    bad=Example(_CONF, replace(linux(), listeners=[_host(2400)])),
    good=Example(_CONF, replace(linux(), listeners=[_host(0)])),
    check=check,
)
