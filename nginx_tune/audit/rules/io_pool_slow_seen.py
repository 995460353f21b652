from collections.abc import Iterator

from msgspec.structs import replace

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.processes import lines_seen, main_logs
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.documents.facts import ErrorLog


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Thread-pool operations that took more than a minute."""
    lines = context.aio_lines
    if not lines:
        return
    logs = main_logs(context)
    if isinstance(logs, MissingFacts):
        yield logs
        return
    for log in logs:
        if log.operations_too_slow:
            yield Hit(
                lines[0][0],
                f"{log.operations_too_slow} thread-pool operations took longer than a minute",
                [lines_seen(log, "slow-operation", log.operations_too_slow)],
            )


_CONF = """
error_log /var/log/nginx/error.log;
events { }
http { server { location / { root /srv/media; aio threads; } } }
"""


def _log(slow: int) -> ErrorLog:
    return ErrorLog(path="/var/log/nginx/error.log", operations_too_slow=slow)


_HOST = linux(version="1.26.3")

RULE = Rule(
    id="io-pool-slow-seen",
    severity="error",
    title="thread-pool operations took longer than a minute",
    why="The disk hangs, or the pool has so few threads that an operation waits a minute for a "
    "free one. The client has probably given up by then.",
    fix="Check the disk first (kernel log, smartctl, a degraded array, an NFS server that does not "
    "respond); then use a pool per disk, with enough threads for the transfers.",
    sources=(
        "nginx: src/http/ngx_http_copy_filter_module.c, ngx_http_copy_thread_event_handler",
        "nginx change log, 1.25.4",
    ),
    proof="source-only",
    since="1.25.4",
    about="nginx writes the line to the error_log of the location that serves the request. The log "
    "read here is that of the main context, which is the same unless a server has its own.",
    seen="On 1.26, once, with a sendfile() that was held for 64 seconds: one line, after which the "
    "response arrived complete. The minute is compiled in, so no test waits for it.",
    bad=Example(_CONF, replace(_HOST, error_logs=[_log(3)])),
    good=Example(_CONF, replace(_HOST, error_logs=[_log(0)])),
    check=check,
)
