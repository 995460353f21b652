"""``px-event-stream-gzip``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive

_STREAM = "text/event-stream"


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Event streams that are compressed while they are buffered."""
    told: set[Directive] = set()
    for one in context.passes:
        types = one.scope.effective("gzip_types")
        if types is None or types in told or one.scope.value("gzip", "off") != "on":
            continue
        if _STREAM not in map(str.lower, types.args) and "*" not in types.args:
            continue
        if one.module == "grpc" or one.value("buffering", "on") == "off":
            continue
        told.add(types)
        yield Hit(
            types,
            "events of a stream stay in the compressor until its buffer is full",
            [written(types), default(f"{one.module}_buffering", "on")],
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
    title="an event stream is held back by gzip",
    why="A buffered answer is flushed by nobody: gzip gives its output when a buffer is full or "
    "the answer ends, which for text/event-stream (notifications, chat completions) is minutes "
    "later or never.",
    fix="Take text/event-stream (and *) out of gzip_types, or proxy_buffering off; in the location "
    "of the stream.",
    sources=(
        "nginx: src/http/modules/ngx_http_gzip_filter_module.c, ngx_http_gzip_filter_add_data",
        "nginx: src/event/ngx_event_pipe.c, ngx_event_pipe_write_to_downstream",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Without gzip a chunked stream of HTTP/1.1 is passed on as it comes, buffering or not.",
    bad=Example(_CONF % "text/css text/event-stream"),
    good=Example(_CONF % "text/css"),
    check=check,
)
