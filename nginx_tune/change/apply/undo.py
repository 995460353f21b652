"""Taking a change back: files, then the server, whatever state either is in.

It reads no configuration: what it needs stands in the journal. Run again it ends in the same state.
Later changes of the same files are to be taken back before an earlier one is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import signal
import socket
import stat
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from nginx_tune.change.apply import calls
from nginx_tune.change.apply.journal import Journal, State, boot_id, this_process
from nginx_tune.change.apply.model_journal import (
    Begin,
    Left,
    LeftFile,
    RefusedError,
    Story,
    Stuck,
    StuckError,
    Swapping,
    TargetNginx,
    Undoing,
    Undone,
)
from nginx_tune.change.apply.swap import clear, foreign, look, opened_directory, put_back
from nginx_tune.change.apply.target import find_master, generations, tell, uninterrupted
from nginx_tune.errors import NginxTuneError
from nginx_tune.host.door import Host
from nginx_tune.nginx.processes import (
    find_orphans,
)
from nginx_tune.nginx.reload.generation import await_workers, see_answers
from nginx_tune.nginx.reload.logs import Logs
from nginx_tune.nginx.reload.workers import (
    Generations,
    Process,
    ReloadError,
    lives,
)

RELOAD_SECONDS = 20.0
"""Ports that are held are tried for 2.5 s, names are looked up before the workers start."""
PATIENCE_SECONDS = 30.0
"""The longest wait for another process that is at work."""
QUIET_SECONDS = 3.0
"""A reload that was begun would show by then: ports that are held are tried for 2.5 s."""
_POLL_SECONDS = 0.1
RELOADED = "reloaded"
NOT_TOLD = "not told"
NOT_RUNNING = "not running"


def undo_served(host: Host, journal: Journal, reason: str) -> str:
    """As ``undo``, for a change that a running nginx was to get.

    Errors: StuckError also where that nginx has ended meanwhile: the change is taken back, but
            nobody was seen to serve.
    """
    server = undo(host, journal, reason)
    if server == NOT_RUNNING:
        raise StuckError(
            f"{reason}: every file is as it was, but nginx is not running", hint="start nginx"
        )
    return server


def undo(host: Host, journal: Journal, reason: str) -> str:
    """Put back every file and have the server serve them; what the server did.

    The caller holds the lock. Signals wait until it is done.
    Errors: StuckError when somebody else wrote to the files, the old configuration does not
            serve either, or workers whose master has ended may serve the new one.
    """
    story = journal.read()
    if story.begin is None:
        raise StuckError(f"{journal.directory}: its journal is gone: what was changed is not known")
    if story.phase == "undone":
        return NOT_TOLD
    with uninterrupted():
        # A full disk must not keep the files from being put back: that needs no room.
        with contextlib.suppress(OSError):
            journal.append(Undoing(reason=reason, owner=this_process()))
        try:
            put_back(story.begin.entries, journal.original)
            server = _serve_again(host, story, story.begin)
        except (OSError, NginxTuneError) as error:
            message = _why_not(error, story.begin)
            paths = error.paths if isinstance(error, StuckError) else []
            with contextlib.suppress(OSError):
                journal.append(Stuck(reason=message, paths=paths))
            if isinstance(error, StuckError):
                error.hint = f"{error.hint}; {journal.ways_out}" if error.hint else journal.ways_out
                raise
            raise StuckError(
                f"{reason}; and taking it back failed: {message}",
                hint=journal.ways_out,
            ) from None
        with contextlib.suppress(OSError):
            journal.append(Undone(reason=reason, server=server))
    return server


def _why_not(error: OSError | NginxTuneError, begin: Begin) -> str:
    if isinstance(error, NginxTuneError):
        return error.message
    new = [entry.path for entry in begin.entries if look(entry) == "new"]
    told = f"; still the new ones: {', '.join(new)}" if new else ""
    return f"{error.strerror or error}{told}"


def _serve_again(host: Host, story: Story, begin: Begin) -> str:
    """Have the server read the old files, if it may have read the new ones."""
    if not any(isinstance(record, Swapping) for record in story.records):
        return NOT_TOLD
    target = begin.target
    if target.master is None:
        return NOT_TOLD
    master = target.master if lives(target.master) else find_master(host, target.conf_path)
    if master is None:
        _check_orphans(host, story, begin, target.master)
        return NOT_RUNNING
    before = generations(host, master)
    if not story.was_told and before.serving == frozenset(target.workers):
        return NOT_TOLD  # nobody has told it since, a package manager neither
    _remove_stale_sockets(story, target)
    logs = Logs([*target.error_logs, *story.tested.error_logs], only_own=True)
    try:
        if not _told(host, master, target):
            _restore_pid_file(story, target.pid_file, master)
            return NOT_TOLD
        old = before.serving | before.leaving
        try:
            workers = await_workers(
                lambda: generations(host, master),
                master,
                old,
                logs,
                seconds=RELOAD_SECONDS,
                heeds_logs=False,
            )
            see_answers(host, master, workers, target.addresses, frozenset(target.silent))
        except ReloadError as error:
            if _is_untouched(host, master, target, before):
                _restore_pid_file(story, target.pid_file, master)
                return NOT_TOLD
            raise StuckError(
                f"the old files are back, but nginx does not serve them: {error.message}",
                hint="see its error log; nginx -t; the running generation may be the new one",
            ) from None
    except ReloadError as error:
        raise StuckError(f"the old files are back, but {error.message}") from None
    finally:
        logs.close()
    _remove_stale_sockets(story, target)  # a reload that was still trying has ended by now
    _restore_pid_file(story, target.pid_file, master)
    return RELOADED


def _check_orphans(host: Host, story: Story, begin: Begin, master: Process) -> None:
    """Errors: StuckError where workers without a master may serve the new configuration."""
    if begin.boot_id != boot_id():
        return
    known = {one.pid for one in begin.target.workers} | story.answered
    left = orphans(host, master, known)
    if left and (story.was_told or not {one.pid for one in begin.target.workers}.issuperset(left)):
        numbers = " ".join(map(str, left))
        raise StuckError(
            f"the old files are back, but the nginx master process {master.pid} has ended without "
            f"its workers ({numbers}): they go on, perhaps with the new configuration",
            hint=f"end them (kill -QUIT {numbers}) and start nginx",
        )


def _told(host: Host, master: Process, target: TargetNginx) -> bool:
    """Have nginx read the old files; false where the command fails and never told it of others.

    The workers are then those of before the change, and stay it: they read no other files.
    Errors: ReloadError.
    """
    try:
        tell(host, master, target.reload_command)
    except ReloadError:
        if not target.reload_command:
            raise
        until = time.monotonic() + QUIET_SECONDS
        while True:
            if generations(host, master).serving != frozenset(target.workers):
                raise
            if time.monotonic() >= until:
                return False
            time.sleep(_POLL_SECONDS)
    return True


def _is_untouched(host: Host, master: Process, target: TargetNginx, before: Generations) -> bool:
    """True if a reload command reloaded nothing, neither then nor now.

    The workers of before the change then serve what they have read: the old configuration.
    Errors: ReloadError when they do not answer.
    """
    old = frozenset(target.workers)
    if not target.reload_command or is_to_reload(master):
        return False
    if not before.serving == generations(host, master).serving == old:
        return False
    see_answers(host, master, old, target.addresses, frozenset(target.silent))
    return True


def _remove_stale_sockets(story: Story, target: TargetNginx) -> None:
    """A socket file that a refused reload made stays, and every later reload fails at it.

    Source: ngx_init_cycle (``failed:`` closes what it opened and unlinks nothing).
    """
    for path in set(story.tested.new_sockets) - set(target.sockets):
        with contextlib.suppress(OSError), opened_directory(path) as directory:
            name = posixpath.basename(path)
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISSOCK(status.st_mode) and _is_dead(f"/proc/self/fd/{directory}/{name}"):
                calls.unlink(directory, name)


def _is_dead(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as asked:
        asked.settimeout(1.0)
        return asked.connect_ex(path) == errno.ECONNREFUSED


def _restore_pid_file(story: Story, left: LeftFile | None, master: Process) -> None:
    """A refused reload with another ``pid`` takes the old file away and leaves the new one.

    Source: ngx_init_cycle, ngx_create_pidfile and ngx_delete_pidfile of the old cycle.
    """
    number = str(master.pid).encode()
    new = story.tested.new_pid_path
    if new is not None and left is not None and new != left.path:
        with contextlib.suppress(OSError):
            if Path(new).read_bytes().strip() in (b"", number):
                _unlink(new)
    if left is None or left.content.strip() != number or Path(left.path).exists():
        return
    with contextlib.suppress(OSError), opened_directory(left.path) as directory:
        descriptor = calls.create(directory, posixpath.basename(left.path))
        try:
            calls.write(descriptor, left.content)
            calls.own(descriptor, left.user, left.group)
            calls.permit(descriptor, left.mode)
        finally:
            os.close(descriptor)


def _unlink(path: str) -> None:
    with contextlib.suppress(OSError), opened_directory(path) as directory:
        calls.unlink(directory, posixpath.basename(path))


class Recovered(NamedTuple):
    """A change that was left unfinished."""

    journal: Journal
    server: str


def unfinished(state: State) -> list[Journal]:
    """Changes that nobody has ended, oldest first."""
    return [one for one in state.all() if not one.read().is_finished]


def is_abandoned(story: Story) -> bool:
    """True if the process that would end a change is no more."""
    begin = story.begin
    return begin is not None and (begin.boot_id != boot_id() or not lives(story.owner))


def _foreign(story: Story) -> bool:
    """True if it is stuck by something that somebody else wrote."""
    last = story.records[-1]
    return isinstance(last, Stuck) and bool(last.paths)


def recover(host: Host, state: State, *, again: bool = False) -> list[Recovered]:
    """Take back every change whose process is gone, the newest first. The caller holds the lock.

    What a finished change could no longer remove, before power was cut or on a disk that was
    read-only, is removed now. ``again`` also tries those that are stuck, if not by the bytes of
    others: the disk may be writable by now.

    Errors: StuckError for one that cannot be taken back.
    """
    done = []
    for journal in reversed(state.all()):
        story = journal.read()
        if story.phase == "damaged":
            continue
        if story.is_finished and story.begin is not None:
            clear(story.begin.entries)
        elif is_abandoned(story) and (story.phase != "stuck" or (again and not _foreign(story))):
            done.append(Recovered(journal, undo(host, journal, "it was not finished")))
    return done


def roll_back(host: Host, state: State, name: str | None) -> tuple[Journal, str]:
    """Take a change back, kept or not; without a name the last one that was made.

    Done again it changes nothing: the change before that one is named to be taken back too.

    Shape:  the change and what the server did; empty when it had been taken back before.
    Errors: UsageError when there is none, RefusedError while another process is at work or
            where a later change of ours is to be taken back before, StuckError when it cannot
            be taken back.
    """
    with state.locked(patience_seconds=PATIENCE_SECONDS):
        journal = state.find(name)
        if journal.read().phase == "undone":
            return journal, ""
        check_later(state, journal)
        return journal, undo(host, journal, "rollback was asked for")


def leave(state: State, name: str | None) -> Journal:
    """End a change that is stuck, with the files as they are.

    Errors: UsageError when there is none, RefusedError for one that is not stuck.
    """
    with state.locked(patience_seconds=PATIENCE_SECONDS):
        journal = state.find(name)
        story = journal.read()
        if story.phase != "stuck" or story.begin is None:
            raise RefusedError(f"change {journal.id} is {story.phase}, not stuck")
        journal.append(Left())
        clear(story.begin.entries)
        return journal


def recover_all(host: Host, state: State) -> list[Recovered]:
    """Take back what was left unfinished, as at the start of the machine.

    Errors: StuckError, also for a journal that is damaged, once the others are ended.
    """
    state.check()
    if not state.journals.is_dir():
        return []
    with state.locked(patience_seconds=PATIENCE_SECONDS):
        done = recover(host, state, again=True)
        for journal in state.all():
            journal.check_whole()
        return done


def check_later(state: State, journal: Journal) -> None:
    """Tell whether a later change of ours hinders a rollback; nothing is written.

    Nobody else's doing: neither is the earlier change stuck by it, nor is anything to be put right
    by hand. The newest is named, since each may stand on the one before.
    Errors: RefusedError that names it.
    """
    begin = journal.read().begin
    wrong = foreign([] if begin is None else begin.entries)
    if not wrong:
        return
    for later in reversed(state.all()):
        story = later.read()
        if later.id <= journal.id:
            return
        if story.begin is None or story.phase == "undone":
            continue
        for entry in story.begin.entries:
            if entry.path in wrong and look(entry) == "new":
                raise RefusedError(
                    f"change {journal.id}: {entry.path} was changed again by change {later.id}",
                    hint=f"take that back first: {later.command('rollback')}",
                )


def orphans(host: Host, master: Process, workers: Collection[int]) -> list[int]:
    """The workers that a master left behind as it was killed: of its session, or known to be its.

    Source: src/os/unix/ngx_daemon.c: a master that is a daemon leads a session of its own.
    """
    found = []
    for pid in find_orphans(host):
        with contextlib.suppress(OSError):
            if pid in workers or os.getsid(pid) == master.pid:
                found.append(pid)
    return found


def is_to_reload(process: Process) -> bool:
    """True if a SIGHUP waits for a master that is busy, perhaps with an earlier reload.

    It hears signals only between two of them. Source: ngx_master_process_cycle (sigsuspend);
    proc_pid_status(5), SigPnd and ShdPnd: bit N-1 stands for signal N.
    """
    try:
        lines = Path(f"/proc/{process.pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return False
    pending = [line.split()[1] for line in lines if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(int(one, 16) & 1 << signal.SIGHUP - 1 for one in pending)
