"""``lim-key-forged``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.values import parameter
from nginx_tune.conf.variables import variables_of

_LISTS = frozenset({"http_x_forwarded_for", "proxy_add_x_forwarded_for", "http_forwarded"})
"""Headers to which proxies add: what the client sent stays at their beginning."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Limits whose key a client can make up."""
    used = {parameter(line.args, "zone") for line in context.client_lines("limit_req")}
    used |= {line.value for line in context.client_lines("limit_conn")}
    for kind in ("limit_req_zone", "limit_conn_zone"):
        for line in context.client_lines(kind):
            if (parameter(line.args, "zone") or "").partition(":")[0] not in used:
                continue
            origin = _forged(context, line)
            if origin is not None:
                name, place = origin
                through = "" if place is line else f", by the {place.name} that makes it"
                yield Hit(
                    line,
                    f"the key holds ${name}{through}, of which a client says itself what it is",
                    [written(line), *([] if place is line else [written(place)])],
                )


def _forged(context: Context, zone: Directive) -> tuple[str, Directive] | None:
    """A header that decides on the key, and the line that has it."""
    asked = [(name, zone) for name in sorted(variables_of(zone.value))]
    seen = set()
    while asked:
        name, place = asked.pop()
        if name in _LISTS:
            return name, place
        if name in seen:
            continue
        seen.add(name)
        for maker, text in _made_of(context, name):
            asked += [(one, maker) for one in sorted(variables_of(text))]
    return None


def _made_of(context: Context, name: str) -> Iterator[tuple[Directive, str]]:
    """The lines that make a variable, with each text that decides on it."""
    for table in context.variables.tables(name):
        if not _takes_the_last(table):
            yield table, table.value
        for line in table.block or ():
            yield table, line.value
    for line in context.lines_by_name.get("set", []):
        if len(line.args) > 1 and variables_of(line.value) == {name}:
            yield line, line.args[1]
    for line in context.lines_by_name.get("geo", []):
        if len(line.args) > 1 and variables_of(line.args[1]) == {name}:
            yield line, line.value


def _takes_the_last(table: Directive) -> bool:
    """True if a map looks at the end of what it is given alone, which the last proxy wrote."""
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
    title="a limit by a header that clients can make up",
    why="Proxies add the address of who came to them at the end of X-Forwarded-For, and leave at "
    "its beginning what the client wrote there. Who writes something else into each request is "
    "never limited; and with $http_x_forwarded_for itself who sends none has an empty key, which "
    "nginx does not count.",
    fix="limit by $binary_remote_addr, and where proxies stand in front, set_real_ip_from "
    "THEIR-ADDRESSES; real_ip_header X-Forwarded-For; real_ip_recursive on;",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_limit_req_module.html#limit_req_zone",
        "nginx: src/http/modules/ngx_http_limit_req_module.c, ngx_http_limit_req_handler",
        "RFC 7239, section 8.1",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="A proxy in front that puts another header in the place of the client's, and through "
    "which everybody has to come, makes it harmless. Headers that such proxies set whole "
    "(X-Real-IP and the like) are left alone, and so are keys of an application, as of an API, and "
    "maps that take the end of the list.",
    bad=Example(_CONF % ("", "$http_x_forwarded_for")),
    good=Example(_CONF % (_REAL, "$binary_remote_addr")),
    check=check,
)
