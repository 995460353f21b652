"""Where root keeps files: nowhere that somebody else could change or replace them.

``TMPDIR`` and the directories for caches and state come from the caller's environment, and sudo
may leave ``HOME`` the caller's. What lies there is run (a disk image is mounted) and believed (a
settings file), so as root only places are used that are root's on the whole way.
"""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

from nginx_tune.errors import UsageError
from nginx_tune.host.caller import caller_id
from nginx_tune.host.trust import acts_as_root, distrust_handed, distrust_place, foreign_link

_PLACES = ("TMPDIR", "XDG_CACHE_HOME", "XDG_STATE_HOME")


def settle_places() -> list[str]:
    """Leave out of this process's environment, as root, the places that others could change.

    Shape: a sentence for each; of HOME nothing is said, sudo has it either way.
    """
    if not acts_as_root():
        return []
    told = []
    for name in _PLACES:
        place = os.environ.get(name)
        why = distrust_place(place) if place else ""
        if why:
            del os.environ[name]
            told.append(f"{name}={place} is not used as root: {why}")
    if distrust_place(os.environ.get("HOME", "")):
        os.environ["HOME"] = pwd.getpwuid(0).pw_dir
    return told


def why_not_own(path: Path) -> str:
    """Why, as root, what is kept in a place is not to be relied upon; empty when it is."""
    return distrust_place(os.path.abspath(path)) if acts_as_root() else ""  # noqa: PTH100


def why_not_handed(path: str) -> str:
    """Why, as root, a file whose content root is to put in force is not taken; empty when it is.

    Behind sudo the files of who typed it will do: he has become root himself.
    """
    if not acts_as_root():
        return ""
    whole = os.path.abspath(path)  # noqa: PTH100  # links stay: each of them is looked at
    return distrust_handed(whole, caller_id())


def check_writable(path: Path) -> None:
    """Errors: UsageError for a path that another user's link leads elsewhere, as root."""
    why = foreign_link(os.fspath(path)) if acts_as_root() else ""
    if why:
        raise UsageError(f"{path}: not written as root: {why}", hint="name another file")


def open_own(path: Path) -> int:
    """A file that this user keeps, opened for reading; links are not followed.

    Errors: OSError, FileNotFoundError also for one that somebody else made or may write.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    status = os.fstat(descriptor)
    is_own = status.st_uid == os.geteuid() and stat.S_ISREG(status.st_mode)
    if not is_own or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        os.close(descriptor)
        raise FileNotFoundError(0, "not a file of this user's alone", os.fspath(path))
    return descriptor
