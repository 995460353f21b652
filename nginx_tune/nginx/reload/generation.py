"""Whether a new generation of workers serves: its processes, not what nginx says of itself.

A reload that nginx refuses leaves the old workers, one whose workers die leaves a socket that
nobody accepts from: in both ``nginx -s reload`` is content. So the workers are told apart by their
numbers and starts, and each listener is asked until a new worker has accepted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from nginx_tune.host.door import Host
from nginx_tune.host.listeners import ask_listening
from nginx_tune.host.namespaces import in_network_of
from nginx_tune.nginx.reload.address import AcceptingSocket, Address, spoken_at
from nginx_tune.nginx.reload.asking import Asked, ask_place, may_answer
from nginx_tune.nginx.reload.logs import Logs
from nginx_tune.nginx.reload.model_process import Process
from nginx_tune.nginx.reload.parse_reload import bad_lines
from nginx_tune.nginx.reload.workers import Generations, OldServeError, ReloadError, held_sockets

_POLL_SECONDS = 0.05
_STABLE_SECONDS = 0.6
"""A worker that dies as it starts is started again at once: one look shows it alive."""
_MOST_PLACES = 64
_SEEING_SECONDS = 1.5
"""How long connections are made to see every worker accept; few are favoured by light load."""
_RETRIES = 4


class Readiness(NamedTuple):
    """What was seen of a new generation."""

    workers: frozenset[Process]
    seen: int
    """Of them, how many were seen to accept."""
    places: list[AcceptingSocket]
    notes: list[str]


def logged_faults(
    logs: Logs, master: Process, before: frozenset[Process], now: frozenset[Process]
) -> list[str]:
    """Emergencies and alerts of the master and of the new workers that are new."""
    return _faults(logs.lines(), logs, master, before, now)


def _faults(
    lines: Sequence[bytes],
    logs: Logs,
    master: Process,
    before: frozenset[Process],
    now: frozenset[Process],
) -> list[str]:
    ours = {logs.number_of(one) for one in (master, *now)}
    found = bad_lines(lines, ours=ours, old={logs.number_of(one) for one in before})
    return logs.new_faults(found, before)


def await_workers(
    look: Callable[[], Generations],
    master: Process,
    before: frozenset[Process],
    logs: Logs,
    *,
    seconds: float,
    heeds_logs: bool = True,
) -> frozenset[Process]:
    """The new workers, once they alone serve and have stayed the same for a while.

    ``look`` tells the workers as they are now. Without ``heeds_logs`` emergencies are only told
    beside: a refused reload before this one may still be writing them.
    Errors: ReloadError with the line that says why, or that the old ones still serve.
    """
    until = time.monotonic() + seconds
    last: frozenset[Process] = frozenset()
    since = time.monotonic()
    while True:
        now = look()
        fresh = now.serving - before
        wrong = logged_faults(logs, master, before, fresh)
        if wrong and heeds_logs:
            raise ReloadError("; ".join(wrong[:3]))
        if fresh != last:
            last, since = fresh, time.monotonic()
        if fresh and fresh == now.serving and time.monotonic() - since >= _STABLE_SECONDS:
            return fresh
        if time.monotonic() > until:
            late = [_late(now, before, seconds), *wrong[-2:]]
            doubtful = _faults(logs.doubtful_lines(), logs, master, before, fresh)
            if doubtful and not wrong:
                late.append(f"logged, unless a client wrote it: {doubtful[-1]}")
            if not fresh and not wrong and now.serving & before:
                raise OldServeError("; ".join(late))
            raise ReloadError("; ".join(late))
        time.sleep(_POLL_SECONDS)


def _late(now: Generations, before: frozenset[Process], seconds: float) -> str:
    if now.serving & before:
        return f"the old workers still serve {seconds:g} s after the reload"
    return f"no new worker has lasted for {_STABLE_SECONDS:g} s"


def places_of(host: Host, master: Process, addresses: Sequence[Address]) -> list[AcceptingSocket]:
    """The listening sockets of a master, and what is spoken there."""
    listening = ask_listening(host, master.pid)
    held = held_sockets(master.pid)
    found: dict[tuple[str, int], AcceptingSocket] = {}
    for one in getattr(listening, "sockets", []):
        if one.inode in held:
            speaks = spoken_at(one.address, one.port, addresses)
            place = AcceptingSocket(one.address, one.port, "", speaks)
            found.setdefault((one.address, one.port), place)
    unix = [AcceptingSocket("", 0, a.path, a.speaks) for a in addresses if a.path]
    return [*found.values(), *unix]


def ask_before(
    host: Host, master: Process, addresses: Sequence[Address]
) -> frozenset[AcceptingSocket]:
    """The places that do not answer as things are: of these no answer is asked afterwards."""
    places = places_of(host, master, addresses)[:_MOST_PLACES]

    def ask() -> frozenset[AcceptingSocket]:
        return frozenset(place for place in places if not ask_place(host, place, master).is_answer)

    return in_network_of(master.pid, ask)


def see_answers(
    host: Host,
    master: Process,
    workers: frozenset[Process],
    addresses: Sequence[Address],
    silent_before: frozenset[AcceptingSocket],
) -> Readiness:
    """That every listener of a generation answers, by its own workers.

    Errors: ReloadError that names the listener that does not.
    """
    places = places_of(host, master, addresses)
    notes = [f"{len(places) - _MOST_PLACES} listeners were not asked"] * (
        len(places) > _MOST_PLACES
    )
    if not places:
        notes.append("no listener that can be asked: only the new workers were seen")
    seen: set[int] = set()

    def ask_all() -> None:
        for place in places[:_MOST_PLACES]:
            asked = _until_answered(host, place, master, workers)
            if asked.who is not None:
                seen.add(asked.who)
            if not asked.is_answer and place not in silent_before and may_answer(asked):
                raise ReloadError(f"{place.name}: {asked.why}")
            if asked.is_answer and asked.why:
                notes.append(f"{place.name}: {asked.why}")
            if not asked.is_answer:
                notes.append(f"{place.name}: {asked.why}, as before")
        _see_more(host, places, master, workers, seen)

    in_network_of(master.pid, ask_all)
    return Readiness(workers, len(seen & {one.pid for one in workers}), places, notes)


def _until_answered(
    host: Host, place: AcceptingSocket, master: Process, workers: frozenset[Process]
) -> Asked:
    """The answer of a new worker: for a moment both generations accept."""
    ours = {one.pid for one in workers}
    asked = Asked(None, "not asked", False)
    for _ in range(_RETRIES):
        asked = ask_place(host, place, master, ours)
        if asked.is_answer:
            return asked
        time.sleep(_POLL_SECONDS)
    return asked


def _see_more(
    host: Host,
    places: Sequence[AcceptingSocket],
    master: Process,
    workers: frozenset[Process],
    seen: set[int],
) -> None:
    """Go on connecting until every worker has accepted, or the time is over.

    Nothing is said: what is asked of nginx stands in the operator's access log.
    """
    ours = {one.pid for one in workers}
    plain = [place for place in places if not place.path]
    until = time.monotonic() + _SEEING_SECONDS
    while plain and ours - seen and time.monotonic() < until:
        asked = ask_place(host, plain[0]._replace(speaks="unknown"), master, ours)
        if asked.who is None:
            return
        seen.add(asked.who)
