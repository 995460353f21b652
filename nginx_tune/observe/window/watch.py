"""Watching a server over a window: the same for a running nginx and for every block of a run.

Once a second a thread takes a reading; another looks at thread states many times a second; loop
turns are counted by a tracer. What takes time is done before ``start``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from nginx_tune.documents.measured_server import ServerMeasurement
from nginx_tune.host.door import Gaps, Host, Missing
from nginx_tune.observe.block_delay import BlockDelayMeter
from nginx_tune.observe.cpu_samples import CpuSampler
from nginx_tune.observe.held_connections import count_held
from nginx_tune.observe.log_window import LogWindow, add_counts
from nginx_tune.observe.loop_turns import Means, Tracing, start_tracing
from nginx_tune.observe.open_calls import OpenTracer, start_open_tracing
from nginx_tune.observe.parse_error_log import ErrorLogCounts
from nginx_tune.observe.processes import read_cpu_seconds
from nginx_tune.observe.queue_wait import QueueWaits, QueueWaitTracer, start_queue_wait
from nginx_tune.observe.states import StateSampler
from nginx_tune.observe.window.moment import Moment, MomentReader, Subjects
from nginx_tune.observe.window.server import plan_server
from nginx_tune.observe.window.window import Window

if TYPE_CHECKING:
    from typing_extensions import Self


class ServerWatch:
    """One window of one server.

    Use as a context manager: entering attaches the tracers, in the thread that outlives them;
    leaving without ``finish`` leaves nothing behind that watches.
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
        self._reader.read()  # what it imports takes a moment the first time
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
            # What a reading itself takes, stub_status among it, is the server's; this is ours.
            self._late = max(self._late, time.monotonic() - max(start + second, ready))
            self._d_ratios.append(self._sampler.mark())
            self._read()
            self._end_queue_wait_in_time()
            self._every_second(second)
            # A reading that took longer than a second makes one longer second, not several.
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
        """Length of the window so far: readings that wait for nginx make it longer than asked."""
        return self._moments[-1].at - self._moments[0].at

    def finish(self) -> tuple[ServerMeasurement, Gaps]:
        """What the window showed, and why some of it is null."""
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
            return Missing("the error log goes to no file")
        found = [log.finish() for log in self._logs]
        counts = [one for one in found if not isinstance(one, Missing)]
        missing = next((one for one in found if isinstance(one, Missing)), None)
        # One log that cannot be read could hold the lines: then their number is not known.
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
