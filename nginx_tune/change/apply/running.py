"""Whether what lies on the disk is what nginx runs: a reload would bring in all that is not.

nginx does not tell which files it has read. So it goes by the last change of each (``ctime``, which
nobody can set; a copy that keeps its times, a rename and a link all show there) and of the
directories that patterns look into. ``apply`` itself moves both without a reload, as it takes a
change back or removes the old file of one that is kept: so it writes down what nginx has read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import posixpath
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from nginx_tune.change.apply import calls
from nginx_tune.change.apply.errors import RefusedError
from nginx_tune.change.apply.journal import State
from nginx_tune.change.apply.reading import FollowedFiles
from nginx_tune.change.apply.server import generations
from nginx_tune.host.door import Host
from nginx_tune.nginx.reload.address import unheard
from nginx_tune.nginx.reload.generation import places_of
from nginx_tune.nginx.reload.host_refusals import taken_here
from nginx_tune.nginx.reload.process import Process

_LOADED = "loaded"
_UNFINISHED = "loaded.part"
_MOST_BYTES = 1 << 20
_MOST_LINKS = 40
_MOST_NAMED = 3
_CHANGED = "changed (by chmod or chattr, at least)"
_SLACK_SECONDS = 0.1
"""Starts are told in hundredths of a second, and a file's times by the kernel's last tick."""


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """What nginx has read, and which generation of workers shows that it has read nothing since."""

    master: Process
    workers: list[Process]
    digest: str


def check_loaded(
    host: Host, state: State, master: Process, reading: FollowedFiles
) -> frozenset[Process]:
    """That a reload now would change nothing.

    The workers to ``remember`` for it, since the next change finds directories that this one
    changed; none where that is known. Errors: RefusedError that names what was changed since.
    """
    serving = generations(host, master).serving
    if _is_known(state, master, serving, reading):
        return frozenset()
    # The oldest: one that died and came again has read nothing anew.
    loaded = min(map(_started, serving), default=0.0) + _SLACK_SECONDS
    for path in reading.files:
        _check_place(path, loaded, _CHANGED)
    for path in reading.directories:
        _check_place(_there(path), loaded, "a name in it came or went")
    return frozenset(serving)


def remember(
    state: State, master: Process, workers: Collection[Process], reading: FollowedFiles
) -> None:
    """Write down that these workers run what was read; if it cannot be, times are gone by."""
    told = Loaded(
        master=master,
        workers=sorted(workers, key=lambda one: one.pid),
        digest=_digest(reading),
    )
    with contextlib.suppress(OSError):
        directory = os.open(state.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            calls.unlink(directory, _UNFINISHED)
            descriptor = calls.create(directory, _UNFINISHED)
            try:
                calls.write(descriptor, msgspec.json.encode(told))
            finally:
                os.close(descriptor)
            # A kill in between must leave the older one, by which a directory is not misjudged.
            calls.rename_over(directory, _UNFINISHED, _LOADED)
        finally:
            os.close(directory)


def check_sockets(host: Host, master: Process, after: FollowedFiles) -> None:
    """That nginx goes on listening wherever its master does, whatever the old files said.

    Errors: RefusedError that names the addresses that are lost.
    """
    if not after.tree.complete:  # a line that is not read here may hold them
        return
    lost = unheard(places_of(host, master, []), after.tree)
    if lost:
        more = f" and {len(lost) - _MOST_NAMED} more" if len(lost) > _MOST_NAMED else ""
        raise RefusedError(
            f"nginx listens at {', '.join(lost[:_MOST_NAMED])}{more}, and would no longer",
            hint="--accept-lost if that is meant",
        )


def refuse_taken_ports(master: Process, before: FollowedFiles, after: FollowedFiles) -> list[str]:
    """That no other program holds a port that is new; what could not be seen.

    ``nginx -t`` is content with that, and the reload tries for seconds before it fails.
    Errors: RefusedError that names the line and who holds the port.
    """
    looked = taken_here(before.tree, after.tree, [master.pid])
    for one in looked.refusals:
        raise RefusedError(f"{one.place()}{one.text}", hint=one.remedy)
    return looked.notes


def _is_known(
    state: State, master: Process, serving: frozenset[Process], reading: FollowedFiles
) -> bool:
    """Whether what these workers run was written down, and is what lies there, byte for byte."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(state.path / _LOADED, flags), "rb") as file:
            told = msgspec.json.decode(file.read(_MOST_BYTES), type=Loaded)
    except (OSError, msgspec.MsgspecError):
        return False
    # A reload leaves no worker of before among those that serve.
    is_same = told.master == master and not serving.isdisjoint(told.workers)
    return is_same and told.digest == _digest(reading)


def _digest(reading: FollowedFiles) -> str:
    """Of the names and bytes of all files."""
    found = hashlib.sha256()
    for path, content in sorted(reading.files.items()):
        found.update(os.fsencode(path) + b"\0" + hashlib.sha256(content).digest())
    return found.hexdigest()


def _check_place(path: str, loaded: float, what: str) -> None:
    steps = [*_steps(path)]
    for step in steps:
        try:
            status = step.lstat()
        except OSError:
            continue
        if status.st_ctime > loaded:
            raise RefusedError(
                f"{step}: {what if step == steps[-1] else _CHANGED} after nginx read it last; "
                "a reload would bring that in too",
                hint="reload nginx first, then make the plan again",
            )


def _steps(path: str) -> Iterator[Path]:
    """Every link on the way to a place, and at last the place itself.

    Source: path_resolution(7).
    """
    place, left, links = "/", path.split("/")[::-1], 0
    while left:
        part = left.pop()
        if part in ("", "."):
            continue
        step = posixpath.dirname(place) if part == ".." else posixpath.join(place, part)
        try:
            target = os.readlink(step)  # noqa: PTH115
        except OSError:
            place = step
            continue
        yield Path(step)
        links += 1
        if links > _MOST_LINKS:
            return
        left += target.split("/")[::-1]
        place = "/" if target.startswith("/") else place
    yield Path(place)


def _there(path: str) -> str:
    """A directory, or what is left of the way to it: one that was there may have been removed."""
    while path not in ("", "/") and not Path(path).is_dir():
        path = posixpath.dirname(path)
    return path or "/"


def _started(process: Process) -> float:
    """When a process started, by the wall clock that files have their times from.

    Source: proc_pid_stat(5), the 22nd field, counts from the start of the machine.
    """
    # Interrupted between the two clocks it would come out too early.
    booted = max(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) for _ in range(5))
    return booted + process.start_ticks / os.sysconf("SC_CLK_TCK")
