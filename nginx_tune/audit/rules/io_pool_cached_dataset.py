from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.audit.storage import covering, offloads, page_cache_bytes
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.served import Served
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.facts import Dataset

RESIDENT = 0.99
"""The resident share of the bytes above which there is nothing to offload."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``aio threads`` lines whose files are all in memory, with room to stay there."""
    by_line: dict[Directive, list[Served]] = {}
    for served in context.served:
        aio = served.scope.effective("aio")
        if aio is not None and offloads(served):
            by_line.setdefault(aio, []).append(served)
    limit = page_cache_bytes(context.facts)
    pools = context.decided.on("thread-pools") if by_line else None
    for aio, places in by_line.items():
        if any(served.scope.value("aio_write") == "on" for served in places):
            continue  # the pool also writes temporary files
        reads_past_memory = any(place.scope.value("directio", "off") != "off" for place in places)
        if pools is not None and pools.verdict == "disable" and not reads_past_memory:
            yield Hit(aio, f'"{aio}" does not pay off here. {pools.summary}', pools.evidence)
        elif limit is None:
            names = sorted({f"datasets[{served.root}].residency" for served in places})
            yield MissingFacts(("memory.page_cache_limit_bytes", *names))
        else:
            yield from _judge(context, aio, places, limit)


def _judge(
    context: Context, aio: Directive, places: list[Served], limit: int
) -> Iterator[Hit | MissingFacts]:
    total = context.total
    if total.size.low > limit:
        return
    resident: dict[str, Evidence] = {}
    for served in places:
        dataset = covering(served.path, context.facts.datasets)
        if dataset is None or not dataset.complete or not _has_residency(dataset):
            yield MissingFacts((f"datasets[{served.root}].residency",))
            return
        ratio = dataset.residency.ratio
        if ratio is None or ratio < RESIDENT:  # empty, or partly on disk
            return
        fact = f"datasets[{dataset.path}].residency.ratio"
        resident[dataset.path] = Evidence(fact=fact, value=round(ratio, 4))
    if total.size.high is None:
        yield MissingFacts(total.missing)
        return
    if total.size.high > limit:
        return
    yield Hit(
        aio,
        f'"{aio}" passes every read to a thread, although all files are in the page cache',
        [
            *resident.values(),
            Evidence(fact="served_bytes", value=total.size.high, unit="bytes"),
            Evidence(fact="memory.page_cache_limit_bytes", value=limit, unit="bytes"),
        ],
    )


def _has_residency(dataset: Dataset) -> bool:
    return dataset.files == 0 or (dataset.residency.trusted and dataset.residency.ratio is not None)


_CONF = "events {} http { server { location / { root /srv/www; %s} } }"
_HOST = linux(datasets={"/srv/www": (3, 1.0)})

RULE = Rule(
    id="io-pool-cached-dataset",
    severity="advice",
    title="a thread pool reads files that are in memory",
    why="With aio threads every read and sendfile is queued to a thread, page-cache hits too. If "
    "nothing has to be read from disk, that only costs CPU and a detour per chunk.",
    fix="Set aio off; here and compare: nginx-tune validate NEW --against OLD. Keep the pool if "
    "files larger than memory are to come.",
    sources=(
        "nginx: src/os/unix/ngx_linux_sendfile_chain.c, ngx_linux_sendfile_thread",
        "NGINX blog 2015: Thread Pools in NGINX Boost Performance 9x (not a silver bullet)",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    since="1.7.11",
    bad=Example(_CONF % "aio threads; ", _HOST),
    good=Example(_CONF % "", _HOST),
    check=check,
)
