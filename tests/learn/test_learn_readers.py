"""What the executable counts of the lines of a log, whole, odd or damaged.

The counts of damaged lines are those of a second reader, in Python, that gave the same tallies
(the time in flight without lines far in time from all others, which count now).
"""

import random

import msgspec
import pytest
from fuzzing import changed, fuzzed
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import each_row
from synthetic_logs import FULL, Truth, lines_of
from tiers import draws

from nginx_tune.decide.workload.learnt import learnt_workload, manifest_of
from nginx_tune.decide.workload.log_format import COMBINED, json_format, parse_log_format
from nginx_tune.documents.base import encode
from nginx_tune.documents.learning import LearnPlan, LineFormat, LogReading, Tally, encode_manifest
from nginx_tune.documents.workload import HttpVersion, Workload
from nginx_tune.observe.access_logs import LogFrame, read_frames

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


def reading_of(data: bytes, form: LineFormat, *, chunk: int = 1 << 20) -> LogReading:
    plan = LearnPlan(format=form, most_requests=50, most_places=40, keeps_paths=True)
    blocks = (data[at : at + chunk] for at in range(0, len(data), chunk))
    return read_frames([LogFrame("L", b""), *(LogFrame("B", block) for block in blocks)], plan)


def read(data: bytes, form: LineFormat, *, chunk: int = 1 << 20) -> LogReading:
    """What is read, which is the same whatever comes at once."""
    whole, parts = reading_of(data, form), reading_of(data, form, chunk=chunk)
    assert encode(parts) == encode(whole)
    counts = tally(whole).counts
    assert counts.lines == counts.requests + sum(counts.refused.values())
    return whole


def tally(reading: LogReading) -> Tally:
    return msgspec.json.decode(reading.tally, type=Tally)


def learnt(data: bytes, form: LineFormat) -> Workload:
    reading = reading_of(data, form)
    return learnt_workload(
        tally(reading), reading.timeline, reading.popularity, LearnPlan(format=form)
    )


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
LINES = {name: (line + "\n").encode() * 3 for name, line in GOOD.items()}


@fuzzed
@settings(max_examples=draws(20, 100))
@given(st.sampled_from(sorted(LINES)).flatmap(
    lambda name: st.tuples(st.just(name), changed([LINES[name]]))))  # fmt: skip
def test_any_bytes_are_lines_of_a_log(drawn: tuple[str, bytes]) -> None:
    name, data = drawn
    plan = LearnPlan(format=FORMATS[name])
    reading = read(data, FORMATS[name], chunk=37)
    encode(learnt_workload(tally(reading), reading.timeline, reading.popularity, plan))
    encode_manifest(*manifest_of(tally(reading), reading.timeline, plan))


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
    workload = learnt(data, parse_log_format(text))
    assert workload.log is not None
    assert workload.log.requests == len(heads)
    version = workload.http_version
    assert (version.value, version.shares, version.provenance) == (value, shares, "learnt")


def test_how_far_clients_are_is_learnt_from_the_kernels_round_trip_time() -> None:
    form = parse_log_format('$tcpinfo_rtt "$request_uri" $status')
    times = [*range(1_000, 101_000, 1_000), 0, 120_000_001, "-", "x", "-5", "9" * 30]
    data = "".join(f'{time} "/v" 200\n' for time in times).encode()
    trip = learnt(data, form).round_trip
    assert (trip.source, trip.provenance) == ("$tcpinfo_rtt of 100 requests", "learnt")
    assert trip.p50_seconds == pytest.approx(0.05, rel=1 / 32)
    assert trip.p90_seconds == pytest.approx(0.09, rel=1 / 32)
    assert trip.p99_seconds == pytest.approx(0.099, rel=1 / 32)


def test_a_log_without_round_trips_leaves_them_unknown() -> None:
    workload = learnt(GOOD["combined"].encode(), FORMATS["combined"])
    assert workload.round_trip.p90_seconds is None


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


@each_row(
    "name, request, counted",
    [
        ("combined", (1795199194000, 0, 1, 1, None, "", "/a%20b"), "GET 200 1.1"),
        ("full", (1790000000075, 74, 52118, 52118, None, "", "/files/694.bin"),
         "GET 200 1.1 TLSv1.3 HIT"),
        ("everything", (1795202794000, 1250, 1000, 5000, (100, 1099), "a.example", "/v.mp4"),
         "GET 206 2 tls MISS"),
        ("json", (1790000000123, 10, 17, 17, None, "a.example", '/\u00e4"x'), "GET 200 1.1"),
        ("any-json", (1795202794500, 0, 5, 5, None, "", "/x"), "200"),
        ("uri", (1790000000123, 0, 17, 17, None, "", "/a"), "200"),
        ("http3", (1790000000123, 0, 17, 17, None, "", "/v"), "200 3"),
        ("no-time", (0, 0, 3, 3, None, "", "/"), "GET 200 1.0"),
    ],
)  # fmt: skip
def test_a_line(name: str, request: tuple[object, ...], counted: str) -> None:
    reading = read(GOOD[name].encode(), FORMATS[name])
    ((_, one),) = reading.places.requests
    assert request == (
        one.end, one.duration, one.sent, one.size, one.range, one.server, one.path,
    )  # fmt: skip
    found = tally(reading).counts
    counts = (found.methods, found.statuses, found.protocols, found.tls, found.cache_statuses)
    assert " ".join(str(key) for count in counts for key in count) == counted
    assert found.sent_bytes == found.data_bytes == one.sent
    assert found.busy_milliseconds == one.duration


@each_row(
    "name, requests, refused",
    [
        ("combined", 9, "bytes 1, empty 2, format 20, status 1, time 1, too_long 2"),
        ("full", 4, "empty 2, format 28, too_long 2"),
        ("everything", 4, "empty 2, format 28, too_long 2"),
        ("json", 4, "empty 2, format 21, time 7, too_long 2"),
        ("any-json", 7, "bytes 2, empty 2, format 21, time 2, too_long 2"),
        ("uri", 4, "empty 2, format 28, too_long 2"),
        ("http3", 4, "empty 2, format 16, time 12, too_long 2"),
        ("no-time", 4, "empty 2, format 28, too_long 2"),
    ],
)
def test_lines_nobody_wrote_well(name: str, requests: int, refused: str) -> None:
    good = GOOD[name].encode()
    lines = [good, *HOSTILE, *(line.encode() for line in GOOD.values()), good + b"\r", good]
    reading = read(b"\n".join(lines), FORMATS[name], chunk=1000)
    counts = tally(reading).counts
    assert counts.requests == requests
    assert ", ".join(f"{why} {count}" for why, count in counts.refused.items()) == refused
    assert reading.first_lines["empty"] == [(0, 2), (0, 3)]
    assert reading.first_lines["too_long"] == [(0, 6), (0, 7)]


@each_row(
    "name, requests, unreadable, data, sent_bytes, partial, objects, busy_milliseconds",
    [
        ("combined", 1331, 62, 1208, 1349, 2, 79, 0),
        ("full", 2131, 58, 2016, 112094744, 0, 187, 7858050),
        ("everything", 2185, 0, 2101, 2187170, 2101, 140, 26977491),
        ("json", 1471, 48, 1368, 24829, 0, 163, 32307),
        ("any-json", 935, 0, 870, 4496, 1, 9, 0),
        ("uri", 1295, 0, 1200, 23804, 1, 56, 0),
        ("http3", 1311, 0, 1239, 23215, 0, 38, 0),
        ("no-time", 1849, 349, 1256, 5530, 0, 250, 0),
    ],
)
def test_damaged_lines(
    name: str, requests: int, unreadable: int, data: int, sent_bytes: int, partial: int,
    objects: int, busy_milliseconds: int,
) -> None:  # fmt: skip
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
    reading = read(b"\n".join(lines), FORMATS[name], chunk=4096)
    found, known = tally(reading), reading.popularity.known
    counts = found.counts
    assert (counts.requests, counts.unreadable_requests) == (requests, unreadable)
    assert (counts.data_requests, counts.sent_bytes) == (data, sent_bytes)
    assert (counts.partial_requests, sum(row[1] for row in known)) == (partial, objects)
    assert counts.busy_milliseconds == busy_milliseconds
