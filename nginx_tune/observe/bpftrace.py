"""Loop turns by bpftrace: counted inside the kernel, so that cost does not grow with detail.

Our marks are calls of getpgid(2) with ids that no process has: the program knows them by that,
prints its maps, and ends at the last one. It dies with the process that started it, and its
probes with it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import threading
import time
from collections.abc import Sequence

from nginx_tune.host.gaps import Missing
from nginx_tune.host.lifetime import die_with_parent
from nginx_tune.observe.parse_bpftrace import (
    Reading,
    is_word,
    open_turns,
    parse_readings,
    turn_counts,
)
from nginx_tune.observe.tracefs import TraceFs
from nginx_tune.observe.turn_counts import HALF_BITS, TurnCounts

START_SECONDS = 30.0
_END_SECONDS = 15.0
_ANSWER_SECONDS = 1.0
_TRIES = 3
_MOST_MARKS = 1 << 20
_MAP_KEYS = "16384"
_MOUNT = 'mount -t tracefs tracefs /sys/kernel/tracing && exec "$@"'


class Program:
    """A running bpftrace program that answers marks."""

    def __init__(self, text: str, tracefs: TraceFs) -> None:
        """Errors: OSError when there is no bpftrace, or it does not come up."""
        self._magic = (1 << 30) + secrets.randbelow(1 << 29)
        self._marks = 0
        self._lines: list[str] = []
        self._ready = threading.Event()
        self._answered = threading.Event()
        said = text.replace("END_MARK", str(self._magic))
        said = said.replace("FIRST_MARK", str(self._magic + 1))
        said = said.replace("LAST_MARK", str(self._magic + _MOST_MARKS))
        argv = ["bpftrace", "-q", "-f", "json", "-e", said]
        if not tracefs.is_mounted:  # it looks in the usual place: a mount that it alone sees
            argv = ["unshare", "--mount", "--", "sh", "-c", _MOUNT, "sh", *argv]
        environment = {
            **os.environ,
            "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin",
            "BPFTRACE_MAP_KEYS_MAX": _MAP_KEYS,  # before 0.21
            "BPFTRACE_MAX_MAP_KEYS": _MAP_KEYS,
        }
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
            start_new_session=True,  # Ctrl-C is for the command alone; it then ends this
            preexec_fn=die_with_parent,  # noqa: PLW1509  # one prctl
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
        told = [line for line in self._errors if "ERROR" in line and "RLIMIT_MEMLOCK" not in line]
        return (told or self._errors or ["it did not attach in time"])[-1][:200]

    def mark(self) -> None:
        """Have the program print its maps."""
        self._marks += 1
        for _ in range(_TRIES):
            self._answered.clear()
            _call(self._magic + self._marks)
            if self._answered.wait(_ANSWER_SECONDS):
                return

    def finish(self) -> list[Reading | None]:
        """A last mark, the end of the program, and the reading of each mark, where it answered."""
        self.mark()
        _call(self._magic)
        try:
            self._process.wait(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        for reader in self._readers:
            reader.join(timeout=_END_SECONDS)
        self._close()
        readings = {reading.mark: reading for reading in parse_readings(self._lines)}
        return [readings.get(self._magic + 1 + number) for number in range(self._marks)]

    def kill(self) -> None:
        """End it at once."""
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
        """Of bpftrace."""
        return self._process.pid


def _call(magic: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.getpgid(magic)


class BpftraceTurns:
    """Traces the turns of some threads."""

    method = "bpftrace"

    def __init__(self, threads: Sequence[int], tracefs: TraceFs) -> None:
        """Errors: OSError when it cannot be traced this way."""
        enters = tracefs.events("syscalls", "sys_enter_epoll_wait", "sys_enter_epoll_pwait")
        self._program = Program(_turns_program(threads, enters), tracefs)

    def mark(self) -> None:
        """End a stretch of time."""
        self._program.mark()

    def finish(self) -> list[TurnCounts]:
        """What happened between each two marks; turns still open stand at their age.

        The stretch before a mark that was not answered is empty, and the next one holds both.
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
        for thread, nanoseconds in (open_turns(before) if before and spans else {}).items():
            spans[-1].values[nanoseconds] += 1
            spans[-1].turns[thread] += 1
            spans[-1].busy[thread] += nanoseconds
        return spans

    def kill(self) -> None:
        """End it at once; nothing was seen."""
        self._program.kill()

    @property
    def pid(self) -> int | None:
        """Of the tracer, whose CPU time is part of the cost."""
        return self._program.pid


def missing_bpftrace() -> Missing | None:
    """Why bpftrace cannot be used; None when it is there."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return None if shutil.which("bpftrace", path=path) else Missing("bpftrace is not installed")


def answer_marks(*maps: str) -> str:
    """The probes that print some maps at every mark, and end the program.

    Nothing may delete keys of these maps: a key that goes while it is printed is an error.
    """
    printing = " ".join(f"print({name});" for name in maps)
    return f"""
tracepoint:syscalls:sys_enter_getpgid /args->pid >= FIRST_MARK && args->pid <= LAST_MARK/ {{
  printf("mark %d %llu\\n", args->pid, nsecs); {printing} printf("done\\n");
}}
tracepoint:syscalls:sys_enter_getpgid /args->pid == END_MARK/ {{ exit(); }}
"""


def count_value(name: str) -> str:
    """Statements that count ``$ns`` in a map.

    The counter is computed as HdrHistogram computes it: the position of the highest bit, and as
    many bits below it as the precision asks for.
    """
    halves = "\n".join(
        f"  if ($rest >= (uint64){1 << bits}) {{ $shift = $shift + (uint64){bits}; "
        f"$rest = $rest >> (uint64){bits}; }}"
        for bits in (16, 8, 4, 2, 1)
    )
    return f"""
  $rest = $ns >> (uint64){HALF_BITS + 1};
  $shift = (uint64)0;
{halves}
  $shift = $shift + $rest;
  {name}[($shift << (uint64){HALF_BITS}) + ($ns >> $shift)] = count();"""


def _turns_program(threads: Sequence[int], enters: Sequence[str]) -> str:
    """The program; thread ids are those of the initial namespace."""
    entering = ", ".join(f"tracepoint:syscalls:{name}" for name in enters)
    leaving = entering.replace("sys_enter", "sys_exit")
    known = " ".join(f"@main[(uint64){thread}] = (uint64)1;" for thread in threads)
    return f"""
BEGIN {{ {known} printf("ready\\n"); }}
{leaving} /@main[(uint64)tid]/ {{ @left[(uint64)tid] = (uint64)nsecs; }}
{entering} /@left[(uint64)tid]/ {{
  $ns = (uint64)nsecs - @left[(uint64)tid];
  @left[(uint64)tid] = (uint64)0;
{count_value("@values")}
  @turns[(uint64)tid] = count();
  @busy[(uint64)tid] = sum($ns);
}}
tracepoint:sched:sched_switch /@left[(uint64)tid]/ {{
  if (args->prev_state & 2) {{ @asleep[(uint64)tid] = (uint64)nsecs; }}
}}
tracepoint:sched:sched_switch /@asleep[(uint64)args->next_pid]/ {{
  @blocked[(uint64)args->next_pid] = sum((uint64)nsecs - @asleep[(uint64)args->next_pid]);
  @asleep[(uint64)args->next_pid] = (uint64)0;
}}
{answer_marks("@values", "@turns", "@busy", "@blocked", "@left")}
"""
