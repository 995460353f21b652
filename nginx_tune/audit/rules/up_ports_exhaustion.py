from collections.abc import Iterator

from msgspec.structs import replace

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, counted
from nginx_tune.audit.processes import worker_count
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.upstreams import Pass, is_unix
from nginx_tune.conf.values import parse_count
from nginx_tune.decide.model.connections import PORTS_FACT, PORTS_SYSCTL, local_ports
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.facts import Kernel

CONNECTIONS = 512
"""nginx's default of ``worker_connections``."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Servers with more possible concurrent connections than local ports."""
    places = _destinations(context)
    if not places or context.is_linux is False:
        return
    workers, ports = worker_count(context), local_ports(context.facts)
    needed = {"kernel.system": context.is_linux, PORTS_FACT: ports}
    missing = tuple(name for name, value in needed.items() if value is None)
    if isinstance(workers, MissingFacts) or missing or ports is None:
        yield MissingFacts(
            (*missing, *(workers.facts if isinstance(workers, MissingFacts) else ()))
        )
        return
    most_requests = workers.value * _connections(context) // 2
    for place, (name, servers) in places.items():
        if most_requests > ports * servers:
            yield Hit(
                place,
                f"up to {most_requests} concurrent requests may go to {name}, but there are local "
                f"ports for only {ports * servers}",
                [
                    Evidence(fact=PORTS_FACT, value=context.facts.kernel.sysctls[PORTS_SYSCTL]),
                    counted("servers", servers),
                    counted("workers", workers.value),
                    counted("worker_connections", _connections(context)),
                ],
            )


def _destinations(context: Context) -> dict[Directive, tuple[str, int]]:
    """Each upstream, or server named in a line, with its number of addresses."""
    destinations: dict[Directive, tuple[str, int]] = {}
    seen: set[str] = set()
    for passed in context.passes:
        for address in passed.addresses:
            if address in seen or _is_spread(passed):
                continue
            seen.add(address)
            upstream = context.upstreams.get(address)
            if upstream is not None:
                servers = sum(not is_unix(server.value) for server in upstream.peers)
                if servers == len(upstream.peers) > 0 and not upstream.is_scripted:
                    destinations[upstream.directive] = (f'upstream "{address}"', servers)
            elif not is_unix(address):
                destinations.setdefault(passed.place, (address, 1))
    return destinations


def _is_spread(passed: Pass) -> bool:
    """True if connections may use several source addresses."""
    bind = passed.effective("bind")
    return bind is not None and "$" in bind.value


def _connections(context: Context) -> int:
    events = context.tree.main.first("events")
    line = events.block.first("worker_connections") if events and events.block else None
    return (parse_count(line.value) if line else None) or CONNECTIONS


_CONF = """
worker_processes 8;
events { worker_connections %s; }
http { server { location / { proxy_pass http://10.0.0.1:8080; } } }
"""
_HOST = replace(linux(), kernel=Kernel(system="Linux", sysctls={PORTS_SYSCTL: "32768 60999"}))

RULE = Rule(
    id="up-ports-exhaustion",
    severity="advice",
    title="more connections to an upstream than local ports",
    why="A connection uses a local port that no other connection to the same address and port may "
    "have. When all are in use, connect() fails with EADDRNOTAVAIL, and the client gets 502.",
    fix="Keep connections alive (keepalive), list more addresses of the server, or use several "
    "source addresses (split_clients and proxy_bind). A wider net.ipv4.ip_local_port_range gives "
    "at most twice as many.",
    sources=(
        "F5 blog: Overcoming Ephemeral Port Exhaustion in NGINX and NGINX Plus",
        "nginx: src/event/ngx_event_connect.c, ngx_event_connect_peer",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="No command measures the peak number of connections, so the rule compares what the "
    "configuration allows (half of the worker_connections of all workers, because a proxied "
    "request uses two) and is only advice. A name with several addresses counts as one server.",
    profiles=frozenset({"strict"}),
    by_absence=True,
    bad=Example(_CONF % 16384, _HOST),
    good=Example(_CONF % 4096, _HOST),
    check=check,
)
