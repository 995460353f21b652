"""Reading what nginx wrote, where it could have put a link or a pipe in a file's place.

What runs in the sandbox can do anything to the places that take its writes, and whoever reads
there afterwards has more rights than it has.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

_MOST_LINKS = 40
"""As the kernel follows at most (path_resolution(7))."""


def open_written(path: Path) -> BinaryIO:
    """Open a file of nginx's for reading.

    Links are followed where nobody can write: those of the host, whose file systems are sealed.
    Errors: OSError, ELOOP for a link that nginx could have made, ENODEV for a device such as
            /dev/null, EINVAL for what else is no file.
    """
    left = list(reversed(path.parts[1:]))
    links = 0
    here = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    trail = [here]
    try:
        while left:
            part = left.pop()
            if part == "..":
                os.close(trail.pop() if len(trail) > 1 else os.dup(trail[0]))
                continue
            flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
            trail.append(os.open(part, flags, dir_fd=trail[-1]))
            if not stat.S_ISLNK(os.fstat(trail[-1]).st_mode):
                continue
            link = trail.pop()
            target = os.readlink("", dir_fd=link)  # of the descriptor itself
            os.close(link)
            links += 1
            if links > _MOST_LINKS or not os.fstatvfs(trail[-1]).f_flag & os.ST_RDONLY:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            if target.startswith("/"):
                while len(trail) > 1:
                    os.close(trail.pop())
            left += reversed([one for one in target.split("/") if one not in {"", "."}])
        if stat.S_ISCHR(os.fstat(trail[-1]).st_mode):
            raise OSError(errno.ENODEV, "a device keeps nothing", str(path))
        if not stat.S_ISREG(os.fstat(trail[-1]).st_mode):
            raise OSError(errno.EINVAL, "not a file", str(path))
        # The descriptor is the file's: whatever stands at its name by now is not opened.
        return open(f"/proc/self/fd/{trail[-1]}", "rb")  # noqa: PTH123
    finally:
        for one in trail:
            os.close(one)


def written_bytes(path: Path) -> int:
    """Bytes in a file of nginx's; 0 when it is not there or is none that would be read."""
    try:
        with open_written(path) as file:
            return os.fstat(file.fileno()).st_size
    except OSError:
        return 0
