"""Reasons to refuse a change, all checked before any file is changed.

- An earlier change is unfinished, or a package manager may reload nginx meanwhile.
- The files on the disk differ from those that nginx runs: a reload would also load edits by others.
  nginx does not report which files it has read. So the ``ctime`` of each file is compared with the
  start of the workers, and that of each directory in which an include pattern matches. ``ctime``
  cannot be set, so it reveals renames, links, and copies that preserve timestamps. ``apply`` itself
  changes these times without a reload when it takes a change back or removes an old file.
  Therefore it records the files that nginx has read.
- Other users could have written files that ``nginx -T`` reads or loads: a loaded module runs code.
- The change makes nginx overwrite a file or give it to another user, which no rollback could undo.
  A reload writes nginx's process id into the file that ``pid`` names, and nginx removes that file
  when it ends. Every start, every reload and root's ``nginx -t`` give the directories of caches and
  temporary files to the workers' user. If an include matches such a file, the next reload reads it
  as configuration. A ``lock_file`` is harmless: with atomic operations nginx never opens it
  (ngx_shmtx_create()).
- The change adds a cache in a directory with other files: nginx's cache loader deletes every file
  there that is not an entry of its cache, and no rollback could bring it back.

Source: ngx_create_pidfile(), ngx_delete_pidfile(), ngx_create_paths(),
        ngx_http_file_cache_manage_file().
"""

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
from nginx_tune.change.apply.journal import State, opened
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
"""Lock files of package managers, which may reload nginx during a change."""
_LOCK_SHAPE = "hhqqi4x"


def check_unfinished(state: State) -> None:
    """Check that every earlier change has ended.

    Errors: RefusedError that names an unfinished change.
    """
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
    """Check that every earlier change has ended, for a dry run, which takes nothing back.

    Errors: UndecidedError if a change must be taken back first; RefusedError.
    """
    for journal in unfinished(state):
        story = journal.read()
        if story.phase not in {"stuck", "damaged"} and is_abandoned(story):
            raise UndecidedError(
                f"change {journal.id} is unfinished and must be taken back before another change",
                hint=f"{journal.recovery}, then try again",
            )
    check_unfinished(state)


def check_package_managers() -> None:
    """Refuse while a package manager works: its scripts may reload nginx amid the change.

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
    """As root, check that only root may write nginx's files, include directories and modules.

    Errors: RefusedError that names the first path that others may write.
    """
    reading = read_files(host, subject.conf_path, prefix=subject.prefix)
    # Source: ngx_load_module; it is allowed in the main context only.
    lines = (line for line in reading.tree.main.all("load_module") if line.args)
    check_trust([*reading.places, *(posixpath.join(subject.prefix, line.value) for line in lines)])


_LOADED = "loaded"
_UNFINISHED = "loaded.part"
_MOST_BYTES = 1 << 20
_MOST_LINKS = 40
_MOST_NAMED = 3
_CHANGED = "changed (perhaps only by chmod or chattr)"
_SLACK_SECONDS = 0.1
"""Tolerance for comparing process start times (hundredths of a second) and file times (ticks)."""


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """The files that a worker generation has read."""

    master: Process
    workers: list[Process]
    digest: str


def check_loaded(
    host: Host, state: State, master: Process, reading: FollowedFiles
) -> frozenset[Process]:
    """Check that the files on the disk are those that nginx runs, so a reload now changes nothing.

    Shape:  the workers to pass to ``remember``, since this change alters the times of directories;
            empty if these workers are already recorded.
    Errors: RefusedError that names the file or directory that was changed since nginx read it.
    """
    serving = generations(host, master).serving
    if _is_known(state, master, serving, reading):
        return frozenset()
    # The oldest worker counts: the replacement of a dead worker did not read the files again.
    loaded = min(map(_started, serving), default=0.0) + _SLACK_SECONDS
    for path in reading.files:
        _check_place(path, loaded, _CHANGED)
    for path in reading.directories:
        _check_place(_there(path), loaded, "a name in it was added or removed")
    return frozenset(serving)


def remember(
    state: State, master: Process, workers: Collection[Process], reading: FollowedFiles
) -> None:
    """Record that these workers run ``reading``; without a record, file times are compared."""
    loaded = Loaded(
        master=master,
        workers=sorted(workers, key=lambda worker: worker.pid),
        digest=_digest(reading),
    )
    with contextlib.suppress(OSError), opened(state.path) as directory:
        calls.unlink(directory, _UNFINISHED)
        descriptor = calls.create(directory, _UNFINISHED)
        try:
            calls.write(descriptor, msgspec.json.encode(loaded))
        finally:
            os.close(descriptor)
        # If the process is killed here, the older record survives. It remains correct.
        calls.rename_over(directory, _UNFINISHED, _LOADED)


def check_sockets(host: Host, master: Process, after: FollowedFiles) -> None:
    """Check that the new files keep every socket on which the master listens at present.

    The old files do not count. Errors: RefusedError that names the lost addresses.
    """
    if not after.tree.complete:  # an unreadable file may set up the missing ones
        return
    lost = unheard(places_of(host, master, []), after.tree)
    if lost:
        more = f" and {len(lost) - _MOST_NAMED} more" if len(lost) > _MOST_NAMED else ""
        raise RefusedError(
            f"nginx listens at {', '.join(lost[:_MOST_NAMED])}{more} now, and would not after the "
            "change",
            hint="give --accept-lost if that is intended",
        )


def refuse_taken_ports(master: Process, before: FollowedFiles, after: FollowedFiles) -> list[str]:
    """Check that no other program holds a new port; returns notes on ports that are not checked.

    ``nginx -t`` accepts a taken port, and a reload tries for seconds before it fails.
    Errors: RefusedError that names the line and the holder of the port.
    """
    taken = taken_here(before.tree, after.tree, [master.pid])
    for refusal in taken.refusals:
        raise RefusedError(f"{refusal.place()}{refusal.text}", hint=refusal.remedy)
    return taken.notes


def _is_known(
    state: State, master: Process, serving: frozenset[Process], reading: FollowedFiles
) -> bool:
    """True if a recorded worker still serves and the files on the disk equal the recorded files."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(state.path / _LOADED, flags), "rb") as file:
            loaded = msgspec.json.decode(file.read(_MOST_BYTES), type=Loaded)
    except (OSError, msgspec.MsgspecError):
        return False
    # After a reload, none of the earlier workers serves.
    is_same = loaded.master == master and not serving.isdisjoint(loaded.workers)
    return is_same and loaded.digest == _digest(reading)


def _digest(reading: FollowedFiles) -> str:
    """A digest of the paths and bytes of all files."""
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
                f"{step}: {what if step == steps[-1] else _CHANGED} after nginx last read it; a "
                "reload would load that too",
                hint="reload nginx first, then make the plan again",
            )


def _steps(path: str) -> Iterator[Path]:
    """Every link on the way to a path, then the path itself with links resolved.

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
    """The directory; if it was removed, the nearest existing directory above it."""
    while path not in ("", "/") and not Path(path).is_dir():
        path = posixpath.dirname(path)
    return path or "/"


def _started(process: Process) -> float:
    """The start of a process in seconds since the epoch, as for file times.

    Source: proc_pid_stat(5): field 22 counts from the start of the machine.
    """
    # A pause between the two readings makes the difference too small.
    booted = max(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) for _ in range(5))
    return booted + process.start_ticks / os.sysconf("SC_CLK_TCK")


_TEMPORARY: Final = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
_NAMES: Final = frozenset({f"{name}_temp_path" for name in _TEMPORARY}) | {
    f"{name}_cache_path" for name in MODULES
}
_GIVEN_USER = re.compile(r"(?:^|;)\s*user\s+([^\s;]+)")
_MOST_PID_BYTES = 64


class _Place(NamedTuple):
    """A file or directory that nginx creates or gives to the workers' user."""

    path: str
    line: str
    """File, line number and text of the directive."""


def refuse_taken_places(before: ConfTree, after: ConfTree, subject: ManagedNginx) -> None:
    """Check the files and directories that nginx would create only under the new configuration.

    Errors: RefusedError that names the line and its effect.
    """
    _check_pid_file(before, after, subject)
    known = {place.path for place in _places(before, subject)}
    for place in _places(after, subject):
        if place.path not in known:
            _refuse_included(place.path, place.line, after)
    if os.geteuid() == 0:  # others cannot give files away
        _check_owners(before, after, subject)


def _refuse_included(path: str, line: str, after: ConfTree) -> None:
    """Refuse a path that an include would match.

    Errors: RefusedError.
    """
    for name in after.asked:
        if is_asked(path, name):
            raise RefusedError(
                f"{line}: the configuration includes {name}, so the next reload would read the "
                "file that nginx creates there, and fail",
                hint="name a path that nothing includes",
            )


def _check_pid_file(before: ConfTree, after: ConfTree, subject: ManagedNginx) -> None:
    old, new = pid_path(before, subject), pid_path(after, subject)
    if new == old:
        return
    lines = after.main.all("pid")
    line = f"{lines[-1].file}:{lines[-1].line}: pid {lines[-1].value}" if lines else f"pid {new}"
    if os.path.realpath(new) == os.path.realpath(old):
        raise RefusedError(
            f"{line}: is the same file as {old}: a reload writes the new pid file and then removes "
            "the old one, so both are gone",
            hint="leave pid as it is until nginx is restarted",
        )
    _refuse_included(new, line, after)
    if not _is_free(new, subject):
        raise RefusedError(
            f"{line}: nginx would overwrite that file with its process id, and remove it when it "
            "ends",
            hint="name a file that does not exist yet",
        )


def _is_free(path: str, subject: ManagedNginx) -> bool:
    """True if nothing is lost when nginx writes its pid file to this path.

    Nothing is lost if there is no file, or a file of nginx that is empty or names no other living
    process. ``nginx -t`` leaves an empty file where none existed. nginx would write through a link
    and then remove the link. A file with a second name (a hard link) may have other readers.
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
    if user is None:  # nginx -t rejects it
        return
    was, _ = _user(before, subject)
    known = {place.path for place in _places(before, subject)}
    for place in _places(after, subject):
        if place.path in known and user == was:
            continue
        try:
            status = Path(place.path).stat()
        except OSError:
            continue  # nginx creates it, or rejects it
        if status.st_uid == user and status.st_mode & stat.S_IRWXU == stat.S_IRWXU:
            continue
        if place.path in known:
            raise RefusedError(
                f"user {name}: even nginx -t would make it the owner of {place.path}. The current "
                "workers could then no longer use that place, even after a rollback",
                hint="change user by hand, with a restart",
            )
        raise RefusedError(
            f"{place.line}: nginx would make {name} the owner of the existing directory, with all "
            "rights, and no rollback undoes that",
            hint=f"name a directory that does not exist yet, or that {name} already owns (u+rwx)",
        )


def _user(tree: ConfTree, subject: ManagedNginx) -> tuple[int | None, str]:
    """The uid and name of the workers' user; the uid is None if the host does not know the name.

    Source: ngx_core_module_init_conf(): the build's ``--user``, by default ``nobody``.
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
    """The directories of all caches and temporary files, with links resolved."""
    for line in tree.main.walk():
        if line.name in _NAMES and line.args and (path := tree.full_path(line.value)) is not None:
            text = f"{line.file}:{line.line}: {line.name} {line.value}"
            yield _Place(os.path.realpath(path), text)
    blocks = [line.block for line in http_blocks(tree) if line.block is not None]
    for name in _TEMPORARY if blocks else ():
        if not any(block.all(f"{name}_temp_path") for block in blocks):
            option = f"--http-{name.replace('_', '-')}-temp-path="
            built = next((f for f in subject.build.flags if f.startswith(option)), "")
            path = built.removeprefix(option) or f"{name}_temp"
            path = posixpath.join(subject.prefix, path)
            yield _Place(os.path.realpath(path), f"{name}_temp_path {path}")


_ENTRY = re.compile(r"[0-9a-f]{32}(?:\.[0-9]{10})?")
"""The file name of a cache entry, finished or not.

Source: ngx_http_file_cache_name(), ngx_create_temp_file().
"""


def refuse_foreign_files(before: ConfTree, after: ConfTree) -> None:
    """Check the directory of every cache that the change adds.

    Errors: RefusedError that names the line and the first file that nginx would delete.
    """
    known = _caches(before)
    for path, line in _caches(after).items():
        if path not in known and (foreign := foreign_file(path)):
            raise RefusedError(
                f"{line.file}:{line.line}: {line.name} {line.value}: nginx would delete the files "
                f"there that are not cache entries, such as {foreign}",
                hint="name a directory that does not exist yet, or an empty one of the workers' "
                "user",
            )


def foreign_file(directory: str) -> str:
    """The first file below a directory that does not have the name of a cache entry; empty if none.

    The cache loader keeps directories. It follows links, so every link counts as a foreign file,
    and so does a directory that cannot be read. Source: ngx_walk_tree().
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
    """The directories of all caches, with links resolved, and their directives."""
    return {
        os.path.realpath(path): cache.place
        for cache in caches(tree)
        if (path := tree.full_path(cache.directory)) is not None
    }
