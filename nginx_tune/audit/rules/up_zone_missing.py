from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, counted, written
from nginx_tune.audit.processes import worker_count
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.upstreams import UpstreamBlock


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Server limits that each worker counts separately."""
    for name, users in context.passes_by_upstream.items():
        upstream = context.upstreams[name]
        line = _limited_server(upstream)
        if not users or line is None or upstream.block.first("zone") is not None:
            continue
        workers = worker_count(context)
        if isinstance(workers, MissingFacts):
            yield workers
            return
        if workers.value > 1:
            yield Hit(
                line,
                f'each of {workers.value} workers counts the limits of upstream "{name}" '
                "separately",
                [written(line), counted("workers", workers.value)],
            )


def _limited_server(upstream: UpstreamBlock) -> Directive | None:
    """The first server with an effective limit; max_fails needs several servers."""
    for server in upstream.peers:
        for argument in server.args[1:]:
            key, _, value = argument.partition("=")
            is_limit = key == "max_conns" or (key == "max_fails" and len(upstream.peers) > 1)
            if is_limit and value != "0":
                return server
    return None


_CONF = """
worker_processes 8;
events {}
http {
    upstream app { %sserver 10.0.0.1 max_conns=100; server 10.0.0.2 max_conns=100; }
    server { location / { proxy_pass http://app; } }
}
"""

RULE = Rule(
    id="up-zone-missing",
    severity="info",
    title="workers do not share the state of an upstream",
    why="Without zone each worker counts connections and failures separately: with N workers "
    "max_conns allows N times as many, and every worker tries a failed server.",
    fix="Add zone NAME 64k; to the upstream (room for about 60 addresses; 1m, for 1200, if names "
    "are resolved).",
    sources=("https://nginx.org/en/docs/http/ngx_http_upstream_module.html#zone",),
    proof="source-only",
    since="1.9.0",
    by_absence=True,
    bad=Example(_CONF % ""),
    good=Example(_CONF % "zone app 64k; "),
    check=check,
)
