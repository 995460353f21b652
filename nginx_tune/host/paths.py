"""Paths: their resolution, the opening of files below a directory, and paths that root may use.

``..`` means the parent of a link's target, as for the kernel. A file below a directory is opened by
a path without links and without ``..``.

``TMPDIR`` and the directories for caches and state come from the caller's environment, and sudo may
keep the caller's ``HOME``. Files there are executed (a disk image is mounted) or trusted (a
settings file), so root only uses a place if only root can change any directory on its path.
"""

import errno
import os
import posixpath
import pwd
import stat
from collections.abc import Callable
from pathlib import Path

from nginx_tune.errors import UsageError
from nginx_tune.host.trust import (
    acts_as_root,
    caller_id,
    distrust_handed,
    distrust_place,
    foreign_link,
)


def absolute_path(path: str) -> str:
    """The absolute path without ``..``; links are kept, except before a ``..``."""
    if ".." not in path.split("/"):
        return os.path.abspath(path)  # noqa: PTH100  # links stay
    return climbed(posixpath.join(os.getcwd(), path), os.path.realpath)  # noqa: PTH109


def from_here(path: str) -> str:
    """The path as it may be typed in this directory: relative if it is below."""
    if not posixpath.isabs(path):
        return posixpath.normpath(path)
    here = os.getcwd()  # noqa: PTH109
    return "." if path == here else path.removeprefix(f"{here}/")


def climbed(path: str, real_path: Callable[[str], str]) -> str:
    """The absolute path with its ``..`` resolved; links after the last ``..`` are kept."""
    parts = path.split("/")
    below = len(parts) - parts[::-1].index("..")
    return posixpath.normpath(posixpath.join(real_path("/".join(parts[:below])), *parts[below:]))


def steps_below(name: str) -> list[str] | None:
    """The components of a relative path without ``..``; None for any other path."""
    steps = [step for step in name.split("/") if step not in {"", "."}]
    return None if name.startswith("/") or ".." in steps else steps


def open_below(directory: str, name: str, flags: int = os.O_RDONLY | os.O_NONBLOCK) -> int:
    """Open a file by its relative path below a directory; returns the descriptor.

    Errors: OSError, with ELOOP for a path that is absolute or contains ``..`` or a link.
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
    """The reason why a path leads, or could lead, out of a directory; empty if it does not.

    A missing file passes, but may be a link later: open files with ``open_below``.
    """
    if name.startswith("/"):
        return "is an absolute path"
    try:
        os.close(open_below(directory, name, os.O_PATH))
    except FileNotFoundError:
        return ""
    except OSError as error:
        leads = error.errno == errno.ELOOP
        return str(error.strerror) if leads else f"cannot be read: {error.strerror}"
    except ValueError:
        return "is not the name of a file"
    return ""


_PLACES = ("TMPDIR", "XDG_CACHE_HOME", "XDG_STATE_HOME")


def settle_places() -> list[str]:
    """Remove from root's environment the variables that name a directory which others could change.

    Shape: a sentence for each. HOME is replaced silently, since sudo may keep or change it.
    """
    if not acts_as_root():
        return []
    notes = []
    for name in _PLACES:
        place = os.environ.get(name)
        why = distrust_place(place) if place else ""
        if why:
            del os.environ[name]
            notes.append(f"{name}={place} is not used as root: {why}")
    if distrust_place(os.environ.get("HOME", "")):
        os.environ["HOME"] = pwd.getpwuid(0).pw_dir
    return notes


def why_not_own(path: Path) -> str:
    """The reason why root must not rely on the files at a path; empty if root may."""
    return distrust_place(os.path.abspath(path)) if acts_as_root() else ""  # noqa: PTH100


def why_not_handed(path: str) -> str:
    """The reason why root must not apply the contents of a file; empty if root may.

    Under sudo, files of the calling user are accepted, since that user became root.
    """
    if not acts_as_root():
        return ""
    whole = os.path.abspath(path)  # noqa: PTH100  # links stay and are checked
    return distrust_handed(whole, caller_id())


def check_writable(path: Path) -> None:
    """Refuse to write as root through another user's link. Errors: UsageError."""
    why = foreign_link(os.fspath(path)) if acts_as_root() else ""
    if why:
        raise UsageError(f"{path}: not written as root: {why}", hint="name another file")


def open_own(path: Path) -> int:
    """Open a file of this user for reading; links are not followed.

    Errors: OSError; FileNotFoundError also for a file that another user owns or may write.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    status = os.fstat(descriptor)
    is_own = status.st_uid == os.geteuid() and stat.S_ISREG(status.st_mode)
    if not is_own or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        os.close(descriptor)
        raise FileNotFoundError(0, "not owned by this user alone", os.fspath(path))
    return descriptor
