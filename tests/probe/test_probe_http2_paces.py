"""Slow clients over HTTP/2, and answers that are more urgent than others, on a real nginx."""

from pathlib import Path
from typing import Any

import pytest
from probe_loads import Nginx, StartNginx, load_class, load_plan

from nginx_tune.documents.loadplan import Arrivals, Http2, LoadClass, Priority
from nginx_tune.documents.measurement import Measurement
from nginx_tune.errors import UsageError
from nginx_tune.measure.load.classes import family_faults
from nginx_tune.measure.load.probe import run_probe

pytestmark = pytest.mark.needs("nginx", "probe")

SHARED = Http2(streams=50)


@pytest.fixture
def nginx(start_nginx: StartNginx, free_port: int) -> Nginx:
    """One that speaks HTTP/2 without TLS on a port of its own."""
    server = f"listen 127.0.0.1:{free_port} http2; location = /ok {{ return 200; }}"
    return Nginx(free_port, start_nginx(server=server, http="sendfile on;").error_log)


def heavy(**changes: Any) -> LoadClass:
    """Users of one connection who ask for 4 MiB each."""
    parts = {"name": "heavy", "connections": 1, "http2": SHARED, "timeout_seconds": 60.0}
    closed = Arrivals(kind="closed", users=4)
    return load_class("/4m", **{**parts, "arrivals": closed, **changes})


def beside(path: str = "/1k", **changes: Any) -> LoadClass:
    """Small answers on the connection of the heavy ones."""
    parts = {"name": "small", "connections": 1, "connections_of": "heavy", "http2": SHARED}
    rate = Arrivals(kind="constant", rate_per_second=50)
    return load_class(path, **{**parts, "arrivals": rate, "timeout_seconds": 60.0, **changes})


def measure(nginx: Nginx, *classes: LoadClass, seconds: float = 3.0) -> Measurement:
    plan = load_plan(nginx, *classes, duration_seconds=seconds, drain_seconds=1.0)
    return run_probe(plan)


@pytest.mark.alone  # compares times
def test_a_slow_stream_keeps_its_pace_and_others_of_its_connection_do_not(nginx: Nginx) -> None:
    pace, users, seconds = 200_000, 4, 4.0
    found = measure(nginx, heavy(read_bytes_per_second=pace), beside(), seconds=seconds)
    slow, small = found.classes["heavy"], found.classes["small"]
    assert slow.bytes_per_second is not None
    # At once comes what is read in an eighth of a second; time that nginx is late is lost.
    asked = users * pace * (1 + 1 / 8 / seconds)
    assert 0.3 * asked < slow.bytes_per_second <= 1.02 * asked
    assert (slow.errors, slow.truncated, small.errors) == ({}, 0, {})
    assert small.requests + small.censored == 200
    assert small.requests >= 100
    # With four answers of twenty seconds under way before it, on a connection that carries them.
    assert small.response_seconds.p50 is not None
    assert small.response_seconds.p50 < 0.25
    assert slow.http2 is not None
    assert (slow.http2.window_stalls, slow.connections_opened) == (0, 1)
    assert small.connections_opened == 0
    assert not [flag for flag in found.flags if flag.startswith(("window", "ack_stalls"))]


def test_a_slow_connection_has_one_pace_for_all_of_its_streams(nginx: Nginx) -> None:
    pace, seconds = 400_000, 4.0
    slow = heavy(read_bytes_per_second=pace, read_pace_of="connection")
    found = measure(nginx, slow, beside("/1k"), seconds=seconds)
    both = found.classes["heavy"].bytes_per_second, found.classes["small"].bytes_per_second
    assert both[0] is not None
    assert both[1] is not None
    # The first window of a connection is 65,535 bytes, whatever a client says.
    asked = pace + (65_535 + pace / 8) / seconds
    assert 0.3 * asked < sum(part for part in both if part is not None) <= 1.02 * asked
    assert found.classes["heavy"].errors == {}
    assert not [flag for flag in found.flags if flag.startswith("window")]


def wait_of_small(
    nginx: Nginx, urgent: Priority | None = None, others: Priority | None = None
) -> float:
    """The small answers' p50, on a connection that is slow as a whole: who goes first is nginx's
    to say."""
    slow = {"read_bytes_per_second": 1_000_000, "read_pace_of": "connection"}
    few = Arrivals(kind="constant", rate_per_second=10)
    classes = (heavy(**slow, priority=others), beside(priority=urgent, arrivals=few))
    found = measure(nginx, *classes).classes["small"]
    wait = found.response_seconds.p50
    assert wait is not None
    assert found.errors == {}
    return wait


@pytest.mark.thorough
def test_nginx_answers_first_what_is_more_urgent_and_does_not_go_by_the_header(
    nginx: Nginx,
) -> None:
    without = wait_of_small(nginx)
    for urgent, others in (
        (Priority(weight=256), Priority(weight=1)),
        (Priority(weight=256, frame="priority"), Priority(weight=1, frame="priority")),
        (
            # As Chromium has it: each exclusively on the last that is as urgent, or more.
            Priority(weight=256, exclusive=True, depends_on=["small"]),
            Priority(weight=147, exclusive=True, depends_on=["small", "heavy"]),
        ),
    ):
        assert wait_of_small(nginx, urgent, others) < 0.5 * without, urgent
    assert wait_of_small(nginx, Priority(urgency=0), Priority(urgency=7)) > 0.5 * without


def test_an_urgency_comes_in_the_header_over_any_protocol(
    start_nginx: StartNginx, free_port: int
) -> None:
    server = (
        f'listen 127.0.0.1:{free_port} http2; if ($http_priority != "u=1, i") {{ return 403; }}'
    )
    plain = start_nginx(server=server)
    said = Priority(urgency=1, incremental=True)
    for nginx, http2 in ((plain, None), (Nginx(free_port, plain.error_log), SHARED)):
        found = run_probe(load_plan(nginx, load_class("/1k", http2=http2, priority=said)))
        assert (found.classes["c"].errors, found.classes["c"].requests) == ({}, 100)
    silent = run_probe(load_plan(plain, load_class("/1k"))).classes["c"]
    assert silent.errors.keys() == {"status"}


def test_both_sides_refuse_what_cannot_be() -> None:
    table: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({}, {"connections_of": "nobody"}, "connections_of"),
        ({}, {"connections": 2}, "connections"),
        ({}, {"http2": Http2(streams=9)}, "http2"),
        ({"http2": None, "connections": 4}, {"http2": None, "connections": 4}, "connections_of"),
        ({}, {"read_bytes_per_second": 9, "read_pace_of": "connection"}, "read_pace_of"),
        ({}, {"priority": Priority(weight=257)}, "weight"),
        ({}, {"priority": Priority(weight=1, depends_on=["url"])}, "depends_on"),
        ({}, {"priority": Priority(exclusive=True)}, "weight"),
        ({}, {"priority": Priority(urgency=8)}, "urgency"),
        ({}, {"priority": Priority(urgency=1), "headers": {"Priority": "i"}}, "riority"),
        (
            {"read_pace_of": "connection", "http2": None, "connections": 4},
            {"connections_of": None},
            "read_pace_of",
        ),
    ]
    for first, second, what in table:
        classes = [heavy(**first), beside(**second)]
        faults = family_faults(classes)
        assert any(what in fault for fault in faults), (first, second, faults)
        with pytest.raises(UsageError, match=what):
            run_probe(load_plan(Nginx(1, Path("/")), *classes))


def test_what_can_be_has_no_faults() -> None:
    urgent = Priority(weight=256, depends_on=["small", "heavy"], urgency=0)
    assert family_faults([heavy(), beside(priority=urgent)]) == []
