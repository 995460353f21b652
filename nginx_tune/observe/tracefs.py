"""Tracefs, as mounted or through a private mount, and tracing with separate instances in it.

An instance has its own events and buffers. It stays in the kernel until its directory is removed,
so each run first removes the instances of killed runs. This spares running ones: their pipe is
open, and the kernel then refuses to remove the instance.

``TracefsTurns`` traces loop turns where bpftrace is missing; ``OpenTracer`` traces open() and
rename(), which no thread pool offloads.
"""

import contextlib
import ctypes
import os
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from nginx_tune.host.door import Missing
from nginx_tune.host.namespaces import read_global_ids
from nginx_tune.observe.parse_turns import NameCalls, OpenReader, TurnCounts, TurnReader
from nginx_tune.observe.states import threads_in_turns

PLACES = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
PREFIX = "nginx-tune-"

_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
"""Numbers of system calls that are the same on every architecture."""
_CLOEXEC = 1
_CREATE = 6


class TraceFs(NamedTuple):
    """The root of tracefs."""

    root: Path
    is_mounted: bool
    """True if tracefs is mounted at a usual place, where other programs find it."""
    descriptor: int | None = None
    """The descriptor of a private mount, which ends when the descriptor is closed."""

    def events(self, group: str, *names: str) -> list[str]:
        """The events of this kernel among ``names``."""
        return [name for name in names if (self.root / "events" / group / name).is_dir()]

    def close(self) -> None:
        """End a private mount."""
        if self.descriptor is not None:
            os.close(self.descriptor)


def open_tracefs() -> TraceFs | Missing:
    """Tracefs as mounted, else through a detached mount that only this process has."""
    for place in PLACES:
        try:
            if (place / "events").is_dir():
                os.listdir(place / "events")  # noqa: PTH208  # may be visible but not readable
                return TraceFs(place, is_mounted=True)
        except PermissionError:
            return Missing("no permission to read tracefs: run it with sudo")
        except OSError:
            continue
    return _mount_apart()


def _mount_apart() -> TraceFs | Missing:
    libc = ctypes.CDLL(None, use_errno=True)
    context = libc.syscall(_FSOPEN, b"tracefs", _CLOEXEC)
    if context < 0:
        return Missing(f"tracefs is not mounted and cannot be: {_error()}")
    try:
        if libc.syscall(_FSCONFIG, context, _CREATE, None, None, 0) < 0:
            return Missing(f"tracefs is not mounted and cannot be: {_error()}")
        mount = libc.syscall(_FSMOUNT, context, _CLOEXEC, 0)
        if mount < 0:
            return Missing(f"tracefs is not mounted and cannot be: {_error()}")
    finally:
        os.close(context)
    return TraceFs(Path(f"/proc/self/fd/{mount}"), is_mounted=False, descriptor=mount)


def _error() -> str:
    return os.strerror(ctypes.get_errno())


class TraceInstance:
    """A tracing instance, removed by ``remove`` or by the next run's sweep."""

    def __init__(self, tracefs: TraceFs) -> None:
        """Errors: OSError when the kernel refuses. Side effects: a directory in tracefs."""
        sweep_instances(tracefs)
        instances = tracefs.root / "instances"
        self._rest = b""
        for _ in range(3):
            self.directory = instances / f"{PREFIX}{secrets.token_hex(6)}"
            self.directory.mkdir()
            try:
                flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
                self.pipe = os.open(self.directory / "trace_pipe", flags)
            except FileNotFoundError:
                continue  # another run's sweep was quicker
            return
        raise FileNotFoundError("no tracing instance could be made")

    def write(self, file: str, text: str) -> None:
        """Write a control file. Errors: OSError."""
        descriptor = os.open(self.directory / file, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def watch_calls(
        self, tracefs: TraceFs, threads: Sequence[int], calls: Sequence[str], *, buffer_kib: int
    ) -> None:
        """Enable the events of these threads' entries to and exits from these system calls.

        Tracing stays off. ``buffer_kib`` is KiB for each CPU; the clock is CLOCK_MONOTONIC.
        Errors: OSError, FileNotFoundError when the kernel traces none of the calls.
        """
        self.write("tracing_on", "0")
        self.write("trace_clock", "mono")
        self.write("buffer_size_kb", str(buffer_kib))
        self.write("set_event_pid", " ".join(map(str, threads)))
        names = [f"sys_{side}_{call}" for call in calls for side in ("enter", "exit")]
        found = tracefs.events("syscalls", *names)
        if not found:
            raise FileNotFoundError("the kernel traces no system calls (CONFIG_FTRACE_SYSCALLS)")
        for name in found:
            self.write(f"events/syscalls/{name}/enable", "1")

    def read_lines(self) -> list[str]:
        """The whole lines that were not read yet."""
        data = [self._rest]
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self.pipe, 1 << 16):
                data.append(part)
        *lines, self._rest = b"".join(data).split(b"\n")
        return [line.decode("ascii", "replace") for line in lines]

    def remove(self) -> None:
        """Remove the instance with its events and buffers."""
        with contextlib.suppress(OSError):
            self.write("events/enable", "0")
        os.close(self.pipe)
        with contextlib.suppress(OSError):
            self.directory.rmdir()


def sweep_instances(tracefs: TraceFs) -> list[str]:
    """Remove the instances of dead runs; returns their names. Live instances are busy and stay."""
    gone = []
    for directory in (tracefs.root / "instances").glob(f"{PREFIX}*"):
        try:
            directory.rmdir()
        except OSError:
            continue
        gone.append(directory.name)
    return gone


def sweep_tracing() -> list[str]:
    """Remove the tracing instances of dead runs, if there is tracefs; returns their names."""
    tracefs = open_tracefs()
    if isinstance(tracefs, Missing):
        return []
    try:
        return sweep_instances(tracefs)
    finally:
        tracefs.close()


_EVENTS_PER_SECOND = 20_000
"""Maximum number of events to read. Reading them takes about 5 % of a CPU. In a server so busy, 0.1
s shows enough turns."""
_POLL_SECONDS = 0.02
_BUFFER_KIB = 1024
"""The buffer of each CPU holds the events of the busiest server between two polls."""
_WAIT_CALLS = ("epoll_wait", "epoll_pwait", "epoll_pwait2")


class TracefsTurns:
    """A tracer of loop turns by tracefs; ids are those of the initial process namespace."""

    method = "tracefs"
    pid = None
    """None, since no other process is involved: the cost is in this process."""

    def __init__(self, threads: Mapping[int, int], tracefs: TraceFs) -> None:
        """``threads`` maps the ids that we see to the kernel's ids.

        Errors: OSError when it cannot be traced this way.
        """
        self._threads = dict(threads)
        self._instance = TraceInstance(tracefs)
        self._spans: list[TurnCounts] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()
        try:
            ids = list(threads.values())
            self._instance.watch_calls(tracefs, ids, _WAIT_CALLS, buffer_kib=_BUFFER_KIB)
            self._instance.write("events/sched/sched_switch/enable", "1")
            self._instance.write("events/sched/sched_wakeup/enable", "1")
            self._reader = TurnReader(began_nanoseconds=time.monotonic_ns())
            self._instance.write("tracing_on", "1")
        except OSError:
            self._instance.remove()
            raise
        self._on = True
        self._second_ends = self._started = self._on_since = time.monotonic()
        self._traced = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True, name="trace-pipe")
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(_POLL_SECONDS):
            with self._lock:
                self._read()
                self._hold_back()

    def _read(self) -> None:
        self._reader.read(self._instance.read_lines())

    def _hold_back(self) -> None:
        """Pause tracing when this second's quota of events is used up, until the next second."""
        now = time.monotonic()
        if now >= self._second_ends:
            self._second_ends = now + 1.0
            self._reader.events = 0
            if not self._on:
                self._reader.forget()
                self._switch(on=True)
        elif self._on and self._reader.events > _EVENTS_PER_SECOND:
            self._switch(on=False)
            self._read()
            self._reader.forget()
            self._reader.events = _EVENTS_PER_SECOND + 1

    def _switch(self, *, on: bool) -> None:
        with contextlib.suppress(OSError):
            self._instance.write("tracing_on", "1" if on else "0")
        now = time.monotonic()
        if self._on:
            self._traced += now - self._on_since
        self._on, self._on_since = on, now

    def mark(self) -> None:
        """End an interval."""
        with self._lock:
            self._read()
            self._end_span()

    def _end_span(self) -> None:
        now = time.monotonic()
        if self._on:
            self._traced += now - self._on_since
            self._on_since = now
        span = self._reader.take()
        span.traced_seconds, self._traced = self._traced, 0.0
        self._spans.append(span)

    def finish(self) -> list[TurnCounts]:
        """The turns by interval; turns open at the end count with their length so far.

        The end counts as the last mark, so callers should finish right after the last mark.
        """
        self._ended.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            self._instance.write("tracing_on", "0")
        self._read()
        self._reader.finish(time.monotonic_ns(), threads_in_turns(self._threads))
        # Turns before the first mark are dropped; those after the last belong to its interval.
        *_, last = spans = [*self._spans[1:]] or [TurnCounts()]
        last.add(self._reader.take())
        self._instance.remove()
        return spans

    def kill(self) -> None:
        """End the tracing at once, without a result."""
        self._ended.set()
        self._thread.join()
        self._instance.remove()


_OPEN_POLL_SECONDS = 0.05
_OPEN_BUFFER_KIB = 2048
"""The buffer of each CPU holds about 10,000 calls between two polls."""
_NAME_CALLS = ("openat", "open", "openat2", "rename", "renameat", "renameat2")
_READS = "block_bio_queue"


class OpenTracer:
    """A tracer of open() and rename(); thread ids are those of the initial process namespace."""

    def __init__(self, threads: Sequence[int], tracefs: TraceFs) -> None:
        """Errors: OSError when tracefs refuses."""
        self._tracefs = tracefs
        self._instance = TraceInstance(tracefs)
        self._reader = OpenReader()
        self._ended = threading.Event()
        try:
            self._instance.watch_calls(tracefs, threads, _NAME_CALLS, buffer_kib=_OPEN_BUFFER_KIB)
            self._has_reads = bool(tracefs.events("block", _READS))
            if self._has_reads:
                self._instance.write(f"events/block/{_READS}/enable", "1")
        except OSError:
            self._instance.remove()
            raise
        self._thread = threading.Thread(target=self._run, daemon=True, name="open-calls")

    def start(self) -> None:
        """Begin counting."""
        self._instance.write("tracing_on", "1")
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(_OPEN_POLL_SECONDS):
            self._read()

    def _read(self) -> None:
        self._reader.read(self._instance.read_lines())

    def finish(self) -> NameCalls | Missing:
        """The calls; Missing when events were lost."""
        with contextlib.suppress(OSError):
            self._instance.write("tracing_on", "0")
        self._stop_reading()
        self._read()
        calls = self._reader.finish(time.monotonic_ns(), has_reads=self._has_reads)
        self._remove()
        if self._reader.lost:
            return Missing(f"{self._reader.lost:,} events of open() were lost")
        return calls

    def kill(self) -> None:
        """End the tracing at once, without a result."""
        self._stop_reading()
        self._remove()

    def _remove(self) -> None:
        self._instance.remove()
        self._tracefs.close()

    def _stop_reading(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()


def start_open_tracing(pids: Sequence[int]) -> OpenTracer | Missing:
    """A tracer of the main threads of these processes, not started yet."""
    ids = read_global_ids(pids)
    tracefs = ids if isinstance(ids, Missing) else open_tracefs()
    if isinstance(ids, Missing) or isinstance(tracefs, Missing):
        return tracefs if isinstance(tracefs, Missing) else Missing("no ids")
    try:
        return OpenTracer(list(ids.values()), tracefs)
    except OSError as error:
        tracefs.close()
        return Missing(f"tracefs: {error.strerror or error}")
