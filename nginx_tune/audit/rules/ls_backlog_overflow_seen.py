from collections.abc import Iterator

from msgspec.structs import replace

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.listeners import ListenAddress
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.facts_machine import Listener as Listening

FEW_DROPS = 100
"""Overflows in the lifetime of a socket, which may be months, that need no action."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Listening sockets of nginx that have dropped connections."""
    listeners = [
        address for address in context.listeners if not (address.is_quic or address.is_unix)
    ]
    if not listeners or context.is_linux is False:
        return
    if not context.has_facts:
        yield MissingFacts(("listeners",))
        return
    for listener in listeners:
        sockets = sockets_of(context, listener)
        drops = sum(socket.drops or 0 for socket in sockets)
        if drops >= (1 if context.profile == "strict" else FEW_DROPS):
            backlogs = [socket.backlog for socket in sockets if socket.backlog is not None]
            evidence = [Evidence(fact=f"drops at {listener.address}", value=drops)]
            if backlogs:
                evidence.append(Evidence(fact="effective backlog", value=min(backlogs)))
            yield Hit(
                listener.lines[0],
                f"{listener.address} has dropped {drops} connection attempts since it was opened",
                evidence,
                severity="info" if drops < FEW_DROPS else None,
            )


def sockets_of(context: Context, listener: ListenAddress) -> list[Listening]:
    """The host's sockets of an address of the configuration."""
    return [one for one in context.facts.listeners if _is_socket_of(one, listener)]


def _is_socket_of(socket: Listening, listener: ListenAddress) -> bool:
    """True if a socket of the host belongs to this address of the configuration."""
    if socket.of_nginx is False or socket.port not in listener.socket.ports:
        return False
    host = listener.socket.host
    expected = {"*": "0.0.0.0"}.get(host, host.strip("[]"))  # noqa: S104  # compared with
    return socket.address.strip("[]") in {expected, f"::ffff:{expected}"}


_CONF = "events { } http { server { listen 80; root /srv/www; } }"


def _host(drops: int) -> Listening:
    return Listening(address="0.0.0.0", port=80, backlog=511, drops=drops, of_nginx=True)  # noqa: S104


RULE = Rule(
    id="ls-backlog-overflow-seen",
    severity="warning",
    title="a listener has dropped connections",
    why="Almost always the accept queue was full: the kernel then drops the packet that would "
    "complete the connection, and the client retries after one second, then two, four. No nginx "
    "log reports it.",
    fix="Find out why workers accept too late (a blocked event loop, too few workers), and give "
    "bursts more room: raise net.core.somaxconn, then listen ... backlog=.",
    sources=(
        "Linux: net/ipv4/tcp_ipv4.c tcp_v4_syn_recv_sock, include/net/tcp.h tcp_listendrop",
        "listen(2)",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="The count is that of the socket (SK_MEMINFO_DROPS), so it is nginx's own; the counters "
    "ListenOverflows and ListenDrops of the whole namespace are not attributed to one listener. It "
    "counts attempts, not clients, and a new socket starts at zero. Facts without sockets give no "
    "finding. Fewer than a hundred are reported only in the profile strict, as info, because the "
    "counting period is not known and each costs one client a second.",
    bad=Example(_CONF, replace(linux(), listeners=[_host(2400)])),
    good=Example(_CONF, replace(linux(), listeners=[_host(0)])),
    check=check,
)
