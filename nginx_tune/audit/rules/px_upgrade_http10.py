from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.audit.rules.up_keepalive_http10 import REUSES_SINCE
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.upstreams import Pass, sent_header
from nginx_tune.documents.decisions import Evidence


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Locations that forward Upgrade in requests that cannot be upgraded."""
    reported: set[Directive] = set()
    needs_version = False
    for passed in context.passes:
        upgrade = (
            sent_header(passed.scope, "proxy", "upgrade") if passed.module == "proxy" else None
        )
        if (
            upgrade is None
            or passed.place in reported
            or not _may_upgrade(context, passed, upgrade)
        ):
            continue
        fault = _fault(context, passed)
        if isinstance(fault, MissingFacts):
            needs_version = True
        elif fault is not None:
            reported.add(passed.place)
            yield Hit(upgrade, fault[0], fault[1])
    if needs_version:
        yield MissingFacts(("nginx.nginx_version",))


def _may_upgrade(context: Context, passed: Pass, upgrade: Directive) -> bool:
    """True if the header can be non-empty; nginx does not send empty headers."""
    value = upgrade.args[1]
    return "$" in value or set(context.variables.possible(value, passed.scope).known) != {""}


def _fault(context: Context, passed: Pass) -> tuple[str, list[Evidence]] | MissingFacts | None:
    http = passed.scope.effective("proxy_http_version")
    header = sent_header(passed.scope, "proxy", "connection")
    if http is None and header is not None and context.version is None:
        return MissingFacts(("nginx.nginx_version",))
    is_newer = context.version is not None and context.version >= REUSES_SINCE
    if header is None:
        closing = default("Connection header", "close")
        return "WebSockets cannot be opened here: Connection does not list Upgrade", [closing]
    message = "many upstreams reject WebSockets here, because the request is HTTP/1.0"
    if http is not None and http.value == "1.0":
        return message, [written(http)]
    if http is None and not is_newer:
        return message, [default("proxy_http_version", "1.0")]
    return None


_CONF = """
events {}
http { server {
    listen 80;
    location /live/ {
        proxy_pass http://127.0.0.1:81;
        proxy_set_header Upgrade $http_upgrade;
        proxy_set_header Connection "upgrade";
        %s
    }
} }
"""

RULE = Rule(
    id="px-upgrade-http10",
    severity="warning",
    title="WebSocket requests that upstreams do not upgrade",
    why="Before nginx 1.29.7 requests are passed on as HTTP/1.0 with Connection: close. A server "
    "must ignore Upgrade in HTTP/1.0 (RFC 9110, 7.8), and many treat the handshake as an ordinary "
    "request or reject it; some, such as Node.js, ignore the version and open the WebSocket. If "
    "Connection does not list Upgrade, no upgrade is requested.",
    fix="Set proxy_http_version 1.1; next to the Upgrade header, and proxy_set_header Connection "
    "$connection_upgrade; with a map of $http_upgrade.",
    sources=(
        "https://nginx.org/en/docs/http/websocket.html",
        "RFC 9110, 7.8; RFC 6455, 4.2.1",
        "nginx: src/http/modules/ngx_http_proxy_module.c, ngx_http_proxy_create_request",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    by_absence=True,
    bad=Example(_CONF % "", linux()),
    good=Example(_CONF % "proxy_http_version 1.1;", linux()),
    check=check,
)
