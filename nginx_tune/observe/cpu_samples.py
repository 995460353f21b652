"""Whose code the main threads run, by the kernel's profiler.

Each is looked at 199 times a second of its CPU time, and the instruction it is at belongs to a
library, to nginx, or to the kernel. A thread that computes little is looked at seldom, so the
cost goes with what there is to see.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import struct
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from nginx_tune.host.door import Missing
from nginx_tune.observe.parse_samples import KERNEL, CodeMap, parse_samples

_CALL = {"x86_64": 298}
_GENERIC_CALL = 241
"""perf_event_open on architectures of asm-generic."""
_SOFTWARE = 1
_TASK_CLOCK = 1
_PER_SECOND = 199
"""Beside the clock of the timers, so that what happens at every tick is not all that is seen."""
_ADDRESS = 1
_DISABLED, _WITHOUT_KERNEL, _WITHOUT_HYPERVISOR, _IS_RATE = 1, 1 << 5, 1 << 6, 1 << 10
_SIZE = 128
_ENABLE = 0x2400
_CLOEXEC = 8
_PAGES = 16
"""Of the ring buffer: 12 s of samples of a thread that always runs."""
_HEAD, _TAIL = 1024, 1032
MOST_THREADS = 64


class CpuSampler:
    """Looks at what some threads run, until it is finished."""

    def __init__(self, threads: Sequence[int]) -> None:
        self._buffers: dict[int, tuple[int, mmap.mmap]] = {}
        self._found: dict[int, Counter[int | str]] = {}
        self.missing: Missing | None = None
        for thread in threads[:MOST_THREADS]:
            try:
                self._buffers[thread] = _open(thread)
            except OSError as error:
                self.missing = Missing(f"perf_event_open: {error.strerror or error}")
                self.close()
                return
            self._found[thread] = Counter()

    def start(self) -> None:
        """Begin to look."""
        for descriptor, _ in self._buffers.values():
            fcntl.ioctl(descriptor, _ENABLE, 0)

    def mark(self) -> None:
        """Empty the buffers, which hold some seconds."""
        for thread, (_, buffer) in self._buffers.items():
            samples = parse_samples(_take(buffer))
            self._found[thread].update(samples.addresses)
            self._found[thread][KERNEL] += samples.kernel

    def finish(self) -> Counter[str] | Missing:
        """Samples of all threads by whose code it was."""
        if self.missing is not None:
            return self.missing
        self.mark()
        total: Counter[str] = Counter()
        for thread, found in self._found.items():
            try:
                code = CodeMap(Path(f"/proc/{thread}/maps").read_text(errors="replace"))
            except OSError:
                continue  # it has ended, and its addresses with it
            for what, count in found.items():
                total[what if isinstance(what, str) else code.name_of(what)] += count
        self.close()
        return +total

    def close(self) -> None:
        """Let the buffers go."""
        for descriptor, buffer in self._buffers.values():
            buffer.close()
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._buffers = {}


def _open(thread: int) -> tuple[int, mmap.mmap]:
    """The profiler of one thread, without the kernel's code where that is not allowed."""
    flags = _DISABLED | _WITHOUT_HYPERVISOR | _IS_RATE
    try:
        descriptor = _perf_event_open(thread, flags)
    except PermissionError:
        descriptor = _perf_event_open(thread, flags | _WITHOUT_KERNEL)
    try:
        return descriptor, mmap.mmap(descriptor, (_PAGES + 1) * mmap.PAGESIZE)
    except OSError:
        os.close(descriptor)
        raise


def _perf_event_open(thread: int, flags: int) -> int:
    attributes = bytearray(_SIZE)
    struct.pack_into(
        "=IIQQQQQ", attributes, 0,
        _SOFTWARE, _SIZE, _TASK_CLOCK, _PER_SECOND, _ADDRESS, 0, flags,
    )  # fmt: skip
    libc = ctypes.CDLL(None, use_errno=True)
    number = _CALL.get(os.uname().machine, _GENERIC_CALL)
    buffer = (ctypes.c_char * _SIZE).from_buffer(attributes)
    descriptor = int(libc.syscall(number, buffer, thread, -1, -1, _CLOEXEC))
    if descriptor < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return descriptor


def _take(buffer: mmap.mmap) -> bytes:
    """The records that came since the last time."""
    head, tail = (int.from_bytes(buffer[at : at + 8], "little") for at in (_HEAD, _TAIL))
    size, start = _PAGES * mmap.PAGESIZE, mmap.PAGESIZE
    first, last = tail % size, head % size
    if head == tail:
        return b""
    if first < last:
        data = buffer[start + first : start + last]
    else:
        data = buffer[start + first : start + size] + buffer[start : start + last]
    buffer[_TAIL : _TAIL + 8] = head.to_bytes(8, "little")
    return data
