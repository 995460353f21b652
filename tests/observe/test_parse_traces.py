"""Loop turns from what tracefs and bpftrace write."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from nginx_tune.observe.parse_bpftrace import (
    Reading,
    is_word,
    open_turns,
    parse_readings,
    turn_counts,
    value_counts,
)
from nginx_tune.observe.parse_trace_pipe import TurnReader

DATA = Path(__file__).parent / "data"


def line(pid: int, microseconds: int, event: str) -> str:
    seconds, rest = divmod(microseconds, 1_000_000)
    return f"           nginx-{pid}    [001] ..... {seconds}.{rest:06d}: {event}"


def switch(at: int, off: int, state: str, on: int) -> str:
    return line(
        off, at, f"sched_switch: prev_comm=nginx prev_pid={off} prev_prio=120 prev_state={state}"
        f" ==> next_comm=ng inx next_pid={on} next_prio=120",
    )  # fmt: skip


LEAVE, ENTER = "sys_epoll_wait -> 0x1", "sys_epoll_pwait(epfd: 7, events: 0x5, timeout: 0xea60)"


def test_a_recorded_pipe() -> None:
    reader = TurnReader()
    lines = (DATA / "trace-pipe.txt").read_text().splitlines()
    reader.read(lines)
    leaves = sum("sys_epoll_wait ->" in one for one in lines)
    assert 0 < leaves - 1 <= reader.counts.turns.total() <= leaves
    assert 0 < max(reader.counts.values) < 50_000_000
    assert not reader.lost


def test_a_turn_and_its_wait_for_a_disk() -> None:
    reader = TurnReader()
    reader.read(
        [
            line(7, 1_000_000, LEAVE),
            switch(1_000_010, 7, "D", 0),
            switch(1_900_010, 0, "R", 7),
            line(7, 1_950_000, ENTER),
            switch(1_950_010, 7, "S", 0),  # asleep in epoll_wait: no part of a turn
            switch(2_500_000, 0, "R", 7),
        ]
    )
    assert reader.counts.values == {950_000_000: 1}
    assert reader.counts.blocked == {7: 900_000_000}


def test_a_turn_that_has_not_ended_stands_at_its_age() -> None:
    reader = TurnReader()
    reader.read([line(7, 1_000_000, LEAVE), switch(1_500_000, 7, "D", 0)])
    reader.finish(3_000_000_000)
    assert reader.counts.values == {2_000_000_000: 1}
    assert reader.counts.blocked == {7: 1_500_000_000}


def test_nothing_is_counted_across_lost_events() -> None:
    reader = TurnReader()
    reader.read([line(7, 1, LEAVE), "CPU:1 [LOST 12 EVENTS]", line(7, 9_000_000, ENTER)])
    assert reader.lost
    assert not reader.counts.values


@given(st.lists(st.text(max_size=200), max_size=20))
def test_no_line_is_a_crash(lines: list[str]) -> None:
    TurnReader().read(lines)
    parse_readings(lines)


def printf(text: str) -> str:
    return json.dumps({"type": "printf", "data": text})


def maps(**entries: dict[str, int] | int) -> list[str]:
    return [json.dumps({"type": "map", "data": {f"@{k}": v}}) for k, v in entries.items()]


def test_readings_between_marks() -> None:
    said = [
        '{"type": "attached_probes", "data": {"probes": 6}}', "", "no JSON", "[1]", "7",
        printf("mark 5 2000000000\n"), *maps(values={"100": 2}, posts=4), printf("done\n"),
        printf("mark 6 3000000000\n"), *maps(values={"100": 3, "1024": 1}, turns={"7": 4}),
        *maps(left={"7": 2_750_000_000, "8": 0}), printf("done\n"),
        printf("mark 7 4000000000\n"), *maps(values={"100": 9}),  # cut short
    ]  # fmt: skip
    first, second = parse_readings(said)
    assert (first.mark, first.at_seconds, first.maps["@posts"]) == (5, 2.0, {"": 4})
    span = turn_counts(second).since(turn_counts(first))
    # Counter 1024 is the 128th of the ones that are 128 wide: its middle.
    assert span.values == {100: 1, (128 << 7) + 64: 1}
    assert span.traced_seconds == 1.0
    assert open_turns(second) == {7: 250_000_000}
    assert is_word(printf("ready\n"), "ready")


@given(st.integers(1, 1 << 39))
def test_the_program_s_counters_are_read_back_within_their_width(nanoseconds: int) -> None:
    """The index is computed here as the program computes it, without a logarithm."""
    rest, shift = nanoseconds >> 8, 0
    for bits in (16, 8, 4, 2, 1):
        if rest >= 1 << bits:
            shift += bits
            rest >>= bits
    shift += rest
    index = (shift << 7) + (nanoseconds >> shift)
    found = value_counts(Reading(1, 0.0, {"@values": {str(index): 1}}))
    assert abs(next(iter(found)) - nanoseconds) <= nanoseconds / 128
