"""What an error log tells beside overflowing pools."""

from typing import get_args

from fuzzing import changed, fuzzed
from hypothesis import given
from rows import each_row

from nginx_tune.documents.log_messages import LOG_MESSAGES
from nginx_tune.documents.measured_server import ServerMeasurement
from nginx_tune.documents.observation import CauseId
from nginx_tune.observe.parse_counters import parse_error_log

AT = b"2026/11/20 14:23:40 "


def seen(*messages: bytes) -> list[tuple[str, str]]:
    """By the table: the id and the name of each message."""
    found = []
    for message in messages:
        counts = parse_error_log([AT + b"[crit] 7#7: *4 " + message])
        found += list(counts.messages) or [("", "")]
    return found


LINES = [
    AT + b"[crit] 7#7: *4 " + message
    for message in (
        b'open() "/srv/a" failed (24: Too many open files), client: 192.0.2.1',
        b'thread pool "default" queue overflow: 65536 tasks waiting',
        b'limiting requests, excess: 20.1 by zone "one", client: 192.0.2.1',
        b"1024 worker_connections are not enough",
        b"upstream timed out (110: Connection timed out) while reading, client: 192.0.2.1",
        b'ngx_slab_alloc() failed: no memory in cache keys zone "media"',
    )
]


@fuzzed
@given(changed([b"\n".join(LINES), *LINES]))
def test_any_bytes_of_a_log_are_counted(data: bytes) -> None:
    lines = data.split(b"\n")
    assert sum(parse_error_log(lines).levels.values()) <= len(lines)


END = (
    b' while connecting to upstream, client: 127.0.0.1, server: , request: "GET / HTTP/1.1", '
    b'upstream: "http://127.0.0.1:1/"'
)


@each_row(
    ("message", "id_", "name"),
    [
        (b'could not allocate node in cache keys zone "x"', "cache-keys-zone", "x"),
        (b'could not allocate node in limit_req zone "x"', "limit-req-zone", "x"),
        (b'ngx_slab_alloc() failed: no memory in limit_conn_zone "x"', "limit-conn-zone", "x"),
        ((b'could not allocate new session in SSL session shared cache "S" while SSL handshaking, '
         b"client: 127.0.0.1, server: 0.0.0.0:443"), "ssl-session-cache", "S"),
        (b'could not allocate new entry in OCSP cache "o"', "ssl-ocsp-cache", "o"),
        ((b'could not allocate node in sticky session zone "s", expiring least recently used '
         b"session"), "sticky-zone-full", "s"),
        (b'could not allocate node in sticky session zone "s"', "sticky-zone", "s"),
        (b'ngx_slab_alloc() failed: no memory in upstream zone "u"', "upstream-zone", "u"),
        (b'ngx_slab_alloc() failed: no memory in js shared zone "j"', "other-zone", "j"),
        (b"ngx_slab_alloc() failed: no memory", "unnamed-zone", ""),
        (b"connect() to 127.0.0.1:80 failed (99: Cannot assign requested address)" + END,
         "ports-used-up", "127.0.0.1:80"),
        (b"connect() to [::1]:80 failed (99: Cannot assign requested address)" + END,
         "ports-used-up-ipv6", "[::1]:80"),
        (b"bind(10.0.0.9) failed (98: Address already in use)" + END, "bound-ports-used-up",
         "10.0.0.9"),
        (b"bind(10.0.0.9) failed (99: Cannot assign requested address)" + END, "bind-not-ours",
         "10.0.0.9"),
        (b"bind() to 0.0.0.0:80 failed (98: Address already in use)", "", ""),
        (b"connect() to unix:/run/php.sock failed (11: Resource temporarily unavailable)" + END,
         "upstream-backlog", "unix:/run/php.sock"),
        (b"connect() to unix:/run/php.sock failed (13: Permission denied)" + END,
         "upstream-socket", "unix:/run/php.sock"),
        (b"connect() failed (111: Connection refused)" + END, "upstream-refused", ""),
        (b"connect() to 10.0.0.1:80 failed (101: Network is unreachable)" + END,
         "upstream-unreachable", ""),
        (b"upstream timed out (110: Connection timed out)" + END, "upstream-connect-timeout", ""),
        ((b"upstream timed out (110: Connection timed out) while sending request to upstream, "
         b"client: ::1"), "upstream-send-timeout", ""),
        (b"upstream timed out (110: Connection timed out) while reading upstream, client: ::1",
         "upstream-read-timeout", ""),
        (b"no live upstreams" + END, "no-live-upstreams", ""),
        (b"upstream prematurely closed connection while reading upstream, client: ::1",
         "upstream-closed", ""),
        (b"thread operation took too long, client: 127.0.0.1", "operation-too-slow", ""),
        ((b"upstream timed out (110: Connection timed out) while proxying upgraded connection, "
          b"client: ::1"), "upgraded-timeout", ""),
        (b"upstream sent too big header while reading response header from upstream, client: ::1",
         "upstream-header-too-big", ""),
        ((b"upstream sent no valid HTTP/1.0 header while reading response header from upstream, "
         b"client: ::1"), "upstream-invalid", ""),
        ((b"SSL_do_handshake() failed (SSL: error:0A000126:SSL routines::unexpected eof while "
         b"reading) while SSL handshaking to upstream, client: ::1"), "upstream-tls", ""),
        ((b"recv() failed (104: Connection reset by peer) while reading response header from "
         b"upstream, client: ::1"), "upstream-reset", ""),
        ((b'pwrite() "/c/1" failed (28: No space left on device) while reading upstream, client: '
         b"::1"), "no-space", ""),
        (b'pwritev() "/c/1" has written only 4096 of 8192 while reading upstream, client: ::1',
         "short-write", ""),
        (b'write() to "/var/log/a.log" was incomplete: 10 of 80 while logging request, client: ::1',
         "short-write", ""),
        (b"malloc(4096) failed (12: Cannot allocate memory)", "no-memory", ""),
        (b"worker process 12 exited on signal 11 (core dumped)", "worker-killed", "11"),
        ((b"an upstream response is buffered to a temporary file /c/1 while reading upstream, "
         b"client: ::1"), "response-spilled", ""),
        (b"a client request body is buffered to a temporary file /c/2, client: ::1",
         "body-spilled", ""),
        (b"app.example could not be resolved (3: Host not found), client: ::1", "not-resolved",
         "app.example"),
        (b"client intended to send too large body: 5000 bytes, client: ::1", "body-too-large", ""),
        (b"epoll_ctl(1, 77) failed (28: No space left on device)", "epoll-watches", ""),
        (b'fork() failed while spawning "worker process" (12: Cannot allocate memory)',
         "no-memory", ""),
        (b'could not open log: open() "/l" failed (28: No space left on device)', "no-space", ""),
        # An upstream or a script chooses what is quoted.
        ((b'FastCGI sent in stderr: "PHP message: fopen() failed (5: Input/output error)" while '
         b"reading response header from upstream, client: ::1"), "", ""),
        (b"[lua] a.lua:1: open() failed (28: No space left on device), client: ::1", "", ""),
        # A client chooses the name of a file.
        ((b'open() "/connect() to 1.1.1.1:1 failed (99: x) while connecting to upstream" failed '
         b"(2: No such file or directory), client: ::1"), "", ""),
    ],
)  # fmt: skip
def test_a_message_names_its_row(message: bytes, id_: str, name: str) -> None:
    assert seen(message) == [(id_, name)]


def test_every_row_adds_to_a_counter_and_names_a_cause_that_there_is() -> None:
    fields = set(ServerMeasurement.__struct_fields__)
    for row in LOG_MESSAGES:
        assert set(row.counts) <= fields, row.id
        assert row.counts, row.id
        assert row.cause in {"", *get_args(CauseId)}, row.id
        assert row.pattern or row.errors, row.id


def test_refused_connections_are_counted_by_the_limit_they_met() -> None:
    counts = parse_error_log(
        [
            AT + b"[alert] 7#7: 16 worker_connections are not enough",
            AT + b"[alert] 7#7: *3 16 worker_connections are not enough",
            AT + b"[alert] 9#9: 512 worker_connections are not enough",
            AT + b"[warn] 7#7: 16 worker_connections are not enough, reusing connections",
            AT + b"[emerg] 7#7: 1 worker_connections are not enough for 2 listening sockets",
            AT + b'[error] 7#7: *4 open() "/16 worker_connections are not enough" failed',
        ]
    )
    assert counts.by_name("connections_exhausted") == {"16": 2, "512": 1}
    assert counts.count("operations_too_slow") == 0


def test_calls_without_a_descriptor_are_counted() -> None:
    counts = parse_error_log(
        [
            AT + b"[crit] 7#7: accept4() failed (24: Too many open files)",
            AT + b"[alert] 7#7: *3 socket() failed (24: Too many open files) while connecting to "
            b'upstream, client: 127.0.0.1, server: , request: "GET / HTTP/1.1"',
            AT + b'[crit] 7#7: *3 open() "/a" failed (23: Too many open files in system), client: '
            b"127.0.0.1",
            AT + b'[error] 7#7: *3 open() "/failed (24: x" failed (2: No such file or directory), '
            b"client: 127.0.0.1",
            AT + b'[error] 7#7: *3 open() "/a" failed (2: No such file or directory), client: '
            b'127.0.0.1, request: "GET /?failed (24: HTTP/1.1"',
        ]
    )
    assert (counts.count("descriptors_exhausted"), counts.count("upstream_failures")) == (3, 0)


def test_what_limits_refuse_is_counted_and_no_other_text() -> None:
    request = b', client: 127.0.0.1, server: , request: "GET / HTTP/1.1", host: "a"'
    counts = parse_error_log(
        [
            AT + b'[error] 7#7: *4 limiting requests, excess: 5.920 by zone "z"' + request,
            AT + b'[warn] 7#7: *4 limiting requests, excess: 5.920 by zone "z"' + request,
            AT + b'[error] 7#7: *4 limiting connections by zone "c"' + request,
            AT + b'[warn] 7#7: *4 delaying request, excess: 0.920, by zone "z"' + request,
            AT + b'[error] 7#7: *4 limiting requests, dry run, excess: 5.920 by zone "z"' + request,
            AT + b'[error] 7#7: *4 limiting connections, dry run, by zone "c"' + request,
            AT + b'[error] 7#7: *4 open() "/limiting connections by zone " failed (2: No' + request,
        ]
    )
    assert counts.count("refused_by_limit") == 3
    assert counts.count("upstream_failures") == 0
