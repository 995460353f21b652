from collections.abc import Iterator
from math import ceil

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.processes import lacking, worker_connections, worker_count
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import http_directives
from nginx_tune.conf.values import parameter, parse_bytes
from nginx_tune.documents.decisions import Evidence

ADDRESS_STATE_BYTES = 64
"""Bytes of the entry for a key of at most 16 bytes, such as $binary_remote_addr."""

STATE_BYTES = 128
"""Bytes of the entry for a longer key."""

_MIB = 1 << 20


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``limit_conn`` zones with room for fewer keys than there can be connections."""
    if not {"limit_conn", "limit_conn_zone"} <= context.names:
        return
    workers, connections = worker_count(context), worker_connections(context)
    if isinstance(workers, MissingFacts) or isinstance(connections, MissingFacts):
        yield from lacking(workers, connections)
        return
    most_connections = workers.value * connections.value
    used = {line.value for line in http_directives(context.tree) if line.name == "limit_conn"}
    for zone in http_directives(context.tree):
        if zone.name != "limit_conn_zone":
            continue
        name, _, size = (parameter(zone.args, "zone") or "").partition(":")
        size_bytes = parse_bytes(size)
        if name not in used or size_bytes is None:
            continue
        state_bytes = _state_bytes(zone)
        keys = size_bytes // state_bytes
        if keys < most_connections:
            yield Hit(
                zone,
                f'zone "{name}" has room for about {keys} keys, but nginx accepts up to '
                f"{most_connections} connections",
                [
                    Evidence(fact="zone", value=size_bytes, unit="bytes", provenance="declared"),
                    workers.evidence,
                    connections.evidence,
                ],
                fix=f"Set zone={name}:{ceil(most_connections * state_bytes / _MIB)}m.",
            )


def _state_bytes(zone: Directive) -> int:
    return ADDRESS_STATE_BYTES if zone.value == "$binary_remote_addr" else STATE_BYTES


_CONF = """
worker_processes 8;
worker_rlimit_nofile 16384;
events { worker_connections 8192; }
http {
    limit_conn_zone $binary_remote_addr zone=addresses:%s;
    server { location / { root /srv/www; limit_conn addresses 50; } }
}
"""

RULE = Rule(
    id="lim-zone-too-small",
    severity="warning",
    title="a limit_conn zone is too small for all clients",
    why="When the zone is full, every request with a new key gets limit_conn_status (503), however "
    "few connections that client has.",
    fix="Allow a megabyte per 16 000 addresses, or per 8 000 longer keys.",
    sources=("https://nginx.org/en/docs/http/ngx_http_limit_conn_module.html#limit_conn_zone",),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="The upper bound is workers × worker_connections clients, each with its own key; no "
    "command counts the actual number yet. limit_req zones are not checked: a full one evicts the "
    "key that was idle longest, and rarely rejects a request.",
    bad=Example(_CONF % "1m"),
    good=Example(_CONF % "10m"),
    check=check,
)
