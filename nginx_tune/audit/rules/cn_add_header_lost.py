"""``cn-add-header-lost``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.declared import written
from nginx_tune.audit.rule import Example, Hit, Missing, Rule
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.scopes import Scope

_WATCHED = frozenset(
    {
        "strict-transport-security", "content-security-policy", "x-frame-options",
        "x-content-type-options", "referrer-policy", "permissions-policy",
        "access-control-allow-origin",
    }
)  # fmt: skip


def check(context: Context) -> Iterator[Hit | Missing]:
    """Levels whose own headers take the outer ones away."""
    told: set[Directive] = set()
    for scope in context.scopes:
        if scope.value("add_header_inherit") == "merge":
            continue
        own = [line for line in (scope.own.block or Block([])).all("add_header") if line.args]
        if not own or own[0] in told:
            continue
        kept = {line.value.lower() for line in own}
        lost = [line for line in _outer(scope) if line.value.lower() in _WATCHED - kept]
        if lost:
            told.add(own[0])
            names = ", ".join(dict.fromkeys(line.value for line in lost))
            yield Hit(
                own[0],
                f"this level's add_header takes away those of the levels around it: {names}",
                [written(line) for line in lost[:3]],
            )


def _outer(scope: Scope) -> list[Directive]:
    """The lines that would hold here if the level had none."""
    for level in reversed(scope.chain[:-1]):
        lines = [line for line in (level.block or Block([])).all("add_header") if line.args]
        if lines:
            return lines
    return []


_CONF = """
events {}
http { server {
    listen 80;
    add_header Strict-Transport-Security "max-age=31536000" always;
    location /static/ { root /srv; %s }
} }
"""

RULE = Rule(
    id="cn-add-header-lost",
    severity="advice",
    title="an inner add_header takes the outer headers away",
    why="A level with any add_header takes none from outside. Headers that protect the client or "
    "let other origins in are then missing from just these answers.",
    fix="Repeat the outer lines beside this one (an included file keeps them together), or from "
    "nginx 1.29.3 add_header_inherit merge;",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_headers_module.html#add_header",
        "nginx: src/http/modules/ngx_http_headers_filter_module.c, ngx_http_headers_merge_conf",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Only headers whose absence has consequences are watched: those that protect the client, "
    "and Access-Control-Allow-Origin. Caching headers differ from place to place on purpose.",
    by_absence=True,
    within=frozenset({"server", "location"}),
    bad=Example(_CONF % "add_header Cache-Control public;"),
    good=Example(_CONF % ""),
    check=check,
)
