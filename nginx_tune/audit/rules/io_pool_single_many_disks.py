from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.paths import paths_by_pool
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.audit.storage import is_in_memory, leaf_disks_of
from nginx_tune.conf.workers import declared_pools
from nginx_tune.documents.decisions import Evidence


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Pools whose directories are on independent disks."""
    if context.is_linux is False:
        return
    declared = declared_pools(context.tree)
    for name, (line, paths) in paths_by_pool(context).items():
        if len(paths) < 2:  # noqa: PLR2004  # one directory, one place
            continue
        on_disk = sorted(path for path in paths if not is_in_memory(path, context.facts))
        disks = {path: leaf_disks_of(path, context.facts) for path in on_disk}
        unknown = tuple(f"storage.paths[{path}]" for path in on_disk if disks[path] is None)
        groups = _independent({path: found for path, found in disks.items() if found})
        if len(groups) > 1:
            place = declared[name].directive if name in declared else line
            yield Hit(
                place,
                f'thread pool "{name}" reads from {len(groups)} independent sets of disks',
                [
                    Evidence(fact=f"leaf disks under {path}", value=", ".join(sorted(found)))
                    for path, found in disks.items()
                    if found
                ],
            )
        elif unknown:
            yield MissingFacts(unknown)


def _independent(disks: dict[str, frozenset[str]]) -> list[set[str]]:
    """Disjoint groups of disks: striped volumes with a common disk are one group."""
    groups: list[set[str]] = []
    for found in disks.values():
        joined = set(found)
        for group in [group for group in groups if group & joined]:
            groups.remove(group)
            joined |= group
        groups.append(joined)
    return groups


_HOST = linux(disks={"/disk1": ("sdb", "hdd"), "/disk2": ("sdc", "hdd")})

RULE = Rule(
    id="io-pool-single-many-disks",
    severity="advice",
    title="one thread pool serves several disks",
    why="A pool is one queue. If one disk is slow, its reads occupy the threads, and requests for "
    "files on the other disks wait behind them.",
    fix="Declare a pool per disk and select it with the disk: aio threads=pool_$disk; with the "
    "same split_clients or map that selects the directory or cache.",
    sources=(
        "NGINX blog 2015: Thread Pools in NGINX Boost Performance 9x (three disks)",
        "nginx: src/core/ngx_thread_pool.c, ngx_thread_task_post",
    ),
    proof="proven",
    proven_on=("1.22",),
    since="1.7.11",
    bad=Example(
        """
        events {}
        http { server {
            aio threads;
            location /a/ { alias /disk1/; }
            location /b/ { alias /disk2/; }
        } }
        """,
        _HOST,
    ),
    good=Example(
        """
        thread_pool pool_1 threads=16;
        thread_pool pool_2 threads=16;
        events {}
        http {
            split_clients $uri $disk { 50% 1; * 2; }
            server { location / { root /disk$disk; aio threads=pool_$disk; } }
        }
        """,
        _HOST,
    ),
    check=check,
)
