from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.audit.rules.ls_backlog_overflow_seen import FEW_DROPS, sockets_of
from nginx_tune.conf.listeners import ListenAddress
from nginx_tune.conf.values import is_placeholder, parameter, parse_count
from nginx_tune.documents.decisions import Evidence

DEFAULT_BACKLOG = 511
"""nginx's default on Linux (ngx_linux_config.h)."""

_SYSCTL = "net.core.somaxconn"


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Backlogs that the kernel silently truncates."""
    if context.is_linux is False or not context.listeners:
        return
    text = context.facts.kernel.sysctls.get(_SYSCTL)
    network = context.facts.network.somaxconn  # of the network namespace of nginx
    limit = network if network is not None else parse_count(text or "")
    if limit is None:
        yield MissingFacts((f"kernel.sysctls[{_SYSCTL}]",))
        return
    cut_default = False
    for listener in context.listeners:
        if listener.is_quic or not listener.has_socket or is_placeholder(listener.address):
            continue
        requested = _requested_backlog(listener)
        if (requested or DEFAULT_BACKLOG) <= limit or (requested is None and cut_default):
            continue
        cut_default |= requested is None  # reported once for all such addresses
        if sum(socket.drops or 0 for socket in sockets_of(context, listener)) >= FEW_DROPS:
            continue  # ls-backlog-overflow-seen reports it
        name = "backlog" if requested is not None else "backlog (default)"
        yield Hit(
            next((line for line in listener.lines if _backlog(line.args)), listener.lines[0]),
            f"the kernel cuts the backlog of {listener.address} from "
            f"{requested or DEFAULT_BACKLOG} to {limit}",
            [
                Evidence(fact=name, value=requested or DEFAULT_BACKLOG, provenance="declared"),
                Evidence(fact=_SYSCTL, value=limit),
            ],
        )


def _requested_backlog(listener: ListenAddress) -> int | None:
    """The backlog set for an address; None if unset or negative (the kernel's maximum)."""
    for line in listener.lines:
        asked = parse_count(_backlog(line.args) or "")
        if asked is not None:
            return asked
    return None


def _backlog(args: tuple[str, ...]) -> str | None:
    return parameter(args[1:], "backlog")


_CONF = "events { } http { server { listen 80%s; root /srv/www; } }"

RULE = Rule(
    id="ls-backlog-capped",
    severity="warning",
    title="the kernel cuts the backlog of a listener",
    why="A listener's queue of connections that wait to be accepted is never longer than "
    "net.core.somaxconn at the time of listen(), and no message reports the cut. A larger burst "
    "loses connections, and their clients retry after a second or more.",
    fix="Raise net.core.somaxconn in nginx's network namespace, then change backlog= (or restart): "
    "a reload calls listen() again only if that number differs.",
    sources=(
        "listen(2)",
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#listen",
        "nginx: src/core/ngx_cycle.c, ngx_init_cycle",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    bad=Example(_CONF % " backlog=16384", linux()),
    good=Example(_CONF % " backlog=4096", linux()),
    check=check,
)
