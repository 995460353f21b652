"""``lim-return-first``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.values import parse_count

_GUARDS = ("limit_req", "limit_conn", "deny", "auth_basic", "auth_request")
_GIVEN = range(200, 300)
"""Statuses that give something away: others refuse by themselves, or lead to what is guarded."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Limits and rules of access in a block that answers before they are asked."""
    if "return" not in context.names:
        return
    for scope in context.scopes:
        body = scope.own.block or Block([])
        answer = body.first("return")
        if answer is None or parse_count(answer.value) not in _GIVEN or _is_inside(scope.own):
            continue
        if _may_be_passed(body, answer):
            continue
        for name in _GUARDS:
            line = next((one for one in body.all(name) if one.value != "off"), None)
            if line is not None:
                yield Hit(line, _message(line), [written(line), written(answer)])


def _is_inside(block: Directive) -> bool:
    """True if requests come there from another location alone, which has rules of its own."""
    return block.value.startswith("@") or bool(block.block and block.block.all("internal"))


def _may_be_passed(body: Block, answer: Directive) -> bool:
    """True if a break before the answer lets some requests go on."""
    before = itertools.takewhile(lambda one: one is not answer, body)
    return any("break" in (one.name, *one.args) for line in before for one in _all_of(line))


def _all_of(line: Directive) -> Iterator[Directive]:
    yield line
    yield from line.block.walk() if line.block else ()


def _message(line: Directive) -> str:
    return f"{line.name} is never asked here: the return of the same block has answered before"


_CONF = """
events {}
http { server { listen 80; location /internal/ { allow 10.0.0.0/8; deny all; %s } } }
"""

RULE = Rule(
    id="lim-return-first",
    severity="warning",
    title="return answers before limits and rules of access",
    why="nginx goes through a request in phases. return belongs to that of rewrite, which comes "
    "before those of limit_req and limit_conn, and of allow, deny, auth_basic and auth_request: "
    "whoever asks gets the answer, as often as they like.",
    fix="Answer in a location of its own: try_files /none @answer; beside the limit or the rule, "
    "and location @answer { return ...; }.",
    sources=(
        "https://nginx.org/en/docs/dev/development_guide.html#http_phases",
        "nginx: src/http/ngx_http_core_module.h, ngx_http_phases",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="A return that refuses or leads elsewhere is passed over, and so is one in an if, or in "
    "a location for requests of others (internal, or @NAME). Limits and rules of the block around "
    "are not looked at.",
    bad=Example(_CONF % "return 200 ok;"),
    good=Example(_CONF % "root /srv/www;"),
    check=check,
)
