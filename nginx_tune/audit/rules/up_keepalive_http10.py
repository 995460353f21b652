from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.answer_bodies import UNBUFFERED, is_better_left, stays_at_1_0, unrepeated
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.locations import is_for_monitors
from nginx_tune.conf.upstreams import (
    Pass,
    UpstreamBlock,
    identity_that_differs,
    lost_connection_header,
    sent_header,
)
from nginx_tune.documents.decisions import Evidence

REUSES_SINCE = (1, 29, 7)
"""The first version that uses HTTP/1.1 without ``Connection: close`` by default."""

FIX_WITH_UPGRADE = (
    'map $http_upgrade $connection_upgrade { default upgrade; "" ""; } in http, and here '
    "proxy_http_version 1.1; and proxy_set_header Connection $connection_upgrade; beside "
    "proxy_set_header Upgrade (no header for ordinary requests, and WebSockets keep working)."
)
NEXT_TO_OTHERS = (
    "next to the other proxy_set_header lines of that block: a block with its own inherits none "
    "from outside."
)


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Locations whose requests make the upstream close the connection."""
    reported: set[Directive] = set()
    needs_version = False
    for name, upstream in context.upstreams.items():
        if not _has_pool(upstream):
            continue
        all_passes = context.passes_by_upstream[name]
        if identity_that_differs(all_passes, context.variables, name) is not None:
            continue  # connections must not be shared here
        users = [one for one in all_passes if one.module == "proxy"]
        faults = {user.place: fault_of_reuse(context, user) for user in users}
        pool_is_unused = all(fault is not None for fault in faults.values())
        for passed in users:
            fault = faults[passed.place]
            if (
                fault is None
                or passed.place in reported
                or (not pool_is_unused and passes_upgrade(passed))
            ):
                continue
            if needs_version and isinstance(fault, MissingFacts):
                continue
            plain = _needs_plain(passed) if pool_is_unused else None
            if is_for_monitors(passed.scope) or (plain is None and is_better_left(passed)):
                continue
            reported.add(passed.place)
            if isinstance(fault, MissingFacts):
                needs_version = True
            else:
                yield Hit(
                    passed.place,
                    f'upstream "{name}" keeps idle connections, but requests from here never reuse '
                    f"one: {fault[0]}",
                    fault[1],
                    fix=_fix(context, passed, plain),
                    why="" if fault[0] == _OLD_PROTOCOL else _WHY_CLOSED,
                )
    if needs_version:
        yield MissingFacts(("nginx.nginx_version",))


def _needs_plain(passed: Pass) -> Directive | None:
    """The ``sub_filter`` line that needs HTTP/1.0, if nothing else asks for plain responses."""
    is_apart = unrepeated(passed.scope, "proxy") is not None
    if is_apart or passed.scope.value(UNBUFFERED) == "off":
        return None
    return stays_at_1_0(passed.scope)


def _fix(context: Context, passed: Pass, plain: Directive | None) -> str:
    """The fix for a location; ``plain`` is the line that needs uncompressed responses."""
    fix = fix_of_headers(context, [passed]) or (_FIX if plain is not None else "")
    if plain is None:
        return fix
    return (
        f'{fix} Set proxy_set_header Accept-Encoding ""; there too: over HTTP/1.1 the upstream may '
        f"compress, and {plain} is for plain answers."
    )


def _has_pool(upstream: UpstreamBlock) -> bool:
    return upstream.keepalive is not None and upstream.keepalive.value != "0"


def passes_upgrade(passed: Pass) -> bool:
    """True if the location may be for WebSockets, whose connections are not reused anyway."""
    line = sent_header(passed.scope, passed.module, "upgrade")
    return line is not None and line.args[1] != ""


def fix_of_headers(context: Context, users: list[Pass]) -> str:
    """The fix of the Connection header, if a map sets it or Upgrade is passed on; else empty."""
    for user in users:
        header = sent_header(user.scope, user.module, "connection")
        for table in _maps_of(context, header):
            lines = table.block.directives if table.block is not None else []
            for line in lines:
                if [arg.lower() for arg in line.args] == ["close"]:
                    return (
                        f"In the map of {table.args[1]} ({line.file}:{line.line}), write "
                        '"" instead of close: then ordinary requests carry no Connection header, '
                        "and WebSockets keep working. Where requests are passed on, set "
                        "proxy_http_version 1.1; too."
                    )
    return FIX_WITH_UPGRADE if any(map(passes_upgrade, users)) else ""


def _maps_of(context: Context, header: Directive | None) -> list[Directive]:
    """The maps that make the value of a header."""
    if header is None:
        return []
    return [one for one in context.client_lines("map") if one.args[1:] == header.args[1:]]


def fault_of_reuse(
    context: Context, passed: Pass
) -> tuple[str, list[Evidence]] | MissingFacts | None:
    """The reason why connections of a ``proxy_pass`` are never reused; None if they can be."""
    http = passed.scope.effective("proxy_http_version")
    header = sent_header(passed.scope, "proxy", "connection")
    if (http is None or header is None) and context.version is None:
        return MissingFacts(("nginx.nginx_version",))
    reuses = context.version is not None and context.version >= REUSES_SINCE
    sent = _connection_values(context, passed, header, reuses=reuses)
    version = http.value if http is not None else "1.1" if reuses else "1.0"
    if version == "1.0" and "keep-alive" not in sent:
        shown = written(http) if http is not None else default("proxy_http_version", "1.0")
        return _OLD_PROTOCOL, [shown]
    if version.startswith("1") and "close" in sent and not sent & {"", "keep-alive"}:
        return _closed(context, passed, header)
    return None


def _connection_values(
    context: Context, passed: Pass, header: Directive | None, *, reuses: bool
) -> frozenset[str]:
    """The known possible values of the Connection header, lowercase."""
    if header is None:
        return frozenset({"" if reuses else "close"})
    known = context.variables.possible(header.args[1], passed.scope).known
    return frozenset(value.lower() for value in known)


def _closed(context: Context, passed: Pass, header: Directive | None) -> tuple[str, list[Evidence]]:
    if header is not None:
        value = f" (the value of {header.args[1]})" if "$" in header.args[1] else ""
        maps = map(written, _maps_of(context, header))
        return f"they carry Connection: close{value}", [written(header), *maps]
    lost = lost_connection_header(passed.scope)
    if lost is None:
        return "they carry Connection: close", [default("Connection header", "close")]
    return (
        "they carry Connection: close, because proxy_set_header here drops the inherited headers",
        [written(lost)],
    )


_OLD_PROTOCOL = "they are HTTP/1.0"
_WHY_CLOSED = (
    "Connection: close makes the upstream close the connection after the response, whatever the "
    "version of HTTP, and the pool of idle connections stays empty."
)
_FIX = (
    'Set proxy_http_version 1.1; and proxy_set_header Connection ""; where requests are passed '
    f"on, {NEXT_TO_OTHERS}"
)

_CONF = """
events {}
http {
    upstream app { server 10.0.0.1:8080; keepalive 32; }
    server { location / { proxy_pass http://app; %s} }
}
"""

RULE = Rule(
    id="up-keepalive-http10",
    severity="warning",
    title="keepalive connections of an upstream are never reused",
    why="Before nginx 1.29.7 requests are passed on as HTTP/1.0 with Connection: close. The "
    "upstream closes the connection after each response, and the pool of idle connections stays "
    "empty.",
    fix=_FIX,
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_upstream_module.html#keepalive",
        "nginx: src/http/modules/ngx_http_proxy_module.c, ngx_http_proxy_process_status_line",
        "nginx change log, 1.29.7",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="A map that turns an absent Upgrade header into close has the same effect on all "
    "ordinary requests. An empty string instead of close keeps WebSockets working and connections "
    "alive. A location that passes on Upgrade is not reported if another one uses the pool. "
    "Locations that are named as a health check or for metrics are never reported, nor are "
    "locations that are better left at HTTP/1.0: with proxy_request_buffering off, or where "
    "proxy_next_upstream lacks error. A location with a body filter, a cache or a script that "
    "requests it as a subrequest is reported only if no location uses the pool. The fix then keeps "
    "the upstream from compressing, which it may do over HTTP/1.1.",
    by_absence=True,
    bad=Example(_CONF % "", linux()),
    good=Example(_CONF % 'proxy_http_version 1.1; proxy_set_header Connection ""; ', linux()),
    check=check,
)
