"""Every system call of ``apply`` that changes something, in one place.

``after_call`` gets the name of each call once it has returned, so that a test can end the process
after any of them. Every function raises OSError if its call fails.
"""

import array
import ctypes
import errno
import fcntl
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

_NOREPLACE = 1
_EXCHANGE = 2
_GETFLAGS = 0x80086601
_SETFLAGS = 0x40086602
"""The constants above have the values of 64-bit Linux. Source: renameat2(2), ioctl_iflags(2)."""

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_libc = ctypes.CDLL(None, use_errno=True)


def _ignore(_name: str) -> None:
    """Do nothing: the default of ``after_call``."""


after_call: Callable[[str], None] = _ignore


def _reported(call: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Make a function of ``os`` report each of its calls to ``after_call``."""

    def run(*args: _Arguments.args, **keywords: _Arguments.kwargs) -> _Result:
        result = call(*args, **keywords)
        after_call(call.__name__)
        return result

    return run


cut = _reported(os.ftruncate)
flush = _reported(os.fsync)
"""Flush a descriptor to the disk: the data and size of a file, or the names in a directory."""
own = _reported(os.fchown)
permit = _reported(os.fchmod)
set_attribute = _reported(os.setxattr)
"""Set an extended attribute, such as an access list or a security label."""
remove_attribute = _reported(os.removexattr)
send_signal = _reported(signal.pidfd_send_signal)
"""Signal the process of a pidfd, never a later process with the same process id."""


def exchange(directory: int, one: str, other: str) -> None:
    """Swap two names in a directory in one step.

    Errors: OSError; EINVAL if the file system cannot do it, ENOENT if a name does not exist.
    """
    _rename(directory, one, other, _EXCHANGE)


def rename_new(directory: int, one: str, other: str) -> None:
    """Rename a file to a name that is not in use.

    Errors: OSError; FileExistsError if the name is in use.
    """
    _rename(directory, one, other, _NOREPLACE)


def rename_over(directory: int, one: str, other: str) -> None:
    """Rename a file, and replace any file of the new name in the same step."""
    _rename(directory, one, other, 0)


def _rename(directory: int, one: str, other: str, flags: int) -> None:
    status = _libc.renameat2(directory, os.fsencode(one), directory, os.fsencode(other), flags)
    if status < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), one, None, other)
    after_call("renameat2")


def unlink(directory: int, name: str) -> None:
    """Remove a name, if it exists."""
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        return
    after_call("unlink")


def create(directory: int | None, name: str) -> int:
    """Create a file that only its owner can read, and open it for reading and writing.

    Errors: OSError; FileExistsError if the name is in use.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o600, dir_fd=directory)
    after_call("open")
    return descriptor


def make_directory(path: Path, mode: int) -> None:
    """Create a directory and flush its name to the disk.

    Without the flush, a power cut could leave a change without its journal.
    Errors: OSError; FileExistsError if the name is in use.
    """
    path.mkdir(mode=mode)
    after_call("mkdir")
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flush(descriptor)
    finally:
        os.close(descriptor)


def write(descriptor: int, data: bytes) -> None:
    """Write all bytes."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
        after_call("write")


def set_times(descriptor: int, accessed_ns: int, modified_ns: int) -> None:
    """Set the times of the last read and the last write."""
    os.utime(descriptor, ns=(accessed_ns, modified_ns))
    after_call("utimensat")


def inode_flags(descriptor: int) -> int:
    """The flags of chattr(1); 0 if the file system has none."""
    word = array.array("l", [0])
    try:
        fcntl.ioctl(descriptor, _GETFLAGS, word)
    except OSError as error:
        if error.errno in (errno.ENOTTY, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            return 0
        raise
    return word[0] & 0xFFFFFFFF


def set_inode_flags(descriptor: int, flags: int) -> None:
    """Set the flags of chattr(1)."""
    fcntl.ioctl(descriptor, _SETFLAGS, array.array("l", [flags]))
    after_call("ioctl")
