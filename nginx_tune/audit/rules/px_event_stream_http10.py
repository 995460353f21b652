"""``px-event-stream-http10``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.audit.rules.up_keepalive_http10 import REUSES_SINCE
from nginx_tune.conf.answer_bodies import ASKED_OFF, stream_sign
from nginx_tune.conf.directive import Directive
from nginx_tune.documents.decisions import Evidence


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Event streams that are asked for in HTTP/1.0 and buffered."""
    told: set[Directive] = set()
    is_version_needed = False
    for one in context.passes:
        sign = stream_sign(one.scope)
        if one.module != "proxy" or sign is None or one.place in told:
            continue
        if one.value("buffering", "on") == "off":
            continue
        http = one.effective("http_version")
        if http is None and context.version is None:
            is_version_needed = True
        elif _is_old(context, http):
            told.add(one.place)
            yield Hit(one.place, _message(sign), _evidence(sign, http))
    if is_version_needed:
        yield MissingFacts(("nginx.nginx_version",))


def _is_old(context: Context, http: Directive | None) -> bool:
    if http is not None:
        return http.value == "1.0"
    return context.version is not None and context.version < REUSES_SINCE


def _message(sign: Directive) -> str:
    said = "events wait here until a buffer is full, unless the server itself asks otherwise"
    if sign.value.lower() != ASKED_OFF:
        return said
    return f"{said}: nginx obeys X-Accel-Buffering in the server's answer alone"


def _evidence(sign: Directive, http: Directive | None) -> list[Evidence]:
    version = written(http) if http is not None else default("proxy_http_version", "1.0")
    return [written(sign), version, default("proxy_buffering", "on")]


_CONF = """
events {}
http { server {
    listen 80;
    location /v1/chat/completions {
        proxy_pass http://127.0.0.1:81;
        %s
    }
} }
"""

RULE = Rule(
    id="px-event-stream-http10",
    severity="warning",
    title="an event stream waits for buffers to fill",
    why="Before nginx 1.29.7 requests are passed on as HTTP/1.0, and a server answers that with a "
    "body that ends with its connection. Of such a body a buffer (4 KiB) is passed on when it is "
    "full: of events of 256 bytes sixteen at once, and the first with them. In chunks, which "
    "HTTP/1.1 brings, each is passed on as it comes.",
    fix='proxy_http_version 1.1; and proxy_set_header Connection ""; in the location of the '
    "stream, or proxy_buffering off; there. A server can also ask for it in its answer: "
    "X-Accel-Buffering: no.",
    sources=(
        "nginx: src/event/ngx_event_pipe.c, ngx_event_pipe_read_upstream",
        "https://github.com/dstackai/dstack/issues/4269",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    by_absence=True,
    about="Told of locations whose path says sse, event-stream, eventsource or chat/completions, "
    "that send Accept: text/event-stream, or that set X-Accel-Buffering where it has no effect. "
    "Whether the server asks for it in its answers is not seen in a configuration.",
    bad=Example(_CONF % "", linux()),
    good=Example(_CONF % "proxy_http_version 1.1;", linux()),
    check=check,
)
