"""Files that nginx would wait at for ever: pipes among its logs, certificates and includes."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable

from nginx_tune.errors import ConfigurationError

_STREAM = re.compile("/dev/std(out|err)|(/dev|/proc/self)/fd/[12]")
_KINDS = ((stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"), (stat.S_ISBLK, "a block device"))


def is_own_stream(path: str) -> bool:
    """Whether the path is the standard output or error of whoever opens it."""
    return _STREAM.fullmatch(path) is not None


def refuse_special_files(paths: Iterable[str]) -> None:
    """See that none of the files that nginx opens is one that it would hang at, or write to a disk.

    The standard streams are nginx's own where it runs, whatever ours are: images log to them.
    Errors: ConfigurationError that names the first.
    """
    for path in paths:
        if is_own_stream(path) or is_own_stream(_link(path)):
            continue
        try:
            mode = os.stat(path).st_mode  # noqa: PTH116  # a link is what it leads to
        except (OSError, ValueError):
            continue  # nginx says what it thinks of one that is not there
        for is_kind, kind in _KINDS:
            if is_kind(mode):
                raise ConfigurationError(
                    f"{path}: {kind}, not a file: nginx is not started with it",
                    hint="try it with a file in its place: --overlay, or another path",
                )


def _link(path: str) -> str:
    """What a symbolic link says; empty for what is none."""
    try:
        return os.readlink(path)  # noqa: PTH115
    except (OSError, ValueError):
        return ""
