"""Memory: its amount, and the part that can hold file data."""

from typing import NamedTuple

from msgspec.structs import replace

from nginx_tune.documents.facts import Memory
from nginx_tune.host.door import Gaps, Host, Missing, attempt, known, read_parsed
from nginx_tune.host.mounts import ControlGroup, group_at, read_group
from nginx_tune.host.parse_proc import (
    available_memory_bytes,
    memory_consumers,
    parse_choice,
    parse_integer,
    parse_kstat,
    parse_meminfo,
    parse_memory_limit,
    parse_memory_stat,
    parse_swaps,
    total_memory_bytes,
    unreclaimable_bytes,
)

_LIMIT_FILES = {1: ("memory.limit_in_bytes",), 2: ("memory.max", "memory.high")}


class _Limit(NamedTuple):
    directory: str
    file: str
    limit_bytes: int


def read_memory(
    host: Host, *, process: str = "self", cgroup_directory: str | None = None
) -> tuple[Memory, Gaps]:
    """The memory that a process (a pid or ``self``) or the given cgroup may use."""
    gaps: Gaps = {}
    meminfo = attempt(host.read_text, "/proc/meminfo")
    fields = {} if isinstance(meminfo, Missing) else parse_meminfo(meminfo)
    total = known(total_memory_bytes(fields), gaps, "/total_bytes")
    available = known(available_memory_bytes(fields), gaps, "/available_bytes")
    if isinstance(meminfo, Missing):
        gaps["/total_bytes"] = gaps["/available_bytes"] = meminfo.reason

    group = (
        group_at(host, cgroup_directory)
        if cgroup_directory
        else read_group(host, "memory", process)
    )
    limit = _least_limit(host, group)
    usage: int | Missing = Missing("no memory cgroup limits this process")
    if isinstance(limit, _Limit) and isinstance(group, ControlGroup):
        usage = _read_unreclaimable(host, limit.directory, group.version)
    bound = _page_cache_limit(available, limit, usage)
    if bound.limit_bytes is None:
        gaps["/page_cache_limit_bytes"] = bound.reason
    if isinstance(group, Missing):
        gaps["/cgroup_version"] = group.reason
    if isinstance(limit, Missing):
        gaps["/cgroup_limit_bytes"] = gaps["/cgroup_limit_path"] = limit.reason
    memory = Memory(
        total_bytes=total,
        available_bytes=available,
        cgroup_version=None if isinstance(group, Missing) else group.version,
        cgroup_limit_bytes=None if isinstance(limit, Missing) else limit.limit_bytes,
        cgroup_limit_path=None if isinstance(limit, Missing) else limit.directory,
        cgroup_usage_bytes=known(usage, gaps, "/cgroup_usage_bytes"),
        page_cache_limit_bytes=bound.limit_bytes,
        page_cache_limit_reason=bound.reason,
        consumers=memory_consumers(fields),
    )
    absent = meminfo if isinstance(meminfo, Missing) else Missing("/proc/meminfo has no such field")
    memory = _with_dirty(host, memory, fields, absent, gaps)
    return _with_paging(host, _with_arc(host, memory, gaps), gaps), gaps


def _with_dirty(
    host: Host, memory: Memory, fields: dict[str, int], absent: Missing, gaps: Gaps
) -> Memory:
    """Add the dirty pages and their limits.

    Source: Documentation/admin-guide/sysctl/vm.rst: the ratios are shares of the memory for file
            data; a limit in bytes, if set, replaces its ratio.
    """
    dirty = fields.get("Dirty")

    def limit(name: str) -> int | Missing:
        given = _read_sysctl(host, f"{name}_bytes")
        if isinstance(given, int) and given > 0:
            return given
        percent = _read_sysctl(host, f"{name}_ratio")
        if isinstance(percent, Missing):
            return percent
        if memory.available_bytes is None:
            return Missing("MemAvailable is not known")
        return memory.available_bytes * percent // 100

    return replace(
        memory,
        dirty_bytes=known(absent if dirty is None else dirty, gaps, "/dirty_bytes"),
        dirty_background_bytes=known(limit("dirty_background"), gaps, "/dirty_background_bytes"),
        dirty_limit_bytes=known(limit("dirty"), gaps, "/dirty_limit_bytes"),
    )


def _with_arc(host: Host, memory: Memory, gaps: Gaps) -> Memory:
    """Add the size and limit of the ZFS cache (ARC).

    Source: arcstats of OpenZFS, a kstat with the columns name, type and data.
    """
    text = attempt(host.read_text, "/proc/spl/kstat/zfs/arcstats")
    none = Missing(f"no ZFS ({text.reason})" if isinstance(text, Missing) else "not in arcstats")
    stats = {} if isinstance(text, Missing) else parse_kstat(text)
    return replace(
        memory,
        arc_bytes=known(stats.get("size", none), gaps, "/arc_bytes"),
        arc_limit_bytes=known(stats.get("c_max", none), gaps, "/arc_limit_bytes"),
    )


def _with_paging(host: Host, memory: Memory, gaps: Gaps) -> Memory:
    """Add the swap areas and the huge-page settings.

    Source: Documentation/admin-guide/mm/transhuge.rst.
    """
    swaps = read_parsed(host, "/proc/swaps", parse_swaps)
    chosen: dict[str, str | Missing] = {}
    for name in ("enabled", "defrag"):
        path = f"/sys/kernel/mm/transparent_hugepage/{name}"
        chosen[name] = read_parsed(host, path, parse_choice)
    return replace(
        memory,
        swaps=known(swaps, gaps, "/swaps") or [],
        transparent_huge_pages=known(chosen["enabled"], gaps, "/transparent_huge_pages"),
        huge_page_defrag=known(chosen["defrag"], gaps, "/huge_page_defrag"),
    )


def _read_sysctl(host: Host, name: str) -> int | Missing:
    return read_parsed(host, f"/proc/sys/vm/{name}", parse_integer)


def _least_limit(host: Host, group: ControlGroup | Missing) -> _Limit | Missing:
    """The lowest limit of the group and its ancestors."""
    if isinstance(group, Missing):
        return group
    found = []
    answered = False
    for directory in group.directories:
        for file in _LIMIT_FILES[group.version]:
            text = attempt(host.read_text, f"{directory}/{file}")
            if isinstance(text, Missing):
                continue
            limit = parse_memory_limit(text)
            answered = answered or not isinstance(limit, Missing)
            if isinstance(limit, int):
                found.append(_Limit(directory, file, limit))
    if found:
        return min(found, key=lambda limit: limit.limit_bytes)
    if answered or group.version == 2:  # noqa: PLR2004  # the root of version 2 has no such file
        return Missing("unlimited: no memory limit on the cgroup or its ancestors")
    return Missing(f"the memory limit of {group.directories[0]} cannot be read")


def _read_unreclaimable(host: Host, directory: str, version: int) -> int | Missing:
    text = attempt(host.read_text, f"{directory}/memory.stat")
    if isinstance(text, Missing):
        return text
    return unreclaimable_bytes(parse_memory_stat(text), version)


class _Bound(NamedTuple):
    limit_bytes: int | None
    reason: str


def _page_cache_limit(
    available: int | None, limit: _Limit | Missing, usage: int | Missing
) -> _Bound:
    """The memory for file data: what the machine or the cgroup leaves, whichever is less."""
    if isinstance(limit, Missing):
        if available is None:
            return _Bound(None, "neither MemAvailable nor a cgroup limit is known")
        return _Bound(available, f"MemAvailable of the host ({limit.reason})")
    charged = 0 if isinstance(usage, Missing) else usage
    rest = max(0, limit.limit_bytes - charged)
    what = f"{limit.file} of {limit.directory} less {charged} bytes that are not file data"
    if isinstance(usage, Missing):
        what = f"{limit.file} of {limit.directory} (its other contents are not known)"
    if available is not None and available < rest:
        return _Bound(available, f"MemAvailable of the host, less than the cgroup leaves: {what}")
    return _Bound(rest, what)
