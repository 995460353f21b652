"""Kernel counters of disks, memory and threads; pure, text in, numbers out."""

from __future__ import annotations

from typing import NamedTuple

_SECTOR_BYTES = 512
_MOST_DISK_FIELDS = 14


class DiskCounters(NamedTuple):
    """One line of /proc/diskstats, since the disk came up."""

    reads: int
    read_bytes: int
    read_milliseconds: int
    in_flight: int
    busy_milliseconds: int
    queue_milliseconds: int
    """Requests under way times milliseconds."""
    writes: int = 0
    write_bytes: int = 0
    write_milliseconds: int = 0


def parse_diskstats(text: str) -> dict[str, DiskCounters]:
    """The counters by disk; lines of another form are passed over.

    Source: Documentation/admin-guide/iostats.rst.
    """
    disks = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < _MOST_DISK_FIELDS or not all(map(str.isdecimal, fields[3:14])):
            continue
        number = [int(field) for field in fields[3:14]]
        disks[fields[2]] = DiskCounters(
            reads=number[0],
            read_bytes=number[2] * _SECTOR_BYTES,
            read_milliseconds=number[3],
            in_flight=number[8],
            busy_milliseconds=number[9],
            queue_milliseconds=number[10],
            writes=number[4],
            write_bytes=number[6] * _SECTOR_BYTES,
            write_milliseconds=number[7],
        )
    return disks


def parse_refaults(text: str) -> int | None:
    """File pages read again after eviction, from /proc/vmstat or a cgroup's memory.stat.

    Source: mm/workingset.c; ``workingset_refault`` before 5.9, which counted only file pages.
    """
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name.startswith("workingset_refault") and value.isdecimal():
            found[name] = int(value)
    return found.get("workingset_refault_file", found.get("workingset_refault"))


class Scheduling(NamedTuple):
    """What the scheduler did with one thread since it started."""

    cpu_seconds: float
    run_queue_seconds: float


def parse_schedstat(text: str) -> Scheduling | None:
    """Time on a CPU and time waiting for one, from /proc/PID/task/TID/schedstat."""
    fields = text.split()
    if len(fields) < 2 or not all(map(str.isdecimal, fields[:2])):  # noqa: PLR2004
        return None
    return Scheduling(int(fields[0]) / 1e9, int(fields[1]) / 1e9)


def parse_switches(text: str) -> tuple[int, int] | None:
    """Voluntary and involuntary context switches, from /proc/PID/task/TID/status."""
    found = dict(line.split(":", 1) for line in text.splitlines() if "ctxt_switches:" in line)
    try:
        return int(found["voluntary_ctxt_switches"]), int(found["nonvoluntary_ctxt_switches"])
    except (KeyError, ValueError):
        return None


class StatusCounters(NamedTuple):
    """The page of stub_status."""

    active: int
    accepts: int
    handled: int
    requests: int
    writing: int | None = None


def parse_stub_status(text: str) -> StatusCounters | None:
    """The counters of a stub_status page; None for another page.

    Source: ngx_http_stub_status_handler.
    """
    lines = [line.split() for line in text.splitlines()[:4]]
    if len(lines) < 3 or lines[0][:2] != ["Active", "connections:"]:  # noqa: PLR2004
        return None
    numbers = [*lines[0][2:3], *lines[2][:3]]
    if len(numbers) != 4 or not all(map(str.isdecimal, numbers)):  # noqa: PLR2004
        return None
    writing = lines[3][3:4] if len(lines) > 3 and lines[3][2:3] == ["Writing:"] else []  # noqa: PLR2004
    known = int(writing[0]) if writing and writing[0].isdecimal() else None
    active, accepts, handled, requests = map(int, numbers)
    return StatusCounters(active, accepts, handled, requests, known)


class ThreadCpu(NamedTuple):
    """Of /proc/PID/task/TID/stat, in clock ticks, and faults."""

    user: int
    system: int
    major_faults: int


def parse_thread_cpu(text: str) -> ThreadCpu | None:
    """User and system time of a thread, and page faults that had to read.

    Source: proc(5), fields 12, 14 and 15.
    """
    fields = text.rpartition(")")[2].split()
    if len(fields) < 13 or not all(map(str.isdecimal, (fields[9], *fields[11:13]))):  # noqa: PLR2004
        return None
    return ThreadCpu(int(fields[11]), int(fields[12]), int(fields[9]))


def parse_swapped_in(text: str) -> int | None:
    """Pages read back from swap, of the whole host (``pswpin`` of /proc/vmstat)."""
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "pswpin" and value.isdecimal():
            return int(value)
    return None


def parse_load_average(text: str) -> float | None:
    """The first load average of /proc/loadavg, that of the last minute.

    Source: loadavg_proc_show in fs/proc/loadavg.c.
    """
    try:
        return float(text.split(maxsplit=1)[0])
    except (IndexError, ValueError):
        return None


def parse_virtual_bytes(text: str) -> int | None:
    """Size of the address space from /proc/PID/status.

    Source: task_mem in fs/proc/task_mmu.c; a process that ends has none.
    """
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == "VmSize" and (number := value.removesuffix("kB").strip()).isdecimal():
            return int(number) << 10
    return None
