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
"""The lowest possible start of the range with the default net.ipv4.ip_unprivileged_port_start."""
_HIGHEST_PORT = 65535


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Listening ports that the kernel may give to an outgoing connection."""
    if context.is_linux is False:
        return
    sysctls = context.facts.kernel.sysctls
    local_range = _port_range(sysctls.get(RANGE, f"{_UNPRIVILEGED} {_HIGHEST_PORT}"))
    at_risk = {name: line for name, line in _sockets(context).items() if _within(name, local_range)}
    missing = tuple(f"kernel.sysctls[{name}]" for name in (RANGE, RESERVED) if name not in sysctls)
    if at_risk and missing:
        yield MissingFacts(missing)
        return
    reserved = _reserved(sysctls.get(RESERVED, ""))
    for socket, line in at_risk.items():
        free = [port for port in _within(socket, local_range) if port not in reserved]
        if free:
            yield Hit(
                line,
                f"an outgoing connection may take {_ports_text(free)} before nginx listens there",
                [
                    Evidence(fact=f"kernel.sysctls[{name}]", value=sysctls[name])
                    for name in (RANGE, RESERVED)
                ],
            )


def _sockets(context: Context) -> dict[SocketName, Directive]:
    """Every network address of http, stream and mail, with its first line."""
    found: dict[SocketName, Directive] = {}
    for line in context.lines_by_name.get("listen", []):
        if line.args and line.table is None and (socket := socket_name(line.value)).ports:
            found.setdefault(socket, line)
    return found


def _port_range(text: str) -> range:
    """The range of ``32768 60999``; empty if it cannot be read."""
    match [parse_count(part) for part in text.split()]:
        case [int() as low, int() as high]:
            return range(low, high + 1)
    return range(0)


def _within(socket: SocketName, local_range: range) -> range:
    return range(max(socket.first, local_range.start), min(socket.last + 1, local_range.stop))


def _reserved(text: str) -> set[int]:
    """The ports of ``8080,9148-9150`` (Documentation/networking/ip-sysctl.rst)."""
    ports: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        low, high = parse_count(first), parse_count(last or first)
        if low is not None and high is not None:
            ports.update(range(low, min(high, _HIGHEST_PORT) + 1))
    return ports


def _ports_text(ports: list[int]) -> str:
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
    title="an outgoing connection may take a listener's port",
    why="An outgoing connection of this host gets a local port from net.ipv4.ip_local_port_range, "
    "and if this host closes it, keeps the port for another minute (TIME_WAIT); UDP clients get "
    "one too. nginx retries listen() for two and a half seconds. Then, with 98: Address already in "
    "use, it does not start, or a reload that adds the address keeps the old configuration. nginx "
    "-t does not detect it.",
    fix="Add the port to net.ipv4.ip_local_reserved_ports in nginx's network namespace (and in "
    "/etc/sysctl.d), or listen on a port outside net.ipv4.ip_local_port_range.",
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
