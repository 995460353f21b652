"""Counters of disks, memory, threads, stub_status and error logs; pure.

Text of /proc, taskstats messages of netlink (delay accounting), samples of the kernel's profiler
with the memory map that names their code, and lines of error logs.
Source: proc(5); include/uapi/linux/taskstats.h; perf_event_open(2); ngx_log_error_core and
ngx_http_log_error, with the messages of ``documents/log_messages.py``.
"""

import bisect
import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from nginx_tune.documents.log_messages import LOG_MESSAGES, MESSAGES_BY_ID, LoggedMessage

_SECTOR_BYTES = 512
_MOST_DISK_FIELDS = 14


class DiskCounters(NamedTuple):
    """A line of /proc/diskstats: totals since the disk came up."""

    reads: int
    read_bytes: int
    read_milliseconds: int
    in_flight: int
    busy_milliseconds: int
    queue_milliseconds: int
    """Milliseconds weighted by the requests in flight."""
    writes: int = 0
    write_bytes: int = 0
    write_milliseconds: int = 0


def parse_diskstats(text: str) -> dict[str, DiskCounters]:
    """The counters by disk; lines of another form are skipped.

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
    """The scheduler's times of a thread since its start."""

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
    """A thread's CPU time in clock ticks and its major faults, from /proc/PID/task/TID/stat."""

    user: int
    system: int
    major_faults: int


def parse_thread_cpu(text: str) -> ThreadCpu | None:
    """User and system time of a thread, and the number of its page faults that caused a read.

    Source: proc(5), fields 12, 14 and 15.
    """
    fields = text.rpartition(")")[2].split()
    if len(fields) < 13 or not all(map(str.isdecimal, (fields[9], *fields[11:13]))):  # noqa: PLR2004
        return None
    return ThreadCpu(int(fields[11]), int(fields[12]), int(fields[9]))


def parse_swapped_in(text: str) -> int | None:
    """Pages that the host read back from swap (``pswpin`` of /proc/vmstat)."""
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "pswpin" and value.isdecimal():
            return int(value)
    return None


def parse_load_average(text: str) -> float | None:
    """The load average of the last minute, the first one in /proc/loadavg.

    Source: loadavg_proc_show in fs/proc/loadavg.c.
    """
    try:
        return float(text.split(maxsplit=1)[0])
    except (IndexError, ValueError):
        return None


def parse_virtual_bytes(text: str) -> int | None:
    """The size of the address space, from /proc/PID/status.

    Source: task_mem in fs/proc/task_mmu.c; a process that ends has none.
    """
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == "VmSize" and (number := value.removesuffix("kB").strip()).isdecimal():
            return int(number) << 10
    return None


_HEADER = struct.Struct("=IHHII")
"""nlmsghdr: length, type, flags, sequence, port."""
_GENERIC = struct.Struct("=BBH")
"""genlmsghdr: command, version, reserved."""
_ATTRIBUTE = struct.Struct("=HH")
_NESTED_BITS = 0x3FFF

_ERROR_TYPE = 2
_FAMILY_ID = 1
_AGGREGATE_OF_PID = 4
_STATS = 3

_BLKIO = struct.Struct("=QQ")
_BLKIO_OFFSET = 32
"""blkio_count and blkio_delay_total, there since version 1."""
_WPCOPY_OFFSET = 400
_WPCOPY_VERSION = 13
"""wpcopy_count: copies of pages after fork; never zero in a forked process that is counted."""

_STAT_BLKIO_TICKS = 39
"""Index of field 42 of /proc/PID/stat, counted from the state (field 3) as 0."""


class TaskDelay(NamedTuple):
    """The block-I/O waits of a thread since its start."""

    version: int
    block_io_nanoseconds: int
    accounted: bool | None
    """False when the kernel does not account for this thread; None if that is unknown. The kernel
    decides when a thread starts: a thread that started before accounting was switched on stays at
    zero (delayacct_tsk_init)."""


class NetlinkRefusal(Exception):  # noqa: N818  # the kernel's answer, not a fault of ours
    """The kernel answered with an errno."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def parse_family(message: bytes) -> int:
    """The id of a generic netlink family, from the answer to CTRL_CMD_GETFAMILY.

    Errors: NetlinkRefusal with the kernel's errno, ValueError for any other message.
    """
    for kind, value in _attributes(_payload(message)):
        if kind == _FAMILY_ID and len(value) >= 2:  # noqa: PLR2004  # a u16
            return int(struct.unpack_from("=H", value)[0])
    raise ValueError("no family id in the answer")


def parse_task_delay(message: bytes) -> TaskDelay:
    """The delays in the answer to TASKSTATS_CMD_GET for one thread.

    Errors: NetlinkRefusal with the kernel's errno, ValueError for any other message.
    Source: include/uapi/linux/taskstats.h; fields are only added at the end, so length and version
            show which are there.
    """
    for kind, value in _attributes(_payload(message)):
        if kind == _AGGREGATE_OF_PID:
            for inner, stats in _attributes(value):
                if inner == _STATS:
                    return _task_delay(stats)
    raise ValueError("no statistics in the answer")


def _task_delay(stats: bytes) -> TaskDelay:
    if len(stats) < _BLKIO_OFFSET + _BLKIO.size:
        raise ValueError("statistics of no known version")
    version = struct.unpack_from("=H", stats)[0]
    count, nanoseconds = _BLKIO.unpack_from(stats, _BLKIO_OFFSET)
    accounted: bool | None = True if count else None
    if version >= _WPCOPY_VERSION and len(stats) >= _WPCOPY_OFFSET + 8:
        accounted = bool(count or struct.unpack_from("=Q", stats, _WPCOPY_OFFSET)[0])
    return TaskDelay(version, nanoseconds, accounted)


def parse_block_io_ticks(stat: str) -> int:
    """Clock ticks that a thread waited for block I/O, from /proc/PID/task/TID/stat.

    Errors: ValueError for the text of any other file.
    """
    fields = stat.rpartition(")")[2].split()
    if len(fields) <= _STAT_BLKIO_TICKS:
        raise ValueError("no delayacct_blkio_ticks")
    return int(fields[_STAT_BLKIO_TICKS])


def _payload(message: bytes) -> bytes:
    if len(message) < _HEADER.size + _GENERIC.size:
        raise ValueError("a message cut short")
    length, kind, *_ = _HEADER.unpack_from(message)
    if kind == _ERROR_TYPE:
        raise NetlinkRefusal(-struct.unpack_from("=i", message, _HEADER.size)[0])
    return message[_HEADER.size + _GENERIC.size : length]


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The kind and value of each attribute, up to one that is cut short."""
    position = 0
    while position + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, position)
        if length < _ATTRIBUTE.size or position + length > len(data):
            return
        yield kind & _NESTED_BITS, data[position + _ATTRIBUTE.size : position + length]
        position += (length + 3) & ~3


_RECORD_HEADER = struct.Struct("=IHH")
_WORD = struct.Struct("=Q")
_SAMPLE = 9
_MODE_BITS = 7
_KERNEL = 1
_VERSION = re.compile(r"[.-][0-9][0-9.]*$")
_SUFFIX = re.compile(r"\.so(?:\.[0-9.]+)?$")

KERNEL = "kernel"
GENERATED = "generated code"
"""Code in memory without a file: LuaJIT's, or PCRE's compiled expressions."""
UNKNOWN = "unknown"


class Samples(NamedTuple):
    """The samples in a part of the ring buffer."""

    kernel: int
    addresses: list[int]
    """Instruction addresses outside the kernel."""


def parse_samples(data: bytes) -> Samples:
    """The samples among whole records of the ring buffer."""
    kernel, addresses, at = 0, [], 0
    while at + _RECORD_HEADER.size <= len(data):
        kind, mode, size = _RECORD_HEADER.unpack_from(data, at)
        if size < _RECORD_HEADER.size or at + size > len(data):
            break
        if kind == _SAMPLE and size >= _RECORD_HEADER.size + _WORD.size:
            if mode & _MODE_BITS == _KERNEL:
                kernel += 1
            else:
                addresses.append(_WORD.unpack_from(data, at + _RECORD_HEADER.size)[0])
        at += size
    return Samples(kernel, addresses)


class CodeMap:
    """The memory map of a process, which names the code at an address."""

    def __init__(self, maps: str) -> None:
        ranges = sorted(_ranges(maps.splitlines()))
        self._starts = [start for start, _, _ in ranges]
        self._ranges = ranges

    def name_of(self, address: int) -> str:
        """The library, program or module at an address (``libz``), or ``generated code``."""
        place = bisect.bisect_right(self._starts, address) - 1
        if place < 0 or address >= self._ranges[place][1]:
            return UNKNOWN
        return self._ranges[place][2]


def _ranges(lines: Iterable[str]) -> Iterable[tuple[int, int, str]]:
    for line in lines:
        fields = line.split(None, 5)
        low, dash, high = fields[0].partition("-") if fields else ("", "", "")
        if len(fields) < 5 or not dash or "x" not in fields[1]:  # noqa: PLR2004
            continue
        try:
            start, end = int(low, 16), int(high, 16)
        except ValueError:
            continue
        yield start, end, _name(fields[5] if len(fields) > 5 else "")  # noqa: PLR2004


def _name(path: str) -> str:
    path = path.strip().removesuffix(" (deleted)")
    if not path.startswith("/"):
        return path.strip("[]") if path.startswith("[v") else GENERATED
    base = path.rpartition("/")[2]
    if ".so" in base:
        return _VERSION.sub("", _SUFFIX.sub("", base))
    return base if not base.startswith(("zero", "memfd")) else GENERATED


_LINE = re.compile(
    rb"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[(\w{3,6})\] (?:\d+#\d+: )?(?:\*\d+ )?(.*)", re.DOTALL
)
_FAILED = re.compile(r"\bfailed(?: while spawning \"[^\"]{1,64}\")? \((\d{1,3}): ")
_CALL = re.compile(r"(?:[\w ]{1,60}: )?\w+\([^()]*\)")
"""The start of a message about a call. Other messages quote what an upstream or a script wrote."""
_PATTERNS = [(known, re.compile(known.pattern)) for known in LOG_MESSAGES]
_MOST_KNOWN = 1 << 14
"""Maximum number of messages whose meaning is cached; only few are frequent."""
MOST_MESSAGES = 64
"""Limit on the messages listed in a document. The list could grow long, since a message about
upstreams is listed once per upstream address."""
_NONE = MappingProxyType[tuple[str, str], int]({})


class ErrorLogCounts(NamedTuple):
    """Lines of error logs by level and by message."""

    levels: Mapping[str, int] = MappingProxyType({})
    messages: Mapping[tuple[str, str], int] = _NONE
    """Lines by the id of a message and its subject, such as a zone's name."""

    def count(self, field: str) -> int:
        """The lines that add to a counter of ``ServerMeasurement``."""
        return sum(
            n for (id_, _), n in self.messages.items() if field in MESSAGES_BY_ID[id_].counts
        )

    def by_name(self, field: str) -> dict[str, int]:
        """The lines that add to a counter, by their subject, such as a pool or a limit."""
        found: Counter[str] = Counter()
        for (id_, name), n in self.messages.items():
            if field in MESSAGES_BY_ID[id_].counts:
                found[name] += n
        return dict(sorted(found.items()))


def logged_messages(counts: ErrorLogCounts) -> list[LoggedMessage]:
    """The known messages that occurred, the most frequent first."""
    found = sorted(counts.messages.items(), key=lambda item: (-item[1], item[0]))
    return [LoggedMessage(id=id_, name=name, lines=n) for (id_, name), n in found[:MOST_MESSAGES]]


def parse_error_log(lines: Iterable[bytes]) -> ErrorLogCounts:
    """The counts over an error log; lines that nginx did not write are skipped."""
    levels: Counter[str] = Counter()
    messages: Counter[tuple[str, str]] = Counter()
    known: dict[bytes, tuple[str, str] | None] = {}
    for line in lines:
        found = _LINE.match(line)
        if found is None:
            continue
        levels[found[1].decode("ascii", "replace")] += 1
        # The client controls the text that nginx adds about the request.
        message = found[2].partition(b", client: ")[0].rstrip()
        if message not in known:
            if len(known) >= _MOST_KNOWN:
                known.clear()
            known[message] = _meaning(message.decode("utf-8", "replace"))
        meaning = known[message]
        if meaning is not None:
            messages[meaning] += 1
    return ErrorLogCounts(dict(sorted(levels.items())), dict(sorted(messages.items())))


def _meaning(message: str) -> tuple[str, str] | None:
    errors = _FAILED.findall(message) if _CALL.match(message) else []
    # The last match: a file name before the reason may look like one.
    error = int(errors[-1]) if errors else None
    for known, pattern in _PATTERNS:
        found = pattern.match(message) if not known.errors or error in known.errors else None
        if found is not None:
            return known.id, found.groupdict().get("name") or ""
    return None
