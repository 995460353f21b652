"""How far away clients are: what looks at their connections come to, and who uses it."""

import pytest
from msgspec.structs import replace

from nginx_tune.decide.observed import with_observation
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.base import decode, encode
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.measured_server import RoundTrips, ServerMeasurement
from nginx_tune.documents.observation import Cause, CauseEvidence, Observation
from nginx_tune.documents.site import Site
from nginx_tune.documents.workload import RoundTrip, Workload
from nginx_tune.host.door import Missing
from nginx_tune.observe.connections import WaitingLook, sort_waiting
from nginx_tune.observe.parse_sock_diag import TcpSocket
from nginx_tune.observe.window.server import plan_round_trips
from nginx_tune.report.observation import observation_screen
from nginx_tune.report.prometheus import render_observation_prometheus
from nginx_tune.report.screen import plain_text

ESTABLISHED, CLOSE_WAIT = 1, 8


def client(inode: int, seconds: float | None, state: int = ESTABLISHED) -> TcpSocket:
    plain = TcpSocket(state, 443, 40000, inode, 0, 1.0, 1.0)
    return plain._replace(round_trip_seconds=seconds)


def look(*sockets: TcpSocket) -> WaitingLook:
    held = {11: {one.inode for one in sockets} - {0}}
    return sort_waiting(sockets, held, {443})


def observed(trips: RoundTrips | None) -> Observation:
    return Observation(duration_seconds=30.0, server=ServerMeasurement(round_trips=trips))


def test_each_connection_counts_once_as_it_was_seen_last() -> None:
    first = look(*(client(inode, 0.5) for inode in range(1, 101)))
    later = look(*(client(inode, inode / 1000) for inode in range(1, 101)))
    found = plan_round_trips([first, Missing("once it was not told"), later])
    assert found == RoundTrips(
        connections=100, p50_seconds=0.05, p90_seconds=0.09, p99_seconds=None
    )


@pytest.mark.parametrize(
    ("count", "p50", "p90", "p99"),
    [(19, False, False, False), (20, True, False, False), (99, True, False, False),
     (100, True, True, False), (1000, True, True, True)],
)  # fmt: skip
def test_a_quantile_wants_ten_connections_beyond_it(
    count: int, p50: bool, p90: bool, p99: bool
) -> None:
    found = plan_round_trips([look(*(client(inode, 0.1) for inode in range(1, count + 1)))])
    assert found is not None
    told = [one is not None for one in (found.p50_seconds, found.p90_seconds, found.p99_seconds)]
    assert told == [p50, p90, p99]


def test_what_has_no_round_trip_is_left_out() -> None:
    odd = look(client(1, None), client(2, 0.1, CLOSE_WAIT), client(0, 0.1))
    upstream = client(3, 0.1)._replace(port=50_000)
    assert plan_round_trips([odd, look(upstream)]) is None
    assert plan_round_trips([Missing("no sock_diag")]) is None


def situation(workload: Workload, observation: Observation | None) -> Situation:
    return Situation(Facts(), with_observation(workload, observation), Site(), observation)


def test_decisions_take_it_where_nobody_said() -> None:
    trips = RoundTrips(connections=1204, p50_seconds=0.02, p90_seconds=0.05)
    measured = situation(Workload(), observed(trips)).round_trip
    assert (measured.value, measured.provenance) == (0.05, "measured")
    assert measured.fact.endswith("(tcpi_rtt of 1,204 client connections)")
    said = Workload(round_trip=RoundTrip(p90_seconds=0.2, provenance="declared"))
    declared = situation(said, observed(trips)).round_trip
    assert (declared.value, declared.provenance) == (0.2, "declared")
    for nothing in (observed(None), observed(RoundTrips(connections=3)), None):
        assert situation(Workload(), nothing).round_trip.value is None
    reloaded = Observation(
        duration_seconds=30.0, flags=["reloaded: 2"], server=observed(trips).server
    )
    assert situation(Workload(), reloaded).round_trip.value is None


def test_reports_say_it() -> None:
    trips = RoundTrips(connections=120, p50_seconds=0.02, p90_seconds=0.05)
    observation = observed(trips)
    assert decode(Observation, encode(observation)) == observation
    text = plain_text(observation_screen(observation))
    assert "round trip to clients: p50 20 ms, p90 50 ms (120 connections, tcpi_rtt)" in text
    few = plain_text(observation_screen(observed(RoundTrips(connections=3))))
    assert "too few for a quantile (3 connections" in few
    prometheus = render_observation_prometheus(observation).decode()
    assert "client_round_trip_p90_seconds 0.05" in prometheus


def test_the_cause_is_the_first_line_and_said_once() -> None:
    cause = Cause(
        id="slow-upstream", confidence="high", summary="the upstream takes its time",
        evidence=[CauseEvidence(metric="wait", value=0.5, unit="seconds")],
        next_command="nginx-tune recommend",
    )  # fmt: skip
    text = plain_text(observation_screen(replace(observed(None), causes=[cause])))
    assert text.splitlines()[:4] == [
        "slow-upstream (high confidence): the upstream takes its time",
        "",
        "  because: wait 500 ms",
        "  next: nginx-tune recommend",
    ]
    assert text.count("the upstream takes its time") == 1
