from collections.abc import Iterator

from msgspec.structs import replace

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.processes import (
    lacking,
    lines_seen,
    main_logs,
    main_place,
    worker_connections,
)
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.documents.facts import ErrorLog


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Connections closed because of the current limit, according to the error log."""
    if context.tree.is_part or (context.has_facts and not context.facts.error_logs):
        return
    connections, logs = worker_connections(context), main_logs(context)
    if isinstance(connections, MissingFacts) or isinstance(logs, MissingFacts):
        yield from lacking(connections, *([logs] if isinstance(logs, MissingFacts) else []))
        return
    place = connections.place or main_place(context, "events")
    for log in logs:
        count = log.connections_exhausted.get(str(connections.value), 0)
        if count and place is not None:
            yield Hit(
                place,
                f"{count} connections were closed because all {connections.value} connections of a "
                "worker were in use",
                [lines_seen(log, "exhaustion", count)],
            )


_CONF = """
error_log /var/log/nginx/error.log;
worker_rlimit_nofile 8192;
events { worker_connections 1024; }
http { }
"""


def _log(connections: int) -> ErrorLog:
    return ErrorLog(path="/var/log/nginx/error.log", connections_exhausted={str(connections): 1731})


RULE = Rule(
    id="lim-conn-exhausted-seen",
    severity="error",
    title="workers have run out of connections",
    why="If no connection is free and no idle keepalive connection can be closed, nginx closes the "
    "new one right after accepting it: the client gets a reset, and the access log has no line "
    "about it.",
    fix="Raise worker_connections together with worker_rlimit_nofile (twice as much), but first "
    "look for what holds the connections: slow upstreams, a long keepalive_timeout.",
    sources=(
        "nginx: src/core/ngx_connection.c, ngx_get_connection",
        "github.com/yaoweibin/nginx_upstream_check_module issue 145",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Only lines with the current worker_connections count: raising it ends the finding, and "
    "the cache manager, which always has 512, is not mistaken for a worker. Facts without an error "
    "log (those of inspect) give no finding; --facts live reads the log.",
    bad=Example(_CONF, replace(linux(), error_logs=[_log(1024)])),
    good=Example(_CONF, replace(linux(), error_logs=[_log(512)])),
    check=check,
)
