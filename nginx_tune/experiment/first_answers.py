"""When the new generation first answers on each listener, asked from the moment it is there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence

from nginx_tune.documents.rehearsal import FirstAnswer
from nginx_tune.host.door import Host
from nginx_tune.nginx.reload.address import AcceptingSocket, Address
from nginx_tune.nginx.reload.asking import ask_place
from nginx_tune.nginx.reload.generation import places_of
from nginx_tune.nginx.reload.model_process import Process

_RETRY_SECONDS = 0.002
_MOST_PLACES = 32
_JOIN_SECONDS = 5.0


class FirstAnswers:
    """The listeners of one master, each asked by a thread of its own."""

    def __init__(
        self,
        host: Host,
        addresses: Sequence[Address],
        *,
        started: float,
        reached: Callable[[str], str],
        seconds: float,
    ) -> None:
        """``started`` is the moment of the change; ``reached`` where a unix socket is from here."""
        self._host = host
        self._addresses = addresses
        self._started = started
        self._reached = reached
        self._until = started + seconds
        self._workers: frozenset[Process] = frozenset()
        self._threads: list[threading.Thread] = []
        self._found: dict[str, FirstAnswer] = {}
        self._over = False

    def see(self, master: Process, workers: Collection[Process]) -> None:
        """The new workers as they are now; with the first of them the asking begins."""
        self._workers = frozenset(workers)
        if not workers or self._threads:
            return
        for place in places_of(self._host, master, self._addresses)[:_MOST_PLACES]:
            thread = threading.Thread(target=self._ask, args=(place, master), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _ask(self, place: AcceptingSocket, master: Process) -> None:
        asked_at = place._replace(path=self._reached(place.path)) if place.path else place
        why = "was not asked"
        while not self._over and time.monotonic() < self._until:
            ours = {one.pid for one in self._workers}
            asked = ask_place(self._host, asked_at, master, ours)
            if asked.is_answer:
                seconds = time.monotonic() - self._started
                self._found[place.name] = FirstAnswer(
                    listener=place.name, seconds=seconds, is_seen=asked.who is not None
                )
                return
            why = asked.why
            self._found[place.name] = FirstAnswer(listener=place.name, reason=why)
            if asked.is_out_of_reach:
                return
            time.sleep(_RETRY_SECONDS)

    def finish(self, *, waits: bool, silent: Collection[str]) -> list[FirstAnswer]:
        """What was found; ``silent`` are listeners that did not answer before either."""
        if waits:
            for thread in self._threads:
                thread.join(max(0.0, self._until - time.monotonic()))
        self._over = True
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)
        return [
            FirstAnswer(listener=one.listener, reason=f"{one.reason}, as before")
            if one.seconds is None and one.listener in silent
            else one
            for one in dict(self._found).values()
        ]
