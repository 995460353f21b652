"""What keeps a change from beginning: an earlier one, or who else may reload nginx meanwhile."""

from __future__ import annotations

import fcntl
import os
import struct

from nginx_tune.change.apply.errors import RefusedError
from nginx_tune.change.apply.journal import State
from nginx_tune.change.apply.undo import is_abandoned, unfinished
from nginx_tune.errors import UndecidedError

_PACKAGE_LOCKS = {
    "dpkg": "/var/lib/dpkg/lock-frontend",
    "certbot": "/etc/letsencrypt/.certbot.lock",
}
"""Who may reload nginx amid a change."""
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
    """Whether one is at work: its scripts reload nginx, amid a change a mixture of files.

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
