"""``tls-early-data-replay``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.scopes import Scope
from nginx_tune.conf.upstreams import sent_header

_MODULES = frozenset({"proxy", "grpc"})
_VARIABLE = "$ssl_early_data"


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Servers that pass requests of early data on without saying that they are."""
    takers = _takers(context)
    told: set[Directive] = set()
    if any(_VARIABLE in " ".join(line.args) for line in context.lines_by_name.get("if", ())):
        return
    for one in context.passes:
        line = takers.get(one.scope.server)
        if line is None or one.module not in _MODULES or one.place in told:
            continue
        if sent_header(one.scope, one.module, "early-data") is not None or _refuses(one.scope):
            continue
        told.add(one.place)
        yield Hit(
            one.place,
            "requests that a third party may have sent a second time are passed on like any other",
            [written(line)],
        )


def _takers(context: Context) -> dict[Directive, Directive]:
    """The servers that take early data, with the line that says so."""
    found: dict[Directive, Directive] = {}
    for listener in context.tls_listeners:
        for server in listener.servers:
            line = server.effective("ssl_early_data")
            if line is not None and line.value.lower() == "on":
                found[server.server] = line
    return found


def _refuses(scope: Scope) -> bool:
    """True if only methods that change nothing come through."""
    for level in scope.chain:
        block = level.block or Block([])
        for line in block.all("limit_except"):
            if {method.upper() for method in line.args} <= {"GET", "HEAD"}:
                return True
    return False


_CONF = """
events {}
http { server {
    listen 443 ssl;
    ssl_early_data on;
    location / { proxy_pass http://127.0.0.1:81; %s }
} }
"""

RULE = Rule(
    id="tls-early-data-replay",
    severity="warning",
    title="early data is passed on without a word",
    why="Who has seen the first packets of a TLS 1.3 connection can send them again, and nginx "
    "does not look for repetitions: an order may be placed twice. The server behind can only "
    "answer 425 Too Early to what it is told of.",
    fix="proxy_set_header Early-Data $ssl_early_data; and let the application answer 425 to what "
    "must not happen twice; or ssl_early_data off;",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_ssl_module.html#ssl_early_data",
        "RFC 8470, 5.1; RFC 8446, 8",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="A configuration that tests $ssl_early_data by an if is passed over.",
    since="1.15.3",
    by_absence=True,
    bad=Example(_CONF % ""),
    good=Example(_CONF % "proxy_set_header Early-Data $ssl_early_data;"),
    check=check,
)
