"""Paths: where they lead, whether they stay below a directory, whether root may rely on them.

``..`` leads up from where a link leads to, as the kernel goes, not back along the link's name. A
file below a directory is opened by a path on which no step is a link or leads up.

``TMPDIR`` and the directories for caches and state come from the caller's environment, and sudo
may leave ``HOME`` the caller's. What lies there is run (a disk image is mounted) and believed (a
settings file), so as root only places are used that are root's on the whole way.
"""

from __future__ import annotations

import errno
import os
import posixpath
import pwd
import stat
from collections.abc import Callable
from pathlib import Path

from nginx_tune.errors import UsageError
from nginx_tune.host.caller import caller_id
from nginx_tune.host.trust import acts_as_root, distrust_handed, distrust_place, foreign_link


def absolute_path(path: str) -> str:
    """A path of this host from the root on, without ``..``; links stay but where ``..`` follows."""
    if ".." not in path.split("/"):
        return os.path.abspath(path)  # noqa: PTH100  # links stay
    return climbed(posixpath.join(os.getcwd(), path), os.path.realpath)  # noqa: PTH109


def climbed(path: str, real_path: Callable[[str], str]) -> str:
    """An absolute path with ``..`` as one without; what follows the last one stays as named."""
    parts = path.split("/")
    below = len(parts) - parts[::-1].index("..")
    return posixpath.normpath(posixpath.join(real_path("/".join(parts[:below])), *parts[below:]))


def steps_below(name: str) -> list[str] | None:
    """The steps of a relative path that leads down alone; None for any other."""
    steps = [step for step in name.split("/") if step not in {"", "."}]
    return None if name.startswith("/") or ".." in steps else steps


def open_below(directory: str, name: str, flags: int = os.O_RDONLY | os.O_NONBLOCK) -> int:
    """A descriptor of what a relative path names below a directory.

    Errors: OSError, ELOOP for a path that leads up or through a link, also as its last step.
    """
    steps = steps_below(name)
    if steps is None:
        raise OSError(errno.ELOOP, "leads out of its directory", name)
    here = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for number, step in enumerate(steps, 1):
        wanted = flags if number == len(steps) else os.O_PATH
        try:
            below = os.open(step, wanted | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
        except OSError as error:
            raise _through_link(name) if error.errno == errno.ELOOP else error from None
        finally:
            os.close(here)
        here = below
        if stat.S_ISLNK(os.fstat(here).st_mode):  # as O_PATH opens one
            os.close(here)
            raise _through_link(name)
    return here


def _through_link(name: str) -> OSError:
    return OSError(errno.ELOOP, "leads through a link", name)


def why_not_below(directory: str, name: str) -> str:
    """The reason that a path leads out of a directory, or could; empty where it does not.

    It is empty for a path that is not there too, and says nothing of what stands there later: a
    file is to be opened by `open_below`.
    """
    if name.startswith("/"):
        return "is an absolute path"
    try:
        os.close(open_below(directory, name, os.O_PATH))
    except FileNotFoundError:
        return ""
    except OSError as error:
        leads = error.errno == errno.ELOOP
        return str(error.strerror) if leads else f"cannot be looked at: {error.strerror}"
    except ValueError:
        return "is no name of a file"
    return ""


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
    """The reason not to rely, as root, on what is kept in a place; empty where one may."""
    return distrust_place(os.path.abspath(path)) if acts_as_root() else ""  # noqa: PTH100


def why_not_handed(path: str) -> str:
    """The reason not to put a file's content in force as root; empty where one may.

    Behind sudo the files of who typed it will do: he has become root himself.
    """
    if not acts_as_root():
        return ""
    whole = os.path.abspath(path)  # noqa: PTH100  # links stay: each of them is looked at
    return distrust_handed(whole, caller_id())


def check_writable(path: Path) -> None:
    """Refuse, as root, a path that another user's link leads elsewhere. Errors: UsageError."""
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
