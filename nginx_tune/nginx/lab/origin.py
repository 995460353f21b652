"""The slow origin behind nginx: a small HTTP/1.1 server with a delay, a rate and a bound.

Its objects are made up from their names, the same bytes in every run, and cost no disk: what is
slow about it is what the lab says. It answers GET and HEAD, keeps connections, and lets at most
so many requests move at once; others wait their turn, as behind a real application. An object has
an ETag, and whoever names it is told that nothing changed. ``/events`` streams at a known pace,
``/uploads`` takes bodies, counts them to the last byte and throws them away.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
import time
import zlib
from collections.abc import Mapping
from urllib.parse import parse_qs

import msgspec

from nginx_tune.documents.lab import EVENTS_PATH, UPLOADS_PATH, LabEvents, LabOrigin
from nginx_tune.nginx.lab.check import EventText

_BLOCK_BYTES = 1 << 20
_PIECE_BYTES = 32 << 10
_MOST_HEADER_BYTES = 16 << 10
_IDLE_SECONDS = 60.0
_CACHE_CONTROL = b"Cache-Control: max-age=3600"
_FOUND = (
    b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nContent-Type: application/octet-stream\r\n"
    b"%s\r\nETag: %s\r\n\r\n"
)
_NOT_MODIFIED = b"HTTP/1.1 304 Not Modified\r\n%s\r\nETag: %s\r\n\r\n"
_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_UPLOAD_METHODS = frozenset({"POST", "PUT"})


class OriginRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The only argument that the process is started with, as JSON."""

    address: str
    origin: LabOrigin
    seed: int


def origin_objects(origin: LabOrigin) -> dict[str, int]:
    """Path and bytes of every object; pure."""
    return {f"/f{index:05d}.bin": origin.file_bytes for index in range(origin.files)}


class Origin:
    """The server; the process says its port on standard output once it listens."""

    def __init__(self, request: OriginRequest) -> None:
        self._origin = request.origin
        self._objects: Mapping[str, int] = origin_objects(request.origin)
        self._streams = request.seed
        self._turns = asyncio.Semaphore(request.origin.connections)
        block = random.Random(request.seed).randbytes(_BLOCK_BYTES)  # noqa: S311  # only data
        self._block = block + block[:_PIECE_BYTES]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, request by request."""
        with contextlib.suppress(
            ConnectionError, asyncio.IncompleteReadError, asyncio.TimeoutError
        ):
            while await self._answer(reader, writer):
                pass
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer a request; true when another may follow."""
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _IDLE_SECONDS)
        except asyncio.LimitOverrunError:
            writer.write(_BAD_REQUEST)
            return False
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or words[0] not in {"GET", "HEAD", *_UPLOAD_METHODS}:  # noqa: PLR2004
            writer.write(_BAD_REQUEST)
            return False
        path, _, query = words[1].partition("?")
        if words[0] in _UPLOAD_METHODS:
            kept = path == UPLOADS_PATH and await take_upload(head, reader, writer)
            if path != UPLOADS_PATH:
                writer.write(_BAD_REQUEST)
            return kept and words[2] != "HTTP/1.0"
        if path == EVENTS_PATH and words[0] == "GET":
            # For as long as it lasts: it takes nobody's turn.
            self._streams += 1
            kept = await stream_events(
                self._origin.events,
                query,
                may_chunk=words[2] != "HTTP/1.0",
                seed=self._streams,
                writer=writer,
            )
            return kept and b"\r\nconnection: close\r\n" not in head.lower()
        size = self._objects.get(path)
        async with self._turns:
            await asyncio.sleep(self._origin.delay_seconds)
            if size is None:
                writer.write(_NOT_FOUND)
            elif _tag(words[1]) in head:  # in no other field than If-None-Match
                writer.write(_NOT_MODIFIED % (_CACHE_CONTROL, _tag(words[1])))
            else:
                await self._send(words, size, writer)
            await writer.drain()
        return b"\r\nconnection: close\r\n" not in head.lower() and words[2] != "HTTP/1.0"

    async def _send(self, words: list[str], size: int, writer: asyncio.StreamWriter) -> None:
        writer.write(_FOUND % (size, _CACHE_CONTROL, _tag(words[1])))
        if words[0] == "HEAD":
            return
        place = zlib.crc32(words[1].encode("latin-1")) % _BLOCK_BYTES
        clock = asyncio.get_running_loop().time
        started = clock()
        sent = 0
        while sent < size:
            length = min(_PIECE_BYTES, size - sent)
            writer.write(self._block[place : place + length])
            place = (place + length) % _BLOCK_BYTES
            sent += length
            await writer.drain()
            if self._origin.bytes_per_second is not None:
                due = started + sent / self._origin.bytes_per_second
                await asyncio.sleep(max(0.0, due - clock()))


def _tag(path: str) -> bytes:
    """The ETag of a path's object, which never changes."""
    return b'"%08x"' % zlib.crc32(path.encode("latin-1"))


_BODY_PIECE_BYTES = 256 << 10
_LONGEST_LINE_BYTES = 64
_TAKEN = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Upload-Bytes: %d\r\n\r\n"


async def take_upload(
    head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    """Take the body of a request and answer; true when the connection may be kept.

    Errors: IncompleteReadError where it ends inside: that was no upload, and has no answer.
    """
    fields = _fields(head)
    try:
        if fields.get(b"transfer-encoding", b"").lower() == b"chunked":
            count = await _take_chunks(reader)
        else:
            count = int(fields.get(b"content-length", b"0"))
            await _skip(reader, count)
    except ValueError:
        writer.write(_BAD_REQUEST)
        return False
    writer.write(_TAKEN % count)
    await writer.drain()
    return fields.get(b"connection", b"").lower() != b"close"


def _fields(head: bytes) -> dict[bytes, bytes]:
    """The header fields by their names in lower case."""
    lines = (line.partition(b":") for line in head.split(b"\r\n")[1:])
    return {name.strip().lower(): value.strip() for name, _, value in lines}


async def _take_chunks(reader: asyncio.StreamReader) -> int:
    """The length of a body in chunks. Errors: ValueError where a chunk has none."""
    total = 0
    while True:
        line = await reader.readuntil(b"\r\n")
        if len(line) > _LONGEST_LINE_BYTES:
            raise ValueError(line)
        size = int(line.partition(b";")[0], 16)
        await _skip(reader, size)
        if await reader.readexactly(2) != b"\r\n":
            raise ValueError(size)
        if size == 0:
            return total
        total += size


async def _skip(reader: asyncio.StreamReader, count: int) -> None:
    """Read past so many bytes. Errors: ValueError for a negative number, IncompleteReadError."""
    if count < 0:
        raise ValueError(count)
    left = count
    while left:
        piece = await reader.read(min(left, _BODY_PIECE_BYTES))
        if not piece:
            raise asyncio.IncompleteReadError(b"", left)
        left -= len(piece)


_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
_CHUNKED = b"Transfer-Encoding: chunked\r\n"
_CLOSE = b"Connection: close\r\n"
_UNBUFFERED = b"X-Accel-Buffering: no\r\n"


async def stream_events(
    events: LabEvents, query: str, *, may_chunk: bool, seed: int, writer: asyncio.StreamWriter
) -> bool:
    """Answer a request with a stream; true when the connection may be kept.

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


async def _serve(request: OriginRequest) -> None:
    server = await asyncio.start_server(
        Origin(request).serve,
        request.address,
        0,
        limit=_MOST_HEADER_BYTES,
        backlog=1024,
    )
    os.write(1, f"{server.sockets[0].getsockname()[1]}\n".encode())
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(msgspec.json.decode(sys.argv[1], type=OriginRequest)))
