from collections.abc import Iterator

from msgspec.structs import replace

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.processes import lines_seen, main_logs
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.workers import declared_pools
from nginx_tune.documents.facts import ErrorLog


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Rejected tasks in the main error log, the only one that has these lines."""
    lines = context.aio_lines
    if not lines:
        return
    logs = main_logs(context)
    if isinstance(logs, MissingFacts):
        yield logs
        return
    declared = declared_pools(context.tree)
    for log in logs:
        for pool, count in sorted(log.pool_overflow.items()):
            if count > 0:
                place = declared[pool].directive if pool in declared else lines[0][0]
                yield Hit(
                    place,
                    f'thread pool "{pool}" rejected {count} tasks, each a broken response',
                    [lines_seen(log, "overflow", count)],
                )


_CONF = """
error_log /var/log/nginx/error.log;
thread_pool media threads=2 max_queue=4;
events {}
http { server { location / { root /srv/media; aio threads=media; } } }
"""


def _log(count: int) -> ErrorLog:
    return ErrorLog(
        path="/var/log/nginx/error.log", pool_overflow={"media": count} if count else {}
    )


RULE = Rule(
    id="io-pool-overflow-seen",
    severity="error",
    title="a thread pool's queue has overflowed",
    why="Each such line is a failed response: status 200 with a truncated or empty body. Counting "
    "5xx misses almost all of them.",
    fix="Give the pool as many threads as the disk can use and a queue as long as the burst "
    "(max_queue, default 65536); nginx-tune recommend computes both. If that does not help, the "
    "disks cannot serve that many requests.",
    sources=(
        "nginx: src/core/ngx_thread_pool.c, ngx_thread_task_post",
        "NGINX blog 2015: Thread Pools in NGINX Boost Performance 9x",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    since="1.7.11",
    bad=Example(_CONF, replace(linux(), error_logs=[_log(101_172)])),
    good=Example(_CONF, replace(linux(), error_logs=[_log(0)])),
    check=check,
)
