"""The WebSockets of the lab's origin: echoes at a known delay, which stand still at known times."""

from __future__ import annotations

import asyncio
import contextlib

from nginx_tune.documents.lab import LabEcho
from nginx_tune.lab.websocket_frames import CLOSE, FrameReader, echo_of, switching

_READ_BYTES = 64 << 10
_IDLE_SECONDS = 600.0


def echo_moment(echo: LabEcho, came: float) -> float:
    """When a message is echoed that came then, both in seconds since the origin's start; pure.

    It is due after the delay. Where that falls into a stall, the last ``stall_seconds`` of every
    ``stall_every_seconds``, it is echoed at the stall's end.
    """
    due = came + echo.delay_seconds
    if not echo.stall_seconds:
        return due
    every = echo.stall_every_seconds
    inside = due % every
    return due if inside < every - echo.stall_seconds else due - inside + every


async def serve_echo(
    echo: LabEcho,
    head: bytes,
    started: float,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Agree to an opening and echo until the client leaves; ``started`` by the loop's clock."""
    clock = asyncio.get_running_loop().time
    writer.write(switching(head))
    frames = FrameReader()
    queue: asyncio.Queue[tuple[float, bytes] | None] = asyncio.Queue()
    sender = asyncio.create_task(_send(queue, writer))
    is_open = True
    try:
        while is_open and not sender.done():
            data = await asyncio.wait_for(reader.read(_READ_BYTES), _IDLE_SECONDS)
            came = clock() - started
            is_open = bool(data)
            for frame in frames.feed(data):
                queue.put_nowait((started + echo_moment(echo, came), echo_of(frame)))
                is_open = is_open and frame.opcode != CLOSE
        queue.put_nowait(None)
        with contextlib.suppress(ConnectionError):
            await sender
    except ValueError:  # no client of WebSocket
        pass
    finally:
        sender.cancel()


async def _send(
    queue: asyncio.Queue[tuple[float, bytes] | None], writer: asyncio.StreamWriter
) -> None:
    clock = asyncio.get_running_loop().time
    while (one := await queue.get()) is not None:
        moment, answer = one
        await asyncio.sleep(max(0.0, moment - clock()))
        writer.write(answer)
        await writer.drain()
