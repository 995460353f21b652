"""``cf-location-refused``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, hit_at, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import Scope
from nginx_tune.conf.values import is_open, is_placeholder

_MODIFIERS = ("=", "^~", "~*", "~")
"""A longer one before one that it begins with."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Locations where they cannot be, and addresses with a path where none can be put in place."""
    if context.tree.is_template:
        return
    for scope in context.scopes_that_set("location"):
        if scope.kind == "location" and not any(map(is_placeholder, scope.own.args)):
            yield from _inner(scope.own)
    for scope in context.scopes_that_set("proxy_pass"):
        lines = list(filter(_has_uri, scope.levels[0]["proxy_pass"]))
        where = "" if not lines or any(map(is_placeholder, scope.own.args)) else _where(scope)
        yield from (hit_at(line, f"proxy_pass with a path {where}") for line in lines if where)


def _inner(outer: Directive) -> Iterator[Hit]:
    modifier, name = _parted(outer)
    for location in outer.block.all("location") if outer.block else ():
        if any(map(is_placeholder, location.args)):
            continue
        own_modifier, own = _parted(location)
        fault = ""
        if modifier in {"=", "@"}:
            fault = f'inside the {"named" if modifier == "@" else "exact"} location "{name}"'
        elif own_modifier == "@":
            fault = "inside a location: a named one stands in a server alone"
        elif own_modifier not in {"~", "~*"} and not own.startswith(name):
            fault = f'outside of the location "{name}" around it'
        if fault:
            yield Hit(location, f'the location "{own}" is {fault}', [written(outer)])


def _parted(location: Directive) -> tuple[str, str]:
    """Modifier and name. Source: ngx_http_core_location: it may stand at the name."""
    match location.args:
        case (modifier, name) if modifier in _MODIFIERS:
            return modifier, name
        case (text,) if text.startswith("@"):
            return "@", text
        case (text,):
            modifier = next((one for one in _MODIFIERS if text.startswith(one)), "")
            return modifier, text[len(modifier) :]
    return "", ""


def _where(scope: Scope) -> str:
    """The kind of place in which no path can stand for the location's, in words; or nothing."""
    if scope.kind == "if":
        return "inside an if"
    if scope.kind != "location":
        return ""
    modifier, _ = _parted(scope.own)
    if modifier == "@":
        return "in a named location"
    return "in a location given by a pattern" if modifier in {"~", "~*"} else ""


def _has_uri(line: Directive) -> bool:
    """True if the address of ``proxy_pass`` has a path. Source: ngx_parse_url."""
    scheme, found, rest = line.value.partition("://")
    if not found or scheme.lower() not in {"http", "https"} or is_open(rest):
        return False
    if rest.lower().startswith("unix:"):
        return bool(rest[len("unix:") :].partition(":")[2])
    return "/" in rest or "?" in rest


_CONF = "events {} http { server { location ~ \\.php$ { proxy_pass http://127.0.0.1:9000%s; } } }"

RULE = Rule(
    id="cf-location-refused",
    severity="error",
    title="a location, or a proxy_pass, where nginx does not take it",
    why='nginx does not start: emerg "location is outside location", or "proxy_pass cannot have '
    'URI part": what it would take the place of is not known in a pattern, an if or a named '
    "location.",
    fix="Give an inner location the path of the outer one and more; leave the path out of "
    "proxy_pass, and change it by a rewrite.",
    sources=(
        "nginx: src/http/ngx_http_core_module.c, ngx_http_core_location",
        "nginx: src/http/modules/ngx_http_proxy_module.c, ngx_http_proxy_pass",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    bad=Example(_CONF % "/app/"),
    good=Example(_CONF % ""),
    check=check,
)
