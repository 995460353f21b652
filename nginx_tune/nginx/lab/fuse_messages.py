"""The little of the FUSE protocol that a file system of one file speaks; pure.

Source: include/uapi/linux/fuse.h (version 7.31) and fuse(4): each request is one read of
/dev/fuse, each reply one write.
"""

from __future__ import annotations

import errno
import stat
import struct
from typing import NamedTuple

LARGEST_IO_BYTES = 1 << 20
BUFFER_BYTES = LARGEST_IO_BYTES + 4096
"""What one request can take: the payload of a write and its headers."""

FORGET, GETATTR, SETATTR, OPEN, READ, WRITE = 2, 3, 4, 14, 15, 16
STATFS, RELEASE, FSYNC, FLUSH, INIT, INTERRUPT, DESTROY, BATCH_FORGET = (
    17, 18, 20, 25, 26, 36, 38, 42,
)  # fmt: skip
UNANSWERED = frozenset({FORGET, BATCH_FORGET, INTERRUPT})

_REQUEST = struct.Struct("<IIQQIIII")
_REPLY = struct.Struct("<IiQ")
_INIT = struct.Struct("<IIII")
_INIT_REPLY = struct.Struct("<IIIIHHIIHHI28x")
_TRANSFER = struct.Struct("<QQI")
_TRANSFER_BYTES = 40
"""Of fuse_read_in and fuse_write_in; the payload of a write follows."""
_ATTRIBUTES = struct.Struct("<QIIQQQQQQIIIIIIIIII")
_STATFS = struct.Struct("<QQQQQIIII24x")

_MAJOR, _MINOR = 7, 31
_ASYNC_READ, _BIG_WRITES, _ASYNC_DIO, _MAX_PAGES = 1 << 0, 1 << 5, 1 << 15, 1 << 22
_WANTED = _ASYNC_READ | _BIG_WRITES | _ASYNC_DIO | _MAX_PAGES
"""Reads of the loop device are asynchronous direct I/O: many of them are under way at once."""
_BACKGROUND = 1024
"""Such reads that the kernel sends before it waits (the default is 12)."""
_VALID_SECONDS = 3600
_ROOT = 1
_KEEP_CACHE = 2
_PAGE_BYTES = 4096


class FuseRequest(NamedTuple):
    """The header of a request; its body begins at ``BODY`` of the same buffer."""

    operation: int
    unique: int


class Transfer(NamedTuple):
    """Which bytes a READ or WRITE is about."""

    offset: int
    length: int


BODY = _REQUEST.size
PAYLOAD = BODY + _TRANSFER_BYTES


def parse_request(buffer: bytearray) -> FuseRequest:
    """The header in front of what was read from /dev/fuse."""
    _, operation, unique, *_ = _REQUEST.unpack_from(buffer)
    return FuseRequest(operation, unique)


def parse_transfer(buffer: bytearray) -> Transfer:
    """Offset and length of a READ or WRITE."""
    _, offset, length = _TRANSFER.unpack_from(buffer, BODY)
    return Transfer(offset, length)


def render_reply(unique: int, payload_bytes: int = 0, *, error: int = 0) -> bytes:
    """The header of a reply; ``error`` is an errno."""
    return _REPLY.pack(_REPLY.size + payload_bytes, -error, unique)


def render_init(buffer: bytearray) -> bytes:
    """The payload that accepts the kernel's offer of protocol and features."""
    _, _, read_ahead, flags = _INIT.unpack_from(buffer, BODY)
    pages = LARGEST_IO_BYTES // _PAGE_BYTES
    return _INIT_REPLY.pack(
        _MAJOR, _MINOR, read_ahead, flags & _WANTED, _BACKGROUND, _BACKGROUND,
        LARGEST_IO_BYTES, 1, pages, 0, 0,
    )  # fmt: skip


def render_attributes(size_bytes: int, *, writable: bool) -> bytes:
    """The payload that tells what the one file is."""
    mode = stat.S_IFREG | (0o600 if writable else 0o400)
    times = (0,) * 6  # access, modification and change; their nanoseconds
    return _ATTRIBUTES.pack(
        _VALID_SECONDS, 0, 0, _ROOT, size_bytes, size_bytes // 512, *times[:3], *times[3:],
        mode, 1, 0, 0, 0, _PAGE_BYTES, 0,
    )  # fmt: skip


def render_opened() -> bytes:
    """The payload of a successful OPEN."""
    return struct.pack("<QII", 0, _KEEP_CACHE, 0)


def render_written(length: int) -> bytes:
    """The payload of a successful WRITE."""
    return struct.pack("<II", length, 0)


def render_statfs(size_bytes: int) -> bytes:
    """The payload of STATFS."""
    blocks = size_bytes // _PAGE_BYTES
    return _STATFS.pack(blocks, 0, 0, 1, 0, _PAGE_BYTES, 255, _PAGE_BYTES, 0)


NOT_SUPPORTED = errno.ENOSYS
"""The kernel does not ask for such an operation again."""
