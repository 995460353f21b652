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
    """Blocks with only ``allow`` inside a block that denies."""
    if not {"allow", "deny"} <= context.names:
        return
    for scope in context.scopes:
        body = scope.own.block or Block([])
        allowed = body.all("allow")
        if (
            not allowed
            or body.all("deny")
            or _is_alternative(scope)
            or any(directive.value in _EVERYBODY for directive in allowed)
        ):
            continue
        denied = _outer_deny(scope)
        if denied is not None:
            yield Hit(
                allowed[0],
                f'no address is denied here: this allow replaces the outer "{denied}"',
                [written(allowed[0]), written(denied)],
            )


def _is_alternative(scope: Scope) -> bool:
    """True if clients may get access by other means than their address (``satisfy any``)."""
    return scope.value("satisfy") == "any" and any(
        scope.value(name, "off") != "off" for name in _OTHER_GUARDS
    )


def _outer_deny(scope: Scope) -> Directive | None:
    """The last deny of the nearest outer block with an access rule; None if it has no deny."""
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
    title="allow in an inner block drops the outer deny",
    why="A block inherits allow and deny only if it has neither of its own. One that allows some "
    "addresses and denies none has no rule for all others, and an address that matches no rule is "
    "let in.",
    fix="Add deny all; after the last allow of the block.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_access_module.html",
        "nginx: src/http/modules/ngx_http_access_module.c, ngx_http_access_merge_loc_conf",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="allow all; is assumed to be intended, and so is allow with satisfy any and a password. "
    "Blocks without an outer deny and limit_except are not checked.",
    bad=Example(_CONF % ""),
    good=Example(_CONF % "deny all;"),
    check=check,
)
