"""``lim-workers-throttled``."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.processes import fitting_workers, lacking, worker_count
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.facts import Facts, Throttled
from nginx_tune.documents.units import percent_text

_HELD_BACK = 0.01


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """More workers by number than a quota has CPUs, where the quota did hold them back."""
    place = context.tree.main.first("worker_processes")
    if place is None or place.value == "auto" or context.is_linux is False:
        return  # of auto speaks lim-workers-cgroup
    workers, fitting = worker_count(context), fitting_workers(context)
    if isinstance(workers, MissingFacts) or isinstance(fitting, MissingFacts):
        yield from lacking(workers, fitting)
        return
    held = context.facts.cpu.throttled
    ratio = None if held is None else held.ratio
    if held is None or ratio is None or ratio < _HELD_BACK or workers.value <= fitting.value:
        return
    yield Hit(
        place,
        f"{workers.value} workers on the {fitting.value} CPUs of a quota, which held them back in "
        f"{percent_text(ratio, 2)} of its periods",
        [
            workers.evidence,
            fitting.evidence,
            Evidence(fact="cpu.throttled.throttled_periods", value=held.throttled_periods),
            Evidence(fact="cpu.throttled.periods", value=held.periods),
        ],
        fix=f"worker_processes {fitting.value};, or a higher limit.",
    )


def _host(throttled_periods: int) -> Facts:
    facts = linux(cpus=64, effective_cpus=4.0)
    held = Throttled(
        directory="/sys/fs/cgroup/nginx",
        periods=10_000,
        throttled_periods=throttled_periods,
        throttled_seconds=throttled_periods * 0.05,
    )
    return replace(facts, cpu=replace(facts.cpu, throttled=held))


_CONF = "worker_processes 16; events { } http { }"

RULE = Rule(
    id="lim-workers-throttled",
    severity="warning",
    title="a CPU quota holds back more workers than it has CPUs for",
    why="The quota is one for all workers: together they use it up early in a period, and then all "
    "of them stand still until the next one. Every connection waits, also those of workers that "
    "had little to do.",
    fix="As many workers as CPUs of the quota, or a higher quota.",
    sources=(
        "Linux: Documentation/scheduler/sched-bwc.rst, cpu.stat",
        "Linux: kernel/sched/fair.c, throttle_cfs_rq",
    ),
    proof="source-only",
    about="Said only where the group was held back in a hundredth of the periods or more since it "
    "is there. That nginx is what used the quota up cannot be told from the counters.",
    bad=Example(_CONF, _host(2_500)),
    good=Example(_CONF, _host(3)),
    check=check,
)
