"""Tracing of loop turns by the best means available, and of pool queues by bpftrace.

bpftrace counts inside the kernel, so the cost does not grow with detail. A mark is a call of
getpgid(2) with an id that no process has. The program recognises it and prints its maps, and ends
at the last one. The program and its probes die with the process that started it.

The waits in thread pools' queues come from probes on functions that nginx exports.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from nginx_tune.host.door import Missing
from nginx_tune.host.namespaces import read_global_ids
from nginx_tune.host.program import die_with_parent
from nginx_tune.host.programs import ProgramError, find_program, start_text_program
from nginx_tune.observe.parse_bpftrace import (
    MarkReading,
    add_open_turns,
    answer_marks,
    count_value,
    is_word,
    parse_readings,
    turn_counts,
    turns_program,
    value_counts,
)
from nginx_tune.observe.parse_turns import TurnCounts, Wait
from nginx_tune.observe.states import threads_in_turns
from nginx_tune.observe.tracefs import TraceFs, TracefsTurns, open_tracefs

Means = Literal["auto", "bpftrace", "tracefs", "off"]


class TurnTracer(Protocol):
    """A tracer of turns from its creation to ``finish`` or ``kill``."""

    method: str

    @property
    def pid(self) -> int | None:
        """The tracer's own process, whose CPU time is part of the cost; None if there is none."""

    def mark(self) -> None:
        """End an interval; the first mark begins the first interval."""

    def finish(self) -> list[TurnCounts]:
        """The turns by interval; turns still open at the last mark count with their age."""

    def kill(self) -> None:
        """End the tracing at once, without a result."""


class Tracing(NamedTuple):
    """A tracer and the meaning of its ids, or the reasons why there is no tracer."""

    tracer: TurnTracer | None
    global_ids: dict[int, int]
    """Process ids in the initial PID namespace, as kernel events have them, by the ids in
    nginx-tune's own namespace."""
    reasons: list[str]
    """The reason why each better means was not used."""

    @property
    def reason(self) -> str:
        """All reasons in one line."""
        return "; ".join(self.reasons)


def start_tracing(pids: Sequence[int], means: Means = "auto") -> Tracing:
    """Trace the main threads of these processes by bpftrace, else by tracefs.

    The caller's thread must live as long as the tracer, which dies with it.
    """
    if means == "off":
        return Tracing(None, {}, ["tracing was turned off"])
    ids = read_global_ids(pids)
    if isinstance(ids, Missing):
        return Tracing(None, {}, [ids.reason])
    if not ids:
        return Tracing(None, {}, ["no worker to trace"])
    tracefs = open_tracefs()
    if isinstance(tracefs, Missing):
        return Tracing(None, ids, [tracefs.reason])
    reasons: list[str] = []
    tracer = None
    if means != "tracefs":
        tracer = _try_bpftrace(ids, tracefs, reasons)
    if tracer is None and means != "bpftrace":
        tracer = _try_tracefs(ids, tracefs, reasons)
    if tracer is None or isinstance(tracer, BpftraceTurns):
        tracefs.close()
    return Tracing(tracer, ids, reasons)


def _try_bpftrace(
    threads: Mapping[int, int], tracefs: TraceFs, reasons: list[str]
) -> TurnTracer | None:
    missing = missing_bpftrace()
    if missing is not None:
        reasons.append(missing.reason)
        return None
    try:
        return BpftraceTurns(threads, tracefs)
    except OSError as error:
        # An error from the kernel concerns tracefs, so the other means will report it too.
        if error.strerror is None:
            reasons.append(str(error))
        return None


def _try_tracefs(
    threads: Mapping[int, int], tracefs: TraceFs, reasons: list[str]
) -> TurnTracer | None:
    try:
        return TracefsTurns(threads, tracefs)
    except OSError as error:
        reasons.append(f"tracefs: {error.strerror or error}")
        return None


def missing_bpftrace() -> Missing | None:
    """The reason why bpftrace is not found; None if it is found."""
    try:
        find_program("bpftrace")
    except ProgramError as error:
        return Missing(f"bpftrace: {error}")
    return None


class BpftraceTurns:
    """A tracer of loop turns by a bpftrace program."""

    method = "bpftrace"

    def __init__(self, threads: Mapping[int, int], tracefs: TraceFs) -> None:
        """``threads`` maps our ids to the kernel's. Errors: OSError if tracing is impossible."""
        self._threads = dict(threads)
        enters = tracefs.events("syscalls", "sys_enter_epoll_wait", "sys_enter_epoll_pwait")
        self._program = Program(turns_program(list(threads.values()), enters), tracefs)
        self._silent: Mapping[int, Wait | None] = {}

    def mark(self) -> None:
        """End an interval."""
        self._silent = threads_in_turns(self._threads)
        self._program.mark()

    def finish(self) -> list[TurnCounts]:
        """The turns by interval; turns still open at the last mark count with their age.

        The interval before an unanswered mark is empty, and the next one holds both.
        """
        first, *others = self._program.finish()
        spans: list[TurnCounts] = []
        before = first
        for reading in others:
            if reading is None or before is None:
                spans.append(TurnCounts())
                before = before or reading
                continue
            spans.append(turn_counts(reading).since(turn_counts(before)))
            before = reading
        if before is not None and spans:
            add_open_turns(spans[-1], before, self._silent)
        return spans

    def kill(self) -> None:
        """End the tracing at once, without a result."""
        self._program.kill()

    @property
    def pid(self) -> int | None:
        """The process id of bpftrace, whose CPU time is part of the cost."""
        return self._program.pid


_MOST_QUEUE_SECONDS = 10.0


class QueueWaits(NamedTuple):
    """Counts of thread-pool tasks, by their wait in nanoseconds."""

    values: Counter[int]
    posted: int
    seconds: float


class QueueWaitTracer:
    """A tracer of the queues of the workers' pools, until ``finish``."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._program.mark()
        self.ends = time.monotonic() + _MOST_QUEUE_SECONDS

    @property
    def pid(self) -> int:
        """The process id of bpftrace."""
        return self._program.pid

    def finish(self) -> QueueWaits | Missing:
        """The waits, or the reason why there are none."""
        self._program.mark()
        first, *others = self._program.finish()
        last = next((reading for reading in reversed(others) if reading is not None), None)
        if first is None or last is None:
            return Missing("bpftrace ended before its first answer")
        return _judge_readings(first, last)

    def kill(self) -> None:
        """End the tracing at once."""
        self._program.kill()


def _judge_readings(first: MarkReading, last: MarkReading) -> QueueWaits | Missing:
    """The waits between two readings, or the reason why there are none."""
    waits = value_counts(last)
    posted = last.maps.get("@posts", {}).get("", 0) - first.maps.get("@posts", {}).get("", 0)
    if waits:
        return QueueWaits(waits, posted, last.at_seconds - first.at_seconds)
    if posted:
        return Missing(
            f"{posted:,} tasks were posted and the queue never ran empty: "
            "the times of single tasks are not known"
        )
    return Missing("no task was posted, or this build of nginx calls other functions")


def start_queue_wait(worker: int, workers: Sequence[int]) -> QueueWaitTracer | Missing:
    """Trace the pools of some workers of one master.

    ``worker`` is one of them, whose executable gets the probes.
    """
    missing = missing_bpftrace()
    if missing is not None:
        return missing
    ids = read_global_ids(workers)
    tracefs = ids if isinstance(ids, Missing) else open_tracefs()
    if isinstance(ids, Missing) or isinstance(tracefs, Missing):
        return tracefs if isinstance(tracefs, Missing) else Missing("no ids")
    try:
        if not (tracefs.root / "uprobe_events").exists():
            return Missing("the kernel has no uprobes (CONFIG_UPROBE_EVENTS)")
        return QueueWaitTracer(
            Program(_queue_program(f"/proc/{worker}/exe", list(ids.values())), tracefs)
        )
    except OSError as error:
        return Missing(str(error))
    finally:
        tracefs.close()


def _queue_program(binary: str, workers: Sequence[int]) -> str:
    """The bpftrace program; the workers' ids are ids of the initial namespace."""
    known = " ".join(f"@main[(uint64){worker}] = (uint64)1;" for worker in workers)
    pool = "(uint64)pid, arg0"
    return f"""
BEGIN {{ {known} printf("ready\\n"); }}
uprobe:{binary}:ngx_thread_cond_signal /@main[(uint64)tid]/ {{ @posting[(uint64)tid] = (uint64)1; }}
uprobe:{binary}:ngx_thread_mutex_unlock /@posting[(uint64)tid]/ {{
  @posting[(uint64)tid] = (uint64)0;
  @posts = count();
  @posted[{pool}] = @posted[{pool}] + (uint64)1;
  if (@synced[{pool}]) {{ @at[{pool}, @posted[{pool}] & (uint64)0xffff] = (uint64)nsecs; }}
}}
uprobe:{binary}:ngx_thread_mutex_unlock
/pid != tid && @main[(uint64)pid] && @synced[{pool}] && @posted[{pool}] > @taken[{pool}]/ {{
  @taken[{pool}] = @taken[{pool}] + (uint64)1;
  $ns = (uint64)nsecs - @at[{pool}, @taken[{pool}] & (uint64)0xffff];
  if (@at[{pool}, @taken[{pool}] & (uint64)0xffff]) {{
{count_value()}
  }}
  delete(@at[{pool}, @taken[{pool}] & (uint64)0xffff]);
}}
uprobe:{binary}:ngx_thread_cond_wait /pid != tid && @main[(uint64)pid]/ {{
  @taken[(uint64)pid, arg1] = @posted[(uint64)pid, arg1];
  @synced[(uint64)pid, arg1] = (uint64)1;
}}
{answer_marks("@values", "@posts")}
"""


ENDS = "bpftrace ends"
START_SECONDS = 30.0
_END_SECONDS = 15.0
_ANSWER_SECONDS = 1.0
_TRIES = 3
_MOST_MARKS = 1 << 20
_MAP_KEYS = "16384"
_MOUNT = 'mount -t tracefs tracefs /sys/kernel/tracing && exec "$@"'


class Program:
    """A running bpftrace program, which prints its maps at every mark."""

    def __init__(self, text: str, tracefs: TraceFs) -> None:
        """Errors: OSError when bpftrace is missing or does not attach."""
        self._magic = (1 << 30) + secrets.randbelow(1 << 29)
        self._marks = 0
        self._lines: list[str] = []
        self._ready = threading.Event()
        self._answered = threading.Event()
        text = text.replace("END_MARK", str(self._magic))
        text = text.replace("FIRST_MARK", str(self._magic + 1))
        text = text.replace("LAST_MARK", str(self._magic + _MOST_MARKS))
        argv = ["bpftrace", "-q", "-f", "json", "-e", text]
        if not tracefs.is_mounted:  # bpftrace looks in the usual place: a mount for it alone
            argv = ["unshare", "--mount", "--", "sh", "-c", _MOUNT, "sh", *argv]
        environment = {
            "BPFTRACE_MAP_KEYS_MAX": _MAP_KEYS,  # before 0.21
            "BPFTRACE_MAX_MAP_KEYS": _MAP_KEYS,
        }
        self._process = start_text_program(
            argv,
            environment=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C goes to the command alone, which then ends bpftrace
            preexec_fn=die_with_parent,  # one prctl
        )
        self._errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read_output, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        deadline = time.monotonic() + START_SECONDS
        while not self._ready.wait(0.05):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise OSError(f"bpftrace: {self._last_error()}")

    def _read_output(self) -> None:
        for line in self._process.stdout or ():
            if is_word(line, "ready"):
                self._ready.set()
                continue
            self._lines.append(line)
            if is_word(line, "done"):
                self._answered.set()

    def _read_errors(self) -> None:
        for line in self._process.stderr or ():
            self._errors = [*self._errors[-20:], line.strip()]

    def _last_error(self) -> str:
        errors = [line for line in self._errors if "ERROR" in line and "RLIMIT_MEMLOCK" not in line]
        return (errors or self._errors or ["it did not attach in time"])[-1][:200]

    def mark(self) -> None:
        """Have the program print its maps."""
        self._marks += 1
        for _ in range(_TRIES):
            self._answered.clear()
            _call(self._magic + self._marks)
            if self._answered.wait(_ANSWER_SECONDS):
                return

    def finish(self) -> list[MarkReading | None]:
        """The reading of each mark, None for an unanswered one; ends the program.

        Ending takes most of a second, since the kernel waits for a grace period for each probe. If
        the last mark was answered, the program ends in the background.
        """
        _call(self._magic)
        if self._answered.is_set():
            threading.Thread(target=self._end, name=ENDS).start()  # joined as Python exits
        else:
            self._end()
        readings = {reading.mark: reading for reading in parse_readings([*self._lines])}
        return [readings.get(self._magic + 1 + number) for number in range(self._marks)]

    def _end(self) -> None:
        try:
            self._process.wait(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for reader in self._readers:
            reader.join(timeout=_END_SECONDS)
        self._close()

    def kill(self) -> None:
        """End the program at once."""
        self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join(timeout=1.0)
        self._close()

    def _close(self) -> None:
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    @property
    def pid(self) -> int:
        """The process id of bpftrace."""
        return self._process.pid


def _call(magic: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.getpgid(magic)
