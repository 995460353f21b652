"""Long connections to a server that is about to be changed, and the fate of each.

One thread with an event loop sends a few bytes per second on each connection until one side ends
it. If the server ends a connection, it counts as lost only if a request was in progress; an idle
one counts as closed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nginx_tune.documents.rehearsal import HeldConnections, HeldKind
from nginx_tune.experiment.held_requests import (
    ANSWER_SECONDS,
    READ_BYTES,
    EndedError,
    HeadOfAnswer,
    StaleError,
    connected,
    end_of,
    read_head,
    reason_of,
    request_again,
    request_first,
    request_head,
    request_once,
)
from nginx_tune.experiment.operations import HeldClient

if TYPE_CHECKING:
    from typing_extensions import Self


_PERIOD_SECONDS = 0.25
"""The interval of activity on a connection."""
_WRITE_BYTES = 1024
_ALIVE_BYTES = 32 << 20
"""More bytes than kernel buffers hold. A client that has read this many reads from a live
process."""
_EARLY_SECONDS = 0.7
"""The time for a server to refuse an upload before reading it."""
_SWITCHING = 101
_REFUSED = 400
_TOKEN = b"rehearsal-echo!\n"
_OPEN_SECONDS = 10.0
_RETRY_SECONDS = 0.15
"""Minimum time until an opening that a limit refused is tried again."""
_MOST_RETRIES = 30
_HURRY_SECONDS = 3.0
_ENDING: tuple[HeldKind, ...] = ("download", "silent")
"""Kinds that finish at full speed, since only this shows whether the connection is lost."""
_LOOK_SECONDS = 0.01
_MOST_CANCELS = 10
_CANCEL_SECONDS = 0.3


@dataclass
class ClientState:
    """A client and its state."""

    client: HeldClient
    is_open: bool = False
    opened_once: bool = False
    was_held: bool = False
    state: str = ""
    """The final state ``lost``, ``closed`` or ``finished``; empty while the connection is open."""
    why: str = ""
    reconnects: int = 0
    retried: int = 0
    hurries: bool = False
    """True to read to the end at full speed: buffers may still hold data of a server that ended."""
    is_settled: bool = False
    """True once it is known that the server still sends."""
    lost_at: list[float] = field(default_factory=list)


async def _idle(record: ClientState, is_open: Callable[[], None]) -> None:
    async with connected(record.client) as streams:
        await request_first(record.client, streams)
        is_open()
        while not await end_of(streams[0], None):
            pass
        raise EndedError("closed", lost=False)


async def _silent(record: ClientState, is_open: Callable[[], None]) -> None:
    """Connect and send nothing; at the end, make a request."""
    async with connected(record.client) as streams:
        is_open()
        while not record.hurries:
            if await end_of(streams[0], _PERIOD_SECONDS):
                raise EndedError("closed before its request", lost=True)
        await request_once(record.client, streams)


async def _keepalive(record: ClientState, is_open: Callable[[], None]) -> None:
    """Make requests, on a new connection after the old one was closed."""
    while True:
        try:
            async with connected(record.client) as streams:
                await request_first(record.client, streams)
                record.reconnects += record.opened_once
                is_open()
                while not await end_of(streams[0], _PERIOD_SECONDS):
                    await request_again(record.client, streams)
        except StaleError:
            record.retried += 1
        except EndedError as ended:
            if not record.opened_once:
                raise
            if ended.lost:
                record.why = ended.why
                record.lost_at.append(time.monotonic())
            else:  # a worker that is shutting down, or has keep-alive off
                record.reconnects += 1
                await asyncio.sleep(_PERIOD_SECONDS)
        except (OSError, asyncio.TimeoutError, ValueError) as error:
            if not record.opened_once:
                raise
            record.why = reason_of(error)
            record.lost_at.append(time.monotonic())
            await asyncio.sleep(_PERIOD_SECONDS)


async def _websocket(record: ClientState, is_open: Callable[[], None]) -> None:
    upgrade = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
               "Sec-WebSocket-Key: cmVoZWFyc2FsLWtleS0xMg==")  # fmt: skip
    async with connected(record.client) as (reader, writer):
        writer.write(request_head(record.client, "GET", *upgrade))
        answer = await read_head(reader)
        if answer.status != _SWITCHING:
            why = f"answers {answer.status} to the upgrade"
            raise EndedError(why, lost=False, refused=answer.status)
        is_open()
        while True:
            writer.write(_TOKEN)
            echo = await asyncio.wait_for(reader.readexactly(len(_TOKEN)), ANSWER_SECONDS)
            if echo != _TOKEN:
                raise EndedError("wrong echo", lost=True)
            await asyncio.sleep(_PERIOD_SECONDS)


async def _download(record: ClientState, is_open: Callable[[], None]) -> None:
    async with connected(record.client) as (reader, writer):
        writer.write(request_head(record.client))
        answer = await read_head(reader)
        if answer.status >= _REFUSED or (answer.length or 0) <= 0:
            raise EndedError(f"answers {answer.status} without a body of known length", lost=False)
        left = answer.length or 0
        hurried = 0
        is_open()
        while left > 0:
            part = await reader.read(min(left, READ_BYTES))
            if not part:
                raise EndedError("cut off", lost=True)
            left -= len(part)
            hurried += len(part) if record.hurries else 0
            record.is_settled = hurried >= _ALIVE_BYTES
            if not record.hurries or record.is_settled:
                await asyncio.sleep(_PERIOD_SECONDS)


async def _upload(record: ClientState, is_open: Callable[[], None]) -> None:
    """Send a body slowly; the server has to wait for all of it."""
    client = record.client
    async with connected(client) as (reader, writer):
        writer.write(request_head(client, "POST", f"Content-Length: {client.bytes}"))
        answered = asyncio.ensure_future(read_head(reader, None))
        try:
            await _send(client, writer, answered, is_open)
            answer = await asyncio.wait_for(answered, ANSWER_SECONDS)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise EndedError(reason_of(error), lost=record.is_open) from None
        finally:
            answered.cancel()
        if answer.status >= _REFUSED:
            raise EndedError(f"answers {answer.status}", lost=record.is_open)


async def _send(
    client: HeldClient,
    writer: asyncio.StreamWriter,
    answered: asyncio.Future[HeadOfAnswer],
    is_open: Callable[[], None],
) -> None:
    left = client.bytes
    began = time.monotonic()
    while left > 0:
        size = min(left, _WRITE_BYTES)
        writer.write(b"x" * size)
        await writer.drain()
        left -= size
        await asyncio.wait([answered], timeout=_PERIOD_SECONDS)
        if answered.done():
            answer = answered.result()  # raises the error that ended it
            why = f"answers {answer.status} before reading the body"
            raise EndedError(why, lost=False, refused=answer.status)
        if time.monotonic() - began >= _EARLY_SECONDS:
            is_open()


LIVES: dict[HeldKind, Callable[[ClientState, Callable[[], None]], Awaitable[None]]] = {
    "idle": _idle,
    "silent": _silent,
    "keepalive": _keepalive,
    "websocket": _websocket,
    "download": _download,
    "upload": _upload,
}
"""The life of a client of each kind, until it ends."""


class HeldClients:
    """Clients that connect on entry to the context manager and stay connected inside it."""

    def __init__(self, clients: Sequence[HeldClient]) -> None:
        self._records = [ClientState(client) for client in clients]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._opened = threading.Event()
        self._changed_at: float | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._opened.wait(_OPEN_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def begin_change(self) -> None:
        """Attribute connections that end from now on to the change."""
        for record in self._records:
            record.was_held = record.is_open and not record.state
            record.reconnects = record.retried = 0
        self._changed_at = time.monotonic()

    def tally(self) -> list[HeldConnections]:
        """The fates of the clients by kind.

        Side effects: downloads read at full speed to find their end, and silent clients make their
        request.
        """
        ending = [
            record for record in self._records if record.was_held and record.client.kind in _ENDING
        ]
        for record in ending:
            record.hurries = True
        until = time.monotonic() + _HURRY_SECONDS
        while time.monotonic() < until:
            if all(record.state or record.is_settled for record in ending):
                break
            time.sleep(_LOOK_SECONDS)
        kinds = dict.fromkeys(record.client.kind for record in self._records)
        return [self._tally(kind) for kind in kinds]

    def _tally(self, kind: HeldKind) -> HeldConnections:
        own = [record for record in self._records if record.client.kind == kind]
        held = [client for client in own if client.was_held]
        since = self._changed_at or time.monotonic()
        lost = [client for client in held if any(moment >= since for moment in client.lost_at)]
        rest = [client for client in held if client not in lost]
        never = [client for client in own if not client.opened_once]
        early = [client for client in own if any(moment < since for moment in client.lost_at)]
        reasons = Counter(client.why for client in (*lost, *never, *early) if client.why)
        return HeldConnections(
            kind=kind,
            held=len(held),
            lost=len(lost),
            closed=sum(client.state == "closed" for client in rest),
            finished=sum(client.state == "finished" for client in rest),
            kept=sum(not client.state for client in rest),
            reconnects=sum(client.reconnects for client in held),
            retried=sum(client.retried for client in held),
            not_opened=len(never),
            lost_before=len(early),
            reasons=dict(reasons),
        )

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        pending = {"left": len(self._records)}

        def opened() -> None:
            pending["left"] -= 1
            if pending["left"] <= 0:
                self._opened.set()

        tasks = [self._loop.create_task(self._live(record, opened)) for record in self._records]
        if not tasks:
            self._opened.set()
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(_end(tasks))
            self._loop.close()

    async def _live(self, record: ClientState, opened: Callable[[], None]) -> None:
        pending = [opened]

        def is_open() -> None:
            record.is_open = record.opened_once = True
            while pending:
                pending.pop()()

        try:
            await self._live_past_limits(record, is_open)
            record.state = "finished"
        except EndedError as ended:
            self._end(record, ended.why, lost=ended.lost)
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError, ValueError) as error:
            self._end(record, reason_of(error), lost=record.is_open)
        finally:
            while pending:
                pending.pop()()

    async def _live_past_limits(self, record: ClientState, is_open: Callable[[], None]) -> None:
        """Live the client's life.

        If a limit refuses the connection, try again, each client at its own time.
        """
        share = self._records.index(record) / len(self._records)
        for left in range(_MOST_RETRIES, -1, -1):
            try:
                return await LIVES[record.client.kind](record, is_open)
            except EndedError as ended:
                is_limited = ended.refused in record.client.limited and not record.opened_once
                if not is_limited or not left:
                    raise
                await asyncio.sleep(_RETRY_SECONDS * (1 + share))
        return None

    @staticmethod
    def _end(record: ClientState, why: str, *, lost: bool) -> None:
        record.is_open = False
        record.why = why
        record.state = "lost" if lost else "closed"
        if lost and record.opened_once:
            record.lost_at.append(time.monotonic())


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel the tasks repeatedly: CPython 3.11 loses a cancel at the end of a wait_for()."""
    left = set(tasks)
    for _ in range(_MOST_CANCELS):
        for task in left:
            task.cancel()
        left = {task for task in left if not task.done()}
        if not left:
            return
        _, left = await asyncio.wait(left, timeout=_CANCEL_SECONDS)
