"""What a file is besides its bytes: read, put on another file, and compared."""

from __future__ import annotations

import errno
import os

from nginx_tune.change.apply import calls
from nginx_tune.change.apply.model_journal import Attributes

IMMUTABLE = 0x10
APPEND_ONLY = 0x20
_SETTABLE = 0x8040CC
"""COMPR 4, SYNC 8, NODUMP 40, NOATIME 80, JOURNAL_DATA 4000, NOCOW 800000.

Source: include/uapi/linux/fs.h. Others (extents, inline data) are the file system's own affair.
"""
_MODE_BITS = 0o7777


def read_attributes(descriptor: int) -> Attributes:
    """Of an open file.

    Errors: OSError.
    """
    status = os.fstat(descriptor)
    return Attributes(
        mode=status.st_mode & _MODE_BITS,
        user=status.st_uid,
        group=status.st_gid,
        accessed_ns=status.st_atime_ns,
        modified_ns=status.st_mtime_ns,
        extended={name: os.getxattr(descriptor, name) for name in _names(descriptor)},
        inode_flags=calls.inode_flags(descriptor) & _SETTABLE,
    )


def put_attributes(descriptor: int, wanted: Attributes, *, with_times: bool) -> None:
    """Make an open file like another one; owner first, since that takes bits and labels away.

    Errors: OSError when one cannot be set, or does not stand as set.
    """
    calls.own(descriptor, wanted.user, wanted.group)
    calls.permit(descriptor, wanted.mode)
    for name in set(_names(descriptor)) - set(wanted.extended):
        calls.remove_attribute(descriptor, name)
    for name, value in wanted.extended.items():
        if _value(descriptor, name) != value:
            calls.set_attribute(descriptor, name, value)
    if wanted.inode_flags != calls.inode_flags(descriptor) & _SETTABLE:
        rest = calls.inode_flags(descriptor) & ~_SETTABLE
        calls.set_inode_flags(descriptor, rest | wanted.inode_flags)
    if with_times:
        calls.set_times(descriptor, wanted.accessed_ns, wanted.modified_ns)
    different = differing(read_attributes(descriptor), wanted, with_times=with_times)
    if different:
        raise OSError(errno.ENOTSUP, f"its {different} cannot be given to another file")


def differing(one: Attributes, other: Attributes, *, with_times: bool) -> str:
    """What two files differ in; empty when in nothing. When one was read last does not count."""
    pairs = {
        "owner": (one.user, other.user),
        "group": (one.group, other.group),
        "mode": (one.mode, other.mode),
        "extended attributes": (one.extended, other.extended),
        "inode flags": (one.inode_flags, other.inode_flags),
    }
    if with_times:
        pairs["time of change"] = (one.modified_ns, other.modified_ns)
    return ", ".join(name for name, (this, that) in pairs.items() if this != that)


def _names(descriptor: int) -> list[str]:
    try:
        return os.listxattr(descriptor)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            return []
        raise


def _value(descriptor: int, name: str) -> bytes | None:
    try:
        return os.getxattr(descriptor, name)
    except OSError:
        return None
