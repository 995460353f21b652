"""What state main threads are in, and in what call, looked at many times a second.

A stall much shorter than the interval is seen only in proportion, and a share of samples has an
error: it is taken from the spread between seconds, since neighbouring samples see one stall.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections import Counter
from collections.abc import Sequence
from statistics import stdev
from typing import NamedTuple

from nginx_tune.observe.calls import file_of, read_call
from nginx_tune.observe.parse_calls import Kind

_LOOKS_PER_SECOND = 2000
"""Over all threads: about 10 µs each, 2 % of a CPU at the most."""
_FASTEST_SECONDS = 0.01
_SHOWN = "DRS"
_ASKED_OF_SLEEPERS = 8
"""Of so many looks that find a thread asleep, one asks in what: most sleep in epoll_wait."""


class BlockedState(NamedTuple):
    """What a main thread was found in that was not its own work, nor epoll_wait."""

    state: str
    """``D`` or ``S``."""
    call: str
    kind: Kind
    file: str = ""
    """Of a read or a write: its path, with ``+`` before it when it was opened to append."""


class StateShares(NamedTuple):
    """Shares of the samples of one thread."""

    ratios: dict[str, float]
    samples: int
    error_in_d: float | None
    """Standard error of the share of ``D``; null with fewer than two seconds."""


class StateSampler:
    """Samples the states of some threads until it is finished."""

    def __init__(self, threads: Sequence[int]) -> None:
        self._interval_seconds = max(_FASTEST_SECONDS, len(threads) / _LOOKS_PER_SECOND)
        self._files: dict[int, int] = {}
        self.held: Counter[BlockedState] = Counter()
        """Of all threads, in looks; sleepers are counted for those that were not asked."""
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
        """End a second; the share of samples in D over all threads in it."""
        done = self._seconds[-1]
        self._seconds.append(self._fresh())
        total = sum(counts.total() for counts in done.values())
        return sum(counts["D"] for counts in done.values()) / total if total else None

    def finish(self) -> dict[int, StateShares]:
        """The shares of each thread."""
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
        """In what call a thread is that does not run; where that may be known."""
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
    """The shares over all seconds; states other than D, R and S are given as they are called."""
    total: Counter[str] = Counter()
    for second in seconds:
        total.update(second)
    samples = total.total()
    if not samples:
        return StateShares({}, 0, None)
    ratios = {state: total[state] / samples for state in dict.fromkeys((*_SHOWN, *sorted(total)))}
    # A second of few samples (the last one) says less than the others.
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
