from __future__ import annotations

import itertools
from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.values import parse_count

_GUARDS = ("limit_req", "limit_conn", "deny", "auth_basic", "auth_request")
_SUCCESS = range(200, 300)
"""Statuses with content; others reject the request or redirect to a guarded location."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Limits and access rules in a block whose ``return`` runs before them."""
    if "return" not in context.names:
        return
    for scope in context.scopes:
        body = scope.own.block or Block([])
        answer = body.first("return")
        if answer is None or parse_count(answer.value) not in _SUCCESS or _is_internal(scope.own):
            continue
        if _may_be_skipped(body, answer):
            continue
        for name in _GUARDS:
            line = next(
                (directive for directive in body.all(name) if directive.value != "off"), None
            )
            if line is not None:
                message = f"{line.name} has no effect here: return in the same block runs first"
                yield Hit(line, message, [written(line), written(answer)])


def _is_internal(block: Directive) -> bool:
    """True if requests arrive only from another location, which has rules of its own."""
    return block.value.startswith("@") or bool(block.block and block.block.all("internal"))


def _may_be_skipped(body: Block, answer: Directive) -> bool:
    """True if a break before the return lets some requests pass."""
    before = itertools.takewhile(lambda directive: directive is not answer, body)
    return any(
        "break" in (directive.name, *directive.args)
        for line in before
        for directive in _with_descendants(line)
    )


def _with_descendants(line: Directive) -> Iterator[Directive]:
    yield line
    yield from line.block.walk() if line.block else ()


_CONF = """
events {}
http { server { listen 80; location /internal/ { allow 10.0.0.0/8; deny all; %s } } }
"""

RULE = Rule(
    id="lim-return-first",
    severity="warning",
    title="return runs before limits and access rules",
    why="nginx processes a request in phases. return belongs to the rewrite phase, which runs "
    "before the phases of limit_req and limit_conn, and of allow, deny, auth_basic and "
    "auth_request: everyone gets the response, as often as they like.",
    fix="Respond in a separate location: try_files /none @answer; next to the limit or rule, and "
    "location @answer { return ...; }.",
    sources=(
        "https://nginx.org/en/docs/dev/development_guide.html#http_phases",
        "nginx: src/http/ngx_http_core_module.h, ngx_http_phases",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="A return that rejects or redirects is not reported, nor is one inside an if or in a "
    "location for internal requests (internal, or @NAME). Limits and rules of outer blocks are not "
    "checked.",
    bad=Example(_CONF % "return 200 ok;"),
    good=Example(_CONF % "root /srv/www;"),
    check=check,
)
