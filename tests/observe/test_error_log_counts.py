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
