"""What an error log tells beside overflowing pools."""

from __future__ import annotations

from nginx_tune.observe.parse_error_log import parse_error_log

AT = b"2026/11/20 14:23:40 "


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
    assert counts.connections_exhausted == {"16": 2, "512": 1}
    assert counts.operations_too_slow == 0


def test_slow_operations_are_counted() -> None:
    line = AT + b"[alert] 7#7: *9 thread operation took too long, client: 127.0.0.1"
    assert parse_error_log([line, line, b"no line at all"]).operations_too_slow == 2


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
    assert (counts.descriptors_exhausted, counts.upstream_failures) == (3, 0)


def test_failing_upstreams_are_counted_whatever_the_words() -> None:
    end = b', client: 127.0.0.1, server: , request: "GET / HTTP/1.1", upstream: "http://[::1]:1/"'
    failures = [
        b"connect() failed (111: Connection refused) while connecting to upstream",
        (
            b"connect() to unix:/run/a failed (2: No such file or directory) while connecting to "
            b"upstream"
        ),
        (
            b"upstream timed out (110: Connection timed out) while reading response header from "
            b"upstream"
        ),
        (
            b"recv() failed (104: Connection reset by peer) while reading response header from "
            b"upstream"
        ),
        b"no live upstreams while connecting to upstream",
        b"upstream prematurely closed connection while reading response header from upstream",
        b"upstream prematurely closed connection while reading upstream",
    ]
    others = [
        b"upstream timed out (110: Connection timed out) while proxying upgraded connection",
        b"client intended to send too large body: 9 bytes",
        b'open() "/while connecting to upstream" failed (2: No such file or directory)',
    ]
    counts = parse_error_log([AT + b"[error] 7#7: *4 " + one + end for one in failures + others])
    assert counts.upstream_failures == len(failures)
    assert counts.descriptors_exhausted == 0


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
    assert counts.refused_by_limit == 3
    assert counts.upstream_failures == 0
