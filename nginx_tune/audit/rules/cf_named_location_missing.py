from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, hit_at
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.scopes import Scope

_USERS = ("error_page", "try_files")


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Named locations that their server does not define."""
    lines = [line for name in _USERS for line in context.lines_by_name.get(name, ())]
    if not any(line.args and line.args[-1].startswith("@") for line in lines):
        return
    reported: set[Directive] = set()
    for scope in context.scopes_with(*_USERS):
        lines = [line for name in _USERS if (line := scope.effective(name)) is not None]
        lines += scope.effective_all("error_page")
        for line in dict.fromkeys(lines):
            name = line.args[-1] if line.args else ""
            if not name.startswith("@") or "$" in name or line in reported:
                continue
            if name not in _named_locations(scope):
                reported.add(line)
                yield hit_at(line, f'this server has no location "{name}"')


def _named_locations(scope: Scope) -> set[str]:
    """The names of the server's named locations."""
    block = scope.server.block or Block([])
    return {location.value for location in block.all("location")}


_CONF = """
events {}
http { server { listen 80; location / { root /srv; try_files $uri @app; } %s } }
"""

RULE = Rule(
    id="cf-named-location-missing",
    severity="error",
    title="a named location that the server does not define",
    why='nginx -t accepts it, and each request that is sent there is answered with 500: "could not '
    'find named location".',
    fix="Add the location, or use the name of one in this server; named locations of other servers "
    "are not visible here.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#location",
        "nginx: src/http/ngx_http_core_module.c, ngx_http_named_location",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    by_absence=True,
    within=frozenset({"server"}),
    bad=Example(_CONF % ""),
    good=Example(_CONF % "location @app { return 204; }"),
    check=check,
)
