from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.answer_bodies import SWITCHES, TEXTS, body_filter
from nginx_tune.conf.directive import Directive


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Thread pools where a filter reads every body."""
    if "aio" not in context.names or context.names.isdisjoint({*SWITCHES, *TEXTS}):
        return
    reported: set[Directive] = set()
    for served in context.served:
        aio, line = served.scope.effective("aio"), body_filter(served.scope)
        if aio is None or line is None or line in reported or not aio.value.startswith("threads"):
            continue
        if not served.is_whole:  # a single page, such as an error page
            continue
        reported.add(line)
        yield Hit(
            line,
            f'{line.name} reads each file under {served.root} into buffers, and "{aio}" queues a '
            "thread task per buffer",
            [written(line), written(aio)],
        )


_CONF = """
events { }
http { sendfile on; server { location / { root /srv/www; %s sub_filter_once off; } } }
"""

RULE = Rule(
    id="io-threads-body-filter",
    severity="advice",
    title="thread pools with a filter that reads bodies",
    why="Such a filter needs the body in memory, so sendfile is not used and the file is read in "
    "buffers of 32 KiB. With aio threads each buffer is a task with two thread switches, for bytes "
    "that are mostly in memory already.",
    fix="Set aio off; or output_buffers 2 1m; in the locations that need the filter, and turn the "
    "filter off where files are large.",
    sources=(
        "nginx: src/core/ngx_output_chain.c; need_in_memory in the filter modules",
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#output_buffers",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    seen="A worker that sent 1-MB files through sub_filter used 3.76 s of CPU with aio threads and "
    "0.70 s without.",
    bad=Example(_CONF % "aio threads; sub_filter a b;"),
    good=Example(_CONF % "aio off; sub_filter a b;"),
    check=check,
)
