"""``lim-deny-lost``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.scopes import Scope

_EVERYBODY = frozenset({"all", "0.0.0.0/0", "::/0"})
_OTHER_GUARDS = ("auth_basic", "auth_request", "auth_jwt")


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Blocks that only allow, inside of one that denies."""
    if not {"allow", "deny"} <= context.names:
        return
    for scope in context.scopes:
        body = scope.own.block or Block([])
        allowed = body.all("allow")
        if (
            not allowed
            or body.all("deny")
            or _is_other_way_in(scope)
            or any(one.value in _EVERYBODY for one in allowed)
        ):
            continue
        denied = _around(scope)
        if denied is not None:
            yield Hit(
                allowed[0],
                f"no address is refused here: {denied} of the block around holds no longer",
                [written(allowed[0]), written(denied)],
            )


def _is_other_way_in(scope: Scope) -> bool:
    """True if an address is one way in among others, and who has another needs none."""
    return scope.value("satisfy") == "any" and any(
        scope.value(name, "off") != "off" for name in _OTHER_GUARDS
    )


def _around(scope: Scope) -> Directive | None:
    """The last deny of the nearest block around that has a rule at all."""
    for level in reversed(scope.chain[:-1]):
        body = level.block or Block([])
        if body.all("allow") or body.all("deny"):
            return next(reversed(body.all("deny")), None)
    return None


_CONF = """
events {}
http {
    server {
        listen 80;
        deny all;
        location /status { allow 10.0.0.0/8; %s stub_status; }
    }
}
"""

RULE = Rule(
    id="lim-deny-lost",
    severity="warning",
    title="allow takes away the deny of the block around",
    why="allow and deny are inherited only by a block that has none of them. One that allows some "
    "addresses and denies nobody has no rule for all others, and who fits no rule is not refused.",
    fix="deny all; behind the last allow of the block.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_access_module.html",
        "nginx: src/http/modules/ngx_http_access_module.c, ngx_http_access_merge_loc_conf",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="allow all; is taken for meant, and so is allow beside satisfy any and a password. A "
    "block that allows where none around it denies, and limit_except, are not looked at.",
    bad=Example(_CONF % ""),
    good=Example(_CONF % "deny all;"),
    check=check,
)
