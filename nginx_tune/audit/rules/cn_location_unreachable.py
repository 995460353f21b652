import re
from collections.abc import Callable, Iterator
from functools import partial

from nginx_tune.audit.context import Context
from nginx_tune.audit.directives import http_lines
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.scopes import Scope
from nginx_tune.conf.values import is_open, is_placeholder
from nginx_tune.conf.virtual_servers import virtual_servers

_DOTS = re.compile(r"/\.\.?/")
_PATTERN = re.compile(r"\*|\\\.|[^$]\$$|\([^()]*\|")
"""Signs of a pattern that paths hardly have: a star, an escaped dot, an end, alternatives."""
_NAME_IN_URL = re.compile(r"(?:https?://)?(?P<host>[A-Za-z0-9.-]+)(?::[0-9]+)?(?:/.*)?")
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Locations and server names that the intended requests never reach."""
    yield from _names(context)
    reported: set[Directive] = set()
    for scope in context.scopes_that_set("location"):
        first_patterns: dict[tuple[str, str], Directive] = {}
        for location in (scope.own.block or Block([])).all("location"):
            fix = ""
            reason = _why_unreachable(location, partial(_merges_slashes, context, scope))
            if reason and _is_internal_target(context, location):
                continue
            if len(location.args) > 1 and location.value in {"~", "~*"}:
                first = first_patterns.setdefault((location.args[0], location.args[1]), location)
                if first is not location:
                    place = f"{first.file}:{first.line}"
                    reason = f"{_UNREACHABLE} the same pattern comes first at {place}"
                    fix = _TWICE
            if reason and location not in reported:
                reported.add(location)
                yield Hit(location, reason, [written(location)], fix=fix)


def _names(context: Context) -> Iterator[Hit]:
    """Names with a scheme, a port or a path, where another server answers the host itself.

    Source: ngx_http_validate_host, which removes the port.
    """
    hosts = {
        line: [(name, match["host"]) for name, match in _matches(line) if match["host"] != name]
        for line in http_lines(context, "server_name")
    }
    if not any(hosts.values()):
        return
    reported: set[Directive] = set()
    for address in virtual_servers(context.tree):
        for server in address.servers:
            for line in (server.block or Block([])).all("server_name"):
                for name, host in hosts.get(line, ()):
                    if line not in reported and address.choose(host).server is not server:
                        reported.add(line)
                        message = f'no request has the name "{name}": a name is a host alone'
                        fix = f"Write {host}, and the port in listen."
                        yield Hit(line, message, [written(line)], fix=fix)


def _matches(line: Directive) -> Iterator[tuple[str, re.Match[str]]]:
    for name in line.args:
        match = _NAME_IN_URL.fullmatch(name)
        if match is not None:
            yield name, match


def _merges_slashes(context: Context, scope: Scope) -> bool:
    """True if slashes are merged, whichever server reads the request line.

    The default server of the address reads it, unless TLS has selected another one
    (ngx_http_process_request_uri). So a single ``off`` makes it uncertain.
    """
    if scope.value("merge_slashes", "on") == "off":
        return False
    lines = context.lines_by_name.get("merge_slashes", ())
    return all(line.value.lower() != "off" for line in lines)


def _is_internal_target(context: Context, location: Directive) -> bool:
    """True if a line redirects to the path as written, which nginx does not normalise again."""
    uri = location.args[-1]
    return any(
        arg.startswith(uri)
        for name in ("rewrite", "try_files", "error_page", *_SUBREQUESTS)
        for line in context.lines_by_name.get(name, ())
        for arg in (line.args if name in _SUBREQUESTS else line.args[1:])
        if name != "try_files" or arg.startswith("/")
    )


_SUBREQUESTS = ("auth_request", "mirror", "add_before_body", "add_after_body", "post_action")
"""Directives whose first argument is the URI of a subrequest."""
_TWICE = "Remove one of the two, or narrow the pattern of the first."
_UNREACHABLE = "no request reaches this location:"


def _why_unreachable(location: Directive, merges_slashes: Callable[[], bool]) -> str:
    match location.args:
        case ("=" | "^~", uri):
            pass
        case (uri,) if not uri.startswith(("~", "@", "=", "^~")):
            pass
        case _:
            return ""
    if uri.startswith("/") and _PATTERN.search(uri) and not is_placeholder(uri):
        return "only a path with these very characters reaches this location: it has no ~"
    if not uri or is_open(uri.removesuffix("$")):
        return ""
    if not uri.startswith("/"):
        return f"{_UNREACHABLE} request paths begin with a slash"
    if _DOTS.search(uri) or (location.args[0] == "=" and uri.endswith(("/.", "/.."))):
        return f"{_UNREACHABLE} nginx resolves . and .. before it matches locations"
    if "//" in uri and merges_slashes():
        return f"{_UNREACHABLE} nginx merges slashes before it matches locations"
    if "?" in uri:
        return (
            "only a path with %3F reaches this location: locations match the path without the "
            "query string"
        )
    if _ESCAPE.search(uri):
        return (
            "only a path with %25 reaches this location: nginx decodes paths before it matches, "
            "and "
            "%XX remains only if the % itself was encoded"
        )
    return ""


_CONF = "events {} http { server { listen 80; location %s { return 204; } } }"

RULE = Rule(
    id="cn-location-unreachable",
    severity="warning",
    title="a location or server name that its intended requests do not reach",
    why="nginx -t accepts it, and the intended requests are handled elsewhere, often by a less "
    "strict location.",
    fix="Write the path as nginx matches it: beginning with a slash, decoded, without the query "
    "string (test $args or $arg_NAME for that), with single slashes, and without . or .. segments. "
    "A pattern needs ~ before it. A server name is a name alone.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#location",
        "nginx: src/http/ngx_http_core_module.c, ngx_http_core_find_location",
        "nginx: src/http/ngx_http_parse.c, ngx_http_parse_complex_uri",
        "nginx: src/http/ngx_http_request.c, ngx_http_validate_host",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="A server name with a scheme or a port is reported where another server answers the "
    "name without them. A location is not reported where rewrite, try_files or error_page leads to "
    "exactly this path: nginx does not normalise that path again. Double slashes are not reported "
    "if any server turns merge_slashes off, because the default server of an address reads the "
    "path for all of them.",
    bad=Example(_CONF % "/search?q=1"),
    good=Example(_CONF % "/search"),
    check=check,
)
