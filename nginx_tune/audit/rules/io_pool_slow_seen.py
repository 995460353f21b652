"""``io-pool-slow-seen``."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.processes import lines_seen, main_logs
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.documents.facts import ErrorLog


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Threads that took more than a minute for one operation."""
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
                f"{log.operations_too_slow} reads or writes took longer than a minute",
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
    title="operations in a thread pool took longer than a minute",
    why="The disk hangs, or the pool's threads are so few that one operation waits a minute for "
    "a free one. The client has most likely gone by then.",
    fix="Look at the disk first (kernel log, smartctl, a degraded array, an NFS server that does "
    "not answer); then a pool for each disk, and threads for the transfers there are.",
    sources=(
        "nginx: src/http/ngx_http_copy_filter_module.c, ngx_http_copy_thread_event_handler",
        "nginx change log, 1.25.4",
    ),
    proof="source-only",
    since="1.25.4",
    about="The line goes to the error_log of the place that serves the request; what is read is "
    "that of the main context, which is the same unless a server has one of its own.",
    seen="On 1.26, once and by hand, with a sendfile() that was held for 64 seconds: one line, and "
    "the response came whole after it. The minute is compiled in, and no test waits for it.",
    bad=Example(_CONF, replace(_HOST, error_logs=[_log(3)])),
    good=Example(_CONF, replace(_HOST, error_logs=[_log(0)])),
    check=check,
)
