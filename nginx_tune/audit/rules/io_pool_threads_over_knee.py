from collections.abc import Iterator

from msgspec.structs import replace

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.paths import paths_by_pool
from nginx_tune.audit.processes import lacking, worker_count
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.audit.storage import leaf_disks_of
from nginx_tune.conf.workers import declared_pools
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.facts_storage import Curve, CurvePoint

FAR = 16
"""Threads per concurrent read of a disk, above which threads only queue. The thread-pool
article did well with 512 threads on four disks."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Pools whose threads could issue far more reads than their disks serve concurrently."""
    pools = declared_pools(context.tree)
    found = {name: paths for name, (_, paths) in paths_by_pool(context).items() if name in pools}
    if not found:
        return
    if not context.has_facts:
        yield MissingFacts(("storage.disks.curve",))
        return
    seen = {name for log in context.facts.error_logs for name in log.pool_overflow}
    for name, paths in found.items():
        pool, knee = pools[name], _knee(context.facts, paths)
        if knee is None or pool.threads is None or name in seen:
            continue
        workers = worker_count(context)
        if isinstance(workers, MissingFacts):
            yield from lacking(workers)
            return
        threads = pool.threads * workers.value
        if threads > FAR * knee:
            yield Hit(
                pool.directive,
                f"{threads} threads read from disks that serve {knee} reads at once",
                [
                    written(pool.directive),
                    workers.evidence,
                    Evidence(fact="knee_depth of all disks", value=knee),
                ],
            )


def _knee(facts: Facts, paths: set[str]) -> int | None:
    """Concurrent reads that the disks under the directories serve; None if not measured."""
    names: set[str] = set()
    for path in paths:
        disks = leaf_disks_of(path, facts)
        if disks is None:
            return None
        names |= disks
    knees = [
        (disk.curve.knee_depth or 1) if disk.curve is not None else None
        for disk in facts.storage.disks
        if disk.name in names
    ]
    known = [knee for knee in knees if knee is not None]
    return sum(known) if known and len(known) == len(knees) else None


def _measured(facts: Facts) -> Facts:
    curve = Curve(
        read_bytes=131_072,
        points=[
            CurvePoint(depth=1, reads_per_second=90),
            CurvePoint(depth=8, reads_per_second=160),
        ],
        knee_depth=8,
    )
    disks = [replace(disk, curve=curve) for disk in facts.storage.disks]
    return replace(facts, storage=replace(facts.storage, disks=disks))


_CONF = """
worker_processes 8;
thread_pool media threads=%s;
events { }
http { server { location / { root /srv/media; aio threads=media; } } }
"""
_HOST = _measured(linux(disks={"/srv/media": ("sdb", "hdd")}))

RULE = Rule(
    id="io-pool-threads-over-knee",
    severity="advice",
    title="far more threads than the disks can use",
    why="Every worker creates its own pool. Beyond the disk's knee more concurrent reads add no "
    "throughput. They wait in the device instead of the pool and cannot be reordered there, and "
    "the slowest take even longer.",
    fix="Use fewer threads, but more than a worker has cold transfers at once (otherwise hot files "
    "wait behind them). nginx-tune recommend weighs both.",
    sources=("nginx: src/core/ngx_thread_pool.c, ngx_thread_pool_init_worker", "Scylla: iotune"),
    proof="source-only",
    since="1.7.11",
    about="Reported only where the disks were measured (inspect --disks), and not for a pool that "
    "has overflowed.",
    bad=Example(_CONF % 64, _HOST),
    good=Example(_CONF % 16, _HOST),
    check=check,
)
