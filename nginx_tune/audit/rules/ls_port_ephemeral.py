"""``ls-port-ephemeral``."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.listeners import SocketName, socket_name
from nginx_tune.conf.values import parse_count
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.facts import Kernel

RANGE = "net.ipv4.ip_local_port_range"
RESERVED = "net.ipv4.ip_local_reserved_ports"
_UNPRIVILEGED = 1024
"""The least that it can be while net.ipv4.ip_unprivileged_port_start is the default."""
_HIGHEST_PORT = 65535


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Ports that an outgoing connection of this host may have when nginx wants to listen there."""
    if context.is_linux is False:
        return
    sysctls = context.facts.kernel.sysctls
    given = _port_range(sysctls.get(RANGE, f"{_UNPRIVILEGED} {_HIGHEST_PORT}"))
    named = {one: line for one, line in _sockets(context).items() if _within(one, given)}
    missing = tuple(f"kernel.sysctls[{name}]" for name in (RANGE, RESERVED) if name not in sysctls)
    if named and missing:
        yield MissingFacts(missing)
        return
    reserved = _reserved(sysctls.get(RESERVED, ""))
    for socket, line in named.items():
        free = [port for port in _within(socket, given) if port not in reserved]
        if free:
            yield Hit(
                line,
                f"an outgoing connection may be given {_said(free)} before nginx listens there",
                [
                    Evidence(fact=f"kernel.sysctls[{name}]", value=sysctls[name])
                    for name in (RANGE, RESERVED)
                ],
            )


def _sockets(context: Context) -> dict[SocketName, Directive]:
    """Every address of a network, of http, stream and mail, with its first line."""
    found: dict[SocketName, Directive] = {}
    for line in context.lines_by_name.get("listen", []):
        if line.args and line.table is None and (socket := socket_name(line.value)).ports:
            found.setdefault(socket, line)
    return found


def _port_range(text: str) -> range:
    """The range of ``32768 60999``; empty when that cannot be read."""
    match [parse_count(part) for part in text.split()]:
        case [int() as low, int() as high]:
            return range(low, high + 1)
    return range(0)


def _within(socket: SocketName, given: range) -> range:
    return range(max(socket.first, given.start), min(socket.last + 1, given.stop))


def _reserved(text: str) -> set[int]:
    """The ports of ``8080,9148-9150``, as Documentation/networking/ip-sysctl.rst has it."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        low, high = parse_count(first), parse_count(last or first)
        if low is not None and high is not None:
            found.update(range(low, min(high, _HIGHEST_PORT) + 1))
    return found


def _said(ports: list[int]) -> str:
    if len(ports) == 1:
        return f"port {ports[0]}"
    return f"one of {len(ports)} of the ports {ports[0]} to {ports[-1]}"


_CONF = "events { } http { server { listen %s; root /srv/www; } }"
_HOST = replace(
    linux(), kernel=Kernel(system="Linux", sysctls={RANGE: "32768 60999", RESERVED: ""})
)

RULE = Rule(
    id="ls-port-ephemeral",
    severity="warning",
    title="an outgoing connection may hold the port of a listener",
    why="A connection that this host opens gets a local port of net.ipv4.ip_local_port_range, and "
    "if this host ends it, keeps it for a minute after that (TIME_WAIT); a UDP socket that asks "
    "somebody gets one too. nginx tries to listen there for two seconds and a half. Then, with 98: "
    "Address already in use, it does not start, or stays with its old configuration at a reload "
    "that brought the address. nginx -t does not see it.",
    fix="Add the port to net.ipv4.ip_local_reserved_ports in the network namespace of nginx (and "
    "in /etc/sysctl.d), or listen at one outside of net.ipv4.ip_local_port_range.",
    sources=(
        "https://docs.kernel.org/networking/ip-sysctl.html",
        "Linux: net/ipv4/inet_connection_sock.c, inet_csk_bind_conflict()",
        "nginx: src/core/ngx_connection.c, ngx_open_listening_sockets",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    bad=Example(_CONF % 50051, _HOST),
    good=Example(_CONF % 8080, _HOST),
    check=check,
)
