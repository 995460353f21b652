"""What nginx is not started with: code that others could have written, files it would hang at.

The walls hold what runs in them; that somebody else's code is not even tried as root is the belt
beside them, the same for a module as for the program that loads it. Pipes among logs, certificates
and includes would be waited at for ever.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from nginx_tune.errors import ConfigurationError, UndecidedError
from nginx_tune.host.programs import is_vouched_for, why_not_run


def refuse_foreign_code(binary: str, modules: Iterable[str]) -> None:
    """See that nobody but root could have written nginx and what ``load_module`` names.

    Who vouches for the program (``--trust``) vouches for what it loads.
    Errors: UndecidedError that names the first.
    """
    if is_vouched_for(binary):
        return
    # What is not there nginx itself complains of.
    for path in (binary, *filter(_is_there, modules)):
        why = why_not_run(path)
        if why:
            raise UndecidedError(
                f"not run as root: {path}: {why}" if path not in why else f"not run as root: {why}",
                hint="install it, root's own, where only root may write, such as /opt, run this as "
                "its owner, or take your own word with --nginx BIN --trust",
            )


def _is_there(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False


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
