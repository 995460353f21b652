from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.processes import fitting_workers, lacking, usable_cpus, worker_count
from nginx_tune.audit.rule import Example, Rule, linux


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``worker_processes auto`` where nginx may use fewer CPUs than are online."""
    place = context.tree.main.first("worker_processes")
    if place is None or place.value != "auto" or context.is_linux is False:
        return
    workers, fitting = worker_count(context), fitting_workers(context)
    if isinstance(workers, MissingFacts) or isinstance(fitting, MissingFacts):
        yield from lacking(workers, fitting)
        return
    if workers.value > fitting.value + 1:  # one more costs almost nothing
        yield Hit(
            place,
            f"auto starts {workers.value} workers, but nginx may use only {usable_cpus(context)}",
            [workers.evidence, fitting.evidence],
            fix=f"Set worker_processes {fitting.value}; where hosts differ in their limits, the "
            "script that starts nginx can write this line.",
        )


_CONF = "worker_processes %s; events { } http { }"
_HOST = linux(cpus=64, effective_cpus=4.0)

RULE = Rule(
    id="lim-workers-cgroup",
    severity="warning",
    title="worker_processes auto ignores the CPU limit",
    why="auto counts the online CPUs. It ignores a cgroup quota, and with glibc a cpuset too: more "
    "workers then share the few CPUs, each with its own connections, caches and thread pools, and "
    "the quota stops all of them at once.",
    fix="Set worker_processes to the number of CPUs that nginx may use.",
    sources=(
        "nginx: src/os/unix/ngx_posix_init.c, ngx_os_init",
        "github.com/nginxinc/docker-nginx issue 31 and 30-tune-worker-processes.sh",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="One worker more than CPUs is not reported.",
    bad=Example(_CONF % "auto", _HOST),
    good=Example(_CONF % "4", _HOST),
    check=check,
)
