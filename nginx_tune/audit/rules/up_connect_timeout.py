from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.upstreams import Pass, host_of, is_loopback, is_to_be_named, is_unix
from nginx_tune.conf.values import parse_seconds

LONGEST_SECONDS = 75.0
KERNEL_SECONDS = 131.0
"""The time after which Linux gives up with the default tcp_syn_retries (127 s before 6.5)."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Connect timeouts above the usual limit that the documentation names."""
    reported: set[Directive] = set()
    for passed in context.passes:
        line = passed.effective("connect_timeout")
        if line is None or line in reported:
            continue
        servers = _servers(context, passed)
        if servers and all(_answers_at_once(context, server) for server in servers):
            continue
        seconds = parse_seconds(" ".join(line.args))
        if seconds is not None and seconds > LONGEST_SECONDS:
            reported.add(line)
            yield Hit(
                line,
                _message(context, seconds, str(line)),
                [written(line)],
                fix=f"Set {line.name} 5s; or less where the server is in the same network.",
            )


def _answers_at_once(context: Context, server: str) -> bool:
    """True if connecting succeeds or fails at once, as on this host, or if the target is unknown.

    A target on this host is a Unix socket or the loopback. An unknown one is a placeholder, or a
    bare name in a part of a configuration: the main file may define an upstream of that name.
    """
    host = host_of(server)
    is_elsewhere = context.tree.is_part and "." not in host and ":" not in server
    return is_unix(server) or is_loopback(host) or is_to_be_named(host) or is_elsewhere


def _servers(context: Context, passed: Pass) -> list[str]:
    """The addresses that requests go to; the servers of an upstream instead of its name."""
    servers = []
    for address in passed.addresses:
        upstream = context.upstreams.get(address)
        servers += [address] if upstream is None else [peer.value for peer in upstream.peers]
    return servers


def _message(context: Context, seconds: float, text: str) -> str:
    if seconds > KERNEL_SECONDS and context.is_linux is not False:
        return (
            "a server that does not respond holds a request until the kernel gives up, on Linux "
            f"after about two minutes; {text} is never reached"
        )
    return f"a server that does not respond holds a request for up to {seconds:g} s"


_CONF = "events {} http { server { location / { proxy_pass http://10.0.0.1; %s } } }"

RULE = Rule(
    id="up-connect-timeout",
    severity="info",
    title="a connect timeout of more than 75 s",
    why="The kernel gives up by itself: usually after 75 s according to the documentation, on "
    "Linux after about two minutes (tcp_syn_retries). Until then the request waits, and no other "
    "server is tried.",
    fix="Set a connect timeout of 5 s or less where the server is in the same network.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_connect_timeout",
        "Linux: Documentation/networking/ip-sysctl.rst, tcp_syn_retries",
    ),
    proof="source-only",
    bad=Example(_CONF % "proxy_connect_timeout 300s;"),
    good=Example(_CONF % "proxy_connect_timeout 5s;"),
    check=check,
)
