"""Loop turns by bpftrace: counted inside the kernel, so that cost does not grow with detail.

Our marks are calls of getpgid(2) with ids that no process has: the program knows them by that,
prints its maps, and ends at the last one. It dies with the process that started it, and its
probes with it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import threading
import time
from collections.abc import Mapping

from nginx_tune.host.door import Missing
from nginx_tune.host.lifetime import die_with_parent
from nginx_tune.host.programs import ProgramError, find_program, start_text_program
from nginx_tune.observe.calls import threads_in_turns
from nginx_tune.observe.parse_bpftrace import (
    MarkReading,
    add_open_turns,
    is_word,
    parse_readings,
    turn_counts,
)
from nginx_tune.observe.tracefs import TraceFs
from nginx_tune.observe.turn_counts import TurnCounts, Wait
from nginx_tune.observe.turns_program import turns_program

ENDS = "bpftrace ends"
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
            "BPFTRACE_MAP_KEYS_MAX": _MAP_KEYS,  # before 0.21
            "BPFTRACE_MAX_MAP_KEYS": _MAP_KEYS,
        }
        self._process = start_text_program(
            argv,
            environment=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the command alone; it then ends this
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

    def finish(self) -> list[MarkReading | None]:
        """The end of the program, and the reading of each mark, where it answered.

        Where the last mark was answered all has been said. The end itself takes most of a second,
        since the kernel waits for its grace periods with each probe, and nobody waits for that.
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

    def __init__(self, threads: Mapping[int, int], tracefs: TraceFs) -> None:
        """``threads`` are the kernel's own ids by those that we see.

        Errors: OSError when it cannot be traced this way.
        """
        self._threads = dict(threads)
        enters = tracefs.events("syscalls", "sys_enter_epoll_wait", "sys_enter_epoll_pwait")
        self._program = Program(turns_program(list(threads.values()), enters), tracefs)
        self._silent: Mapping[int, Wait | None] = {}

    def mark(self) -> None:
        """End a stretch of time."""
        self._silent = threads_in_turns(self._threads)
        self._program.mark()

    def finish(self) -> list[TurnCounts]:
        """What happened between each two marks; turns open at the last one stand at their age.

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
        if before is not None and spans:
            add_open_turns(spans[-1], before, self._silent)
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
    try:
        find_program("bpftrace")
    except ProgramError as error:
        return Missing(f"bpftrace: {error}")
    return None
