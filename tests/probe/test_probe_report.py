"""What stands around the figures of a run: the load in words, shapes, hidden stalls, caps."""

from __future__ import annotations

import io
from collections import Counter
from typing import Any

import msgspec
import pytest
from rich.console import Console

from nginx_tune.cli.probe_load import parse_caps
from nginx_tune.documents.loadplan import (
    Arrivals,
    Caps,
    LoadClass,
    LoadPlan,
    Paths,
    RateStep,
    Target,
)
from nginx_tune.documents.measured_class import ClassMeasurement, Latency
from nginx_tune.documents.measurement import Capacity, CapacityStep, Measurement
from nginx_tune.documents.units import number_text, seconds_text
from nginx_tune.errors import UsageError
from nginx_tune.measure.load.one_class import OfferedRate, default_threads, plan_within
from nginx_tune.measure.proof.histogram import Histogram, Layout, encode_histogram
from nginx_tune.measure.proof.latency import hidden_stall
from nginx_tune.report.measurement import measured_screen
from nginx_tune.report.measurement_parts import shape_of
from nginx_tune.report.probing import capacity_screen, describe_load
from nginx_tune.report.screen import plain_text
from nginx_tune.report.terminal.writer import lay_out


def test_no_unit_has_a_thousand_of_it() -> None:
    texts = {0.9994: "999 ms", 0.9996: "1.00 s", 0.00099951: "1 ms", 0.0009994: "999 µs"}
    assert {seconds: seconds_text(seconds) for seconds in texts} == texts
    assert (number_text(999.4), number_text(999.6)) == ("999", "1,000")


def test_a_time_that_no_clock_tells_has_no_digits() -> None:
    texts = {1.5e-273: "< 1 ns", 1.78e-13: "< 1 ns", 0.0: "0 µs", 1.2e-9: "0.0012 µs"}
    assert {seconds: seconds_text(seconds) for seconds in texts} == texts
    assert number_text(1.5e-273) == "0"


def test_the_head_of_a_report_says_what_was_asked() -> None:
    table: list[tuple[Arrivals, dict[str, Any], str]] = [
        (
            Arrivals(kind="closed", users=9, think_seconds=0.5),
            {"connections": 9},
            "closed loop, 9 users who pause 500 ms, each with a connection of its own",
        ),
        (
            Arrivals(kind="poisson", rate_per_second=500),
            {"connections": 50, "connection_use": "turns"},
            "open loop, poisson arrivals, 500/s, 50 connections held and used in turn",
        ),
        (
            Arrivals(kind="constant", rate_per_second=5),
            {"connections": 50},
            "open loop, constant arrivals, 5/s, up to 50 connections, the last used first",
        ),
        (
            Arrivals(
                kind="steps",
                steps=[
                    RateStep(seconds=1, rate_per_second=5),
                    RateStep(seconds=1, rate_per_second=5, to_rate_per_second=9),
                ],
            ),
            {"connections": 50, "keepalive": False},
            "open loop, 5 → 5…9 requests a second, a new connection for each request, up to 50 at once",  # noqa: E501
        ),
    ]
    for arrivals, changes, words in table:
        paths = Paths(kind="fixed", paths=["/"])
        item = LoadClass(name="url", arrivals=arrivals, paths=paths, **changes)
        target = Target(address="127.0.0.1", port=80)
        plan = LoadPlan(target=target, classes=[item], duration_seconds=9)
        lines = describe_load(plan, "http://localhost/\x1b").splitlines()
        assert lines[0] == "http://localhost/\\x1b at 127.0.0.1 port 80, 9 s, seed 1"
        assert lines[1] == f"  {words}"
        assert "4,096 connections" in lines[2]
        text = plain_text(measured_screen(Measurement(classes={}), "\n".join(lines)))
        assert text.splitlines()[-3].startswith("http://localhost/")


def test_the_shape_of_a_distribution_has_its_two_humps() -> None:
    counts = Counter({1_000_000: 900, 1_100_000: 90, 50_000_000: 10})
    text = shape_of(latency_of(counts))
    assert text.startswith("1 ms █")
    assert text.endswith("50 ms")
    bars = text.removeprefix("1 ms ").removesuffix(" 50 ms")
    assert len(bars) == 32
    assert bars.strip()[-1] in "▁▂"
    assert bars.count(" ") >= 28
    assert shape_of(latency_of(Counter({5: 1}))) == ""
    assert shape_of(Latency()) == ""


def test_a_closed_loop_tells_what_a_schedule_would_have_seen() -> None:
    """10 users, 1 ms each, and one stall of a second in ten: 9 % of the time, and no p99 of it."""
    stalled = latency_of(Counter({1_000_000: 89_990, 1_000_000_000: 10}))
    part = ClassMeasurement(users=10, requests=90_000, response_seconds=stalled)
    stall = hidden_stall(part, 10.0)
    assert stall is not None
    assert stall.p99_seconds == pytest.approx(0.001, rel=1e-2)
    # A tenth of the arrivals of a schedule would have come in the stall.
    assert stall.scheduled_p99_seconds == pytest.approx(0.9, abs=0.05)
    text = plain_text(measured_screen(Measurement(duration_seconds=10, classes={"c": part})))
    assert "c: a closed loop hides stalls (the longest response took 1.00 s)" in text
    even = latency_of(Counter({1_000_000: 89_990, 1_200_000: 10}))
    assert hidden_stall(msgspec.structs.replace(part, response_seconds=even), 10.0) is None
    # An open loop hides nothing.
    assert hidden_stall(msgspec.structs.replace(part, users=None), 10.0) is None


def latency_of(counts: Counter[int]) -> Latency:
    layout = Layout(unit_bits=9, half_bits=10)
    by_index = {layout.index_of(value): count for value, count in sorted(counts.items())}
    return Latency(
        count=sum(counts.values()),
        max=max(counts) / 1e9,
        p99=None,
        histogram=encode_histogram(Histogram(layout, by_index)),
    )


def test_threads_go_by_the_rate_and_the_cpus() -> None:
    for rate, connections, cpus, threads in (
        (None, 1000, 64, 1),
        (OfferedRate((500.0,)), 1000, 64, 1),
        (OfferedRate((1000.0, 200_000.0)), 1000, 64, 5),
        (OfferedRate((200_000.0,)), 1000, 4, 2),
        (OfferedRate((200_000.0,)), 3, 64, 3),
        (OfferedRate((200_000.0,)), 1000, 1, 1),
    ):
        assert default_threads(rate, connections, cpus) == threads, (rate, connections, cpus)


def test_caps_are_the_callers_and_a_plan_only_lowers_them() -> None:
    item = LoadClass(
        name="c",
        arrivals=Arrivals(kind="closed", users=1),
        paths=Paths(kind="fixed", paths=["/"]),
        connections=1,
    )
    target = Target(address="127.0.0.1", port=80)
    plan = LoadPlan(target=target, classes=[item], duration_seconds=1)
    greedy = msgspec.structs.replace(plan, caps=Caps(connections=9999, seconds=5.0))
    bound = plan_within(greedy, {}).caps
    assert (bound.connections, bound.seconds) == (4096, 5.0)
    bound = plan_within(greedy, {"connections": 5000, "seconds": 900}).caps
    assert (bound.connections, bound.seconds) == (5000, 5.0)
    # One that says nothing has the caller's.
    assert plan_within(plan, {"rate": 1e6}).caps.rate_per_second == 1e6
    assert parse_caps(("seconds=1h", "bytes=2g")) == {"seconds": 3600, "bytes": 2 << 30}
    for text in ("seconds", "colour=1", "connections=0", "connections=1.5"):
        with pytest.raises(UsageError, match="--cap"):
            parse_caps((text,))


def test_the_answer_of_a_search_comes_first() -> None:
    step = CapacityStep(rate_per_second=400, met=True, measured={"url.p99": 0.003})
    found = Capacity(
        objectives=["p99 <= 50ms"], steps=[step], at_least_per_second=400, limited_by="bound",
        reason="it holds at 400/s",
    )  # fmt: skip
    lines = plain_text(capacity_screen(found)).splitlines()
    assert lines[0] == "capacity: at least 400/s with p99 <= 50ms"
    assert lines[1] == "limited by: the highest rate allowed (it holds at 400/s)"
    unsure = msgspec.structs.replace(found, limited_by="probe")
    head = plain_text(capacity_screen(unsure)).splitlines()[0]
    assert head.endswith("; where it ends was not found")


@pytest.mark.parametrize("width", [60, 72, 80])
def test_no_quantile_stands_below_another_column(width: int) -> None:
    """A table that was folded as text had the last columns under the first ones."""
    latency = latency_of(Counter({1_000_000: 89_990, 100_000_000: 400, 1_000_000_000: 40}))
    part = ClassMeasurement(requests=90_430, intended=90_430, response_seconds=latency)
    screen = measured_screen(Measurement(duration_seconds=10, classes={"url": part}), "http://a/")
    console = Console(file=io.StringIO(), width=width, color_system=None)
    lines = lay_out(screen, console, verbose=False).splitlines()
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("url: ")
    head = next(line for line in lines if line.startswith("class") and "time to" in line)
    row = next(line for line in lines if line.startswith("url ") and "100 ms" in line)
    assert head.split()[-2:] == ["p99.9", "max"]
    assert len(row) == len(head)
