"""The rollback of a change, from any state of the files and of nginx: files first, then nginx.

A rollback reads no configuration: the journal has all that it needs. A second rollback ends in the
same state. Later changes of the same files must be taken back first.
"""

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
from nginx_tune.nginx.processes import find_orphans
from nginx_tune.nginx.reload.generation import await_workers, see_answers
from nginx_tune.nginx.reload.logs import Logs
from nginx_tune.nginx.reload.workers import Generations, Process, ReloadError, lives

RELOAD_SECONDS = 20.0
"""Time limit of a reload. nginx first resolves names, and retries ports in use for 2.5 s."""
PATIENCE_SECONDS = 30.0
"""The longest wait for the lock while another process holds it."""
QUIET_SECONDS = 3.0
"""Time to watch for new workers after the reload command failed. A reload that did begin shows by
then, since nginx retries ports in use for 2.5 s."""
_POLL_SECONDS = 0.1
RELOADED = "reloaded"
NOT_TOLD = "not told"
NOT_RUNNING = "not running"


def undo_served(host: Host, journal: Journal, reason: str) -> str:
    """As ``undo``, for a change of a running nginx.

    Errors: as ``undo``, and StuckError if nginx has ended meanwhile: the change is taken back, but
            nothing serves.
    """
    server = undo(host, journal, reason)
    if server == NOT_RUNNING:
        raise StuckError(
            f"{reason}: every file is as it was, but nginx is not running", hint="start nginx"
        )
    return server


def undo(host: Host, journal: Journal, reason: str) -> str:
    """Put back every file and make nginx serve the old files.

    The caller holds the lock. Signals are blocked meanwhile.
    Shape:  the effect on nginx (``RELOADED``, ``NOT_TOLD`` or ``NOT_RUNNING``).
    Errors: StuckError if another program wrote to the files, if nginx does not serve the old
            configuration, or if workers whose master has ended may serve the new configuration.
    """
    story = journal.read()
    if story.begin is None:
        raise StuckError(f"{journal.directory}: its journal is gone: what was changed is not known")
    if story.phase == "undone":
        return NOT_TOLD
    with uninterrupted():
        # A full disk must not prevent a rollback: putting the files back needs no space.
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
                f"{reason}; and taking it back failed: {message}", hint=journal.ways_out
            ) from None
        with contextlib.suppress(OSError):
            journal.append(Undone(reason=reason, server=server))
    return server


def _why_not(error: OSError | NginxTuneError, begin: Begin) -> str:
    if isinstance(error, NginxTuneError):
        return error.message
    new = [entry.path for entry in begin.entries if look(entry) == "new"]
    return f"{error.strerror or error}" + (
        f"; still the new files: {', '.join(new)}" if new else ""
    )


def _serve_again(host: Host, story: Story, begin: Begin) -> str:
    """Reload nginx if it may have read the new files; returns the effect on nginx, as ``undo``."""
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
    if not story.may_be_loaded and before.serving == frozenset(target.workers):
        return NOT_TOLD  # nothing has reloaded nginx since, not even a package manager
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
                hint="see its error log and nginx -t; the running workers may be the new ones",
            ) from None
    except ReloadError as error:
        raise StuckError(f"the old files are back, but {error.message}") from None
    finally:
        logs.close()
    _remove_stale_sockets(story, target)  # a reload that was still retrying ports has ended
    _restore_pid_file(story, target.pid_file, master)
    return RELOADED


def _check_orphans(host: Host, story: Story, begin: Begin, master: Process) -> None:
    """Check that no workers without a master may serve the new configuration.

    Errors: StuckError.
    """
    if begin.boot_id != boot_id():
        return
    old = {worker.pid for worker in begin.target.workers}
    left = orphans(host, master, old | story.answered)
    if left and (story.may_be_loaded or not old.issuperset(left)):
        numbers = " ".join(map(str, left))
        raise StuckError(
            f"the old files are back, but the nginx master process {master.pid} has exited and "
            f"left workers running ({numbers}), which may still serve the new configuration",
            hint=f"end them (kill -QUIT {numbers}) and start nginx",
        )


def _told(host: Host, master: Process, target: TargetNginx) -> bool:
    """Reload nginx; False if the reload command fails but nginx never loaded the new files.

    In that case the workers from before the change still serve the old files.
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
    """True if the reload command reloaded nothing, neither in the change nor in the rollback.

    In that case the workers from before the change serve the old configuration.
    Errors: ReloadError if they do not answer.
    """
    old = frozenset(target.workers)
    if not target.reload_command or is_to_reload(master):
        return False
    if not before.serving == generations(host, master).serving == old:
        return False
    see_answers(host, master, old, target.addresses, frozenset(target.silent))
    return True


def _remove_stale_sockets(story: Story, target: TargetNginx) -> None:
    """Remove the sockets that a failed reload created: they would make every later reload fail.

    Source: ngx_init_cycle (``failed:`` closes its sockets and unlinks nothing).
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
    """Restore the pid file after a failed reload with another ``pid``, which moved it.

    Source: ngx_init_cycle; ngx_create_pidfile and ngx_delete_pidfile of the old cycle.
    """
    number = str(master.pid).encode()
    new = story.tested.new_pid_path
    if new is not None and left is not None and new != left.path:
        with contextlib.suppress(OSError):
            if Path(new).read_bytes().strip() in (b"", number):
                with opened_directory(new) as directory:
                    calls.unlink(directory, posixpath.basename(new))
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


class Recovered(NamedTuple):
    """An unfinished change that was taken back."""

    journal: Journal
    server: str


def unfinished(state: State) -> list[Journal]:
    """Changes that have not ended, oldest first."""
    return [journal for journal in state.all() if not journal.read().is_finished]


def is_abandoned(story: Story) -> bool:
    """True if the process that works on an unfinished change has died."""
    begin = story.begin
    return begin is not None and (begin.boot_id != boot_id() or not lives(story.owner))


def recover(host: Host, state: State, *, again: bool = False) -> list[Recovered]:
    """Take back every change whose process has died, newest first. The caller holds the lock.

    It also removes hidden files that a finished change could not remove, after a power cut or on a
    read-only disk. ``again`` retries stuck changes, since the disk may be writable by now, except
    changes whose files another program has written to.

    Errors: StuckError for a change that cannot be taken back.
    """
    done = []
    for journal in reversed(state.all()):
        story = journal.read()
        if story.phase == "damaged":
            continue
        if story.is_finished and story.begin is not None:
            clear(story.begin.entries)
        elif is_abandoned(story):
            last = story.records[-1]
            if not isinstance(last, Stuck) or (again and not last.paths):
                done.append(Recovered(journal, undo(host, journal, "it was not finished")))
    return done


def roll_back(host: Host, state: State, name: str | None) -> tuple[Journal, str]:
    """Take a change back, even if it was kept; by default the last change.

    A second call changes nothing; to go further back, name the change.

    Shape:  the change, and the effect on nginx (empty if the change was already taken back).
    Errors: UsageError if there is no such change; RefusedError if another process holds the lock
            or a later change must be taken back first; StuckError if it cannot be taken back.
    """
    with state.locked(patience_seconds=PATIENCE_SECONDS):
        journal = state.find(name)
        if journal.read().phase == "undone":
            return journal, ""
        check_later(state, journal)
        return journal, undo(host, journal, "rollback was asked for")


def leave(state: State, name: str | None) -> Journal:
    """End a change that is stuck, with the files as they are.

    Errors: UsageError if there is no such change; RefusedError if it is not stuck.
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
    """Take back every unfinished change, as at the start of the machine.

    Errors: StuckError; for a damaged journal, only after the other changes have ended.
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
    """Check that no later change touches the same files; nothing is written.

    The earlier change is not marked as stuck, since no file needs repair by hand.
    Errors: RefusedError that names the newest such change, which must be taken back first.
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
    """Workers that outlive their master: those given, and those in the master's session.

    Source: src/os/unix/ngx_daemon.c: a master that runs as a daemon leads its own session.
    """
    found = []
    for pid in find_orphans(host):
        with contextlib.suppress(OSError):
            if pid in workers or os.getsid(pid) == master.pid:
                found.append(pid)
    return found


def is_to_reload(process: Process) -> bool:
    """True if a SIGHUP is pending for a master, which may be busy with an earlier reload.

    Source: ngx_master_process_cycle (sigsuspend); proc_pid_status(5): bit N-1 of SigPnd and ShdPnd
    is signal N.
    """
    try:
        lines = Path(f"/proc/{process.pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return False
    masks = [line.split()[1] for line in lines if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(int(mask, 16) & 1 << signal.SIGHUP - 1 for mask in masks)
