from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.processes import lacking, worker_connections
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.values import parameter
from nginx_tune.conf.workers import DEFAULT_QUEUE, declared_pools


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Pools that reject tasks before a worker runs out of connections."""
    pools = [
        pool
        for pool in declared_pools(context.tree).values()
        if parameter(pool.directive.args, "max_queue") is not None
    ]
    if not pools:
        return
    connections = worker_connections(context)
    if isinstance(connections, MissingFacts):
        yield from lacking(connections)
        return
    for pool in pools:
        if pool.threads is None or pool.max_queue is None:
            continue
        room = pool.threads + pool.max_queue
        if room < min(connections.value, DEFAULT_QUEUE):
            yield Hit(
                pool.directive,
                f'thread pool "{pool.name}" accepts {room} tasks at once, but a worker can have '
                f"{connections.value} transfers",
                [written(pool.directive), connections.evidence],
            )


_CONF = """
thread_pool media threads=16 max_queue=%s;
events { worker_connections 4096; }
http { server { location / { root /srv/media; aio threads=media; } } }
"""

RULE = Rule(
    id="io-pool-queue-small",
    severity="warning",
    title="a thread pool's queue is shorter than a worker's transfers",
    why="Each transfer has one read in progress. A read that finds all threads busy and the queue "
    "full is not delayed but fails: status 200 with a truncated or empty body. An empty queue "
    "costs nothing.",
    fix="Leave max_queue at its default (65536).",
    sources=(
        "https://nginx.org/en/docs/ngx_core_module.html#thread_pool",
        "nginx: src/core/ngx_thread_pool.c, ngx_thread_task_post",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    since="1.7.11",
    about="No command counts concurrent transfers yet; worker_connections is the upper bound.",
    bad=Example(_CONF % 256),
    good=Example(_CONF % 65_536),
    check=check,
)
