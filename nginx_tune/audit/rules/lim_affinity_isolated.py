from collections.abc import Iterator

from msgspec.structs import replace

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.processes import lacking, main_place, worker_count
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.facts import Facts


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Workers without an affinity, although the CPUs that they may use are isolated."""
    place = main_place(context, "worker_processes")
    if place is None or "worker_cpu_affinity" in context.names or context.is_linux is False:
        return
    workers, cpu = worker_count(context), context.facts.cpu
    if not context.has_facts or isinstance(workers, MissingFacts):
        yield from lacking(
            workers, *([] if context.has_facts else [MissingFacts(("cpu.isolated",))])
        )
        return
    if not cpu.isolated or workers.value < 2:  # noqa: PLR2004  # one worker shares with none
        return
    yield Hit(
        place,
        f"{workers.value} workers have no affinity, but {cpu.isolated} of the CPUs that they may "
        "use are isolated: the scheduler does not balance between them",
        [
            workers.evidence,
            Evidence(fact="cpu.isolated", value=cpu.isolated, unit="CPUs"),
            Evidence(fact="worker_cpu_affinity (default)", value="none", provenance="declared"),
        ],
    )


def _host(isolated: int) -> Facts:
    facts = linux(cpus=8)
    return replace(facts, cpu=replace(facts.cpu, isolated=isolated))


_CONF = "worker_processes 4; events { } http { }"

RULE = Rule(
    id="lim-affinity-isolated",
    severity="warning",
    title="workers share isolated CPUs without an affinity",
    why="Isolated CPUs (isolcpus) take no part in load balancing: a process stays where it was "
    "started, and so do its children. Workers that may use only such CPUs can all run on one of "
    "them while the others are idle.",
    fix="Set worker_cpu_affinity with a CPU for each worker, or keep the isolated CPUs out of the "
    "service's CPUAffinity.",
    sources=(
        "Linux: Documentation/admin-guide/kernel-parameters.txt, isolcpus",
        "nginx: src/os/unix/ngx_process_cycle.c, ngx_worker_process_init",
    ),
    proof="source-only",
    whole_tree=True,
    bad=Example(_CONF, _host(8)),
    good=Example(_CONF, _host(0)),
    check=check,
)
