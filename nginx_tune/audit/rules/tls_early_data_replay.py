from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.scopes import Scope
from nginx_tune.conf.upstreams import sent_header

_MODULES = frozenset({"proxy", "grpc"})
_VARIABLE = "$ssl_early_data"


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Early data that is passed on without a header that marks it."""
    accepting = _accepting_servers(context)
    reported: set[Directive] = set()
    if any(_VARIABLE in " ".join(line.args) for line in context.lines_by_name.get("if", ())):
        return
    for passed in context.passes:
        line = accepting.get(passed.scope.server)
        if line is None or passed.module not in _MODULES or passed.place in reported:
            continue
        if sent_header(passed.scope, passed.module, "early-data") is not None or _is_read_only(
            passed.scope
        ):
            continue
        reported.add(passed.place)
        yield Hit(
            passed.place,
            "requests that an attacker may have replayed are passed on unmarked",
            [written(line)],
        )


def _accepting_servers(context: Context) -> dict[Directive, Directive]:
    """The servers that accept early data, and the line that enables it."""
    found: dict[Directive, Directive] = {}
    for listener in context.tls_listeners:
        for server in listener.servers:
            line = server.effective("ssl_early_data")
            if line is not None and line.value.lower() == "on":
                found[server.server] = line
    return found


def _is_read_only(scope: Scope) -> bool:
    """True if only methods that change nothing are allowed."""
    for level in scope.chain:
        block = level.block or Block([])
        for line in block.all("limit_except"):
            if {method.upper() for method in line.args} <= {"GET", "HEAD"}:
                return True
    return False


_CONF = """
events {}
http { server {
    listen 443 ssl;
    ssl_early_data on;
    location / { proxy_pass http://127.0.0.1:81; %s }
} }
"""

RULE = Rule(
    id="tls-early-data-replay",
    severity="warning",
    title="early data is passed on unmarked",
    why="An attacker who recorded the first packets of a TLS 1.3 connection can send them again, "
    "and nginx does not detect replays: an order may be placed twice. The upstream can answer 425 "
    "Too Early only if it knows.",
    fix="Set proxy_set_header Early-Data $ssl_early_data; and let the application answer 425 where "
    "a replay would do harm, or set ssl_early_data off;",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_ssl_module.html#ssl_early_data",
        "RFC 8470, 5.1; RFC 8446, 8",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="A configuration that tests $ssl_early_data in an if is not reported.",
    since="1.15.3",
    by_absence=True,
    bad=Example(_CONF % ""),
    good=Example(_CONF % "proxy_set_header Early-Data $ssl_early_data;"),
    check=check,
)
