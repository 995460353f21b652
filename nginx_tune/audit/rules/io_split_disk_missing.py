from collections.abc import Iterator

from msgspec.structs import replace

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.paths import SplitTarget, splits, targets
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.audit.storage import is_in_memory, leaf_disks_of
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.facts import Dataset, Facts


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``split_clients`` parts whose directory is missing or shares a disk with another."""
    facts = context.facts
    for split in splits(context):
        by_path = {target.served.root: target for target in targets(context, split)}
        absent = {path for path in by_path if _is_absent(path, facts)}
        for path in sorted(absent):
            yield Hit(
                by_path[path].entry,
                f"the directory {path} does not exist",
                [written(by_path[path].served.place), Evidence(fact=path, value="absent")],
            )
        rest = {path: target for path, target in by_path.items() if path not in absent}
        if len(rest) > 1:
            yield from _same_disk(rest, facts)


def _same_disk(rest: dict[str, SplitTarget], facts: Facts) -> Iterator[Hit | MissingFacts]:
    on_disk = sorted(path for path in rest if not is_in_memory(path, facts))
    disks = {path: leaf_disks_of(path, facts) for path in on_disk}
    unknown = tuple(f"storage.paths[{path}]" for path in on_disk if disks[path] is None)
    if unknown:
        yield MissingFacts(unknown)
    first: dict[frozenset[str], str] = {}
    for path, found in disks.items():
        if found is None:
            continue
        if found in first:
            yield Hit(
                rest[path].entry,
                f"{path} is on the same disk as {first[found]}",
                [
                    Evidence(fact=f"leaf disks under {one}", value=", ".join(sorted(found)))
                    for one in (first[found], path)
                ],
            )
        first.setdefault(found, path)


def _is_absent(path: str, facts: Facts) -> bool:
    return any(
        dataset.path == path and dataset.files == 0 and dataset.reason == "no such directory"
        for dataset in facts.datasets
    )


_CONF = """
events { }
http {
    split_clients $uri $disk { 50% 1; * 2; }
    server { location / { root /mnt/disk$disk; } }
}
"""
_TWO = linux(disks={"/mnt/disk1": ("sdb", "hdd"), "/mnt/disk2": ("sdc", "hdd")})
_ABSENT = Dataset(path="/mnt/disk2", files=0, bytes=0, reason="no such directory")

RULE = Rule(
    id="io-split-disk-missing",
    severity="warning",
    title="split_clients leads to a missing directory, or twice to one disk",
    why="A part without its directory answers 404 (a cache writes to whatever disk lies below the "
    "mount point). Two parts on one disk spread nothing and halve the space of each.",
    fix="Mount the disk, or correct the part; remove parts that have no disk of their own.",
    sources=("https://nginx.org/en/docs/http/ngx_http_split_clients_module.html", "stat(2)"),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    bad=Example(_CONF, replace(_TWO, datasets=[_ABSENT])),
    good=Example(_CONF, _TWO),
    check=check,
)
