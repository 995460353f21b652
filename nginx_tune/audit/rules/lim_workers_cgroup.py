"""``lim-workers-cgroup``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.processes import fitting_workers, lacking, worker_count
from nginx_tune.audit.rule import Example, Rule, linux


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``worker_processes auto`` where nginx may use fewer CPUs than there are."""
    place = context.tree.main.first("worker_processes")
    if place is None or place.value != "auto" or context.is_linux is False:
        return
    workers, fitting = worker_count(context), fitting_workers(context)
    if isinstance(workers, MissingFacts) or isinstance(fitting, MissingFacts):
        yield from lacking(workers, fitting)
        return
    if workers.value > fitting.value + 1:  # one more costs next to nothing
        yield Hit(
            place,
            f"auto starts {workers.value} workers for {fitting.value} "
            f"CPU{'' if fitting.value == 1 else 's'}",
            [workers.evidence, fitting.evidence],
            fix=f"worker_processes {fitting.value}; (render it where the limit is set).",
        )


_CONF = "worker_processes %s; events { } http { }"
_HOST = linux(cpus=64, effective_cpus=4.0)

RULE = Rule(
    id="lim-workers-cgroup",
    severity="warning",
    title="worker_processes auto does not see the CPU limit",
    why="auto counts the CPUs that are online. A cgroup quota is not seen at all, and a cpuset "
    "not with glibc: more workers then share the few CPUs, each with its own connections, caches "
    "and thread pools, and the quota stops all of them at once.",
    fix="An explicit worker_processes of as many CPUs as nginx may use.",
    sources=(
        "nginx: src/os/unix/ngx_posix_init.c, ngx_os_init",
        "github.com/nginxinc/docker-nginx issue 31 and 30-tune-worker-processes.sh",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="One worker more than CPUs is passed over.",
    bad=Example(_CONF % "auto", _HOST),
    good=Example(_CONF % "4", _HOST),
    check=check,
)
