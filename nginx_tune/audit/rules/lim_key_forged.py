from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.values import parameter
from nginx_tune.conf.variables import variables_of

_LISTS = frozenset({"http_x_forwarded_for", "proxy_add_x_forwarded_for", "http_forwarded"})
"""Headers that proxies append to, so that the client's own value stays at the beginning."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Limits whose key a client can choose."""
    used = {parameter(line.args, "zone") for line in context.client_lines("limit_req")}
    used |= {line.value for line in context.client_lines("limit_conn")}
    for kind in ("limit_req_zone", "limit_conn_zone"):
        for line in context.client_lines(kind):
            if (parameter(line.args, "zone") or "").partition(":")[0] not in used:
                continue
            origin = _forgeable_header(context, line)
            if origin is not None:
                name, place = origin
                through = "" if place is line else f" (through a {place.name})"
                yield Hit(
                    line,
                    f"the key contains ${name}{through}, which clients can set to anything",
                    [written(line), *([] if place is line else [written(place)])],
                )


def _forgeable_header(context: Context, zone: Directive) -> tuple[str, Directive] | None:
    """A header that determines the key, and the line that uses it."""
    pending = [(name, zone) for name in sorted(variables_of(zone.value))]
    seen = set()
    while pending:
        name, place = pending.pop()
        if name in _LISTS:
            return name, place
        if name in seen:
            continue
        seen.add(name)
        for maker, text in _definitions(context, name):
            pending += [(variable, maker) for variable in sorted(variables_of(text))]
    return None


def _definitions(context: Context, name: str) -> Iterator[tuple[Directive, str]]:
    """The lines that define a variable, with each text that determines its value."""
    for table in context.variables.tables(name):
        if not _reads_last_entry(table):
            yield table, table.value
        for line in table.block or ():
            yield table, line.value
    for line in context.lines_by_name.get("set", []):
        if len(line.args) > 1 and variables_of(line.value) == {name}:
            yield line, line.args[1]
    for line in context.lines_by_name.get("geo", []):
        if len(line.args) > 1 and variables_of(line.args[1]) == {name}:
            yield line, line.value


def _reads_last_entry(table: Directive) -> bool:
    """True if a map only reads the end of its source, which the last proxy wrote."""
    keys = [line.name for line in table.block or () if line.name != "default"]
    return bool(keys) and all(
        key.startswith("~") and key.endswith("$") and not key.lstrip("~*").startswith("^")
        for key in keys
    )


_CONF = """
events {}
http {
    %s
    limit_req_zone %s zone=one:10m rate=10r/s;
    server { listen 80; location / { limit_req zone=one burst=20 nodelay; root /srv/www; } }
}
"""
_REAL = "set_real_ip_from 10.9.0.0/16; real_ip_header X-Forwarded-For; real_ip_recursive on;"

RULE = Rule(
    id="lim-key-forged",
    severity="warning",
    title="a limit by a header that clients can forge",
    why="Proxies append their peer's address to X-Forwarded-For and keep what the client wrote at "
    "its beginning. A client that sends a different value with each request is never limited. With "
    "$http_x_forwarded_for itself, a client that sends no header has an empty key, which nginx "
    "does not count.",
    fix="Limit by $binary_remote_addr, and behind proxies set set_real_ip_from THEIR-ADDRESSES; "
    "real_ip_header X-Forwarded-For; real_ip_recursive on;",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_limit_req_module.html#limit_req_zone",
        "nginx: src/http/modules/ngx_http_limit_req_module.c, ngx_http_limit_req_handler",
        "RFC 7239, section 8.1",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="It is harmless behind a proxy that replaces the client's header and that all requests "
    "pass through. Headers that such proxies set completely (X-Real-IP and the like) are not "
    "reported, nor are application keys such as API keys, nor maps that read the end of the list.",
    bad=Example(_CONF % ("", "$http_x_forwarded_for")),
    good=Example(_CONF % (_REAL, "$binary_remote_addr")),
    check=check,
)
