from collections.abc import Iterator

from msgspec.structs import replace

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.processes import fitting_workers, lacking, worker_count
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.facts import Facts, Throttled
from nginx_tune.documents.units import percent_text

_THROTTLED_SHARE = 0.01


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """An explicit number of workers, more than the CPUs of a quota that throttled them."""
    place = context.tree.main.first("worker_processes")
    if place is None or place.value == "auto" or context.is_linux is False:
        return  # lim-workers-cgroup covers auto
    workers, fitting = worker_count(context), fitting_workers(context)
    if isinstance(workers, MissingFacts) or isinstance(fitting, MissingFacts):
        yield from lacking(workers, fitting)
        return
    throttled = context.facts.cpu.throttled
    ratio = None if throttled is None else throttled.ratio
    if (
        throttled is None
        or ratio is None
        or ratio < _THROTTLED_SHARE
        or workers.value <= fitting.value
    ):
        return
    yield Hit(
        place,
        f"{workers.value} workers share a quota of {fitting.value} CPUs, which throttled them in "
        f"{percent_text(ratio, 2)} of its periods",
        [
            workers.evidence,
            fitting.evidence,
            Evidence(fact="cpu.throttled.throttled_periods", value=throttled.throttled_periods),
            Evidence(fact="cpu.throttled.periods", value=throttled.periods),
        ],
        fix=f"Set worker_processes {fitting.value}; or raise the quota.",
    )


def _host(throttled_periods: int) -> Facts:
    facts = linux(cpus=64, effective_cpus=4.0)
    throttled = Throttled(
        directory="/sys/fs/cgroup/nginx",
        periods=10_000,
        throttled_periods=throttled_periods,
        throttled_seconds=throttled_periods * 0.05,
    )
    return replace(facts, cpu=replace(facts.cpu, throttled=throttled))


_CONF = "worker_processes 16; events { } http { }"

RULE = Rule(
    id="lim-workers-throttled",
    severity="warning",
    title="a CPU quota throttles the workers",
    why="All workers share the quota: together they use it up early in a period, and then all of "
    "them stop until the next one. Every connection waits, even those of workers that had little "
    "to do.",
    fix="Use as many workers as the quota has CPUs, or raise the quota.",
    sources=(
        "Linux: Documentation/scheduler/sched-bwc.rst, cpu.stat",
        "Linux: kernel/sched/fair.c, throttle_cfs_rq",
    ),
    proof="source-only",
    about="Reported only if the cgroup has been throttled in at least a hundredth of its periods "
    "since it was created. The counters do not show whether nginx used up the quota.",
    bad=Example(_CONF, _host(2_500)),
    good=Example(_CONF, _host(3)),
    check=check,
)
