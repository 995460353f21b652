from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import http_blocks
from nginx_tune.documents.decisions import Evidence

_FLAG = "--with-http_stub_status_module"
_STATUS = frozenset(
    {
        "stub_status", "api", "status", "prometheus", "vhost_traffic_status_display",
        "check_status", "req_status_show", "server_traffic_status_display", "otel_exporter",
    }
)  # fmt: skip
"""Directives of nginx, its forks and common modules that expose the counters."""


_LUA = "content_by_lua"


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """A build with ``stub_status`` and no location that uses it."""
    blocks = http_blocks(context.tree)
    if context.tree.is_part or not blocks or not context.scopes or _exposes_counters(context):
        return
    if context.flags is None:
        yield MissingFacts(("nginx.flags",))
    elif _FLAG in context.flags:
        yield Hit(
            blocks[0],
            "no location exposes the accepted and handled connections",
            [Evidence(fact="nginx.flags", value=_FLAG)],
        )


def _exposes_counters(context: Context) -> bool:
    names = [name for name in context.names if name in _STATUS or name.startswith(_LUA)]
    blocks = [scope.own.block for scope in context.scopes_that_set(*names)]
    blocks += [http.block for http in http_blocks(context.tree)]
    return any(
        _is_status(line) for block in blocks if block for name in names for line in block.all(name)
    )


def _is_status(line: Directive) -> bool:
    if line.name.startswith(_LUA):
        source = line.source.text[line.end : line.close] if line.block is not None else ""
        return "metric" in f"{line.words} {source}"
    return line.name in _STATUS


_CONF = "events {} http { server { location / { root /srv/www; } %s } }"
_HOST = linux(flags=("--with-threads", _FLAG))

RULE = Rule(
    id="ob-no-status",
    severity="info",
    title="dropped connections are not visible",
    why="Connections that nginx closes because worker_connections are used up appear in no access "
    "log: they are the difference between accepts and handled in stub_status. Without it, the "
    "number of active connections is not known either.",
    fix="Add a location for this host only: location = /nginx_status { stub_status; access_log "
    "off; allow 127.0.0.1; allow ::1; deny all; }",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_stub_status_module.html",
        "nginx: src/event/ngx_event_accept.c, ngx_event_accept",
    ),
    proof="source-only",
    whole_tree=True,
    profiles=frozenset({"strict"}),
    bad=Example(_CONF % "", _HOST),
    good=Example(_CONF % "location = /nginx_status { stub_status; }", _HOST),
    check=check,
)
