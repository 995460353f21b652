"""Bodies of requests as the lab's origin takes them: counted to the last byte, and thrown away.

The answer says how many came (``X-Upload-Bytes``), so that whoever sent them knows from the far
side whether all of it passed.
"""

from __future__ import annotations

import asyncio

UPLOAD_METHODS = frozenset({"POST", "PUT"})

_PIECE_BYTES = 256 << 10
_LONGEST_LINE_BYTES = 64
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Upload-Bytes: %d\r\n\r\n"
_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


async def take_upload(
    head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    """Take the body of a request and answer; whether the connection may be kept.

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
    writer.write(_ANSWER % count)
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
        piece = await reader.read(min(left, _PIECE_BYTES))
        if not piece:
            raise asyncio.IncompleteReadError(b"", left)
        left -= len(piece)
