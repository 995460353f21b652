"""A server of known behaviour for requests with bodies: says its port and serves until killed.

What it does with a body is in the path. It checks every byte that it takes against the text that
the probe makes, by its place.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys

PERIOD = 1 << 16
TEXT = bytes(((place * 0x9E3779B1) & 0xFFFFFFFF) >> 24 for place in range(PERIOD))
CUT_BYTES = 100_000

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def says(status: str, *fields: str) -> bytes:
    lines = (f"HTTP/1.1 {status}", "Content-Length: 0", *fields)
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


def is_text(body: bytes) -> bool:
    return body == (TEXT * (len(body) // PERIOD + 1))[: len(body)]


async def take(head: bytes, reader: asyncio.StreamReader) -> tuple[bytes, list[int]]:
    """The body of a request, and the chunks that it came in."""
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
    if b"content-length" in fields:
        assert b"transfer-encoding" not in fields
        return await reader.readexactly(int(fields[b"content-length"])), []
    body, chunks = b"", []
    while True:
        size = int((await reader.readuntil(b"\r\n")).strip(), 16)
        body += (await reader.readexactly(size + 2))[:-2]
        chunks.append(size)
        if size == 0:
            return body, chunks


def reset(writer: asyncio.StreamWriter) -> None:
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


async def answer(path: str, head: bytes, streams: Streams) -> bool:
    """Answer a request; whether another may follow."""
    reader, writer = streams
    expects = b"expect: 100-continue" in head.lower()
    if path == "/refuse":  # before any of the body is read, and reads none of it
        writer.write(says("413 Content Too Large", "Connection: close"))
        await writer.drain()
        await asyncio.sleep(0.3)
        return False
    if path == "/reset-after-refusal":  # the answer comes, and then a reset
        await reader.readexactly(CUT_BYTES)
        writer.write(says("413 Content Too Large", "Connection: close"))
        await writer.drain()
        await asyncio.sleep(0.05)
        reset(writer)
        return False
    if path in {"/reset", "/close"}:
        await reader.readexactly(CUT_BYTES)
        if path == "/reset":
            reset(writer)
        return False
    if path == "/mute":
        await asyncio.sleep(60)
    if path == "/continue":
        assert expects
        await asyncio.sleep(0.2)
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if path == "/unwanted":
        assert expects
        writer.write(says("417 Expectation Failed", "Connection: close"))
        await writer.drain()
        # What comes after that was not wanted.
        got = await reader.read(1)
        os.write(1, b"unwanted\n" if got else b"nothing\n")
        return False
    body, chunks = await take(head, reader)
    count = len(body) - (1 if path == "/short" else 0)
    fine = is_text(body) and (path != "/chunked" or (len(chunks) > 1 and chunks[-1] == 0))
    fields = [] if path == "/silent" else [f"X-Upload-Bytes: {count}"]
    writer.write(says("200 OK" if fine else "500 Other Bytes", *fields))
    await writer.drain()
    return True


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ")[1].decode()
            if not await answer(path, head, (reader, writer)):
                break
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    writer.close()


async def main(unix: str | None) -> None:
    if unix is None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        said = server.sockets[0].getsockname()[1]
    else:
        server = await asyncio.start_unix_server(serve, unix)
        said = 0
    os.write(1, f"{said}\n".encode())
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else None))
