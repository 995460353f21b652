"""Facts of this host with other memory or other disks, and common sizes of hardware."""

import math

from msgspec.structs import replace as replace_struct

from nginx_tune.decide.situation import Situation
from nginx_tune.documents.facts import Disk, Facts

_LINKS_GBIT = (1, 2.5, 5, 10, 25, 40, 50, 100, 200, 400, 800)


def with_more_memory(facts: Facts, more_bytes: float) -> Facts:
    """The facts with ``more_bytes`` of additional memory for page cache and cache keys.

    A negative number takes memory away.
    """
    memory = facts.memory

    def moved(size: int | None) -> int | None:
        return None if size is None else max(1, round(size + more_bytes))

    changed = replace_struct(
        memory,
        total_bytes=moved(memory.total_bytes),
        available_bytes=moved(memory.available_bytes),
        cgroup_limit_bytes=moved(memory.cgroup_limit_bytes),
        page_cache_limit_bytes=moved(memory.page_cache_limit_bytes),
        arc_limit_bytes=moved(memory.arc_limit_bytes),
    )
    return replace_struct(facts, memory=changed)


def with_more_disks(s: Situation, times: int) -> Facts:
    """The facts with ``times`` as many disks, over which the files of each place are spread.

    Each new disk has the size of all copies together, since the smallest disk of a place counts.
    """
    storage = s.facts.storage
    names = {disk.name for disk in s.disks}

    def copies(name: str) -> list[str]:
        return [name, *(f"{name}.{n}" for n in range(2, times + 1))] if name in names else [name]

    disks = [
        replace_struct(
            disk,
            name=name,
            size_bytes=disk.size_bytes and disk.size_bytes * (times if disk.name in names else 1),
        )
        for disk in storage.disks
        for name in copies(disk.name)
    ]
    shared = [
        replace_struct(part, disks=[f"{name}{end}" for name in part.disks])
        for part in storage.shared_curves
        for end in ("", *(f".{n}" for n in range(2, times + 1)))
        if names.issuperset(part.disks) or not end
    ]
    paths = [
        replace_struct(
            place,
            leaf_disks=[copy for name in place.leaf_disks for copy in copies(name)],
            size_bytes=place.size_bytes and place.size_bytes * times,
            available_bytes=place.available_bytes and place.available_bytes * times,
        )
        if names.intersection(place.leaf_disks)
        else place
        for place in storage.paths
    ]
    changed = replace_struct(storage, disks=disks, shared_curves=shared, paths=paths)
    return replace_struct(s.facts, storage=changed)


def with_other_disks(s: Situation, class_name: str) -> Facts:
    """The facts with disks of another class under the data."""
    storage = s.facts.storage
    names = {disk.name for disk in s.disks}

    def other(disk: Disk) -> Disk:
        if disk.name not in names:
            return disk
        return Disk(name=disk.name, class_=class_name, size_bytes=disk.size_bytes)  # type: ignore[arg-type]  # a key of prices

    kept = [part for part in storage.shared_curves if not names.intersection(part.disks)]
    changed = replace_struct(storage, disks=list(map(other, storage.disks)), shared_curves=kept)
    return replace_struct(s.facts, storage=changed)


def memory_sold(size_bytes: float) -> float:
    """The nearest common memory size: a power of two, or half as much again."""
    power = 2.0 ** math.floor(math.log2(size_bytes))
    return min((power, 1.5 * power, 2 * power), key=lambda size: abs(math.log(size / size_bytes)))


def link_sold(bits_per_second: float) -> int:
    """The next common link speed, in bits per second."""
    for gigabits in _LINKS_GBIT:
        if gigabits * 10**9 >= bits_per_second:
            return round(gigabits * 10**9)
    return math.ceil(bits_per_second)
