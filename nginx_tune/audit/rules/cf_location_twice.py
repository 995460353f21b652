from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Locations of one server with the same path."""
    for scope in context.scopes_that_set("location") if not context.tree.is_template else ():
        locations = scope.own.block.all("location") if scope.own.block is not None else ()
        if scope.kind == "if" or len(locations) < 2:  # noqa: PLR2004
            continue
        first_locations: dict[tuple[str, str], Directive] = {}
        for location in locations:
            key = _key(location)
            if key is None:
                continue
            earlier = first_locations.setdefault(key, location)
            if earlier is not location:
                yield Hit(
                    location,
                    f'location "{key[1]}" is already defined at {earlier.file}:{earlier.line}',
                    [written(earlier)],
                )


def _key(location: Directive) -> tuple[str, str] | None:
    """Kind and path; None for regular expressions and named locations, which may repeat."""
    if len(location.args) == 1 and location.value.startswith("/"):
        return "", location.value
    match location.args:
        case ("=", uri):
            return "=", uri
        case ("^~", uri):
            return "", uri
        case (text,) if text.startswith("="):
            return "=", text[1:]
        case (text,) if text.startswith("^~"):
            return "", text[2:]
        case (text,) if not text.startswith(("~", "@")):
            return "", text
    return None


RULE = Rule(
    id="cf-location-twice",
    severity="error",
    title="a location appears twice in a server",
    why='nginx does not start: emerg "duplicate location". A prefix with ^~ and the same one '
    "without are one location; with = it is another.",
    fix="Merge the two blocks. The usual cause is a file that is included twice.",
    sources=("nginx: src/http/ngx_http.c, ngx_http_join_exact_locations",),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    bad=Example("events {} http { server { location /a { } location ^~ /a { } } }"),
    good=Example("events {} http { server { location /a { } location = /a { } } }"),
    check=check,
)
