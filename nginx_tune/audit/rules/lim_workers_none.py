from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.processes import worker_count
from nginx_tune.audit.rule import Example, Rule


def check(context: Context) -> Iterator[Hit]:
    """``worker_processes 0``, which ``nginx -t`` accepts."""
    workers = worker_count(context)
    if isinstance(workers, MissingFacts) or workers.place is None or workers.value != 0:
        return
    yield Hit(
        workers.place,
        "nginx starts no worker: clients connect and never get a response",
        [workers.evidence],
        fix="Set worker_processes auto;",
    )


_CONF = "worker_processes %s; events { } http { server { listen 80; root /srv/www; } }"

RULE = Rule(
    id="lim-workers-none",
    severity="error",
    title="no worker processes",
    why="nginx -t accepts worker_processes 0, and nginx starts: its master listens, so the kernel "
    "completes connections, but no process accepts them. Nothing is logged. Such a master does not "
    "react to TERM or QUIT either, because it waits for workers that do not exist.",
    fix="Set worker_processes auto; in the main context.",
    sources=("https://nginx.org/en/docs/ngx_core_module.html#worker_processes",),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    whole_tree=True,
    bad=Example(_CONF % "0"),
    good=Example(_CONF % "auto"),
    check=check,
)
