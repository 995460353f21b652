"""The slow origin behind nginx: an HTTP/1.1 server with a delay, a rate and a limit.

Its objects are generated from their names without a disk, with the same bytes in every run. It
answers GET and HEAD and keeps connections open. It serves a limited number of requests at once
while others wait, as a real application does. Objects have ETags, and conditional requests get a
304.
"""

import asyncio
import contextlib
import os
import random
import sys
import zlib
from collections.abc import Mapping

import msgspec

from nginx_tune.documents.lab import LabOrigin

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


class OriginRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of the process, in JSON."""

    address: str
    origin: LabOrigin
    seed: int


def origin_objects(origin: LabOrigin) -> dict[str, int]:
    """The size in bytes of every object, by path; pure."""
    return {f"/f{index:05d}.bin": origin.file_bytes for index in range(origin.files)}


class Origin:
    """The server. The process prints its port once it listens."""

    def __init__(self, request: OriginRequest) -> None:
        self._origin = request.origin
        self._objects: Mapping[str, int] = origin_objects(request.origin)
        self._turns = asyncio.Semaphore(request.origin.connections)
        block = random.Random(request.seed).randbytes(_BLOCK_BYTES)  # noqa: S311  # only data
        self._block = block + block[:_PIECE_BYTES]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve the requests of a connection one by one."""
        with contextlib.suppress(
            ConnectionError, asyncio.IncompleteReadError, asyncio.TimeoutError
        ):
            while await self._answer(reader, writer):
                pass
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer a request; True if another may follow."""
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _IDLE_SECONDS)
        except asyncio.LimitOverrunError:
            writer.write(_BAD_REQUEST)
            return False
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or words[0] not in {"GET", "HEAD"}:  # noqa: PLR2004
            writer.write(_BAD_REQUEST)
            return False
        size = self._objects.get(words[1].partition("?")[0])
        async with self._turns:
            await asyncio.sleep(self._origin.delay_seconds)
            if size is None:
                writer.write(_NOT_FOUND)
            elif _tag(words[1]) in head:  # only If-None-Match contains a tag
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
    """The ETag of the object at a path; it never changes."""
    return b'"%08x"' % zlib.crc32(path.encode("latin-1"))


async def _serve(request: OriginRequest) -> None:
    server = await asyncio.start_server(
        Origin(request).serve, request.address, 0, limit=_MOST_HEADER_BYTES, backlog=1024
    )
    os.write(1, f"{server.sockets[0].getsockname()[1]}\n".encode())
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(msgspec.json.decode(sys.argv[1], type=OriginRequest)))
