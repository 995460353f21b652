from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive

_STREAM = "text/event-stream"


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Event streams that are buffered and compressed."""
    reported: set[Directive] = set()
    for passed in context.passes:
        types = passed.scope.effective("gzip_types")
        if types is None or types in reported or passed.scope.value("gzip", "off") != "on":
            continue
        if _STREAM not in map(str.lower, types.args) and "*" not in types.args:
            continue
        if passed.module == "grpc" or passed.value("buffering", "on") == "off":
            continue
        reported.add(types)
        yield Hit(
            types,
            "gzip holds the events of a stream until its buffer is full",
            [written(types), default(f"{passed.module}_buffering", "on")],
        )


_CONF = """
events {}
http { server {
    listen 80;
    gzip on;
    gzip_types %s;
    location / { proxy_pass http://127.0.0.1:81; }
} }
"""

RULE = Rule(
    id="px-event-stream-gzip",
    severity="warning",
    title="gzip delays an event stream",
    why="A buffered response is never flushed: gzip outputs data when a buffer is full or the "
    "response ends, which for text/event-stream (notifications, chat completions) is minutes later "
    "or never.",
    fix="Remove text/event-stream (and *) from gzip_types, or set proxy_buffering off; in the "
    "location of the stream.",
    sources=(
        "nginx: src/http/modules/ngx_http_gzip_filter_module.c, ngx_http_gzip_filter_add_data",
        "nginx: src/event/ngx_event_pipe.c, ngx_event_pipe_write_to_downstream",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Without gzip a chunked HTTP/1.1 stream is passed on as it arrives, with or without "
    "buffering.",
    bad=Example(_CONF % "text/css text/event-stream"),
    good=Example(_CONF % "text/css"),
    check=check,
)
