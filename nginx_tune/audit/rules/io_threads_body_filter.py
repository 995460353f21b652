"""``io-threads-body-filter``."""

from __future__ import annotations

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
    told: set[Directive] = set()
    for served in context.served:
        aio, line = served.scope.effective("aio"), body_filter(served.scope)
        if aio is None or line is None or line in told or not aio.value.startswith("threads"):
            continue
        if not served.is_whole:  # one page, such as that of an error
            continue
        told.add(line)
        yield Hit(
            line,
            f'{line.name} reads each file under {served.root} into buffers, and "{aio}" makes a '
            "task for a thread of each buffer",
            [written(line), written(aio)],
        )


_CONF = """
events { }
http { sendfile on; server { location / { root /srv/www; %s sub_filter_once off; } } }
"""

RULE = Rule(
    id="io-threads-body-filter",
    severity="advice",
    title="thread pools beside a filter that reads bodies",
    why="Such a filter needs the body in memory, so sendfile is not used and the file is read a "
    "buffer of 32 KiB at a time; with aio threads each buffer is a task with two switches between "
    "threads, for bytes that are mostly in memory already.",
    fix="aio off; in the locations that the filter is for, or output_buffers 2 1m; there, and the "
    "filter off where files are large.",
    sources=(
        "nginx: src/core/ngx_output_chain.c; need_in_memory in the filter modules",
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#output_buffers",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    seen="A worker that sent 1-MB files through sub_filter took 3.76 s of CPU with aio threads and "
    "0.70 s without.",
    bad=Example(_CONF % "aio threads; sub_filter a b;"),
    good=Example(_CONF % "aio off; sub_filter a b;"),
    check=check,
)
