"""The states of main threads, the calls they are in, and the code they run, by sampling.

States and calls come from /proc (calls need the right to trace the process), code from the
profiler of the kernel. A stall shorter than the interval shows only in proportion. The error of a
share comes from the spread between seconds, since neighbouring samples see the same stall.
"""

import contextlib
import ctypes
import fcntl
import math
import mmap
import os
import struct
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import stdev
from typing import NamedTuple

from nginx_tune.host.door import Missing
from nginx_tune.observe.parse_counters import KERNEL, CodeMap, parse_samples
from nginx_tune.observe.parse_turns import WAIT_BY_STATE, Call, TurnKind, Wait, parse_call

_LOOKS_PER_SECOND = 2000
"""Samples of all threads together: about 10 µs each, at most 2 % of a CPU."""
_FASTEST_SECONDS = 0.01
_SHOWN = "DRS"
_ASKED_OF_SLEEPERS = 8
"""A sleeping thread's call is read in one of so many samples, since most threads sleep in
epoll_wait."""


class BlockedState(NamedTuple):
    """The state and call of a main thread that waits elsewhere than in epoll_wait."""

    state: str
    """``D`` or ``S``."""
    call: str
    kind: TurnKind
    file: str = ""
    """The path of the file read or written, with ``+`` before it when it was opened to append."""


class StateShares(NamedTuple):
    """The states of a thread as shares of its samples."""

    ratios: dict[str, float]
    samples: int
    error_in_d: float | None
    """Standard error of the share of ``D``; null with fewer than two seconds."""


class StateSampler:
    """Samples the states of threads, in a separate thread that runs until ``finish``."""

    def __init__(self, threads: Sequence[int]) -> None:
        self._interval_seconds = max(_FASTEST_SECONDS, len(threads) / _LOOKS_PER_SECOND)
        self._files: dict[int, int] = {}
        self.held: Counter[BlockedState] = Counter()
        """Samples of all threads; each call read from a sleeping thread counts as eight."""
        self._sleepers = 0
        for thread in threads:
            with contextlib.suppress(OSError):
                path = f"/proc/{thread}/task/{thread}/stat"
                self._files[thread] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._seconds: list[dict[int, Counter[str]]] = [self._fresh()]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True, name="states")

    def _fresh(self) -> dict[int, Counter[str]]:
        return {thread: Counter() for thread in self._files}

    def start(self) -> None:
        """Begin to sample."""
        self._thread.start()

    def mark(self) -> float | None:
        """End a second; returns the share of its samples in state D over all threads."""
        done = self._seconds[-1]
        self._seconds.append(self._fresh())
        total = sum(counts.total() for counts in done.values())
        return sum(counts["D"] for counts in done.values()) / total if total else None

    def finish(self) -> dict[int, StateShares]:
        """The state shares by thread; ends the sampling."""
        self._ended.set()
        self._thread.join()
        for file in self._files.values():
            os.close(file)
        return {
            thread: share_states([second[thread] for second in self._seconds])
            for thread in self._files
        }

    def _sample(self) -> None:
        while not self._ended.wait(self._interval_seconds):
            second = self._seconds[-1]
            for thread, file in self._files.items():
                state = _state(file)
                if state is not None:
                    second[thread][state] += 1
                    self._ask(thread, state)

    def _ask(self, thread: int, state: str) -> None:
        """Count the call of a thread that does not run, if it can be read."""
        weight = 1
        if state == "S":
            self._sleepers += 1
            if self._sleepers % _ASKED_OF_SLEEPERS:
                return
            weight = _ASKED_OF_SLEEPERS
        elif state != "D":
            return
        call = read_call(thread)
        if call is None or call.kind in ("loop", "running"):
            return
        if state == "S" and call.kind == "page fault":
            return  # it was about to return to its own code
        file = "" if call.descriptor is None else file_of(thread, call.descriptor)
        self.held[BlockedState(state, call.name, call.kind, file)] += weight


def share_states(seconds: Sequence[Counter[str]]) -> StateShares:
    """The shares over all seconds: D, R and S always, other states only if they occur."""
    total: Counter[str] = Counter()
    for second in seconds:
        total.update(second)
    samples = total.total()
    if not samples:
        return StateShares({}, 0, None)
    ratios = {state: total[state] / samples for state in dict.fromkeys((*_SHOWN, *sorted(total)))}
    # A second of few samples (the last one) would add noise.
    full = [s for s in seconds if s.total() * 2 * len(seconds) >= samples]
    shares = [second["D"] / second.total() for second in full]
    error = stdev(shares) / math.sqrt(len(shares)) if len(shares) > 1 else None
    return StateShares(ratios, samples, error)


def _state(file: int) -> str | None:
    try:
        stat = os.pread(file, 512, 0)
    except OSError:
        return None  # the thread has ended
    fields = stat.rpartition(b")")[2].split(maxsplit=1)
    return fields[0].decode("ascii", "replace") if fields else None


_MACHINE = os.uname().machine
_APPEND = os.O_APPEND


def read_call(thread: int) -> Call | None:
    """The call that a main thread is in; None when it cannot be read."""
    try:
        descriptor = os.open(f"/proc/{thread}/task/{thread}/syscall", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = os.read(descriptor, 256)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return parse_call(text.decode("ascii", "replace"), _MACHINE)


def threads_in_turns(threads: Mapping[int, int]) -> dict[int, Wait | None]:
    """The threads outside epoll_wait, each with the reason why it waits.

    ``threads`` maps the ids that we see to the kernel's ids, which are the keys of the result.
    Threads that cannot be read are left out; a thread that runs or could run has no wait.
    """
    return {
        kernel_id: WAIT_BY_STATE.get(_state_letter(seen))
        for seen, kernel_id in threads.items()
        if (call := read_call(seen)) is not None and call.kind != "loop"
    }


def _state_letter(thread: int) -> str:
    """The letter of a thread's state; empty when it is gone. Source: proc_pid_stat(5)."""
    try:
        with open(f"/proc/{thread}/task/{thread}/stat", "rb") as file:  # noqa: PTH123
            return file.read().rpartition(b")")[2].split()[0].decode("ascii", "replace")
    except (OSError, IndexError):
        return ""


def file_of(thread: int, descriptor: int) -> str:
    """The path behind a descriptor, after ``+`` if opened to append; empty if unreadable."""
    try:
        path = os.readlink(f"/proc/{thread}/fd/{descriptor}")  # noqa: PTH115  # as stored
        with open(f"/proc/{thread}/fdinfo/{descriptor}", "rb") as file:  # noqa: PTH123
            flags = next((line for line in file if line.startswith(b"flags:")), b"flags: 0")
        return ("+" if int(flags.split()[1], 8) & _APPEND else "") + path
    except (OSError, ValueError, IndexError):
        return ""


_CALL = {"x86_64": 298}
_GENERIC_CALL = 241
"""perf_event_open on architectures of asm-generic."""
_SOFTWARE = 1
_TASK_CLOCK = 1
_PER_SECOND = 199
"""Samples a second. The rate is not a multiple of the timer's, which would favour code that runs at
every tick."""
_ADDRESS = 1
_DISABLED, _WITHOUT_KERNEL, _WITHOUT_HYPERVISOR, _IS_RATE = 1, 1 << 5, 1 << 6, 1 << 10
_SIZE = 128
_ENABLE = 0x2400
_CLOEXEC = 8
_PAGES = 16
"""Pages of the ring buffer. They hold 12 s of samples of a thread that always runs."""
_HEAD, _TAIL = 1024, 1032
MOST_THREADS = 64


class CpuSampler:
    """Samples the code that threads run, from ``start`` to ``finish``."""

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
        """Begin sampling."""
        for descriptor, _ in self._buffers.values():
            fcntl.ioctl(descriptor, _ENABLE, 0)

    def mark(self) -> None:
        """Empty the buffers, which hold a few seconds."""
        for thread, (_, buffer) in self._buffers.items():
            samples = parse_samples(_take(buffer))
            self._found[thread].update(samples.addresses)
            self._found[thread][KERNEL] += samples.kernel

    def finish(self) -> Counter[str] | Missing:
        """The samples of all threads by library, program or ``kernel``."""
        if self.missing is not None:
            return self.missing
        self.mark()
        total: Counter[str] = Counter()
        for thread, found in self._found.items():
            try:
                code = CodeMap(Path(f"/proc/{thread}/maps").read_text(errors="replace"))
            except OSError:
                continue  # the process has ended, and its memory map with it
            for what, count in found.items():
                total[what if isinstance(what, str) else code.name_of(what)] += count
        self.close()
        return +total

    def close(self) -> None:
        """Close the buffers."""
        for descriptor, buffer in self._buffers.values():
            buffer.close()
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._buffers = {}


def _open(thread: int) -> tuple[int, mmap.mmap]:
    """Open the profiler of a thread, without kernel code if sampling the kernel is not allowed."""
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
    """The records since the last call."""
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
