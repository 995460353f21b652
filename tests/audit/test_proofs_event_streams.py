"""The claim of the rule about event streams in HTTP/1.0, on real nginx."""

import contextlib
import socket
import threading
from pathlib import Path

import pytest
from nginx_versions import Nginx, every_version
from origin import Request, run_origin
from proving import fires
from rows import each_row
from scratch_nginx import Serve

from nginx_tune.audit.rule import linux

pytestmark = pytest.mark.needs("nginx", "root")

CONF = "worker_processes 1; events {} http { server { listen 127.0.0.1:PORT; %s } }"
HELD_SECONDS = 1.0


@every_version
@each_row(
    ("lines", "is_held", "is_told"),
    [
        ("", True, True),
        ("proxy_http_version 1.0;", True, True),
        ("proxy_http_version 1.1;", False, False),
        ("proxy_buffering off;", False, False),
        ("add_header X-Accel-Buffering no;", True, True),
        ("proxy_set_header X-Accel-Buffering no;", True, True),
        # What the server itself says is seen in no configuration.
        ("proxy_set_header X-Ask unbuffered;", False, True),
    ],
)
def test_px_event_stream_http10_holds_events_back(
    serve: Serve, nginx: Nginx, lines: str, *, is_held: bool, is_told: bool
) -> None:
    """A server that answers HTTP/1.1 in chunks, HTTP/1.0 up to the end of the connection."""
    if nginx.number >= (1, 29, 7) and "proxy_http_version" not in lines:
        is_held = is_told = False  # it asks for HTTP/1.1 by itself
    done = threading.Event()

    def answer(request: Request, peer: socket.socket) -> None:
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
        if "X-Ask: unbuffered" in request.head:
            head += "X-Accel-Buffering: no\r\n"
        event = "data: first\n\n"
        if request.head.splitlines()[0].endswith("HTTP/1.1"):
            head += "Transfer-Encoding: chunked\r\n"
            event = f"{len(event):x}\r\n{event}\r\n"
        peer.sendall(f"{head}\r\n{event}".encode())
        done.wait(60)

    with run_origin(answer) as origin:
        server = serve(
            CONF % f"location /sse {{ proxy_pass http://127.0.0.1:{origin.port}; {lines} }}"
        )
        data = b""
        with server.connect(timeout=HELD_SECONDS if is_held else 30) as peer:
            peer.sendall(b"GET /sse HTTP/1.1\r\nHost: x\r\n\r\n")
            with contextlib.suppress(TimeoutError):
                while b"first" not in data and (part := peer.recv(65536)):
                    data += part
        done.set()
    assert (b"first" not in data) is is_held
    assert fires("px-event-stream-http10", server.conf, linux(version=nginx.version)) is is_told


@each_row(
    ("location", "is_told"),
    [
        ("/v1/chat/completions", True),
        ("= /api/sse", True),
        ("~ ^/event-stream/", True),
        ("/events/", False),  # a calendar has such too
        ("/assets/", False),
        ("/", False),
    ],
)
def test_only_a_path_that_says_so_is_taken_for_a_stream(
    tmp_path: Path, location: str, *, is_told: bool
) -> None:
    conf = tmp_path / "nginx.conf"
    text = CONF % f"location {location} {{ proxy_pass http://127.0.0.1:81; }}"
    conf.write_text(text.replace("PORT", "8080"))
    assert fires("px-event-stream-http10", conf, linux(version="1.22.1")) is is_told
    assert not fires("px-event-stream-http10", conf, linux(version="1.30.0"))
