"""The parts around the probe that need no probe: listeners, URLs, caps, the report."""

import contextlib
import ipaddress
from collections import Counter

import msgspec
import pytest

from nginx_tune.cli.probe_load import parse_caps
from nginx_tune.documents.loadplan import Arrivals, Caps, LoadClass, LoadPlan, Paths, Permit, Target
from nginx_tune.documents.measured_class import ClassMeasurement, Latency
from nginx_tune.documents.measurement import Generator, Measurement
from nginx_tune.documents.units import number_text, seconds_text
from nginx_tune.errors import UsageError
from nginx_tune.host.parse_network import parse_listeners, parse_socket_link
from nginx_tune.measure.load.one_class import (
    Load,
    OfferedRate,
    default_threads,
    plan_load,
    plan_within,
)
from nginx_tune.measure.load.target import permit_target, resolve_url
from nginx_tune.measure.proof.histogram import Histogram, Layout, encode_histogram
from nginx_tune.measure.proof.latency import hidden_stall
from nginx_tune.report.measurement import measured_screen
from nginx_tune.report.measurement_parts import shape_of
from nginx_tune.report.screen import plain_text


def test_no_unit_has_a_thousand_of_it() -> None:
    texts = {0.9994: "999 ms", 0.9996: "1.00 s", 0.00099951: "1 ms", 0.0009994: "999 µs"}
    assert {seconds: seconds_text(seconds) for seconds in texts} == texts
    assert (number_text(999.4), number_text(999.6)) == ("999", "1,000")


def test_a_time_that_no_clock_tells_has_no_digits() -> None:
    texts = {1.5e-273: "< 1 ns", 1.78e-13: "< 1 ns", 0.0: "0 µs", 1.2e-9: "0.0012 µs"}
    assert {seconds: seconds_text(seconds) for seconds in texts} == texts
    assert number_text(1.5e-273) == "0"


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


TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 111 1 x
   1: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 222 1 x
   2: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 333 1 x
   3: junk
"""
TCP6 = """\
  sl  local_address                         remote_address                        st tx rx
   0: 00000000000000000000000001000000:1F91 00000000000000000000000000000000:0000 0A \
00000000:00000000 00:00000000 00000000     0        0 444 1 x
   1: 0000000000000000FFFF00000100007F:1F92 00000000000000000000000000000000:0000 0A \
00000000:00000000 00:00000000 00000000     0        0 555 1 x
"""


def test_listening_sockets_are_read() -> None:
    found = parse_listeners(TCP, byteorder="little") + parse_listeners(TCP6, byteorder="little")
    expected = [
        ("127.0.0.1", 8080, 111),
        ("0.0.0.0", 80, 222),
        ("::1", 8081, 444),
        ("::ffff:127.0.0.1", 8082, 555),
    ]
    assert found == [(ipaddress.ip_address(text), port, inode, 0) for text, port, inode in expected]
    big = TCP.replace("0100007F:1F90 00000000", "7F000001:1F90 00000000")
    assert parse_listeners(big, byteorder="big")[0] == found[0]
    assert parse_listeners("", byteorder="little") == []


def test_a_listener_covers_its_address_or_all() -> None:
    found = parse_listeners(TCP, byteorder="little") + parse_listeners(TCP6, byteorder="little")
    local, wild, local6, mapped = found
    here, there = ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("192.0.2.1")
    assert local.covers(here, 8080)
    assert not local.covers(there, 8080)
    assert not local.covers(here, 80)
    assert wild.covers(there, 80)
    assert not wild.covers(ipaddress.ip_address("::1"), 80)
    assert local6.covers(ipaddress.ip_address("::1"), 8081)
    assert mapped.covers(here, 8082)


def test_links_to_sockets_are_read() -> None:
    assert parse_socket_link("socket:[42]") == 42
    assert parse_socket_link("pipe:[42]") is None


def test_a_url_becomes_an_address_and_a_path() -> None:
    for url, *parts in (
        ("http://127.0.0.1:8080/a/b?c=d&e", "127.0.0.1", 8080, "127.0.0.1:8080", "/a/b?c=d&e"),
        ("http://127.0.0.1", "127.0.0.1", 80, "127.0.0.1", "/"),
        ("http://[::1]:81/x", "::1", 81, "[::1]:81", "/x"),
        ("http://localhost/ä b%20c#part", "127.0.0.1", 80, "localhost", "/%C3%A4%20b%20c"),
        ('http://127.0.0.1/"<\\>\x1b', "127.0.0.1", 80, "127.0.0.1", "/%22%3C%5C%3E%1B"),
    ):
        place = resolve_url(url)
        target = place.target
        assert [target.address, target.port, target.host, place.path] == parts, url


def test_a_url_that_would_lose_a_character_is_refused() -> None:
    taken = []
    for url in ("{}a\nb", "{}a\r", "{}\ta", "\n{}a", " {}a", "{}a?b\rc"):
        with contextlib.suppress(UsageError):
            resolve_url(url.format("http://127.0.0.1/"))
            taken.append(url)
    assert taken == []
    with pytest.raises(UsageError, match="is not a URL: it has a line break, a tab"):
        resolve_url("http://127.0.0.1/a\nb")


def _plan() -> LoadPlan:
    place = resolve_url("http://127.0.0.1:8080/")
    return plan_load(place.target, place.path, Load(rate=OfferedRate((50.0,)), duration_seconds=1))


def test_what_is_permitted_comes_from_the_caller_alone() -> None:
    plan = permit_target(_plan(), allow_targets=["192.0.2.1"], allow_live=False)
    assert (plan.permit.ports, plan.permit.live) == ([], False)
    assert plan.permit.hosts == ["192.0.2.1"]
    assert plan.abort_error_ratio == 0.2
    own = msgspec.structs.replace(_plan(), permit=Permit(live=True, ports=[8080], hosts=["::1"]))
    assert permit_target(own, allow_targets=[], allow_live=False).permit == Permit()
    with pytest.raises(UsageError, match="nowhere"):
        permit_target(_plan(), allow_targets=["nowhere.invalid"], allow_live=False)


def _latency(count: int, *values: float) -> Latency:
    p50, p90, p99, p999, top = values
    return Latency(count=count, mean=p50, stdev=0, p50=p50, p90=p90, p99=p99, p999=p999, max=top)


MEASUREMENT = Measurement(
    seed=3,
    duration_seconds=10,
    classes={
        "hot": ClassMeasurement(
            requests=20_000,
            requests_per_second=2000,
            bytes_per_second=3 << 20,
            intended=20_000,
            statuses={"200": 20_000},
            response_seconds=_latency(20_000, 1e-3, 2e-3, 3e-3, 4e-3, 5e-3),
            ttfb_seconds=_latency(20_000, 1e-4, 2e-4, 3e-4, 4e-4, 5e-4),
            service_seconds=_latency(20_000, 1e-5, 2e-5, 3e-5, 4e-5, 5e-5),
        ),
        "cold\x1b[2J": ClassMeasurement(
            requests=150,
            requests_per_second=15,
            bytes_per_second=1 << 30,
            intended=192,
            truncated=12,
            censored=20,
            censored_from_seconds=2.5,
            errors={"empty": 2, "truncated": 10, "status": 10},
            statuses={"200": 160, "404": 10},
            response_seconds=_latency(170, 1, 2.6, 7, 8, 9),
            at_cap=40,
            max_pending=30,
            retried=2,
            stray=1,
        ),
    },
    generator=Generator(
        cpu_seconds=1,
        cpu_ratio=0.1,
        lateness_seconds=_latency(20_000, 2e-5, 3e-5, 4e-4, 5e-4, 6e-4),
        max_rss_bytes=3 << 20,
    ),
    flags=["censored: cold: 20 of 192 arrivals were unanswered at the end"],
)


def test_all_of_them_is_a_hundred_percent() -> None:
    item = ClassMeasurement(intended=60, errors={"parse": 60})
    text = plain_text(measured_screen(Measurement(classes={"c": item})))
    assert "c: 60 of 60 requests (100 %) failed" in text


def test_the_report_shows_what_was_measured_and_no_more() -> None:
    text = plain_text(measured_screen(MEASUREMENT))
    lines = text.splitlines()
    assert "\x1b" not in text
    assert lines[0] == "hot: 2,000 good responses/s, median 1 ms, p99 3 ms, none failed"
    assert "42 of 192 requests (22 %) failed or were not finished" in lines[2]
    assert "counted as slowest they would make up p90, p99, p99.9" in lines[2]
    words = [line.split() for line in lines]
    assert ["cold\\x1b[2J", "150", "15/s", "1.0", "GiB/s", "22", "20"] in words
    # From the age of the youngest unfinished request on, a value is a lower bound.
    cold = "cold\\x1b[2J,last byte,≥ 1.00 s,1.00 s,≥ 2.60 s,≥ 7.00 s,≥ 8.00 s,≥ 9.00 s"
    assert cold.replace(",", " ").split() in words
    for said in ("10 cut short", "2 closed without a reply", "statuses 160 × 200, 10 × 404",
                 "40 of 192 waited for a free connection, up to 30 at once"):  # fmt: skip
        assert f"cold\\x1b[2J: {said}" in lines
