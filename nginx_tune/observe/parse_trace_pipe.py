"""Lines of a tracefs pipe turned into loop turns; pure, text in, counters out.

Source: Documentation/trace/events.rst; the lines of trace_seq_print_sym and the syscall events.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from nginx_tune.observe.turn_counts import Turn, TurnCounts, Wait

_SYSCALL = re.compile(
    r"-(\d+) +(?:\([^)]*\) +)?\[\d+\] \S+ +(\d+)\.(\d{6}): sys_epoll_(?:wait|pwait2?)(\(| -> )"
)
_SWITCH = re.compile(
    r" (\d+)\.(\d{6}): sched_switch: .*prev_pid=(\d+) prev_prio=-?\d+ prev_state=(\S+)"
    r" ==> .*next_pid=(\d+) next_prio="
)
_WAKEUP = re.compile(r" (\d+)\.(\d{6}): sched_wakeup: .*pid=(\d+) prio=")
_LOST = re.compile(r"\[LOST \d+ EVENTS\]")
_STATES: dict[str, Wait] = {"D": "blocked", "S": "asleep", "T": "stopped", "t": "stopped"}
"""By the first letter of prev_state; ``R`` and ``R+`` were taken off their CPU."""


@dataclass
class _Turn:
    """A turn under way."""

    since: int
    is_bound: bool = False
    """It began before it could be seen."""
    waits: Counter[Wait] = field(default_factory=Counter)
    off: int = 0
    """When it was taken off its CPU; 0 while it runs."""
    why: Wait = "queued"
    woken: int = 0

    def wait_until(self, now: int) -> Counter[Wait]:
        """What it waits for since it is off its CPU."""
        found: Counter[Wait] = Counter()
        if self.off:
            woken = self.woken or now
            found[self.why] += max(0, (now if self.why == "queued" else woken) - self.off)
            if self.why != "queued":
                found["queued"] += max(0, now - woken)
        return found


class TurnReader:
    """Follows the threads through their events, in the order of the pipe."""

    def __init__(self, *, began_nanoseconds: int = 0) -> None:
        """``began_nanoseconds``: when events began to be recorded; 0 for before the first."""
        self._began = began_nanoseconds
        self._turns: dict[int, _Turn] = {}
        self._seen: set[int] = set()
        self._switched: set[int] = set()
        self.counts = TurnCounts()
        self.events = 0
        """Since ``forget``: what the reader's cost goes by."""
        self.lost = False

    def read(self, lines: list[str]) -> None:
        """Count what the lines say; those of another form are passed over."""
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
            elif _LOST.search(line):
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
            leaving.why = _STATES.get(state[:1], "queued")
        self._resume(on, now)

    def _runs(self, thread: int, now: int) -> None:
        """It is on its CPU, so it came back by now.

        Linux 6.18 leaves the switch from an idle CPU out of an instance that is limited to
        threads (set_event_pid). Nobody was before it there: it ran as soon as it was woken.
        """
        turn = self._turns.get(thread)
        if turn is not None and turn.off:
            self._resume(thread, turn.woken or now)

    def _resume(self, thread: int, now: int) -> None:
        turn = self._turns.get(thread)
        if turn is None:
            return
        for wait, nanoseconds in turn.wait_until(now).items():
            turn.waits[wait] += nanoseconds
            getattr(self.counts, wait)[thread] += nanoseconds
        turn.off = 0

    def forget(self) -> None:
        """Drop what is under way: events were missed."""
        self._turns.clear()
        self._began = 0
        self.events = 0

    def finish(
        self, now_nanoseconds: int, in_turns: Mapping[int, Wait | None] | None = None
    ) -> None:
        """Count turns still under way, at their age.

        ``in_turns`` are threads that are in a turn by the system call they are in, and what holds
        them: one that never left or entered epoll_wait was in the same turn since events began to
        be recorded, and one that never left or got a CPU either was held since then.
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
            for wait, nanoseconds in turn.wait_until(now_nanoseconds).items():
                turn.waits[wait] += nanoseconds
                getattr(self.counts, wait)[thread] += nanoseconds
            whole = Turn(now_nanoseconds - turn.since, dict(turn.waits))
            self.counts.count(thread, whole, is_bound=True)
        self.forget()

    def take(self) -> TurnCounts:
        """What was counted since the last time."""
        taken, self.counts = self.counts, TurnCounts()
        return taken


def _nanoseconds(seconds: str, microseconds: str) -> int:
    return int(seconds) * 1_000_000_000 + int(microseconds) * 1000
