"""Files below a directory, opened by a path on which no step is a link or leads up."""

from __future__ import annotations

import errno
import os
import stat


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
    """Why a path leads out of a directory, or could; empty for one that does not, or is not there.

    It says nothing of what stands there later: a file is to be opened by `open_below`.
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
