from collections.abc import Iterator

from msgspec.structs import replace

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.facts import Facts

_NEARLY_FULL = 0.8


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """A connection tracking table that is nearly full."""
    listeners = [address for address in context.listeners if not address.is_unix and address.lines]
    if not listeners or context.is_linux is False:
        return
    if not context.has_facts:
        yield MissingFacts(("network.conntrack_entries",))
        return
    network = context.facts.network
    entries, limit = network.conntrack_entries, network.conntrack_limit
    if entries is None or not limit or entries < _NEARLY_FULL * limit:
        return
    yield Hit(
        listeners[0].lines[0],
        f"connection tracking on this host has {entries} of at most {limit} entries",
        [
            Evidence(fact="network.conntrack_entries", value=entries),
            Evidence(fact="network.conntrack_limit", value=limit),
        ],
        fix="Raise net.netfilter.nf_conntrack_max, or set notrack for nginx's ports"
        + (
            "; upstream connections that are kept alive (keepalive) need one entry for many "
            "requests."
            if context.passes
            else "."
        ),
    )


def _host(entries: int) -> Facts:
    facts = linux()
    network = replace(facts.network, conntrack_entries=entries, conntrack_limit=262_144)
    return replace(facts, network=network)


_CONF = "events { } http { server { listen 80; root /srv/www; } }"

RULE = Rule(
    id="lim-conntrack-full",
    severity="warning",
    title="the connection tracking table is nearly full",
    why="At the limit the kernel drops the first packet of every new connection: clients retry "
    "after a second, nginx's own upstream connections time out, and no nginx log says why. An "
    "entry outlives its connection by two minutes.",
    fix="Raise net.netfilter.nf_conntrack_max, or set notrack for nginx's ports.",
    sources=(
        "Linux: net/netfilter/nf_conntrack_core.c, __nf_conntrack_alloc (table full)",
        "Linux: Documentation/networking/nf_conntrack-sysctl.rst",
    ),
    proof="source-only",
    about="The count is a snapshot, reported from four fifths of the limit.",
    bad=Example(_CONF, _host(240_000)),
    good=Example(_CONF, _host(40_000)),
    check=check,
)
