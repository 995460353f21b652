"""``px-buffering-off-global``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, counted, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.served import MODULES
from nginx_tune.conf.upstreams import Pass, depth_of
from nginx_tune.conf.values import parse_bytes

IN_SERVER = 1
_OF_OBJECTS_BYTES = 1 << 30
"""Also the default of proxy_max_temp_file_size: what passes it is not buffered anyway."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``buffering off`` in http or a server where several locations pass requests on."""
    places: dict[Directive, list[Pass]] = {}
    for one in context.passes:
        line = one.effective("buffering")
        if one.module not in MODULES or line is None or line.value.lower() != "off":
            continue
        depth = depth_of(one.scope, line.name)
        if depth < IN_SERVER or (depth == IN_SERVER and not _streams(one)):
            places.setdefault(line, []).append(one)
    for line, users in places.items():
        count = len(users)
        if count > 1 and len({one.addresses or (one.place.value,) for one in users}) > 1:
            yield Hit(
                line,
                f"the responses of all {count} places that it holds for are sent no faster than "
                "their clients read",
                [written(line), counted("places that pass requests on", count)],
            )


def _streams(one: Pass) -> bool:
    """True if the server is there for streams or large objects: requests say so."""
    largest_bytes = parse_bytes(one.scope.value("client_max_body_size", "1m"))
    return one.value("request_buffering", "on") == "off" or (
        largest_bytes is not None and not 0 < largest_bytes < _OF_OBJECTS_BYTES
    )


_CONF = """
events {}
http { server {
    %s
    location / { proxy_pass http://10.0.0.1; }
    location /api/ { proxy_pass http://10.0.0.2; }
    location /events/ { proxy_pass http://10.0.0.1; proxy_buffering off; }
} }
"""

RULE = Rule(
    id="px-buffering-off-global",
    severity="warning",
    title="responses are not buffered anywhere",
    why="Without buffering a server that answers is held until its slowest client has read the "
    "last byte: a few slow clients occupy all its processes. Nothing is cached then, and "
    "proxy_limit_rate has no effect.",
    fix="Remove the line, and put proxy_buffering off; into the locations that stream (events, "
    "long polls). A server can also ask for it by response: X-Accel-Buffering: no.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_buffering",
        "F5 blog: Avoiding the Top 10 NGINX Configuration Mistakes",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Where all places pass requests to the same server the line is passed over: there it "
    "is as good as in the location. So is a server that buffers requests no more than responses, "
    "or takes bodies of 1 GiB and more: object stores and registries ask for that.",
    bad=Example(_CONF % "proxy_buffering off;"),
    good=Example(_CONF % ""),
    check=check,
)
