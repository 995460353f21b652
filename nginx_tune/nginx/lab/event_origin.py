"""Streams of events at a known pace, as the lab's origin sends them."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import parse_qs

from nginx_tune.documents.lab import LabEvents
from nginx_tune.nginx.lab.event_text import EventText

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
_CHUNKED = b"Transfer-Encoding: chunked\r\n"
_CLOSE = b"Connection: close\r\n"
_UNBUFFERED = b"X-Accel-Buffering: no\r\n"


async def stream_events(
    events: LabEvents, query: str, *, may_chunk: bool, seed: int, writer: asyncio.StreamWriter
) -> bool:
    """Answer a request with a stream; whether the connection may be kept.

    An event is stamped as it is written, at its time: a client that reads slowly makes none late
    but those behind a full socket.
    """
    asked = parse_qs(query)
    is_chunked = may_chunk and asked.get("framing") != ["close"]
    unbuffered = _UNBUFFERED if asked.get("buffering") == ["no"] else b""
    writer.write(_HEAD + unbuffered + (_CHUNKED if is_chunked else _CLOSE) + b"\r\n")
    clock = asyncio.get_running_loop().time
    text, started = EventText(events.event_bytes, seed), clock()
    for number in range(events.count):
        await asyncio.sleep(max(0.0, started + number / events.per_second - clock()))
        event = text.event(time.monotonic_ns())
        writer.write(_chunk(event) if is_chunked else event)
        await writer.drain()
    last = text.last()
    writer.write(_chunk(last) + b"0\r\n\r\n" if is_chunked else last)
    await writer.drain()
    return is_chunked


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)
