"""The bpftrace program that counts loop turns, and the parser of its JSON lines; pure.

At every mark the program prints ``mark NUMBER NANOSECONDS``, its maps, and ``done``. The maps are
never cleared, so the difference of two readings covers the time between them.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from nginx_tune.observe.parse_turns import HALF_BITS, WAITS, Turn, TurnCounts, Wait

_STATES: dict[Wait, int] = {"blocked": 2, "stopped": 4 | 8, "asleep": 1}
"""Bits of ``prev_state`` (include/linux/sched.h); without any the thread was preempted."""
_WHY = {wait: number for number, wait in enumerate(WAITS, 1)}
WHY: dict[int, Wait] = {number: wait for wait, number in _WHY.items()}
_PRINTED = (
    "@began", "@values", "@turns", "@busy", "@squares", "@early", "@left", "@seen", "@off", "@why",
    "@woken",
    *(f"@{wait}" for wait in WAITS), *(f"@in_{wait}" for wait in WAITS),
)  # fmt: skip


def turns_program(threads: Sequence[int], enters: Sequence[str]) -> str:
    """The text of the program; its thread ids are ids of the initial namespace."""
    entering = ", ".join(f"tracepoint:syscalls:{name}" for name in enters)
    leaving = entering.replace("sys_enter", "sys_exit")
    known = " ".join(f"@main[(uint64){thread}] = (uint64)1;" for thread in threads)
    clear = " ".join(f"@in_{wait}[(uint64)tid] = (uint64)0;" for wait in WAITS)
    squares = "\n".join(
        f'  @squares["{wait}"] = sum($us * (@in_{wait}[(uint64)tid] / (uint64)1000));'
        for wait in WAITS
    )
    states = "\n".join(
        f"  if (args->prev_state & {bits}) {{ @why[(uint64)tid] = (uint64){_WHY[wait]}; }}"
        for wait, bits in _STATES.items()
    )
    slept = "\n".join(
        f"  if (@why[$on] == (uint64){_WHY[wait]}) {{ "
        f"@{wait}[$on] = sum($slept); @in_{wait}[$on] = @in_{wait}[$on] + $slept; }}"
        for wait in _STATES
    )
    return f"""
BEGIN {{ {known} @began = (uint64)nsecs; printf("ready\\n"); }}
{leaving} /@main[(uint64)tid]/ {{
  @left[(uint64)tid] = (uint64)nsecs; @seen[(uint64)tid] = (uint64)1; @off[(uint64)tid] = (uint64)0;
  {clear}
}}
{entering} /@left[(uint64)tid] || (@main[(uint64)tid] && !@seen[(uint64)tid])/ {{
  $since = @left[(uint64)tid];
  if (!$since) {{ $since = @began; @early[(uint64)tid] = (uint64)nsecs - $since; }}
  $ns = (uint64)nsecs - $since;
  @left[(uint64)tid] = (uint64)0;
  @seen[(uint64)tid] = (uint64)1;
{count_value()}
  @turns[(uint64)tid] = count();
  @busy[(uint64)tid] = sum($ns);
  $us = $ns / (uint64)1000;
  @squares["all"] = sum($us * $us);
{squares}
}}
tracepoint:sched:sched_switch
/@left[(uint64)tid] || (@main[(uint64)tid] && !@seen[(uint64)tid])/ {{
  @off[(uint64)tid] = (uint64)nsecs;
  @woken[(uint64)tid] = (uint64)0;
  @why[(uint64)tid] = (uint64){_WHY["queued"]};
{states}
}}
tracepoint:sched:sched_wakeup /@off[(uint64)args->pid] && !@woken[(uint64)args->pid]/ {{
  @woken[(uint64)args->pid] = (uint64)nsecs;
}}
tracepoint:sched:sched_switch /@off[(uint64)args->next_pid]/ {{
  $on = (uint64)args->next_pid;
  $now = (uint64)nsecs;
  $woken = @woken[$on];
  if (!$woken) {{ $woken = $now; }}
  if (@why[$on] == (uint64){_WHY["queued"]}) {{ $woken = @off[$on]; }}
  $slept = $woken - @off[$on];
{slept}
  $waited = $now - $woken;
  @queued[$on] = sum($waited);
  @in_queued[$on] = @in_queued[$on] + $waited;
  @off[$on] = (uint64)0;
}}
{answer_marks(*_PRINTED)}
"""


def answer_marks(*maps: str) -> str:
    """The probes that print these maps at every mark, and end the program.

    No key of these maps may be deleted: bpftrace fails if one vanishes while it prints the map.
    """
    printing = " ".join(f"print({name});" for name in maps)
    return f"""
tracepoint:syscalls:sys_enter_getpgid /args->pid >= FIRST_MARK && args->pid <= LAST_MARK/ {{
  printf("mark %d %llu\\n", args->pid, nsecs); {printing} printf("done\\n");
}}
tracepoint:syscalls:sys_enter_getpgid /args->pid == END_MARK/ {{ exit(); }}
"""


def count_value() -> str:
    """Statements that count ``$ns`` in the map ``@values``.

    The key is HdrHistogram's index of the counter: the position of the highest bit, and as many
    bits below it as the precision needs.
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
  @values[($shift << (uint64){HALF_BITS}) + ($ns >> $shift)] = count();"""


_SQUARE_UNIT = 1000**2
"""The program adds square microseconds, which fit into 64 bits."""


class MarkReading(NamedTuple):
    """The maps at a mark."""

    mark: int
    at_seconds: float
    """Time by the monotonic clock."""
    maps: dict[str, dict[str, int]]


def parse_readings(lines: Iterable[str]) -> list[MarkReading]:
    """The complete readings; other output and a truncated reading are skipped."""
    readings = []
    maps: dict[str, dict[str, int]] | None = None
    mark, at = 0, 0.0
    for line in lines:
        kind, data = _decode(line)
        if kind == "printf" and isinstance(data, str):
            words = data.split()
            if words[:1] == ["mark"] and len(words) == 3 and all(map(str.isdecimal, words[1:])):  # noqa: PLR2004
                maps, mark, at = {}, int(words[1]), int(words[2]) / 1e9
            elif words == ["done"] and maps is not None:
                readings.append(MarkReading(mark, at, maps))
                maps = None
        elif kind == "map" and isinstance(data, dict) and maps is not None:
            for name, found in data.items():
                entries = {"": found} if isinstance(found, int) else found
                if isinstance(entries, dict):
                    maps[name] = {
                        key: value for key, value in entries.items() if isinstance(value, int)
                    }
    return readings


def is_word(line: str, word: str) -> bool:
    """True for a line in which the program printed only ``word``."""
    return _decode(line) == ("printf", f"{word}\n")


def _decode(line: str) -> tuple[str, Any]:
    try:
        message = json.loads(line)
    except ValueError:
        return "", None
    if not isinstance(message, dict):
        return "", None
    return str(message.get("type")), message.get("data")


def value_counts(reading: MarkReading) -> Counter[int]:
    """The counts of ``@values`` by nanoseconds."""
    return Counter({_nanoseconds(key): n for key, n in _numbers(reading, "@values").items()})


def turn_counts(reading: MarkReading) -> TurnCounts:
    """The counters at a mark."""
    squares = reading.maps.get("@squares", {})
    return TurnCounts(
        values=value_counts(reading),
        turns=Counter(_numbers(reading, "@turns")),
        busy=Counter(_numbers(reading, "@busy")),
        squares=Counter({part: value * _SQUARE_UNIT for part, value in squares.items()}),
        bounds=Counter(_numbers(reading, "@early").values()),
        traced_seconds=reading.at_seconds,
        **{wait: Counter(_numbers(reading, f"@{wait}")) for wait in WAITS},
    )


def add_open_turns(
    counts: TurnCounts, reading: MarkReading, silent: Mapping[int, Wait | None]
) -> None:
    """Count the turn that each thread is in at a mark, with its age so far.

    ``silent`` has each thread whose system call shows that it is in a turn, with the reason why it
    waits (None if it can run). A thread without an event of epoll_wait has been in the same turn
    since tracing began. Without a scheduler event too, it has waited all that time.
    """
    now = round(reading.at_seconds * 1e9)
    began = reading.maps.get("@began", {}).get("", now)
    seen = _numbers(reading, "@seen")
    starts = {thread: since for thread, since in _numbers(reading, "@left").items() if since}
    starts.update({thread: began for thread in silent if not seen.get(thread)})
    for thread, since in starts.items():
        if since >= now:
            continue
        waits: dict[Wait, int] = {w: _numbers(reading, f"@in_{w}").get(thread, 0) for w in WAITS}
        under_way = _under_way(reading, thread, now)
        held = silent.get(thread)
        if held and since == began and not under_way and not any(waits.values()):
            under_way = {held: now - since}
        for wait, nanoseconds in under_way.items():
            waits[wait] += nanoseconds
            getattr(counts, wait)[thread] += nanoseconds
        counts.count(thread, Turn(now - since, waits), is_bound=True)


def _under_way(reading: MarkReading, thread: int, now: int) -> dict[Wait, int]:
    """The nanoseconds that a thread has waited so far; time in the run queue is a separate wait."""
    off, why, woken = (_numbers(reading, f"@{m}").get(thread, 0) for m in ("off", "why", "woken"))
    wait = WHY.get(why)
    if not off or wait is None:
        return {}
    if wait == "queued" or not woken:
        return {wait: max(0, now - off)}
    return {wait: max(0, woken - off), "queued": max(0, now - woken)}


def _numbers(reading: MarkReading, name: str) -> dict[int, int]:
    entries = reading.maps.get(name, {})
    return {int(key): value for key, value in entries.items() if key.isdecimal()}


def _nanoseconds(index: int) -> int:
    """The middle value of a counter, by its index in the program."""
    shift = max((index >> HALF_BITS) - 1, 0)
    position = index - (shift << HALF_BITS)
    return (position << shift) + ((1 << shift) >> 1)
