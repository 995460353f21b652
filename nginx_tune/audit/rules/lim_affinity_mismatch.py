import re
from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.processes import lacking, worker_count
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.directive import Directive
from nginx_tune.documents.decisions import Evidence

_MASK = re.compile(r"[01]{1,1024}")


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Affinity masks that do not match the workers or the CPUs."""
    place = context.tree.main.first("worker_cpu_affinity")
    if place is None or context.is_linux is False:
        return
    if place.value == "auto":
        yield from _automatic(context, place)
        return
    masks = [mask for mask in place.args if _MASK.fullmatch(mask)]
    if len(masks) != len(place.args) or not masks:
        return  # nginx rejects it
    online, workers = context.facts.cpu.online, worker_count(context)
    if isinstance(workers, MissingFacts) or online is None:
        yield from lacking(workers, *([MissingFacts(("cpu.online",))] if online is None else []))
        return
    given = Evidence(fact="masks", value=len(masks), provenance="declared")
    outside = [mask for mask in masks if "1" not in mask[::-1][:online]]
    if outside:
        yield Hit(
            place,
            f"mask {outside[0][:80]} names no existing CPU, so the worker is not pinned",
            [given, Evidence(fact="cpu.online", value=online)],
        )
    elif 1 < len(masks) != workers.value:
        yield Hit(
            place,
            f"{len(masks)} masks for {workers.value} workers: the others share the last mask",
            [given, workers.evidence],
        )


def _automatic(context: Context, place: Directive) -> Iterator[Hit | MissingFacts]:
    """``auto``, which counts CPUs from 0 whether or not nginx may use them."""
    cpu = context.facts.cpu
    if cpu.online is None or cpu.cpuset is None:
        missing = {"cpu.online": cpu.online, "cpu.cpuset": cpu.cpuset}
        yield MissingFacts(tuple(name for name, value in missing.items() if value is None))
    elif len(place.args) == 1 and cpu.cpuset < cpu.online:
        yield Hit(
            place,
            f"auto pins workers to {cpu.online} CPUs, but nginx may use only {cpu.cpuset}",
            [
                Evidence(fact="cpu.online", value=cpu.online),
                Evidence(fact="cpu.cpuset", value=cpu.cpuset),
            ],
            fix="Remove worker_cpu_affinity: the cpuset already limits the workers.",
        )


_CONF = "worker_processes 4; worker_cpu_affinity %s; events { } http { }"

RULE = Rule(
    id="lim-affinity-mismatch",
    severity="warning",
    title="worker_cpu_affinity does not match the workers or the CPUs",
    why="A mask without a usable CPU leaves its worker unpinned, with an alert in the log. With "
    "fewer masks than workers, the remaining workers all get the last mask and share its CPU, pool "
    "threads included.",
    fix="Use worker_cpu_affinity auto; or one mask per worker, or no pinning.",
    sources=(
        "https://nginx.org/en/docs/ngx_core_module.html#worker_cpu_affinity",
        "nginx: src/core/nginx.c, ngx_get_cpu_affinity; src/os/unix/ngx_setaffinity.c",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    bad=Example(_CONF % "0001 0010", linux(cpus=4)),
    good=Example(_CONF % "0001 0010 0100 1000", linux(cpus=4)),
    check=check,
)
