from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.processes import events_directive
from nginx_tune.audit.rule import Example, Rule

_WITHOUT_NOTIFY = frozenset({"poll", "select", "/dev/poll", "devpoll"})


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Thread pools with an event method that threads cannot wake up."""
    use = events_directive(context, "use")
    if use is None or use.value not in _WITHOUT_NOTIFY:
        return
    lines = [line for line, _ in context.aio_lines] or context.tree.main.all("thread_pool")
    if lines:
        yield Hit(use, f'thread pools do not work with "{use}"', [written(use), written(lines[0])])


_CONF = "events { %s } http { server { location / { root /srv/media; aio threads; } } }"

RULE = Rule(
    id="io-pool-event-method",
    severity="error",
    title="thread pools with an event method that does not support them",
    why="A finished thread has to wake up the event loop, which only epoll, kqueue and eventport "
    "support. With another method each worker logs an alert and exits: nothing is served.",
    fix="Remove use: nginx selects the best method of the platform.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#aio",
        "nginx: src/core/ngx_thread_pool.c, ngx_thread_pool_init",
    ),
    proof="source-only",
    since="1.7.11",
    about="The packages that the tests run on are built without poll and select and reject the "
    "line itself (invalid event type).",
    bad=Example(_CONF % "use poll;"),
    good=Example(_CONF % "use epoll;"),
    check=check,
)
