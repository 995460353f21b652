from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, counted, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.served import MODULES
from nginx_tune.conf.upstreams import Pass, depth_of
from nginx_tune.conf.values import parse_bytes

IN_SERVER = 1
_OBJECT_STORE_BYTES = 1 << 30
"""Size from which an object store is likely. It is also the default of proxy_max_temp_file_size,
above which nothing is buffered anyway."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``buffering off`` in http or a server in which several locations proxy requests."""
    places: dict[Directive, list[Pass]] = {}
    for passed in context.passes:
        line = passed.effective("buffering")
        if passed.module not in MODULES or line is None or line.value.lower() != "off":
            continue
        depth = depth_of(passed.scope, line.name)
        if depth < IN_SERVER or (depth == IN_SERVER and not _is_for_streams(passed)):
            places.setdefault(line, []).append(passed)
    for line, users in places.items():
        count = len(users)
        if count > 1 and len({user.addresses or (user.place.value,) for user in users}) > 1:
            yield Hit(
                line,
                f"in all {count} proxied locations below, upstreams can send no faster than their "
                "clients read",
                [written(line), counted("proxied locations", count)],
            )


def _is_for_streams(passed: Pass) -> bool:
    """True if request settings show that the upstream is for streams or large objects."""
    largest_bytes = parse_bytes(passed.scope.value("client_max_body_size", "1m"))
    return passed.value("request_buffering", "on") == "off" or (
        largest_bytes is not None and not 0 < largest_bytes < _OBJECT_STORE_BYTES
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
    title="response buffering is off everywhere",
    why="Without buffering, an upstream is busy until its slowest client has read the last byte: a "
    "few slow clients occupy all its processes. Nothing is cached then, and proxy_limit_rate has "
    "no effect.",
    fix="Remove the line, and set proxy_buffering off; only in locations that stream (events, long "
    "polling). An upstream can also request it per response with X-Accel-Buffering: no.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_buffering",
        "F5 blog: Avoiding the Top 10 NGINX Configuration Mistakes",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Not reported if all locations use the same upstream: the line is then equivalent to one "
    "in the location. Not reported for a server that buffers neither requests nor responses, or "
    "accepts bodies of 1 GiB and more: object stores and registries need that.",
    bad=Example(_CONF % "proxy_buffering off;"),
    good=Example(_CONF % ""),
    check=check,
)
