"""The parts around the probe that need no probe: listeners, URLs, the report."""

from __future__ import annotations

import contextlib
import ipaddress

import msgspec
import pytest

from nginx_tune.documents.loadplan import LoadPlan, Permit
from nginx_tune.documents.measured_class import ClassMeasurement, Latency
from nginx_tune.documents.measurement import Generator, Measurement
from nginx_tune.errors import UsageError
from nginx_tune.host.parse_network import parse_listeners, parse_socket_link
from nginx_tune.measure.load.one_class import Load, OfferedRate, plan_load
from nginx_tune.measure.load.target import permit_target, resolve_url
from nginx_tune.report.measurement import measured_screen, progress_text, unanswered_classes
from nginx_tune.report.screen import plain_text

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
    assert lines[1] == "cold\\x1b[2J: 15 good responses/s, median 1.00 s, p99 ≥ 7.00 s"
    assert lines[2] == (
        "cold\\x1b[2J: 42 of 192 requests (22 %) failed or were not finished; 20 without an answer "
        "in time count in the latencies with their age; 22 others are not in the latencies "
        "(counted as slowest they would make up p90, p99, p99.9)"
    )
    words = [line.split() for line in lines]
    assert ["hot", "20,000", "2,000/s", "3.0", "MiB/s", "0", "0"] in words
    assert ["cold\\x1b[2J", "150", "15/s", "1.0", "GiB/s", "22", "20"] in words
    hot = "hot,last byte,1 ms,1 ms,2 ms,3 ms,4 ms,5 ms"
    assert hot.replace(",", " ").split() in words
    first = "first byte,100 µs,100 µs,200 µs,300 µs,400 µs,500 µs"
    assert first.replace(",", " ").split() in words
    # From the age of the youngest unfinished request on, a value is a lower bound.
    cold = "cold\\x1b[2J,last byte,≥ 1.00 s,1.00 s,≥ 2.60 s,≥ 7.00 s,≥ 8.00 s,≥ 9.00 s"
    assert cold.replace(",", " ").split() in words
    assert "≥: some requests never finished, or exceeded their time limit" in lines
    assert "cold\\x1b[2J: 10 cut short" in lines
    assert "cold\\x1b[2J: 2 closed without a reply" in lines
    assert "cold\\x1b[2J: statuses 160 × 200, 10 × 404" in lines
    waited = "cold\\x1b[2J: 40 of 192 waited for one of the connections, 30 at once"
    assert waited in lines
    probe = "probe: 10 % of a CPU, late by 20 µs (p50), 400 µs (p99), 3.0 MiB of memory"
    assert probe in lines
    assert lines[4] == "degraded: censored: cold: 20 of 192 arrivals were unanswered at the end"
    assert lines[-1] == "10 s measured, seed 3"


def test_a_quantile_with_too_few_samples_beyond_it_is_not_shown() -> None:
    few = ClassMeasurement(requests=999, response_seconds=_latency(999, 1, 2, 3, 4, 5))
    text = plain_text(measured_screen(Measurement(classes={"c": few})))
    assert ["c", "last", "byte", "1.00", "s", "1.00", "s", "2.00", "s", "5.00", "s"] in [
        line.split() for line in text.splitlines()
    ]
    assert "–, p99, p99.9: fewer than 10 samples lie beyond it" in text


def test_classes_without_a_good_response_are_named() -> None:
    classes = {"good": ClassMeasurement(requests=1), "bad": ClassMeasurement(errors={"reset": 5})}
    assert unanswered_classes(Measurement(classes=classes)) == ["bad"]


def test_a_progress_line_is_said_in_words() -> None:
    line = {
        "second": 2,
        "classes": {
            "hot": {"requests": 1234, "errors": 0, "in_flight": 3, "pending": 0},
            "cold\n": {"requests": 1, "errors": 2, "in_flight": 3, "pending": 4},
        },
    }
    said = "hot 1,234/s; cold 1/s, 2 failed, 4 waiting"
    assert progress_text(line) == f"2 s: {said}"
    assert progress_text(line, warmup_seconds=1.5) == f"warm-up, 2 of 2 s: {said}"
    assert progress_text(line, warmup_seconds=1, duration_seconds=9) == f"1 of 9 s: {said}"
    late = progress_text(line, duration_seconds=1)
    assert late == f"waiting for the last answers: {said}"
