from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.processes import (
    fitting_workers,
    lacking,
    main_place,
    usable_cpus,
    worker_count,
)
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.workers import why_one_worker


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """A single worker where several CPUs are usable."""
    if context.tree.is_part or not context.scopes or context.is_until_certified:
        return
    reason = why_one_worker(context.tree)
    if reason is not None and reason.is_broken:
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
        removal = "Set " if place.name != "master_process" else f"Remove {place}; then set "
        yield Hit(
            place,
            f"a single worker uses one of {usable_cpus(context)}",
            [workers.evidence, fitting.evidence],
            fix=f"{removal}worker_processes {'auto' if automatic else fitting.value}; in the main "
            f"context{'' if reason is None else f', unless this is the reason: {reason.why}'}.",
            severity=None if reason is None else "advice",
        )


_CONF = "%s events { } http { server { listen 80; root /srv/www; } }"

RULE = Rule(
    id="lim-workers-one",
    severity="warning",
    title="one worker on a host with several CPUs",
    why="A worker is one event loop on one CPU, and one is the default. All connections share it: "
    "TLS handshakes, gzip and a blocking disk read for one client delay all others, while other "
    "CPUs are idle.",
    fix="Set worker_processes auto; in the main context.",
    sources=("https://nginx.org/en/docs/ngx_core_module.html#worker_processes",),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    whole_tree=True,
    about="Not reported in two cases. With rtmp but without rtmp_auto_push on, a player on a "
    "worker other than the stream's would see nothing. With UDP that stream proxies without "
    "reuseport, each worker would take some of a client's datagrams for sessions of its own. If "
    "Lua keeps timers or variables in its workers, the finding is advice, and the fix says what "
    "more workers would change.",
    bad=Example(_CONF % "", linux(cpus=8)),
    good=Example(_CONF % "worker_processes auto;", linux(cpus=8)),
    check=check,
)
