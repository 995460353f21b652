"""The guardian: a process that takes a change back unless it is confirmed.

The guardian outlives the login session. On SIGTERM it takes the change back before it ends. Its
clock (CLOCK_BOOTTIME) counts from the start of the machine and cannot be set. After a restart of
the machine, the next start of nginx-tune takes an unconfirmed change back.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

from nginx_tune.change.apply.journal import Journal, State, boot_id, boot_seconds
from nginx_tune.change.apply.model_journal import Awaiting, Kept, RefusedError
from nginx_tune.change.apply.swap import clear
from nginx_tune.change.apply.undo import is_abandoned, undo, undo_served
from nginx_tune.errors import ExitStatus, NginxTuneError
from nginx_tune.host.live import LiveHost
from nginx_tune.host.programs import own_module, start_program
from nginx_tune.nginx.reload.workers import Process, process_of

_MODULE = "nginx_tune.change.apply.guardian"
_READY = "guardian"
"""The file in the directory of a change that holds the guardian's process id."""
_POLL_SECONDS = 0.25
_READY_SECONDS = 20.0
_PATIENCE_SECONDS = 30.0
_SYSTEMD = Path("/run/systemd/system")


def hand_over(state: State, journal: Journal, seconds: float) -> str:
    """Start the guardian of a change; returns the deadline in UTC.

    Errors: OSError; RefusedError if it does not start.
    """
    until = boot_seconds() + seconds
    shown = datetime.now(timezone.utc) + timedelta(seconds=seconds)
    guardian = _start(own_module(_MODULE, str(state.path), journal.id, repr(until)), journal)
    text = shown.isoformat(timespec="seconds")
    journal.append(Awaiting(guardian=guardian, until=text, until_boot_seconds=until))
    return text


def _start(command: list[str], journal: Journal) -> Process:
    """Start the process outside the session's cgroup, which systemd ends with the session."""
    if _SYSTEMD.is_dir() and os.geteuid() == 0:
        command = ["systemd-run", "--quiet", "--collect", f"--unit=nginx-tune-{journal.id}",
                   "--", *command]  # fmt: skip
    started = start_program(
        command,
        is_checked=command[0] == sys.executable,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    until = time.monotonic() + _READY_SECONDS
    while time.monotonic() < until:
        with suppress(OSError, ValueError):
            guardian = process_of(int((journal.directory / _READY).read_text()))
            if guardian is not None:
                started.returncode = 0  # it keeps running: subprocess must not warn
                return guardian
        if started.poll():  # systemd-run itself succeeds at once
            break
        time.sleep(0.02)
    started.kill()
    started.wait()
    raise RefusedError("the process that would take the change back did not start")


def confirm(state: State, name: str | None) -> tuple[Journal, ExitStatus]:
    """Keep a change that waits for confirmation; a change that is already kept stays kept.

    A change whose deadline has passed is taken back.
    Errors: RefusedError if the change was taken back meanwhile, or is not waiting.
    """
    with state.locked(patience_seconds=_PATIENCE_SECONDS):
        journal = state.find(name)
        story = journal.read()
        if story.phase == "kept":
            return journal, ExitStatus.OK
        waits = story.deadline
        if story.phase != "awaiting" or waits is None or story.begin is None:
            why = f": {story.reason}" if story.reason else ""
            if story.phase == "stuck":
                raise RefusedError(
                    f"change {journal.id} is stuck and does not wait for confirmation{why}",
                    hint=journal.ways_out,
                )
            if not story.is_finished:
                raise RefusedError(
                    f"change {journal.id} is unfinished: its process has died",
                    hint=journal.recovery,
                )
            raise RefusedError(
                f"change {journal.id} is {story.phase} and does not wait for confirmation{why}"
            )
        is_late = boot_seconds() > waits.until_boot_seconds
        if is_late or story.begin.boot_id != boot_id():
            undo_served(LiveHost(), journal, "it was not confirmed in time")
            return journal, ExitStatus.FOUND
        journal.append(Kept(confirmed=True))
        clear(story.begin.entries)
        return journal, ExitStatus.OK


def guard(
    state: State,
    journal: Journal,
    until_boot_seconds: float,
    must_end: Callable[[], bool] = lambda: False,
) -> None:
    """Wait, then take the change back: at its deadline, or once the process that began it has died.

    If ``must_end`` returns True, as at a shutdown of the machine, the change is taken back at once;
    otherwise it would stay until the next start of nginx-tune.
    """
    with journal.held():
        (journal.directory / _READY).write_text(str(os.getpid()))
        why = _await_end(journal, until_boot_seconds, must_end)
        if not why:
            return
        # If the state directory is gone, nobody can hold the lock: put the files back without it.
        is_kept = state.path.is_dir()
        with state.locked(patience_seconds=_PATIENCE_SECONDS) if is_kept else nullcontext():
            story = journal.read()
            if story.phase == "awaiting" or (not story.is_finished and is_abandoned(story)):
                undo(LiveHost(), journal, why)


def _await_end(journal: Journal, until_boot_seconds: float, must_end: Callable[[], bool]) -> str:
    """Wait until the change must be taken back; returns the reason.

    The reason is empty if another process ends the change first.
    """
    while True:
        story = journal.read()
        if story.is_finished or story.phase == "stuck":
            return ""
        is_orphan = story.phase != "awaiting" and is_abandoned(story)
        if is_orphan or boot_seconds() >= until_boot_seconds:
            return "it was not confirmed in time"
        # Before the phase "awaiting", apply itself works on the change and handles its own signals.
        if story.phase == "awaiting" and must_end():
            return "it was not confirmed before the waiting process had to end"
        time.sleep(_POLL_SECONDS)


def main(arguments: list[str]) -> int:
    """The detached process. Its arguments: the state directory, the change's id, the deadline."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    state = State(Path(arguments[0]))
    journal = Journal(state.journals / arguments[1])
    try:
        guard(state, journal, float(arguments[2]), lambda: bool(signals))
    except NginxTuneError as error:  # the journal has its message
        return int(error.status)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
