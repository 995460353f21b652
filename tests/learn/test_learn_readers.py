"""The executable and a reader in Python, its oracle, give the same tally of any bytes."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle_reader import tally_in_python
from rows import each_row
from synthetic_logs import FULL, Truth, lines_of

from nginx_tune.decide.workload.learnt import learnt_workload
from nginx_tune.decide.workload.log_format import COMBINED, json_format, parse_log_format
from nginx_tune.documents.base import encode
from nginx_tune.documents.learning import LearnPlan, LineFormat
from nginx_tune.documents.workload import HttpVersion
from nginx_tune.measure.load.probe import find_probe
from nginx_tune.observe.access_logs import tally_by

pytestmark = pytest.mark.needs("probe")

EVERYTHING = (
    '$server_name $remote_addr [$time_iso8601] "$request_method" "$request_uri" $server_protocol '
    '$status $bytes_sent "$http_range" "$sent_http_content_range" $gzip_ratio $request_time '
    "$connection $connection_requests $scheme $upstream_addr $upstream_response_time "
    "$upstream_cache_status $tcpinfo_rtt"
)
JSON = (
    '{"t":"$time_iso8601","m":"$msec","r":"$request","s":$status,"b":$body_bytes_sent,'
    '"rt":$request_time,"h":"$host","c":"$connection"}'
)
FORMATS: dict[str, LineFormat] = {
    "combined": parse_log_format(COMBINED),
    "full": parse_log_format(FULL),
    "everything": parse_log_format(EVERYTHING),
    "json": parse_log_format(JSON, escape="json"),
    "any-json": json_format(),
    "uri": parse_log_format("$msec|$uri$is_args$args|$status|$body_bytes_sent", escape="none"),
    "http3": parse_log_format('$msec $http3 "$request_uri" $status $body_bytes_sent'),
    "no-time": parse_log_format('"$request" $status $body_bytes_sent'),
}


def assert_alike(data: bytes, form: LineFormat, *, chunk: int = 1 << 20, **bounds: int) -> None:
    plan = LearnPlan(format=form, most_requests=50, most_places=40, keeps_paths=True, **bounds)

    def blocks() -> Iterable[bytes]:
        return (data[at : at + chunk] for at in range(0, len(data), chunk))

    slow = tally_in_python(iter(blocks()), plan)
    fast = tally_by(find_probe(), iter(blocks()), plan)
    assert encode(fast) == encode(slow)


def test_a_log() -> None:
    data = "".join(f"{line}\n" for line in lines_of(Truth(requests=20_000))).encode()
    assert_alike(data, FORMATS["full"])
    assert_alike(data, FORMATS["full"], chunk=777, most_objects=500, most_heavy=60)
    assert_alike(data, FORMATS["combined"], with_query=True)  # type: ignore[arg-type]


GOOD = {
    "combined": '192.0.2.1 - - [20/Nov/2026:19:26:34 +0100] "GET /a%20b?c=d HTTP/1.1" 200 1 "" ""',
    "full": next(iter(lines_of(Truth(requests=1)))),
    "everything": (
        'a.example 192.0.2.1 [2026-11-20T19:26:34+00:00] "GET" "/v.mp4" HTTP/2.0 206 1000 '
        '"bytes=100-1099" "bytes 100-1099/5000" - 1.250 7 3 https '
        "192.0.2.7:80, 192.0.2.8:80 : 192.0.2.9:80 0.001, 0.002 : 0.003 MISS 23456"
    ),
    "json": (
        '{"t":"2026-11-20T19:26:34+00:00","m":"1790000000.123","r":"GET /\\u00e4\\"x HTTP/1.1",'
        '"s":200,"b":17,"rt":0.010,"h":"A.example","c":"9"}'
    ),
    "any-json": '{"@timestamp":"2026-11-20T19:26:34.5Z","path":"/x","status":"200","bytes":5}',
    "uri": "1790000000.123|/a?b|200|17",
    "http3": '1790000000.123 h3 "/v" 200 17',
    "no-time": '"GET / HTTP/1.0" 200 3',
}
NOT_3 = HttpVersion().value
"""What is taken where nobody says which of the others it was."""
TOLD: dict[str, tuple[str, list[str], str, dict[str, float]]] = {
    "$http3 alone": (
        '$http3 "$request_uri" $status', ["h3", "h3", "-", "h3"], "3", {"3": 0.75, "other": 0.25}
    ),
    "most of them of who knows what": (
        '$http3 "$request_uri" $status', ["-", "h3", "-", "-"], NOT_3, {"3": 0.25, "other": 0.75}
    ),
    "$server_protocol, which knows all": (
        '$server_protocol $http3 "$request_uri" $status',
        ["HTTP/3.0 h3", "HTTP/2.0 -", "HTTP/2.0 -", "HTTP/1.1 -"],
        "2",
        {"1.1": 0.25, "2": 0.5, "3": 0.25},
    ),
    "the request itself": (
        '"$request" $http3 $status "$http_user_agent"',
        ['"GET /v HTTP/3.0" h3', '"GET /v HTTP/3.0" h3'],
        "3",
        {"3": 1.0},
    ),
}  # fmt: skip


@each_row("name", TOLD)
def test_who_speaks_http_3_is_told_by_its_variable_where_no_protocol_is_logged(name: str) -> None:
    text, heads, value, shares = TOLD[name]
    tail = ' 200 "-"' if '$request"' in text else ' "/v" 200'
    data = "".join(f"{head}{tail}\n" for head in heads).encode()
    plan = LearnPlan(format=parse_log_format(text))
    tally = tally_by(find_probe(), iter([data]), plan)
    assert encode(tally) == encode(tally_in_python(iter([data]), plan))
    assert tally.requests == len(heads)
    version = learnt_workload(tally, plan).http_version
    assert (version.value, version.shares, version.provenance) == (value, shares, "learnt")


def test_how_far_clients_are_is_learnt_from_the_kernels_round_trip_time() -> None:
    form = parse_log_format('$tcpinfo_rtt "$request_uri" $status')
    times = [*range(1_000, 101_000, 1_000), 0, 120_000_001, "-", "x", "-5", "9" * 30]
    data = "".join(f'{time} "/v" 200\n' for time in times).encode()
    plan = LearnPlan(format=form)
    tally = tally_by(find_probe(), iter([data]), plan)
    assert encode(tally) == encode(tally_in_python(iter([data]), plan))
    trip = learnt_workload(tally, plan).round_trip
    assert (trip.source, trip.provenance) == ("$tcpinfo_rtt of 100 requests", "learnt")
    assert trip.p50_seconds == pytest.approx(0.05, rel=1 / 32)
    assert trip.p90_seconds == pytest.approx(0.09, rel=1 / 32)
    assert trip.p99_seconds == pytest.approx(0.099, rel=1 / 32)


def test_a_log_without_round_trips_leaves_them_unknown() -> None:
    plan = LearnPlan(format=FORMATS["combined"])
    tally = tally_by(find_probe(), iter([GOOD["combined"].encode()]), plan)
    assert learnt_workload(tally, plan).round_trip.p90_seconds is None


HOSTILE = [
    b"",
    b"\r",
    b"\x00\xff\x1b[31m",
    b"x" * 65536,
    b"x" * 65537,
    b"x" * 300_000,
    b"{}",
    b"[]",
    b'{"t":',
    b"[" * 5_000,
    b'{"t":' * 5_000,
    b'{"path":"\\ud800","status":200,"time":"2026-11-20T00:00:00Z"}',
    b'{"path":"/\\ud83d\\ude00","status":200,"time":"2026-11-20T00:00:00Z"}',
    b'{"path":"/\xff","status":200,"time":1790000000.5,"size":1e3}',
    b'{"path":null,"path":"/b","status":200,"time":1790000000.5,"size":99999999999999999999}',
    b'{"path":{"a":1},"url":"/c","status":200,"time":"20/Nov/2026:00:00:00 -0000"} ',
    b' {"path" : "/d" , "status" : 200 , "time" : "2026-11-20 00:00:00+0000" }',
    b'1.1.1.1 - - [31/Nov/1969:25:61:61 +0000] "GET / HTTP/1.1" 200 1 "-" "-"',
    b'1.1.1.1 - - [20/Nov/2026:19:26:34 +0000] "\\x16\\x03\\x01" 400 1 "-" "-"',
    b'1.1.1.1 - - [20/Nov/2026:19:26:34 +0000] "GET /\\x22\\xZZ HTTP/1.1" 200 1 "-" "-" "more"',
    b'1.1.1.1 - - [20/Nov/2026:19:26:34 +0000] "GET http://h HTTP/1.1" 200 1 "-" "-"more',
    b'1.1.1.1 - - [20/Nov/2026:19:26:34 +0000] "GET http://h/a b#c?d HTTP/1.1" 206 - "-" "-"',
    b'1.1.1.1 - - [20/Nov/2126:19:26:34 +0000] "OPTIONS * HTTP/1.1" 000 0 "-" "-"',
    b'1.1.1.1 - - [20/Nov/2026:19:26:34 +0000] "GET / HTTP/1.1" 2x0 1 "-" "-"',
    b'1.1.1.1 - - [20/Nov/2026:19:26:34 +0000] "GET / HTTP/1.1" 200 1125899906842625 "-" "-"',
]


@each_row("name", FORMATS)
def test_lines_nobody_wrote_well(name: str) -> None:
    good = GOOD[name].encode()
    lines = [good, *HOSTILE, *(line.encode() for line in GOOD.values()), good + b"\r", good]
    assert_alike(b"\n".join(lines), FORMATS[name])
    assert_alike(b"\n".join(lines), FORMATS[name], chunk=1000)


@each_row("name", FORMATS)
def test_damaged_lines(name: str) -> None:
    chance = random.Random(name)
    good = GOOD[name].encode()
    lines = []
    for _ in range(3_000):
        line = bytearray(good)
        for _ in range(chance.randrange(4)):
            at = chance.randrange(len(line))
            match chance.randrange(3):
                case 0:
                    line[at] = chance.choice(b'0123456789 "\\/:.,-[]{}uxX\x00\xc3\xff')
                case 1:
                    del line[at]
                case 2:
                    line.insert(at, chance.choice(b'09 "\\/:.,-[]{}n'))
        lines.append(bytes(line).replace(b"\n", b""))
    assert_alike(b"\n".join(lines), FORMATS[name], chunk=4096)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 7_258_118_399), st.integers(0, 40), st.integers(0, 10_000_000),
            st.integers(1, 5),
        ),
        max_size=60,
    )
)  # fmt: skip
def test_any_times(stretches: list[tuple[int, int, int, int]]) -> None:
    """Times that jump to and fro, with durations up to hours."""
    form = parse_log_format("$msec $request_time $status $uri")
    lines = [
        f"{base + at * step}.{at:03} {duration / 1000:.3f} 200 /{at}"
        for base, count, duration, step in stretches
        for at in range(count)
    ]
    assert_alike("\n".join(lines).encode(), form)
