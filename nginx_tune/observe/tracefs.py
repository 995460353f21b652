"""Tracefs: where it is mounted, or a mount of our own that nobody else sees; our instances in it.

An instance is a set of events and buffers apart from everybody else's. It lives in the kernel
until its directory is removed, so one that a killed run left is removed by the next: the kernel
refuses to remove an instance whose pipe somebody holds open, and ours is open all the time.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from nginx_tune.host.door import Missing

PLACES = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
PREFIX = "nginx-tune-"

_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
"""The same on every architecture."""
_CLOEXEC = 1
_CREATE = 6


class TraceFs(NamedTuple):
    """The root of tracefs."""

    root: Path
    is_mounted: bool
    """Whether other programs find it at a usual place."""
    descriptor: int | None = None
    """Of a mount of our own: it is gone when this is closed."""

    def events(self, group: str, *names: str) -> list[str]:
        """Those of the events that this kernel has."""
        return [name for name in names if (self.root / "events" / group / name).is_dir()]

    def close(self) -> None:
        """Let a mount of our own go."""
        if self.descriptor is not None:
            os.close(self.descriptor)


def open_tracefs() -> TraceFs | Missing:
    """Tracefs as it is mounted, else through a mount without a place, for this process alone."""
    for place in PLACES:
        try:
            if (place / "events").is_dir():
                os.listdir(place / "events")  # noqa: PTH208  # may be visible and closed to us
                return TraceFs(place, is_mounted=True)
        except PermissionError:
            return Missing("no right to look into tracefs: run it with sudo")
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
    """A tracing instance of our own; removed by ``remove``, or by the next run's sweep."""

    def __init__(self, tracefs: TraceFs) -> None:
        """Errors: OSError when the kernel makes none. Side effects: a directory in tracefs."""
        sweep_instances(tracefs)
        instances = tracefs.root / "instances"
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
        """Let entries and exits of these system calls of these threads be recorded; still off.

        Units: ``buffer_kib`` for each CPU; the clock is CLOCK_MONOTONIC.
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

    def read(self) -> bytes:
        """Lines that are there and were not read yet; empty for none."""
        parts = []
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self.pipe, 1 << 16):
                parts.append(part)
        return b"".join(parts)

    def remove(self) -> None:
        """Remove the instance with its events and buffers."""
        with contextlib.suppress(OSError):
            self.write("events/enable", "0")
        os.close(self.pipe)
        with contextlib.suppress(OSError):
            self.directory.rmdir()


def sweep_instances(tracefs: TraceFs) -> list[str]:
    """Remove what dead runs left; the names. Live ones are busy and stay."""
    gone = []
    for directory in (tracefs.root / "instances").glob(f"{PREFIX}*"):
        try:
            directory.rmdir()
        except OSError:
            continue
        gone.append(directory.name)
    return gone


def sweep_tracing() -> list[str]:
    """Remove the tracing instances that dead runs left; the names."""
    tracefs = open_tracefs()
    if isinstance(tracefs, Missing):
        return []
    try:
        return sweep_instances(tracefs)
    finally:
        tracefs.close()
