"""``up-connect-timeout``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.upstreams import Pass, host_of, is_loopback, is_to_be_named, is_unix
from nginx_tune.conf.values import parse_seconds

LONGEST_SECONDS = 75.0
KERNEL_SECONDS = 131.0
"""Seconds after which Linux gives up by its default of tcp_syn_retries: 131, before 6.5 127."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Connect timeouts past what the documentation calls the usual limit."""
    told: set[Directive] = set()
    for one in context.passes:
        line = one.effective("connect_timeout")
        if line is None or line in told:
            continue
        servers = _servers(context, one)
        if servers and all(_answers_at_once(context, server) for server in servers):
            continue
        seconds = parse_seconds(" ".join(line.args))
        if seconds is not None and seconds > LONGEST_SECONDS:
            told.add(line)
            yield Hit(line, _message(context, seconds), [written(line)])


def _answers_at_once(context: Context, server: str) -> bool:
    """True if a connection succeeds or fails at once, or where it goes is not known.

    A socket file and the loopback are on this host; a part of a configuration may name an upstream
    of the main file.
    """
    host = host_of(server)
    is_elsewhere = context.tree.is_part and "." not in host and ":" not in server
    return is_unix(server) or is_loopback(host) or is_to_be_named(host) or is_elsewhere


def _servers(context: Context, one: Pass) -> list[str]:
    """Addresses that requests go to, an upstream's in its place."""
    found = []
    for address in one.addresses:
        upstream = context.upstreams.get(address)
        found += [address] if upstream is None else [peer.value for peer in upstream.peers]
    return found


def _message(context: Context, seconds: float) -> str:
    if seconds > KERNEL_SECONDS and context.is_linux is not False:
        return (
            "a server that does not answer holds a request until the kernel gives up, on Linux "
            f"after about two minutes: {seconds:g} s never pass"
        )
    return f"a server that does not answer holds a request for up to {seconds:g} s"


_CONF = "events {} http { server { location / { proxy_pass http://10.0.0.1; %s } } }"

RULE = Rule(
    id="up-connect-timeout",
    severity="info",
    title="a connect timeout of more than 75 s",
    why="The kernel gives up by itself: the documentation says after 75 s usually, Linux does so "
    "after about two minutes (tcp_syn_retries). Until then the request waits, and no other "
    "server, if there is one, is tried.",
    fix="proxy_connect_timeout 1s to 5s; for servers in the same network.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_connect_timeout",
        "Linux: Documentation/networking/ip-sysctl.rst, tcp_syn_retries",
    ),
    proof="source-only",
    bad=Example(_CONF % "proxy_connect_timeout 300s;"),
    good=Example(_CONF % "proxy_connect_timeout 5s;"),
    check=check,
)
