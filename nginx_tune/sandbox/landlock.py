"""The second belt: no write to what is not ours, by Landlock, where the kernel has it.

A pipe of the host in a directory that is shown takes writes though its mount is read-only; this
keeps it from being opened for writing. Only writing is judged, so reading costs nothing.
Source: Documentation/userspace-api/landlock.rst.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from nginx_tune.sandbox import kernel_calls

_WRITE_FILE, _REMOVE_DIR, _REMOVE_FILE = 1 << 1, 1 << 4, 1 << 5
_MAKE = sum(1 << bit for bit in range(6, 13))
"""Directories, files, links, sockets, pipes and devices."""
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_REFER_SINCE, _TRUNCATE_SINCE, _IOCTL_SINCE, _SCOPES_SINCE = 2, 3, 5, 6
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2


def restrict_writes(writable: Iterable[str], files: Iterable[str]) -> None:
    """Allow writing below some directories and to some files only.

    Errors: OSError where the kernel has Landlock and refuses. Nothing happens where it has none.
    """
    version = kernel_calls.landlock_version()
    if version < 1:
        return
    wanted = _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE
    wanted |= _REFER if version >= _REFER_SINCE else 0
    wanted |= _TRUNCATE if version >= _TRUNCATE_SINCE else 0
    wanted |= _IOCTL_DEV if version >= _IOCTL_SINCE else 0
    scopes = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if version >= _SCOPES_SINCE else 0
    ruleset = kernel_calls.make_ruleset(wanted, scopes)
    try:
        for path in writable:
            with contextlib.suppress(FileNotFoundError):
                kernel_calls.allow_beneath(ruleset, path, wanted)
        file_rights = wanted & (_WRITE_FILE | _TRUNCATE | _IOCTL_DEV)
        for path in files:
            with contextlib.suppress(OSError):  # not there, or a pipe, which it does not judge
                kernel_calls.allow_beneath(ruleset, path, file_rights)
        kernel_calls.restrict_self(ruleset)
    finally:
        os.close(ruleset)
