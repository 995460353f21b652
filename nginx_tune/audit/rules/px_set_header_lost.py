import re
from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.upstreams import Pass

_WATCHED_HEADERS = frozenset(
    {"host", "x-forwarded-for", "x-real-ip", "x-forwarded-proto", "authorization"}
)


_CLIENT_ADDRESS = frozenset({"x-forwarded-for", "x-real-ip"})
"""Headers with the client's address; the upstream needs only one such header."""
_NO_HEADERS: frozenset[str] = frozenset()
_HOST = frozenset({"host"})
_PUBLIC_HOST = re.compile(
    r".*[\w-]\.(?!(?:local|localdomain|localhost|internal|intranet|private|lan|home|corp|svc|consul|"
    r"docker|test|example|invalid)$)[a-z]{2,}"
)
"""A name of two words or more that does not end in one of private networks (RFC 6761, 6762)."""
_FIX_ELSEWHERE = (
    "Repeat the outer lines in this block, except Host: without that line the upstream gets its "
    "own name, which a public host expects."
)


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Blocks whose own request headers drop the inherited ones."""
    reported: set[Directive] = set()
    for passed in context.passes:
        if passed.module not in {"proxy", "grpc"}:
            continue
        levels = _levels(passed)
        if len(levels) < len(("inner", "outer")) or levels[0][0] in reported:
            continue
        inner, outer = levels[0], levels[1]
        kept = {line.value.lower() for line in inner}
        redundant = _CLIENT_ADDRESS if kept & _CLIENT_ADDRESS else _NO_HEADERS
        if is_elsewhere := _is_elsewhere(context, passed):
            redundant |= _HOST
        lost = [
            line
            for line in outer
            if line.value.lower() in _WATCHED_HEADERS - kept - redundant
            and line.args[1:] != ("$proxy_host",)  # the default, which comes back
        ]
        if lost:
            reported.add(inner[0])
            names = ", ".join(dict.fromkeys(line.value for line in lost))
            yield Hit(
                inner[0],
                f"{passed.module}_set_header in this block drops the inherited headers: {names}",
                [written(line) for line in lost[:3]],
                fix=_FIX_ELSEWHERE if is_elsewhere else "",
            )


def _is_elsewhere(context: Context, passed: Pass) -> bool:
    """True if the upstream is a public host, which expects its own name in Host."""
    host = passed.place.value.rpartition("://")[2].partition("/")[0].partition(":")[0].lower()
    return host not in context.upstreams and _PUBLIC_HOST.fullmatch(host) is not None


def _levels(passed: Pass) -> list[list[Directive]]:
    """The lines of each block that has any, innermost first."""
    name = f"{passed.module}_set_header"
    levels = [(level.block or Block([])).all(name) for level in reversed(passed.scope.chain)]
    return [lines for lines in levels if lines]


_CONF = """
events {}
http { server {
    listen 80;
    proxy_set_header Host $host;
    location / { proxy_pass http://127.0.0.1:81; %s }
} }
"""

RULE = Rule(
    id="px-set-header-lost",
    severity="warning",
    title="proxy_set_header in an inner block drops the inherited headers",
    why="A block with its own proxy_set_header inherits none from outside. Without Host the "
    "upstream gets its own name; without X-Forwarded-For and X-Forwarded-Proto it mistakes every "
    "client for this proxy, and https for http.",
    fix="Repeat the outer lines in this block; an included file keeps them in one place.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_set_header",
        "nginx: src/http/modules/ngx_http_proxy_module.c, ngx_http_proxy_merge_loc_conf",
    ),
    about="X-Real-IP and X-Forwarded-For carry the same address: if one of them is sent, the other "
    "is not reported. Host is not reported where the upstream is a public host by its name.",
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    by_absence=True,
    within=frozenset({"server", "location"}),
    bad=Example(_CONF % "proxy_set_header X-Part a;"),
    good=Example(_CONF % "proxy_set_header X-Part a; proxy_set_header Host $host;"),
    check=check,
)
