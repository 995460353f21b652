"""Delay accounting in taskstats messages and /proc/PID/stat; pure, bytes in, numbers out."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

_HEADER = struct.Struct("=IHHII")
"""nlmsghdr: length, type, flags, sequence, port."""
_GENERIC = struct.Struct("=BBH")
"""genlmsghdr: command, version, reserved."""
_ATTRIBUTE = struct.Struct("=HH")
_NESTED_BITS = 0x3FFF

ERROR_TYPE = 2
_FAMILY_ID = 1
_AGGREGATE_OF_PID = 4
_STATS = 3

_BLKIO = struct.Struct("=QQ")
_BLKIO_OFFSET = 32
"""blkio_count and blkio_delay_total, there since version 1."""
_WPCOPY_OFFSET = 400
_WPCOPY_VERSION = 13
"""wpcopy_count: copies of pages shared by fork. A forked process cannot do without."""

_STAT_BLKIO_TICKS = 39
"""Field 42 of /proc/PID/stat, counted from the state (field 3) as 0."""


class TaskDelay(NamedTuple):
    """What one thread waited since it started."""

    version: int
    block_io_count: int
    block_io_nanoseconds: int
    accounted: bool | None
    """Whether the kernel counts for this thread at all; None where it cannot be told.

    Accounting is decided when a thread starts; one that is older than the switch reads zero for
    ever (delayacct_tsk_init).
    """


class NetlinkRefusal(Exception):  # noqa: N818  # the kernel's answer, not a fault of ours
    """The kernel answered with an errno."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def parse_family(message: bytes) -> int:
    """The id of a generic netlink family, from the answer to CTRL_CMD_GETFAMILY.

    Errors: NetlinkRefusal with the kernel's errno, ValueError for what is no such answer.
    """
    for kind, value in _attributes(_payload(message)):
        if kind == _FAMILY_ID and len(value) >= 2:  # noqa: PLR2004  # a u16
            return int(struct.unpack_from("=H", value)[0])
    raise ValueError("no family id in the answer")


def parse_task_delay(message: bytes) -> TaskDelay:
    """The delays in the answer to TASKSTATS_CMD_GET for one thread.

    Errors: NetlinkRefusal with the kernel's errno, ValueError for what is no such answer.
    Source: include/uapi/linux/taskstats.h; fields are only ever added at the end, so a length
            and a version say what is there.
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
    return TaskDelay(version, count, nanoseconds, accounted)


def parse_block_io_ticks(stat: str) -> int:
    """Clock ticks that the thread of a ``/proc/PID/task/TID/stat`` waited for block I/O.

    Errors: ValueError for what is no such file.
    """
    fields = stat.rpartition(")")[2].split()
    if len(fields) <= _STAT_BLKIO_TICKS:
        raise ValueError("no delayacct_blkio_ticks")
    return int(fields[_STAT_BLKIO_TICKS])


def _payload(message: bytes) -> bytes:
    if len(message) < _HEADER.size + _GENERIC.size:
        raise ValueError("a message cut short")
    length, kind, *_ = _HEADER.unpack_from(message)
    if kind == ERROR_TYPE:
        raise NetlinkRefusal(-struct.unpack_from("=i", message, _HEADER.size)[0])
    return message[_HEADER.size + _GENERIC.size : length]


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and value of each attribute; what is cut short ends it."""
    position = 0
    while position + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, position)
        if length < _ATTRIBUTE.size or position + length > len(data):
            return
        yield kind & _NESTED_BITS, data[position + _ATTRIBUTE.size : position + length]
        position += (length + 3) & ~3
