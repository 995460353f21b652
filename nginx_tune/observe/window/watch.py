"""The watch over a server for a window: a running nginx, or one in a run of an experiment.

A thread takes a reading once a second, another samples thread states, and a tracer counts loop
turns. Slow preparations come before ``start``. ``LogWindow`` reads the lines that are
added to an error log in the window, even across a rotation.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from nginx_tune.documents.measured_server import ServerMeasurement
from nginx_tune.host.door import Gaps, Host, Missing
from nginx_tune.observe.accounting import BlockDelayMeter, read_cpu_seconds
from nginx_tune.observe.connections import count_held
from nginx_tune.observe.parse_counters import ErrorLogCounts, parse_error_log
from nginx_tune.observe.states import CpuSampler, StateSampler
from nginx_tune.observe.tracefs import OpenTracer, start_open_tracing
from nginx_tune.observe.tracing import (
    Means,
    QueueWaits,
    QueueWaitTracer,
    Tracing,
    start_queue_wait,
    start_tracing,
)
from nginx_tune.observe.window.moment import Moment, MomentReader, Subjects
from nginx_tune.observe.window.server import plan_server
from nginx_tune.observe.window.window import Window

if TYPE_CHECKING:
    from typing_extensions import Self


class ServerWatch:
    """A window over a server, as a context manager.

    Entering attaches the tracers; the calling thread must outlive them. Leaving without ``finish``
    ends them without a result.
    """

    def __init__(
        self,
        host: Host,
        subjects: Subjects,
        *,
        means: Means = "auto",
        queue_wait: bool = False,
        opens: bool = False,
        samples: bool = True,
        every_second: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._subjects = subjects
        self._means = means
        self._asks_queue_wait = queue_wait
        self._asks_opens = opens
        self._every_second = every_second
        self._meter = BlockDelayMeter(subjects.workers)
        self._reader = MomentReader(host, subjects, self._meter)
        self._tracing = Tracing(None, {}, ["not started"])
        self._queue_tracer: QueueWaitTracer | Missing | None = None
        self._queue_waits: QueueWaits | Missing | None = None
        self._open_tracer: OpenTracer | Missing | None = None
        self._sampler = StateSampler(subjects.workers)
        self._cpu_sampler = CpuSampler(subjects.workers if samples else ())
        self._samples = samples
        self._moments: list[Moment] = []
        self._d_ratios: list[float | None] = []
        self._logs: list[LogWindow] = []
        self._held_before: dict[int, int] | None = None
        self._own_cpu = 0.0
        self._late = 0.0
        self._finished = False
        self._ended = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True, name="server-watch")

    def __enter__(self) -> Self:
        self._tracing = start_tracing(self._subjects.workers, self._means)
        if self._asks_queue_wait:
            workers = self._subjects.workers
            self._queue_tracer = (
                start_queue_wait(workers[0], workers) if workers else Missing("no worker to trace")
            )
        if self._asks_opens:
            self._open_tracer = start_open_tracing(self._subjects.workers)
        self._reader.read()  # the first reading imports modules
        return self

    def start(self) -> None:
        """Begin the window."""
        self._logs = [LogWindow(path) for path in self._subjects.error_logs]
        self._held_before = count_held(self._subjects.workers, self._subjects.ports)
        self._own_cpu = time.process_time()
        self._sampler.start()
        self._cpu_sampler.start()
        self._read()
        if isinstance(self._open_tracer, OpenTracer):
            self._open_tracer.start()
        self._ticker.start()

    def _tick(self) -> None:
        start = self._moments[0].at
        second, ready = 1, start
        while not self._ended.wait(max(0.0, start + second - time.monotonic())):
            # The time of a reading, with stub_status, is the server's; this delay is ours.
            self._late = max(self._late, time.monotonic() - max(start + second, ready))
            self._d_ratios.append(self._sampler.mark())
            self._read()
            self._end_queue_wait_in_time()
            self._every_second(second)
            # A reading longer than a second makes one longer second, not several.
            second = max(second + 1, int(time.monotonic() - start) + 1)
            ready = time.monotonic()

    def _read(self) -> None:
        if self._tracing.tracer is not None:
            self._tracing.tracer.mark()
        self._cpu_sampler.mark()
        self._moments.append(self._reader.read())

    def _end_queue_wait_in_time(self) -> None:
        tracer = self._queue_tracer
        if isinstance(tracer, QueueWaitTracer) and time.monotonic() >= tracer.ends:
            self._queue_waits, self._queue_tracer = tracer.finish(), None

    @property
    def seconds(self) -> float:
        """The window's length so far; readings that wait for nginx extend it."""
        return self._moments[-1].at - self._moments[0].at

    def finish(self) -> tuple[ServerMeasurement, Gaps]:
        """The measurement of the window, and the reasons for its nulls."""
        asked = self._open_tracer
        opens = asked.finish() if isinstance(asked, OpenTracer) else asked
        self._ended.set()
        self._ticker.join()
        self._d_ratios.append(self._sampler.mark())
        self._read()
        states = self._sampler.finish()
        ran = self._cpu_sampler.finish() if self._samples else Missing("sampling was turned off")
        tracer = self._tracing.tracer
        cost = time.process_time() - self._own_cpu
        cost += (read_cpu_seconds(tracer.pid) or 0.0) if tracer and tracer.pid else 0.0
        spans = Missing(self._tracing.reason) if tracer is None else tracer.finish()
        if isinstance(self._queue_tracer, QueueWaitTracer):
            self._queue_waits = self._queue_tracer.finish()
        elif isinstance(self._queue_tracer, Missing):
            self._queue_waits = self._queue_tracer
        held = (self._held_before, count_held(self._subjects.workers, self._subjects.ports))
        self._meter.close()
        self._finished = True
        return plan_server(
            Window(
                subjects=self._subjects,
                moments=self._moments,
                logs=self._read_logs(),
                states=states,
                d_ratios=self._d_ratios,
                spans=spans,
                turn_method=tracer.method if tracer else "",
                global_ids=self._tracing.global_ids,
                delay_method=self._meter.method,
                delay_missing=self._meter.missing,
                connections=held,
                held=self._sampler.held,
                cpu_samples=ran,
                refault_source=self._reader.refault_source,
                queue_waits=self._queue_waits,
                opens=opens,
                observer_cpu_seconds=cost,
                observer_late_seconds=self._late,
            )
        )

    def _read_logs(self) -> ErrorLogCounts | Missing:
        if not self._logs:
            return Missing(self._subjects.unread or "the error log is not written to a file")
        found = [log.finish() for log in self._logs]
        counts = [log for log in found if not isinstance(log, Missing)]
        missing = next((log for log in found if isinstance(log, Missing)), None)
        # An unreadable log could hold the lines, so their number is unknown.
        return add_counts(counts) if missing is None else missing

    def __exit__(self, *_: object) -> None:
        if self._finished:
            return
        self._ended.set()
        if self._ticker.is_alive():
            self._ticker.join()
            self._sampler.finish()
        self._cpu_sampler.close()
        if self._tracing.tracer is not None:
            self._tracing.tracer.kill()
        if isinstance(self._queue_tracer, QueueWaitTracer):
            self._queue_tracer.kill()
        if isinstance(self._open_tracer, OpenTracer):
            self._open_tracer.kill()
        self._meter.close()


_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_MOST_LOG_BYTES = 64 << 20
"""Maximum number of bytes of a log to read in a window; an overflowing pool writes about 3 MB/s."""


class LogWindow:
    """The lines that are added to an error log from now on."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor, self._start = _open_at_end(path)

    def finish(self) -> ErrorLogCounts | Missing:
        """The counts of the added lines, in this file and in a new one of the same name."""
        lines: list[bytes] = []
        if self._descriptor is not None:
            lines += _read_from(self._descriptor, self._start)
            held = os.fstat(self._descriptor)
            os.close(self._descriptor)
            with contextlib.suppress(OSError):
                now = os.stat(self.path)  # noqa: PTH116
                if (now.st_dev, now.st_ino) == (held.st_dev, held.st_ino):
                    return parse_error_log(lines)
        try:
            descriptor = os.open(self.path, _FLAGS)
        except FileNotFoundError as error:
            # nginx creates every log when it starts. If this one never existed, the path is wrong.
            unseen = self._descriptor is None
            return Missing(f"{self.path}: {error.strerror}") if unseen else parse_error_log(lines)
        except (OSError, ValueError) as error:
            return Missing(f"{self.path}: {getattr(error, 'strerror', None) or error}")
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return Missing(f"{self.path}: not a regular file")
            lines += _read_from(descriptor, 0)
        finally:
            os.close(descriptor)
        return parse_error_log(lines)


def _open_at_end(path: str) -> tuple[int | None, int]:
    """The open log and its size; None if it is missing or not a regular file."""
    try:
        descriptor = os.open(path, _FLAGS)
    except (OSError, ValueError):
        return None, 0
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        return None, 0
    return descriptor, found.st_size


def _read_from(descriptor: int, start: int) -> list[bytes]:
    """The lines from ``start`` on; all lines if the file was truncated meanwhile."""
    size = os.fstat(descriptor).st_size
    position = start if size >= start else 0
    end = min(size, position + _MOST_LOG_BYTES)
    parts = []
    with contextlib.suppress(OSError):
        while position < end and (
            part := os.pread(descriptor, min(1 << 20, end - position), position)
        ):
            parts.append(part)
            position += len(part)
    return b"".join(parts).splitlines()


def add_counts(counts: Sequence[ErrorLogCounts]) -> ErrorLogCounts:
    """The sum over several logs."""
    levels: Counter[str] = Counter()
    messages: Counter[tuple[str, str]] = Counter()
    for log in counts:
        levels.update(log.levels)
        messages.update(log.messages)
    return ErrorLogCounts(dict(levels), dict(messages))
