"""Loop turns from what tracefs and bpftrace write."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from rows import each_row

from nginx_tune.observe.parse_bpftrace import (
    MarkReading,
    add_open_turns,
    is_word,
    parse_readings,
    turn_counts,
    value_counts,
)
from nginx_tune.observe.parse_turns import WAITS, TurnCounts, TurnReader, Wait

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


def test_a_switch_that_is_left_out_ends_with_the_wakeup() -> None:
    """An instance limited to threads may not show how an idle CPU gives itself to one of them."""
    reader = TurnReader()
    wake = "sched_wakeup: comm=nginx pid=7 prio=120 target_cpu=001"
    reader.read(
        [
            line(7, 1_000_000, LEAVE),
            switch(1_000_010, 7, "D", 0),
            line(0, 1_300_010, wake),
            switch(1_300_020, 7, "D", 0),
            line(0, 1_700_020, wake),
            line(7, 1_700_030, ENTER),
        ]
    )
    assert reader.counts.values == {700_030_000: 1}
    assert reader.counts.blocked == {7: 700_000_000}
    assert reader.counts.queued.total() == 0


def test_a_turn_that_has_not_ended_stands_at_its_age() -> None:
    reader = TurnReader()
    reader.read([line(7, 1_000_000, LEAVE), switch(1_500_000, 7, "D", 0)])
    reader.finish(3_000_000_000)
    assert reader.counts.values == {2_000_000_000: 1}
    assert reader.counts.blocked == {7: 1_500_000_000}


def test_what_a_turn_waits_for_is_told_apart() -> None:
    """Off until woken is what it slept for, woken until it runs is a wait for a CPU."""
    reader = TurnReader()
    wake = "sched_wakeup: comm=nginx pid=7 prio=120 target_cpu=001"
    reader.read(
        [
            line(7, 1_000_000, LEAVE),
            switch(1_100_000, 7, "D", 0),
            line(0, 1_400_000, wake),
            switch(1_500_000, 0, "R", 7),  # disk 300 ms, CPU 100 ms
            switch(1_600_000, 7, "R+", 9),
            switch(1_800_000, 9, "S", 7),  # CPU 200 ms
            switch(1_900_000, 7, "S", 0),
            line(0, 2_000_000, wake),
            switch(2_000_000, 0, "R", 7),  # asleep 100 ms
            switch(2_050_000, 7, "T", 0),
            switch(3_000_000, 0, "R", 7),  # stopped 950 ms
            line(7, 3_000_000, ENTER),
        ]
    )
    counts = reader.counts
    millisecond = 1_000_000
    assert counts.values == {2000 * millisecond: 1}
    assert counts.blocked == {7: 300 * millisecond}
    assert counts.queued == {7: 300 * millisecond}
    assert counts.asleep == {7: 100 * millisecond}
    assert counts.stopped == {7: 950 * millisecond}
    assert counts.squares["all"] == (2000 * millisecond) ** 2
    assert counts.squares["stopped"] == 2000 * 950 * millisecond**2
    assert not counts.bounds


def test_a_turn_that_began_before_tracing_stands_at_its_age() -> None:
    """A thread is first seen as it enters epoll_wait, or never: both are lower bounds."""
    reader = TurnReader(began_nanoseconds=500_000_000)
    reader.read([line(7, 2_000_000, ENTER), line(7, 2_100_000, LEAVE), line(7, 2_200_000, ENTER)])
    assert reader.counts.values == {1_500_000_000: 1, 100_000_000: 1}
    assert reader.counts.bounds == {1_500_000_000: 1}
    reader.finish(3_000_000_000, in_turns={7: None, 8: None})  # 7 is known to wait
    assert reader.counts.turns == {7: 2, 8: 1}
    assert reader.counts.bounds[2_500_000_000] == 1


@each_row("begun", [False, True])
def test_turns_under_way_at_a_mark_of_the_program(begun: bool) -> None:
    left = {"7": 1_000_000_000} if begun else {}
    found = MarkReading(
        1, 3.0,
        {
            "@began": {"": 500_000_000}, "@left": left, "@seen": {"7": 1} if begun else {},
            "@off": {"7": 2_000_000_000}, "@why": {"7": 1}, "@woken": {"7": 2_600_000_000},
            "@in_asleep": {"7": 100_000_000},
        },
    )  # fmt: skip
    counts = TurnCounts()
    add_open_turns(counts, found, {} if begun else {7: "asleep"})
    age = 2_000_000_000 if begun else 2_500_000_000
    assert counts.values == counts.bounds == {age: 1}
    assert counts.blocked == {7: 600_000_000}
    assert counts.queued == {7: 400_000_000}
    assert counts.squares["asleep"] == age * 100_000_000
    quiet = TurnCounts()
    add_open_turns(
        quiet, MarkReading(1, 3.0, {"@began": {"": 1}, "@seen": {"7": 1}}), {7: "asleep"}
    )
    assert not quiet.values


@each_row("held", ["asleep", "blocked", "stopped", None])
def test_what_held_a_thread_since_before_tracing_is_not_taken_for_computing(
    held: Wait | None,
) -> None:
    counts = TurnCounts()
    add_open_turns(counts, MarkReading(1, 3.0, {"@began": {"": 1_000_000_000}}), {7: held})
    reader = TurnReader(began_nanoseconds=1_000_000_000)
    reader.read([switch(2_000_000, 8, "S", 9)])
    reader.finish(3_000_000_000, {7: held, 8: "asleep"})
    expected = {held: {7: 2_000_000_000}} if held else {}
    for found in (counts, reader.counts):
        assert found.busy[7] == 2_000_000_000
        assert {wait: getattr(found, wait) for wait in WAITS if +getattr(found, wait)} == expected


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
    add_open_turns(span, second, {})
    assert span.values[250_000_000] == 1
    assert span.bounds == {250_000_000: 1}
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
    found = value_counts(MarkReading(1, 0.0, {"@values": {str(index): 1}}))
    assert abs(next(iter(found)) - nanoseconds) <= nanoseconds / 128
