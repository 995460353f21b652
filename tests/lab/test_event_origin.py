"""The origin's streams of events: their pace, size, framing and stamps."""

from __future__ import annotations

import re
import socket
import time
from itertools import pairwise

import pytest
from test_topologies import serving

from nginx_tune.documents.lab import Lab, LabEvents, LabOrigin
from nginx_tune.errors import UsageError
from nginx_tune.nginx.lab.check import LEAST_EVENT_BYTES, EventText, check_lab

EVENTS = LabEvents(per_second=100.0, event_bytes=200, count=20)


def ask(port: int, path: str, version: str) -> tuple[bytes, bytes, int]:
    """Head and body, and when the last byte came, by the clock of the stamps."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(
            f"GET {path} HTTP/{version}\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
        )
        said = b"".join(iter(lambda: client.recv(1 << 16), b""))
    head, _, body = said.partition(b"\r\n\r\n")
    return head, body, time.monotonic_ns()


def test_events_come_at_their_pace_and_say_when_they_were_sent() -> None:
    with serving(LabOrigin(events=EVENTS)) as port:
        started = time.monotonic_ns()
        head, body, ended = ask(port, "/events", "1.0")
    assert b"text/event-stream" in head
    assert b"chunked" not in head.lower()
    *events, last, rest = body.split(b"\n\n")
    assert (last, rest) == (b"data: [DONE]", b"")
    assert {len(event) + 2 for event in events} == {200}
    stamps = [int(found) for found in re.findall(rb'"sent_ns":(\d+)', body)]
    assert len(stamps) == 20
    assert started < stamps[0] < stamps[-1] < ended
    gaps = [(late - early) / 1e9 for early, late in pairwise(stamps)]
    # Never sooner than due; a busy machine only makes single events late.
    assert sum(gaps) / len(gaps) == pytest.approx(0.01, rel=0.25)


def test_the_framing_is_that_of_the_version_or_what_is_asked_for() -> None:
    with serving(LabOrigin(events=EVENTS)) as port:
        head, body, _ = ask(port, "/events", "1.1")
        assert b"Transfer-Encoding: chunked" in head
        assert body.startswith(b"c8\r\ndata: {")
        assert body.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        closing, body, _ = ask(port, "/events?framing=close", "1.1")
        assert b"chunked" not in closing
        assert body.startswith(b"data: {")
        for version in ("1.0", "1.1"):
            head, _, _ = ask(port, "/events?buffering=no", version)
            assert b"X-Accel-Buffering: no" in head
        assert b"X-Accel" not in closing


def test_the_words_of_a_stream_are_the_same_in_every_run() -> None:
    one, again, other = EventText(300, 1), EventText(300, 1), EventText(300, 2)
    assert one.event(7) == again.event(7) != other.event(7)
    least = EventText(LEAST_EVENT_BYTES, 1).event((1 << 63) - 1)
    assert len(least) == LEAST_EVENT_BYTES


def test_a_pace_that_cannot_be_is_refused() -> None:
    for events, said in (
        (LabEvents(per_second=0), "per_second"),
        (LabEvents(per_second=1001), "per_second"),
        (LabEvents(event_bytes=100), "event_bytes"),
        (LabEvents(count=0), "count"),
    ):
        with pytest.raises(UsageError, match=f"lab.origin.events.{said}"):
            check_lab(Lab(origin=LabOrigin(events=events)), "lab.")
