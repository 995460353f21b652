from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, hit_at, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import Scope
from nginx_tune.conf.values import is_open, is_placeholder

_MODIFIERS = ("=", "^~", "~*", "~")
"""Modifiers of a location, longer ones first, because one may begin with another."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Misplaced locations, ``alias`` and ``proxy_pass`` with a URI."""
    if context.tree.is_template:
        return
    for scope in context.scopes_that_set("location"):
        if scope.kind == "location" and not any(map(is_placeholder, scope.own.args)):
            yield from _misplaced_locations(scope.own)
    for scope in context.scopes_that_set("alias"):
        if scope.kind != "location":
            continue
        alias, root = scope.levels[0]["alias"][0], scope.sets("root")
        if root is not None:
            yield Hit(alias, "alias and root are in one block", [written(root)])
        if scope.own.value.startswith("@"):
            yield hit_at(alias, "alias is in a named location")
    for scope in context.scopes_that_set("proxy_pass"):
        lines = list(filter(_has_uri, scope.levels[0]["proxy_pass"]))
        place = (
            "" if not lines or any(map(is_placeholder, scope.own.args)) else _without_prefix(scope)
        )
        yield from (hit_at(line, f"proxy_pass with a URI {place}") for line in lines if place)


def _misplaced_locations(outer: Directive) -> Iterator[Hit]:
    modifier, name = _modifier_and_name(outer)
    for location in outer.block.all("location") if outer.block else ():
        if any(map(is_placeholder, location.args)):
            continue
        inner_modifier, inner_name = _modifier_and_name(location)
        place = ""
        if modifier in {"=", "@"}:
            place = f'inside the {"named" if modifier == "@" else "exact"} location "{name}"'
        elif inner_modifier == "@":
            place = "inside a location, but named locations belong directly in a server"
        elif inner_modifier not in {"~", "~*"} and not inner_name.startswith(name):
            place = f'outside its enclosing location "{name}"'
        if place:
            yield Hit(location, f'the location "{inner_name}" is {place}', [written(outer)])


def _modifier_and_name(location: Directive) -> tuple[str, str]:
    """Modifier and name; nginx allows no space between them (ngx_http_core_location)."""
    match location.args:
        case (modifier, name) if modifier in _MODIFIERS:
            return modifier, name
        case (text,) if text.startswith("@"):
            return "@", text
        case (text,):
            modifier = next((one for one in _MODIFIERS if text.startswith(one)), "")
            return modifier, text[len(modifier) :]
    return "", ""


def _without_prefix(scope: Scope) -> str:
    """The kind of block, if it has no fixed prefix that a URI could replace; otherwise empty."""
    if scope.kind == "if":
        return "inside an if"
    if scope.kind != "location":
        return ""
    modifier, _ = _modifier_and_name(scope.own)
    if modifier == "@":
        return "in a named location"
    return "in a location given by a regular expression" if modifier in {"~", "~*"} else ""


def _has_uri(line: Directive) -> bool:
    """True if the address of ``proxy_pass`` has a URI. Source: ngx_parse_url."""
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
    title="a location, alias or proxy_pass where nginx rejects it",
    why='nginx does not start: emerg "location is outside location", "directive is duplicate" of '
    'alias and root, "alias cannot be used inside the named location", or "proxy_pass cannot have '
    'URI part": in a regular expression, an if or a named location there is no prefix that the URI '
    "could replace.",
    fix="Begin the path of an inner location with that of the outer one. Keep alias or root, "
    "and root alone in a named location. Remove the URI from proxy_pass and change the path with "
    "a rewrite.",
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
