"""Long connections to a server that is about to be changed, and what becomes of each.

One thread with an event loop: few bytes a second on each connection. What a client is amid when
the server ends its connection decides whether anything was lost: an idle connection is only closed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from nginx_tune.documents.rehearsal import HeldConnections, HeldKind
from nginx_tune.experiment.held_kinds import LIVES, ClientState, EndedError, reason_of
from nginx_tune.experiment.operations import HeldClient

if TYPE_CHECKING:
    from typing_extensions import Self

_OPEN_SECONDS = 10.0
_HURRY_SECONDS = 3.0
_ENDING: tuple[HeldKind, ...] = ("download", "silent")
"""What shows how it ends only when it is asked to."""
_LOOK_SECONDS = 0.01
_MOST_TELLINGS = 10
_TELLING_SECONDS = 0.3


class HeldClients:
    """The clients; use as a context manager: inside they are all open, as far as they can be."""

    def __init__(self, clients: Sequence[HeldClient]) -> None:
        self._records = [ClientState(one) for one in clients]
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
        """From now on what ends is told: the change begins."""
        for one in self._records:
            one.was_held = one.is_open and not one.state
            one.reconnects = one.retried = 0
        self._changed_at = time.monotonic()

    def tally(self) -> list[HeldConnections]:
        """What has become of them, by kind.

        For it downloads read on fast, to see their end, and the silent ones ask.
        """
        ending = [one for one in self._records if one.was_held and one.client.kind in _ENDING]
        for one in ending:
            one.hurries = True
        until = time.monotonic() + _HURRY_SECONDS
        while time.monotonic() < until:
            if all(one.state or one.is_settled for one in ending):
                break
            time.sleep(_LOOK_SECONDS)
        kinds = dict.fromkeys(one.client.kind for one in self._records)
        return [self._tally(kind) for kind in kinds]

    def _tally(self, kind: HeldKind) -> HeldConnections:
        own = [one for one in self._records if one.client.kind == kind]
        held = [one for one in own if one.was_held]
        since = self._changed_at or time.monotonic()
        lost = [one for one in held if any(moment >= since for moment in one.lost_at)]
        rest = [one for one in held if one not in lost]
        never = [one for one in own if not one.opened_once]
        early = [one for one in own if any(moment < since for moment in one.lost_at)]
        reasons = Counter(one.why for one in (*lost, *never, *early) if one.why)
        return HeldConnections(
            kind=kind,
            held=len(held),
            lost=len(lost),
            closed=sum(one.state == "closed" for one in rest),
            finished=sum(one.state == "finished" for one in rest),
            kept=sum(not one.state for one in rest),
            reconnects=sum(one.reconnects for one in held),
            retried=sum(one.retried for one in held),
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

        tasks = [self._loop.create_task(self._live(one, opened)) for one in self._records]
        if not tasks:
            self._opened.set()
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(_end(tasks))
            self._loop.close()

    async def _live(self, record: ClientState, opened: Callable[[], None]) -> None:
        told = [opened]

        def is_open() -> None:
            record.is_open = record.opened_once = True
            while told:
                told.pop()()

        try:
            await LIVES[record.client.kind](record, is_open)
            record.state = "finished"
        except EndedError as ended:
            self._end(record, ended.why, lost=ended.lost)
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError, ValueError) as error:
            self._end(record, reason_of(error), lost=record.is_open)
        finally:
            while told:
                told.pop()()

    @staticmethod
    def _end(record: ClientState, why: str, *, lost: bool) -> None:
        record.is_open = False
        record.why = why
        record.state = "lost" if lost else "closed"
        if lost and record.opened_once:
            record.lost_at.append(time.monotonic())


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    """End them: one that is told amid a wait that is just over does not hear it (CPython 3.11)."""
    left = set(tasks)
    for _ in range(_MOST_TELLINGS):
        for task in left:
            task.cancel()
        left = {task for task in left if not task.done()}
        if not left:
            return
        _, left = await asyncio.wait(left, timeout=_TELLING_SECONDS)
