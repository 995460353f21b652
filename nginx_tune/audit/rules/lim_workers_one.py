"""``lim-workers-one``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.processes import fitting_workers, lacking, main_place, worker_count
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.workers import why_one_worker


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """One worker where several CPUs can be used."""
    if context.tree.is_part or not context.scopes or context.is_until_certified:
        return
    alone = why_one_worker(context.tree)
    if alone is not None and alone.is_broken:
        return
    workers = worker_count(context)
    if isinstance(workers, MissingFacts) or workers.value != 1:
        return
    if workers.place is not None and workers.place.value == "auto":
        return
    fitting = fitting_workers(context)
    if isinstance(fitting, MissingFacts):
        yield from lacking(fitting)
        return
    place = workers.place or main_place(context, "http", "events")
    if place is not None and fitting.value > 1:
        online = context.facts.cpu.online
        automatic = online is None or online <= fitting.value
        without = "" if place.name != "master_process" else f"Take out {place}; then "
        yield Hit(
            place,
            f"one worker uses one of {fitting.value} CPUs",
            [workers.evidence, fitting.evidence],
            fix=f"{without}worker_processes {'auto' if automatic else fitting.value}; in the main "
            f"context{'' if alone is None else f', unless it is for this: {alone.why}'}.",
            severity=None if alone is None else "advice",
        )


_CONF = "%s events { } http { server { listen 80; root /srv/www; } }"

RULE = Rule(
    id="lim-workers-one",
    severity="warning",
    title="one worker on a host with several CPUs",
    why="A worker is one event loop on one CPU, and one is the default. All connections share "
    "it: TLS handshakes, gzip and a blocking disk read of one client delay all others, while "
    "other CPUs idle.",
    fix="worker_processes auto; in the main context.",
    sources=("https://nginx.org/en/docs/ngx_core_module.html#worker_processes",),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    whole_tree=True,
    about="Silent beside rtmp without rtmp_auto_push on: a player on another worker than the "
    "stream's would see none. And beside datagrams that stream passes on without reuseport: of "
    "a client's each worker would read some, as sessions of its own. Where Lua keeps timers or "
    "variables in its workers it is advice, with what more of them would change.",
    bad=Example(_CONF % "", linux(cpus=8)),
    good=Example(_CONF % "worker_processes auto;", linux(cpus=8)),
    check=check,
)
