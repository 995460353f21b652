"""Every system call of ``apply`` that changes something, in one place.

``after_call`` is told of each as it returns, so that a test can end the process behind every one.
"""

from __future__ import annotations

import array
import ctypes
import errno
import fcntl
import os
import signal
from collections.abc import Callable
from pathlib import Path

_NOREPLACE = 1
_EXCHANGE = 2
_GETFLAGS = 0x80086601
_SETFLAGS = 0x40086602
"""Source: renameat2(2), ioctl_iflags(2); the numbers of 64-bit Linux."""

_libc = ctypes.CDLL(None, use_errno=True)


def _nothing(_name: str) -> None:
    """Nobody listens."""


after_call: Callable[[str], None] = _nothing


def exchange(directory: int, one: str, other: str) -> None:
    """Swap two names of a directory in one step.

    Errors: OSError; EINVAL where the file system cannot, ENOENT where one is not there.
    """
    _rename(directory, one, other, _EXCHANGE)


def rename_new(directory: int, one: str, other: str) -> None:
    """Rename to a name that is free.

    Errors: OSError; FileExistsError where it is not.
    """
    _rename(directory, one, other, _NOREPLACE)


def rename_over(directory: int, one: str, other: str) -> None:
    """Rename in the place of what bears the other name, in one step.

    Errors: OSError.
    """
    _rename(directory, one, other, 0)


def _rename(directory: int, one: str, other: str, flags: int) -> None:
    said = _libc.renameat2(directory, os.fsencode(one), directory, os.fsencode(other), flags)
    if said < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), one, None, other)
    after_call("renameat2")


def unlink(directory: int, name: str) -> None:
    """Remove a name; one that is not there is fine."""
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        return
    after_call("unlink")


def create(directory: int | None, name: str, mode: int = 0o600) -> int:
    """A new file, open for reading and writing.

    Errors: OSError; FileExistsError where the name is taken.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, mode, dir_fd=directory)
    after_call("open")
    return descriptor


def make_directory(path: Path, mode: int) -> None:
    """One that is not there yet, with its name on the disk.

    Without that a power cut could take the journal away and leave what it is about.
    Errors: OSError; FileExistsError where the name is taken.
    """
    path.mkdir(mode=mode)
    after_call("mkdir")
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flush(descriptor)
    finally:
        os.close(descriptor)


def cut(descriptor: int, size_bytes: int) -> None:
    """Make a file end there."""
    os.ftruncate(descriptor, size_bytes)
    after_call("ftruncate")


def write(descriptor: int, data: bytes) -> None:
    """All bytes.

    Errors: OSError.
    """
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
        after_call("write")


def flush(descriptor: int) -> None:
    """To the disk (a file's data and size, a directory's names)."""
    os.fsync(descriptor)
    after_call("fsync")


def own(descriptor: int, user: int, group: int) -> None:
    """Give a file to a user and a group."""
    os.fchown(descriptor, user, group)
    after_call("fchown")


def permit(descriptor: int, mode: int) -> None:
    """The permission bits."""
    os.fchmod(descriptor, mode)
    after_call("fchmod")


def set_attribute(descriptor: int, name: str, value: bytes) -> None:
    """One extended attribute: access lists and security labels are some of them."""
    os.setxattr(descriptor, name, value)
    after_call("setxattr")


def remove_attribute(descriptor: int, name: str) -> None:
    """One extended attribute less."""
    os.removexattr(descriptor, name)
    after_call("removexattr")


def set_times(descriptor: int, accessed_ns: int, modified_ns: int) -> None:
    """The times at which it was read and written last."""
    os.utime(descriptor, ns=(accessed_ns, modified_ns))
    after_call("utimensat")


def inode_flags(descriptor: int) -> int:
    """The flags of chattr(1); 0 where the file system has none."""
    word = array.array("l", [0])
    try:
        fcntl.ioctl(descriptor, _GETFLAGS, word)
    except OSError as error:
        if error.errno in (errno.ENOTTY, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            return 0
        raise
    return word[0] & 0xFFFFFFFF


def set_inode_flags(descriptor: int, flags: int) -> None:
    """Set them."""
    fcntl.ioctl(descriptor, _SETFLAGS, array.array("l", [flags]))
    after_call("ioctl")


def send_signal(process: int, number: signal.Signals) -> None:
    """Signal the process of a pidfd: never another one that has got its number since."""
    signal.pidfd_send_signal(process, number)
    after_call("pidfd_send_signal")
