from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.audit.rules.up_keepalive_http10 import REUSES_SINCE
from nginx_tune.conf.answer_bodies import ASKED_OFF, stream_sign
from nginx_tune.conf.directive import Directive
from nginx_tune.documents.decisions import Evidence


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Event streams that are requested over HTTP/1.0 and buffered."""
    reported: set[Directive] = set()
    needs_version = False
    for passed in context.passes:
        sign = stream_sign(passed.scope)
        if passed.module != "proxy" or sign is None or passed.place in reported:
            continue
        if passed.value("buffering", "on") == "off":
            continue
        http = passed.effective("http_version")
        if http is None and context.version is None:
            needs_version = True
        elif _is_http10(context, http):
            reported.add(passed.place)
            yield Hit(passed.place, _message(sign), _evidence(sign, http))
    if needs_version:
        yield MissingFacts(("nginx.nginx_version",))


def _is_http10(context: Context, http: Directive | None) -> bool:
    if http is not None:
        return http.value == "1.0"
    return context.version is not None and context.version < REUSES_SINCE


def _message(sign: Directive) -> str:
    message = "events wait here until a buffer is full, unless the upstream disables buffering"
    if sign.value.lower() != ASKED_OFF:
        return message
    return f"{message}: nginx obeys X-Accel-Buffering only in the upstream's response"


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
    why="Before nginx 1.29.7 requests are passed on as HTTP/1.0, and the response then ends with "
    "its connection. nginx passes on such a body only when a buffer (4 KiB) is full: sixteen "
    "events of 256 bytes at once, including the first. Over HTTP/1.1 each chunk is passed on as it "
    "arrives.",
    fix='Set proxy_http_version 1.1; and proxy_set_header Connection ""; in the location of the '
    "stream, or proxy_buffering off; there. An upstream can also request it in its response with "
    "X-Accel-Buffering: no.",
    sources=(
        "nginx: src/event/ngx_event_pipe.c, ngx_event_pipe_read_upstream",
        "https://github.com/dstackai/dstack/issues/4269",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    by_absence=True,
    about="Reported for locations whose path says sse, event-stream, eventsource or "
    "chat/completions, that send Accept: text/event-stream, or that set X-Accel-Buffering where it "
    "has no effect. A configuration does not show whether the upstream requests it in its "
    "responses.",
    bad=Example(_CONF % "", linux()),
    good=Example(_CONF % "proxy_http_version 1.1;", linux()),
    check=check,
)
