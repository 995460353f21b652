"""The process behind a modelled disk: a file system of one file with modelled delays.

The file is the disk's image, mounted over an ordinary file by /dev/fuse; a loop device with direct
I/O on it is the disk. One thread serves all requests. It puts the answer to a read or a write into
a heap, with the time that the model gives, so only the model's channels limit concurrency. The
process has real-time priority, since late answers would make the disk slower.

Standard input takes ``on`` and ``off`` (answer as the model says, or at once). The reply is the
same word and the number of failed reads since the last ``on``. If the input ends or the file is
unmounted, the process ends. The kernel then fails pending requests, so nothing waits for a dead
server.

The messages are the part of the FUSE protocol that a file system of one file needs
(include/uapi/linux/fuse.h).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import heapq
import mmap
import os
import random
import select
import stat
import struct
import sys
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from nginx_tune.documents.lab import DiskModel
from nginx_tune.nginx.lab.disk_models import ServiceProcess

_PR_SET_TIMERSLACK = 29
_PR_SET_IO_FLUSHER = 57
_MS_NOSUID_NODEV = 2 | 4
_CLONE_NEWNS = 0x20000
_MS_PRIVATE_ALL = 1 << 18 | 1 << 14
_MNT_DETACH = 2
_PRIORITY = 2
_PATH_SECONDS = 60e-6
"""Time that a read takes from the reader to us and back: 40 to 90 µs if it is answered at once.
Delayed answers are sent earlier by this time, but by at most half of their delay."""
LARGEST_IO_BYTES = 1 << 20
BUFFER_BYTES = LARGEST_IO_BYTES + 4096
"""The largest size of a request: the payload of a write and its headers."""
FORGET, GETATTR, SETATTR, OPEN, READ, WRITE = 2, 3, 4, 14, 15, 16
STATFS, RELEASE, FSYNC, FLUSH, INIT, INTERRUPT, DESTROY, BATCH_FORGET = (
    17, 18, 20, 25, 26, 36, 38, 42,
)  # fmt: skip
UNANSWERED = frozenset({FORGET, BATCH_FORGET, INTERRUPT})
NOT_SUPPORTED = errno.ENOSYS
"""The error after which the kernel no longer sends that operation."""


class ServerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of the process, in JSON."""

    image: str
    point: str
    """An existing file, over which the image is mounted."""
    model: DiskModel
    seed: int
    writable: bool


class _Answer(NamedTuple):
    """A delayed answer."""

    unique: int
    offset: int
    length: int
    is_read: bool = True
    failed: bool = False


class DiskServer:
    """A mounted file system of one file."""

    def __init__(self, request: ServerRequest) -> None:
        self._request = request
        self._random = random.Random(request.seed)  # noqa: S311  # the same disk from a seed
        self._process: ServiceProcess | None = None
        self._due: list[tuple[float, int, _Answer]] = []
        self._served = 0
        self._failed = 0
        flags = os.O_RDWR if request.writable else os.O_RDONLY
        self._image = os.open(request.image, flags | os.O_CLOEXEC)
        self._size = os.fstat(self._image).st_size
        access = mmap.ACCESS_WRITE if request.writable else mmap.ACCESS_READ
        self._data = memoryview(mmap.mmap(self._image, self._size, access=access))
        self._buffer = bytearray(BUFFER_BYTES)
        self._device = os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._mount()

    def _mount(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        options = (
            f"fd={self._device},rootmode=100600,user_id=0,group_id=0,allow_other,"
            f"max_read={LARGEST_IO_BYTES}"
        )
        point = os.fsencode(self._request.point)
        flags = ctypes.c_ulong(_MS_NOSUID_NODEV)
        if libc.mount(b"nginx-tune-disk", point, b"fuse", flags, options.encode()) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), self._request.point)
        _leave_mounts(libc)
        # When the kernel reclaims memory for this process, it must not wait for the served disk.
        libc.prctl(_PR_SET_IO_FLUSHER, 1, 0, 0, 0)
        libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
        with contextlib.suppress(OSError):  # forbidden in some containers
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))

    def run(self) -> None:
        """Serve until the file is unmounted or standard input ends."""
        while True:
            now = time.monotonic()
            while self._due and self._due[0][0] <= now:
                self._answer(heapq.heappop(self._due)[-1])
                now = time.monotonic()
            wait = max(0.0, self._due[0][0] - now) if self._due else None
            readable, _, _ = select.select([self._device, 0], [], [], wait)
            if 0 in readable and not self._obey():
                return
            if self._device in readable and not self._take_requests():
                return

    def _obey(self) -> bool:
        """Follow an order from standard input; False at the end of the input."""
        order = os.read(0, 64).decode().strip()
        if not order:
            return False
        self._process = None
        if order == "on":
            self._failed = 0
            self._process = ServiceProcess(
                self._request.model, self._random.random, salt=self._request.seed
            )
        os.write(1, f"{order} {self._failed}\n".encode())
        return True

    def _take_requests(self) -> bool:
        """Take all waiting requests; False once the file is unmounted."""
        while True:
            try:
                os.readv(self._device, [self._buffer])
            except BlockingIOError:
                return True
            except OSError as error:
                if error.errno == errno.ENODEV:  # unmounted
                    return False
                if error.errno in {errno.ENOENT, errno.EINTR}:  # the requester ended
                    continue
                raise
            self._handle(parse_request(self._buffer))

    def _handle(self, request: FuseRequest) -> None:
        operation, unique = request
        if operation == READ:
            self._take_read(unique)
        elif operation == WRITE:
            self._take_write(unique)
        elif operation == INIT:
            self._reply(unique, render_init(self._buffer))
        elif operation in {GETATTR, SETATTR}:
            writable = self._request.writable
            self._reply(unique, render_attributes(self._size, writable=writable))
        elif operation == OPEN:
            self._reply(unique, render_opened())
        elif operation == STATFS:
            self._reply(unique, render_statfs(self._size))
        elif operation in {RELEASE, FSYNC, FLUSH, DESTROY}:
            self._reply(unique)
        elif operation not in UNANSWERED:
            self._reply(unique, error=NOT_SUPPORTED)

    def _take_read(self, unique: int) -> None:
        offset, length = parse_transfer(self._buffer)
        length = max(0, min(length, self._size - offset))
        if self._process is not None:
            # The disk that holds the image reads while the modelled one makes its reader wait.
            os.posix_fadvise(self._image, offset, length, os.POSIX_FADV_WILLNEED)
        self._serve(_Answer(unique, offset, length))

    def _take_write(self, unique: int) -> None:
        """Write the bytes at once, since the buffer is reused; only the answer is delayed."""
        offset, length = parse_transfer(self._buffer)
        if not self._request.writable or offset + length > self._size:
            self._reply(unique, error=errno.EROFS)
            return
        self._data[offset : offset + length] = memoryview(self._buffer)[PAYLOAD : PAYLOAD + length]
        self._serve(_Answer(unique, offset, length, is_read=False))

    def _serve(self, answer: _Answer) -> None:
        """Answer after the delay of the model, or at once; bad regions fail only reads."""
        if self._process is None:
            self._answer(answer)
            return
        now = time.monotonic()
        at, failed = self._process.serve(now, answer.offset, answer.length)
        answer = answer._replace(failed=failed and answer.is_read)
        self._served += 1
        heapq.heappush(self._due, (at - min(_PATH_SECONDS, (at - now) / 2), self._served, answer))

    def _answer(self, answer: _Answer) -> None:
        if not answer.is_read:
            self._reply(answer.unique, render_written(answer.length))
        elif answer.failed:
            self._failed += 1
            self._reply(answer.unique, error=errno.EIO)
        else:
            self._reply(answer.unique, self._data[answer.offset : answer.offset + answer.length])

    def _reply(self, unique: int, payload: bytes | memoryview = b"", *, error: int = 0) -> None:
        header = render_reply(unique, 0 if error else len(payload), error=error)
        try:
            os.writev(self._device, [header] if error else [header, payload])
        except OSError as failure:
            # Meanwhile the requester was killed or the file was unmounted.
            if failure.errno not in {errno.ENOENT, errno.ENODEV}:
                raise


def _leave_mounts(libc: ctypes.CDLL) -> None:
    """Leave the lab's mounts: enter a new mount namespace, and unmount everything in it.

    When the last process of a mount namespace ends, its mounts are unmounted before /dev/fuse is
    closed. This process would then wait for its own answers for ever, and so would the loop device.
    Source: do_exit (kernel/exit.c): exit_task_namespaces, then exit_task_work.
    """
    for done in (
        libc.unshare(_CLONE_NEWNS),
        libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_PRIVATE_ALL), None),
        libc.umount2(b"/", _MNT_DETACH),
    ):
        if done != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), "a mount namespace for the modelled disk")


_REQUEST = struct.Struct("<IIQQIIII")
_REPLY = struct.Struct("<IiQ")
_INIT = struct.Struct("<IIII")
_INIT_REPLY = struct.Struct("<IIIIHHIIHHI28x")
_TRANSFER = struct.Struct("<QQI")
_TRANSFER_BYTES = 40
"""The size of fuse_read_in and fuse_write_in; in a write, the payload comes next."""
_ATTRIBUTES = struct.Struct("<QIIQQQQQQIIIIIIIIII")
_STATFS = struct.Struct("<QQQQQIIII24x")
_MAJOR, _MINOR = 7, 31
_ASYNC_READ, _BIG_WRITES, _ASYNC_DIO, _MAX_PAGES = 1 << 0, 1 << 5, 1 << 15, 1 << 22
_WANTED = _ASYNC_READ | _BIG_WRITES | _ASYNC_DIO | _MAX_PAGES
"""Features for the loop device, whose reads are asynchronous direct I/O with many in flight."""
_BACKGROUND = 1024
"""The number of background reads that the kernel sends before it waits (12 by default)."""
_VALID_SECONDS = 3600
_ROOT = 1
_KEEP_CACHE = 2
_PAGE_BYTES = 4096
BODY = _REQUEST.size
PAYLOAD = BODY + _TRANSFER_BYTES


class FuseRequest(NamedTuple):
    """The header of a request; its body begins at ``BODY`` in the same buffer."""

    operation: int
    unique: int


class Transfer(NamedTuple):
    """The range of a READ or WRITE, in bytes."""

    offset: int
    length: int


def parse_request(buffer: bytearray) -> FuseRequest:
    """The header of a request from /dev/fuse."""
    _, operation, unique, *_ = _REQUEST.unpack_from(buffer)
    return FuseRequest(operation, unique)


def parse_transfer(buffer: bytearray) -> Transfer:
    """The range of a READ or WRITE."""
    _, offset, length = _TRANSFER.unpack_from(buffer, BODY)
    return Transfer(offset, length)


def render_reply(unique: int, payload_bytes: int = 0, *, error: int = 0) -> bytes:
    """The header of a reply; ``error`` is an errno."""
    return _REPLY.pack(_REPLY.size + payload_bytes, -error, unique)


def render_init(buffer: bytearray) -> bytes:
    """The payload that answers INIT and accepts the kernel's protocol and features."""
    _, _, read_ahead, flags = _INIT.unpack_from(buffer, BODY)
    pages = LARGEST_IO_BYTES // _PAGE_BYTES
    return _INIT_REPLY.pack(
        _MAJOR, _MINOR, read_ahead, flags & _WANTED, _BACKGROUND, _BACKGROUND,
        LARGEST_IO_BYTES, 1, pages, 0, 0,
    )  # fmt: skip


def render_attributes(size_bytes: int, *, writable: bool) -> bytes:
    """The payload of a reply with the attributes of the file."""
    mode = stat.S_IFREG | (0o600 if writable else 0o400)
    times = (0,) * 6  # of access, modification and change: seconds, then nanoseconds
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


def _main() -> None:
    request = msgspec.json.decode(sys.argv[1], type=ServerRequest)
    Path(request.point).touch()
    server = DiskServer(request)
    os.write(1, b"off 0\n")
    server.run()


if __name__ == "__main__":
    _main()
