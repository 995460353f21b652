"""``up-proxy-pass-no-resolver``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.declared import default, written
from nginx_tune.audit.rule import Example, Hit, MissingFacts, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.templates import is_placeholder
from nginx_tune.conf.upstreams import Pass, host_of, is_resolved_once


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Servers that are looked up for each request, with nobody to ask."""
    told: set[Directive] = set()
    for one in context.passes:
        if not one.has_variables or one.place in told or one.scope.effective("resolver"):
            continue
        name = _unresolved(context, one)
        if name:
            told.add(one.place)
            yield Hit(
                one.place,
                f"the server is looked up for each request, {name} cannot be: no resolver",
                [written(one.place), default("resolver", "none")],
            )


def _unresolved(context: Context, one: Pass) -> str:
    """A name that must be looked up; empty where there is none."""
    host = _host_text(one.place.value)
    if is_placeholder(host):
        return ""
    known = context.variables.possible(host, one.scope)
    for value in sorted(known.known):
        address = _host_text(value).lower()
        if address not in context.upstreams and is_resolved_once(name := host_of(address)):
            return f'"{name}"'
    if known.complete or known.known or _is_answered(context, host):
        return ""
    return "a name that a request brings"


def _is_answered(context: Context, host: str) -> bool:
    """Whether a server or a script gives the name: it may give addresses alone."""
    used = [(match[1] or match[2]).lower() for match in _VARIABLE.finditer(host)]
    if any(name.startswith(_OF_ANSWERS) for name in used):
        return True
    makers = (
        line
        for kind, lines in context.kinds.items()
        if kind.name in _BY_OTHERS or kind.name.startswith("set_by_")
        for line in lines
    )
    return any(line.value.lstrip("$").lower() in used for line in makers)


_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_OF_ANSWERS = ("upstream_", "sent_")
_BY_OTHERS = frozenset({"auth_request_set", "js_set", "js_var", "perl_set", "keyval"})


def _host_text(value: str) -> str:
    """The server's part of a URL."""
    _, scheme, rest = value.rpartition("://")
    host = (rest if scheme else value).partition("/")[0]
    return host.partition("$request_uri")[0].partition("$uri")[0]


_CONF = """
events {}
http { %sserver { listen 80; location / {
    set $backend app.example.com;
    proxy_pass http://$backend;
} } }
"""

RULE = Rule(
    id="up-proxy-pass-no-resolver",
    severity="error",
    title="a server is chosen by a variable and no resolver is set",
    why='Every such request is answered with 502: "no resolver defined to resolve NAME". nginx -t '
    "accepts it, since the name is known at the request only.",
    fix="resolver ADDRESS valid=30s; in http, with the address of a name server that this host may "
    "ask (127.0.0.53 for systemd-resolved); or name an upstream.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#resolver",
        "nginx: src/http/ngx_http_upstream.c, ngx_http_upstream_init_request",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Any variable in the line, in the path too, puts the lookup off to the request. Silent "
    "where every value that is known is an address or an upstream of the configuration, and "
    "where another server's answer, a script or a key-value zone gives it.",
    bad=Example(_CONF % ""),
    good=Example(_CONF % "resolver 127.0.0.53; "),
    check=check,
)
