"""Event-loop turns and calls of main threads, and the parser of tracefs lines; pure.

``TurnCounts`` holds turns, whichever tracer counted them. ``TurnReader`` reads turns from the lines
of a tracefs pipe, ``OpenReader`` calls of open() and rename(), and ``parse_call`` the call that a
thread is in from /proc/PID/syscall.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

HALF_BITS = 7
"""``2 ** HALF_BITS`` counters per doubling: turns are exact to 0.8 %."""
Wait = Literal["blocked", "queued", "asleep", "stopped"]
"""The reason why a turn does not compute: blocked in state D (mostly on a disk), queued for a CPU,
asleep in an interruptible call of its own, stopped by a signal or a debugger."""
WAITS: tuple[Wait, ...] = get_args(Wait)
WAIT_BY_STATE: dict[str, Wait] = {"D": "blocked", "S": "asleep", "T": "stopped", "t": "stopped"}
"""The waits by a state's letter; a thread in ``R`` runs or was preempted."""


@dataclass
class TurnCounts:
    """The turns of threads in an interval; thread ids are the kernel's."""

    values: Counter[int] = field(default_factory=Counter)
    """Number of turns by nanoseconds."""
    turns: Counter[int] = field(default_factory=Counter)
    """Number of turns by thread."""
    busy: Counter[int] = field(default_factory=Counter)
    """Nanoseconds inside turns by thread."""
    blocked: Counter[int] = field(default_factory=Counter)
    """Nanoseconds in state D inside turns, by thread; the fields of other waits have the same
    form."""
    queued: Counter[int] = field(default_factory=Counter)
    asleep: Counter[int] = field(default_factory=Counter)
    stopped: Counter[int] = field(default_factory=Counter)
    squares: Counter[str] = field(default_factory=Counter)
    """Sums over turns of their length times the length of a part, in square nanoseconds: ``all``
    for the whole turn, and each wait. The probability that an arrival falls into a turn is
    proportional to the turn's length, and the parts share the time that the arrival then waits."""
    bounds: Counter[int] = field(default_factory=Counter)
    """The lower bounds among ``values``: turns whose start or end was not traced."""
    traced_seconds: float = 0.0

    def add(self, other: TurnCounts) -> None:
        """Add another interval."""
        for name in _COUNTERS:
            getattr(self, name).update(getattr(other, name))
        self.traced_seconds += other.traced_seconds

    def since(self, earlier: TurnCounts) -> TurnCounts:
        """The counts since an earlier reading of the same counters."""
        counters = {name: getattr(self, name) - getattr(earlier, name) for name in _COUNTERS}
        return TurnCounts(**counters, traced_seconds=self.traced_seconds - earlier.traced_seconds)

    def count(self, thread: int, turn: Turn, *, is_bound: bool = False) -> None:
        """Count a turn.

        Its waits were counted when they ended, so only its length and the squares are added.
        """
        self.values[turn.nanoseconds] += 1
        self.turns[thread] += 1
        self.busy[thread] += turn.nanoseconds
        self.squares["all"] += turn.nanoseconds**2
        for wait, nanoseconds in turn.waits.items():
            self.squares[wait] += turn.nanoseconds * nanoseconds
        if is_bound:
            self.bounds[turn.nanoseconds] += 1


_COUNTERS = ("values", "turns", "busy", *WAITS, "squares", "bounds")


@dataclass
class Turn:
    """A turn, complete or under way."""

    nanoseconds: int
    waits: dict[Wait, int] = field(default_factory=dict)
    """Nanoseconds by wait."""


_SYSCALL = re.compile(
    r"-(\d+) +(?:\([^)]*\) +)?\[\d+\] \S+ +(\d+)\.(\d{6}): sys_epoll_(?:wait|pwait2?)(\(| -> )"
)
_SWITCH = re.compile(
    r" (\d+)\.(\d{6}): sched_switch: .*prev_pid=(\d+) prev_prio=-?\d+ prev_state=(\S+)"
    r" ==> .*next_pid=(\d+) next_prio="
)
_WAKEUP = re.compile(r" (\d+)\.(\d{6}): sched_wakeup: .*pid=(\d+) prio=")
_LOST_EVENTS = re.compile(r"\[LOST (\d+) EVENTS\]")


@dataclass
class _Turn:
    """A turn under way."""

    since: int
    is_bound: bool = False
    """True if the turn began before tracing did."""
    waits: Counter[Wait] = field(default_factory=Counter)
    off: int = 0
    """The time at which the thread left its CPU, in nanoseconds; 0 while it runs."""
    why: Wait = "queued"
    woken: int = 0

    def wait_until(self, now: int) -> Counter[Wait]:
        """The waits of the turn since its thread left the CPU."""
        found: Counter[Wait] = Counter()
        if self.off:
            woken = self.woken or now
            found[self.why] += max(0, (now if self.why == "queued" else woken) - self.off)
            if self.why != "queued":
                found["queued"] += max(0, now - woken)
        return found


class TurnReader:
    """Counts turns from the events of threads, in the order of the pipe."""

    def __init__(self, *, began_nanoseconds: int = 0) -> None:
        """``began_nanoseconds``: the start of the recording; 0 to skip turns that began before."""
        self._began = began_nanoseconds
        self._turns: dict[int, _Turn] = {}
        self._seen: set[int] = set()
        self._switched: set[int] = set()
        self.counts = TurnCounts()
        self.events = 0
        """The number of events since ``forget``, to which the cost of reading is proportional."""
        self.lost = False

    def read(self, lines: list[str]) -> None:
        """Count the turns in these lines; lines of another form are skipped."""
        for line in lines:
            self.events += 1
            if call := _SYSCALL.search(line):
                now, thread = _nanoseconds(call[2], call[3]), int(call[1])
                self._runs(thread, now)
                if call[4] == "(":
                    self._enter(thread, now)
                else:
                    self._turns[thread] = _Turn(now)
                self._seen.add(thread)
            elif switch := _SWITCH.search(line):
                now = _nanoseconds(switch[1], switch[2])
                self._switch(now, int(switch[3]), switch[4], int(switch[5]))
            elif wakeup := _WAKEUP.search(line):
                turn = self._turns.get(int(wakeup[3]))
                if turn is not None and turn.off and not turn.woken:
                    turn.woken = _nanoseconds(wakeup[1], wakeup[2])
            elif _LOST_EVENTS.search(line):
                self.lost = True
                self.forget()

    def _enter(self, thread: int, now: int) -> None:
        turn = self._turns.pop(thread, None)
        if turn is None and thread not in self._seen and self._began:
            turn = _Turn(self._began, is_bound=True)
        if turn is not None and now > turn.since:
            self.counts.count(
                thread, Turn(now - turn.since, dict(turn.waits)), is_bound=turn.is_bound
            )

    def _switch(self, now: int, off: int, state: str, on: int) -> None:
        self._switched |= {off, on}
        leaving = self._turns.get(off)
        if leaving is not None:
            self._runs(off, now)
            leaving.off, leaving.woken = now, 0
            leaving.why = WAIT_BY_STATE.get(state[:1], "queued")
        self._resume(on, now)

    def _runs(self, thread: int, now: int) -> None:
        """Note that a thread is on a CPU, so that its wait is over.

        If an instance is limited to threads (set_event_pid), Linux 6.18 does not report the switch
        from an idle CPU. An idle CPU runs a thread as soon as it is woken.
        """
        turn = self._turns.get(thread)
        if turn is not None and turn.off:
            self._resume(thread, turn.woken or now)

    def _resume(self, thread: int, now: int) -> None:
        turn = self._turns.get(thread)
        if turn is not None:
            self._add_waits(thread, turn, now)
            turn.off = 0

    def _add_waits(self, thread: int, turn: _Turn, now: int) -> None:
        for wait, nanoseconds in turn.wait_until(now).items():
            turn.waits[wait] += nanoseconds
            getattr(self.counts, wait)[thread] += nanoseconds

    def forget(self) -> None:
        """Drop the turns under way, since events were missed."""
        self._turns.clear()
        self._began = 0
        self.events = 0

    def finish(
        self, now_nanoseconds: int, in_turns: Mapping[int, Wait | None] | None = None
    ) -> None:
        """Count the turns that have not ended, with their length so far.

        ``in_turns`` has each thread whose system call shows that it is in a turn, with the reason
        why it waits (None if it can run). A thread that never left or entered epoll_wait has been
        in the same turn since the recording began. If it also neither left nor got a CPU, it has
        waited since then.
        """
        if self._began:
            for thread, held in (in_turns or {}).items():
                if thread in self._seen or thread in self._turns:
                    continue
                turn = self._turns[thread] = _Turn(self._began)
                if held and thread not in self._switched:
                    turn.off, turn.why = self._began, held
        for thread, turn in self._turns.items():
            if now_nanoseconds <= turn.since:
                continue
            self._add_waits(thread, turn, now_nanoseconds)
            whole = Turn(now_nanoseconds - turn.since, dict(turn.waits))
            self.counts.count(thread, whole, is_bound=True)
        self.forget()

    def take(self) -> TurnCounts:
        """The counts since the last call; counting starts anew."""
        taken, self.counts = self.counts, TurnCounts()
        return taken


def _nanoseconds(seconds: str, microseconds: str) -> int:
    return int(seconds) * 1_000_000_000 + int(microseconds) * 1000


_CALL = re.compile(
    r"-(\d+) +(?:\([^)]*\) +)?\[\d+\] \S+ +(\d+)\.(\d{6}): sys_(open|rename)(?:at2?)?(\(| -> )"
)
_ASKED = re.compile(
    r"-(\d+) +(?:\([^)]*\) +)?\[\d+\] \S+ +\d+\.\d{6}: block_bio_queue: \d+,\d+ R(?!A)"
)
"""Events of reads that a thread waits for; read-ahead is not included."""


class NameCalls(NamedTuple):
    """Calls of open() and rename(); times in nanoseconds, to the microsecond."""

    opens: Counter[int]
    renames: Counter[int]
    open_reads: Counter[int] | None
    """Calls of open() by the number of disk reads that they caused; None if reads are not
    traced."""


class OpenReader:
    """Times open() and rename() from the events of threads, in the order of the pipe."""

    def __init__(self) -> None:
        self._inside: dict[int, tuple[str, int]] = {}
        self._asked: Counter[int] = Counter()
        self._values: dict[str, Counter[int]] = {"open": Counter(), "rename": Counter()}
        self._reads: Counter[int] = Counter()
        self.lost = 0
        """Events that were overwritten before they were read."""

    def read(self, lines: list[str]) -> None:
        """Count the calls in these lines; lines of another form are skipped."""
        for line in lines:
            if call := _CALL.search(line):
                now = _nanoseconds(call[2], call[3])
                self._call(int(call[1]), call[4], now, entering=call[5] == "(")
            elif asked := _ASKED.search(line):
                self._asked[int(asked[1])] += 1
            elif lost := _LOST_EVENTS.search(line):
                self.lost += int(lost[1])

    def _call(self, thread: int, name: str, now: int, *, entering: bool) -> None:
        asked = self._asked.pop(thread, 0)
        if entering:
            self._inside[thread] = name, now
            return
        since = self._inside.pop(thread, None)
        if since is not None:  # else it began before tracing did
            self._count(since, now, asked)

    def _count(self, since: tuple[str, int], now: int, asked: int) -> None:
        name, start = since
        self._values[name][max(0, now - start)] += 1
        if name == "open":
            self._reads[asked] += 1

    def finish(self, now_nanoseconds: int, *, has_reads: bool = True) -> NameCalls:
        """All calls; those that have not ended count with their duration so far."""
        for thread, since in self._inside.items():
            self._count(since, now_nanoseconds, self._asked.pop(thread, 0))
        self._inside.clear()
        return NameCalls(
            self._values["open"], self._values["rename"], self._reads if has_reads else None
        )


TurnKind = Literal["read", "write", "names", "page fault", "loop", "running", "other"]
_X86_64 = {
    0: "read", 1: "write", 2: "open", 3: "close", 4: "stat", 5: "fstat", 6: "lstat", 7: "poll",
    17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev", 21: "access", 23: "select",
    35: "nanosleep", 40: "sendfile", 42: "connect", 44: "sendto", 45: "recvfrom", 46: "sendmsg",
    47: "recvmsg", 61: "wait4", 72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync",
    77: "ftruncate", 78: "getdents", 82: "rename", 83: "mkdir", 84: "rmdir", 87: "unlink",
    202: "futex", 217: "getdents64", 230: "clock_nanosleep", 232: "epoll_wait", 257: "openat",
    262: "newfstatat", 263: "unlinkat", 264: "renameat", 269: "faccessat", 270: "pselect6",
    271: "ppoll",
    275: "splice", 281: "epoll_pwait", 285: "fallocate", 295: "preadv", 296: "pwritev",
    316: "renameat2", 327: "preadv2", 328: "pwritev2", 332: "statx", 437: "openat2",
    439: "faccessat2", 441: "epoll_pwait2",
}  # fmt: skip
_GENERIC = {
    22: "epoll_pwait", 25: "fcntl", 32: "flock", 34: "mkdirat", 35: "unlinkat", 38: "renameat",
    46: "ftruncate", 47: "fallocate", 48: "faccessat", 56: "openat", 57: "close", 61: "getdents64",
    63: "read", 64: "write", 65: "readv", 66: "writev", 67: "pread64", 68: "pwrite64",
    69: "preadv", 70: "pwritev", 71: "sendfile", 72: "pselect6", 73: "ppoll", 76: "splice",
    79: "newfstatat", 80: "fstat", 82: "fsync", 83: "fdatasync", 98: "futex", 101: "nanosleep",
    115: "clock_nanosleep", 203: "connect", 206: "sendto", 207: "recvfrom", 211: "sendmsg",
    212: "recvmsg", 260: "wait4", 276: "renameat2", 286: "preadv2", 287: "pwritev2", 291: "statx",
    437: "openat2", 439: "faccessat2", 441: "epoll_pwait2",
}  # fmt: skip
"""Numbers of aarch64, riscv64 and loongarch64 (include/uapi/asm-generic/unistd.h)."""
_TABLES = {"x86_64": _X86_64, "aarch64": _GENERIC, "riscv64": _GENERIC, "loongarch64": _GENERIC}
_READS = {"read", "readv", "pread64", "preadv", "preadv2", "sendfile", "splice"}
_WRITES = {"write", "writev", "pwrite64", "pwritev", "pwritev2", "fsync", "fdatasync", "ftruncate",
           "fallocate"}  # fmt: skip
_NAMES = {"open", "openat", "openat2", "stat", "fstat", "lstat", "newfstatat", "statx", "access",
          "faccessat", "faccessat2", "getdents", "getdents64", "unlink", "unlinkat", "rename",
          "renameat", "renameat2", "mkdir", "mkdirat", "rmdir", "close"}  # fmt: skip
_SECOND_ARGUMENT = {"sendfile"}
"""Calls whose second argument is the descriptor that they read."""


class Call(NamedTuple):
    """A system call under way."""

    name: str
    kind: TurnKind
    descriptor: int | None = None
    """The file that the call reads or writes."""


def parse_call(text: str, machine: str) -> Call | None:
    """The call that a thread is in, from /proc/PID/syscall; None for another form."""
    words = text.split()
    if not words:
        return None
    if words[0] == "running":
        return Call("", "running")
    try:
        number = int(words[0])
        arguments = [int(word, 16) for word in words[1:7]]
    except ValueError:
        return None
    if number == -1:
        return Call("page fault", "page fault")
    name = _TABLES.get(machine, {}).get(number, f"system call {number}")
    if name in _READS or name in _WRITES:
        place = 1 if name in _SECOND_ARGUMENT else 0
        descriptor = arguments[place] if len(arguments) > place else None
        return Call(name, "read" if name in _READS else "write", descriptor)
    if name.startswith("epoll_"):
        return Call(name, "loop")
    return Call(name, "names" if name in _NAMES else "other")
