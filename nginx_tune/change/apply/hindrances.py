"""Reasons for a change not to begin, all looked at before any file is changed.

An earlier change is unfinished, or somebody else may reload nginx meanwhile.

The files on the disk are not those that nginx runs: a reload would bring in all the others. nginx
does not tell which files it has read. So it goes by the last change of each (``ctime``, which
nobody can set; a copy that keeps its times, a rename and a link all show there) and of the
directories that patterns look into. ``apply`` itself moves both without a reload, as it takes a
change back or removes the old file of one that is kept: so it writes down what nginx has read.

Somebody else could have written what the target's own test would read or load: ``nginx -T`` runs
the constructors of modules while it reads.

The change has nginx write over a file, or give it to another user. A reload writes its number into
whatever ``pid`` names, and nginx removes that as it ends. The directories of caches and of
temporary files are given to the workers' user by every start, every reload, and by root's
``nginx -t`` alone. Where an include takes either, the next reload reads it as configuration. No
rollback could undo that. A ``lock_file`` is harmless: with atomic operations nginx never opens it
(ngx_shmtx_create()).

A cache that the change adds lies in a directory with files of somebody else: nginx's cache loader
deletes every file there that is no entry of its cache, and no rollback could bring them back.

Source: ngx_create_pidfile(), ngx_delete_pidfile(), ngx_create_paths(),
        ngx_http_file_cache_manage_file().
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import posixpath
import pwd
import re
import stat
import struct
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from nginx_tune.change.apply import calls
from nginx_tune.change.apply.examine import check_trust
from nginx_tune.change.apply.journal import State
from nginx_tune.change.apply.model_journal import RefusedError
from nginx_tune.change.apply.target import (
    FollowedFiles,
    ManagedNginx,
    generations,
    pid_path,
    read_files,
)
from nginx_tune.change.apply.undo import is_abandoned, unfinished
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import http_blocks
from nginx_tune.conf.served import MODULES, caches
from nginx_tune.conf.tree import ConfTree
from nginx_tune.errors import UndecidedError
from nginx_tune.host.door import Host
from nginx_tune.nginx.overwriting import is_asked
from nginx_tune.nginx.reload.address import unheard
from nginx_tune.nginx.reload.generation import places_of
from nginx_tune.nginx.reload.host_refusals import taken_here
from nginx_tune.nginx.reload.workers import Process

_PACKAGE_LOCKS = {
    "dpkg": "/var/lib/dpkg/lock-frontend",
    "certbot": "/etc/letsencrypt/.certbot.lock",
}
"""Locks of those who may reload nginx amid a change."""
_LOCK_SHAPE = "hhqqi4x"


def check_unfinished(state: State) -> None:
    """Errors: RefusedError when an earlier change has not ended."""
    for journal in unfinished(state):
        story = journal.read()
        if story.phase == "damaged":
            raise RefusedError(
                f"the journal of change {journal.id} is damaged", hint=journal.way_out_of_damage
            )
        if story.phase == "awaiting" and not is_abandoned(story):
            raise RefusedError(
                f"change {journal.id} waits to be confirmed",
                hint=f"{journal.command('confirm')}, or {journal.command('rollback')}",
            )
        raise RefusedError(
            f"change {journal.id} could neither be kept nor taken back: {story.reason}",
            hint=journal.ways_out,
        )


def check_ended(state: State) -> None:
    """The same for whoever only looks: what a dead process left is not taken back then.

    Errors: UndecidedError where that comes first, RefusedError.
    """
    for journal in unfinished(state):
        story = journal.read()
        if story.phase not in {"stuck", "damaged"} and is_abandoned(story):
            raise UndecidedError(
                f"change {journal.id} was not finished: it is taken back before another is made",
                hint=f"{journal.recovery}, then look again",
            )
    check_unfinished(state)


def check_package_managers() -> None:
    """Refuse while one is at work: its scripts reload nginx, amid a change a mixture of files.

    Errors: RefusedError.
    """
    for name, path in _PACKAGE_LOCKS.items():
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            asked = struct.pack(_LOCK_SHAPE, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            answer = struct.unpack(_LOCK_SHAPE, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
        finally:
            os.close(descriptor)
        if answer[0] != fcntl.F_UNLCK:
            raise RefusedError(
                f"{name} (process {answer[4]}) is at work and may reload nginx",
                hint="wait until it has ended",
            )


def refuse_foreign_code(host: Host, subject: ManagedNginx) -> None:
    """As root: every file, every directory of includes and every module is root's alone.

    Errors: RefusedError that names the first that is not.
    """
    reading = read_files(host, subject.conf_path, prefix=subject.prefix)
    # Source: ngx_load_module; a module may stand in the main context alone.
    modules = (line.value for line in reading.tree.main.all("load_module") if line.args)
    check_trust([*reading.places, *(posixpath.join(subject.prefix, one) for one in modules)])


_LOADED = "loaded"
_UNFINISHED = "loaded.part"
_MOST_BYTES = 1 << 20
_MOST_LINKS = 40
_MOST_NAMED = 3
_CHANGED = "changed (by chmod or chattr, at least)"
_SLACK_SECONDS = 0.1
"""Starts are told in hundredths of a second, and a file's times by the kernel's last tick."""


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """The files that nginx has read, and the generation of workers that has read nothing since."""

    master: Process
    workers: list[Process]
    digest: str


def check_loaded(
    host: Host, state: State, master: Process, reading: FollowedFiles
) -> frozenset[Process]:
    """Check that a reload now would change nothing.

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
    """Check that nginx goes on listening wherever its master does, whatever the old files said.

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
    """Check that no other program holds a port that is new; returns what could not be seen.

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
    """True if what these workers run was written down, and is what lies there, byte for byte."""
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
    """The digest of the names and bytes of all files."""
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
    """The start of a process, by the wall clock that files have their times from.

    Source: proc_pid_stat(5), the 22nd field, counts from the start of the machine.
    """
    # Interrupted between the two clocks it would come out too early.
    booted = max(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) for _ in range(5))
    return booted + process.start_ticks / os.sysconf("SC_CLK_TCK")


_TEMPORARY: Final = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
_NAMES: Final = frozenset({f"{name}_temp_path" for name in _TEMPORARY}) | {
    f"{name}_cache_path" for name in MODULES
}
_GIVEN_USER = re.compile(r"(?:^|;)\s*user\s+([^\s;]+)")
_MOST_PID_BYTES = 64


class _Place(NamedTuple):
    """A file or directory that nginx makes, or takes for its own."""

    path: str
    said: str
    """The line that says so, for people."""


def refuse_taken_places(before: ConfTree, after: ConfTree, subject: ManagedNginx) -> None:
    """Look at what nginx would make by the new configuration, and not by the old one.

    Errors: RefusedError that names the line and what it would do.
    """
    _check_pid_file(before, after, subject)
    known = {one.path for one in _places(before, subject)}
    for place in _places(after, subject):
        if place.path not in known:
            _refuse_included(place.path, place.said, after)
    if os.geteuid() == 0:  # nobody else can give files away
        _check_owners(before, after, subject)


def _refuse_included(path: str, said: str, after: ConfTree) -> None:
    """Errors: RefusedError for what nginx makes where it looks for its configuration."""
    for name in after.asked:
        if is_asked(path, name):
            raise RefusedError(
                f"{said}: the configuration includes {name}, so the next reload would read what "
                "nginx makes there, and fail",
                hint="name a place that nothing includes",
            )


def _check_pid_file(before: ConfTree, after: ConfTree, subject: ManagedNginx) -> None:
    old, new = pid_path(before, subject), pid_path(after, subject)
    if new == old:
        return
    lines = after.main.all("pid")
    said = f"{lines[-1].file}:{lines[-1].line}: pid {lines[-1].value}" if lines else f"pid {new}"
    if os.path.realpath(new) == os.path.realpath(old):
        raise RefusedError(
            f"{said}: is the same file as {old}: at a reload nginx writes the new one and removes "
            "the old one, so none is left",
            hint="leave pid as it is until nginx is started anew",
        )
    _refuse_included(new, said, after)
    if not _is_free(new, subject):
        raise RefusedError(
            f"{said}: nginx would write its number over that file, and remove it as it ends",
            hint="name a file that is not there yet",
        )


def _is_free(path: str, subject: ManagedNginx) -> bool:
    """True if nothing is lost: no file, or one of ours that is empty or names no living process.

    ``nginx -t`` leaves an empty one where there was none. A link is written through, and removed
    itself; by another name of the file (a hard link) somebody else reads it.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        status = os.fstat(descriptor)
        is_plain = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        is_plain = is_plain and status.st_uid == os.geteuid()
        content = os.read(descriptor, _MOST_PID_BYTES + 1) if is_plain else b"-"
    finally:
        os.close(descriptor)
    number = content.strip()
    if not number:
        return True
    if len(content) > _MOST_PID_BYTES or not number.isdigit():
        return False
    own = subject.master is not None and int(number) == subject.master.pid
    return own or not Path(f"/proc/{int(number)}").exists()


def _check_owners(before: ConfTree, after: ConfTree, subject: ManagedNginx) -> None:
    user, name = _user(after, subject)
    if user is None:  # nginx -t says so
        return
    was, _ = _user(before, subject)
    known = {one.path for one in _places(before, subject)}
    for place in _places(after, subject):
        if place.path in known and user == was:
            continue
        try:
            status = Path(place.path).stat()
        except OSError:
            continue  # nginx makes it, or says that it cannot
        if status.st_uid == user and status.st_mode & stat.S_IRWXU == stat.S_IRWXU:
            continue
        if place.path in known:
            raise RefusedError(
                f"user {name}: nginx -t alone would give it {place.path}, which the workers that "
                "run cannot use from then on, even if the change is taken back",
                hint="change user by hand, with a restart",
            )
        raise RefusedError(
            f"{place.said}: nginx would make {name} the owner of what is there, with every right, "
            "and no rollback gives it back",
            hint=f"name a directory that is not there yet, or one that is {name}'s already (u+rwx)",
        )


def _user(tree: ConfTree, subject: ManagedNginx) -> tuple[int | None, str]:
    """Number and name of the workers' user.

    Source: ngx_core_module_init_conf(): the build's ``--user``, which is nobody by default.
    """
    command = subject.test_command
    given = _GIVEN_USER.search(command[-1]) if "-g" in command else None
    lines = [line for line in tree.main.all("user") if line.args]
    built = next((f for f in subject.build.flags if f.startswith("--user=")), "--user=nobody")
    name = given[1] if given else lines[-1].value if lines else built.partition("=")[2]
    try:
        return pwd.getpwnam(name).pw_uid, name
    except KeyError:
        return None, name


def _places(tree: ConfTree, subject: ManagedNginx) -> Iterator[_Place]:
    """The directories of all caches and for all temporary files, links resolved."""
    for line in tree.main.walk():
        if line.name in _NAMES and line.args and (path := tree.full_path(line.value)) is not None:
            said = f"{line.file}:{line.line}: {line.name} {line.value}"
            yield _Place(os.path.realpath(path), said)
    blocks = [one.block for one in http_blocks(tree) if one.block is not None]
    for name in _TEMPORARY if blocks else ():
        if not any(block.all(f"{name}_temp_path") for block in blocks):
            option = f"--http-{name.replace('_', '-')}-temp-path="
            built = next((f for f in subject.build.flags if f.startswith(option)), "")
            path = built.removeprefix(option) or f"{name}_temp"
            path = posixpath.join(subject.prefix, path)
            yield _Place(os.path.realpath(path), f"{name}_temp_path {path}")


_ENTRY = re.compile(r"[0-9a-f]{32}(?:\.[0-9]{10})?")
"""MD5 of the key, and such a file while it is written (ngx_http_file_cache_name, ngx_create_temp_
file)."""


def refuse_foreign_files(before: ConfTree, after: ConfTree) -> None:
    """Look into the directory of every cache that is there after the change and not before.

    Errors: RefusedError that names the line and the first file that nginx would delete.
    """
    known = _caches(before)
    for path, line in _caches(after).items():
        if path not in known and (foreign := foreign_file(path)):
            raise RefusedError(
                f"{line.file}:{line.line}: {line.name} {line.value}: nginx would delete what lies "
                f"there and is not of a cache, such as {foreign}",
                hint="name a directory that is not there yet, or an empty one of the workers' user",
            )


def foreign_file(directory: str) -> str:
    """The first file below that has no name of a cache's file; empty for none.

    Directories are harmless by themselves: the loader goes through them and leaves them. It
    follows links, so one is a foreign file whatever it leads to. What cannot be read is foreign.
    Source: ngx_walk_tree().
    """
    left = [directory]
    while left:
        place = left.pop()
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                    elif entry.is_symlink() or not _ENTRY.fullmatch(entry.name):
                        return entry.path
        except FileNotFoundError:
            continue
        except OSError:
            return place
    return ""


def _caches(tree: ConfTree) -> dict[str, Directive]:
    """The directories of all caches, links resolved, with their lines."""
    return {
        os.path.realpath(path): one.place
        for one in caches(tree)
        if (path := tree.full_path(one.directory)) is not None
    }
