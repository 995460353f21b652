"""``lim-conntrack-full``."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.facts import Facts

_NEARLY = 0.8


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """A packet filter that follows nearly as many connections as it may."""
    listeners = [one for one in context.listeners if not one.is_unix and one.lines]
    if not listeners or context.is_linux is False:
        return
    if not context.has_facts:
        yield MissingFacts(("network.conntrack_entries",))
        return
    network = context.facts.network
    entries, limit = network.conntrack_entries, network.conntrack_limit
    if entries is None or not limit or entries < _NEARLY * limit:
        return
    yield Hit(
        listeners[0].lines[0],
        f"the packet filter of this host follows {entries} of at most {limit} connections",
        [
            Evidence(fact="network.conntrack_entries", value=entries),
            Evidence(fact="network.conntrack_limit", value=limit),
        ],
        fix="A higher net.netfilter.nf_conntrack_max, or notrack for nginx's ports"
        + (
            "; connections to the servers that are kept (keepalive of the upstream) take one entry "
            "for many requests."
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
    title="the table of followed connections is nearly full",
    why="At the limit the kernel drops the first packet of every new connection: clients try again "
    "after a second, nginx's own connections to its servers time out, and no log of nginx says "
    "why. An entry outlives its connection by two minutes.",
    fix="A higher net.netfilter.nf_conntrack_max, or notrack for nginx's ports.",
    sources=(
        "Linux: net/netfilter/nf_conntrack_core.c, __nf_conntrack_alloc (table full)",
        "Linux: Documentation/networking/nf_conntrack-sysctl.rst",
    ),
    proof="source-only",
    about="A moment's count: it is said from four fifths of the limit on.",
    bad=Example(_CONF, _host(240_000)),
    good=Example(_CONF, _host(40_000)),
    check=check,
)
