"""Results that would stand where something is read: the one guard of every command.

A report in the place of an included file is what nginx reads at its next reload, and so is a new
file whose name an include's pattern matches. Names are compared by the file behind them, so that
neither a symbolic nor a hard link is a way around.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Sequence
from pathlib import Path

from nginx_tune.conf.tree import TooWideError, expand, is_pattern, matches_name
from nginx_tune.errors import UsageError

_HINT = "name another file for the result"


def refuse_overwriting(files: Sequence[str], read: Iterable[str]) -> None:
    """Refuse results that would take the place of what they are made from.

    Errors: UsageError naming the file.
    """
    written = [file for file in files if Path(file).is_file()]
    if not written:
        return
    for source in read:
        for file in written:
            if is_same(file, source):
                raise UsageError(
                    f"{file}: is read by this command and would be overwritten", hint=_HINT
                )


def refuse_in_tree(files: Sequence[str], read: Iterable[str], asked: Iterable[str]) -> None:
    """Refuse results that are files of a configuration, or would become some.

    ``read`` are its files, ``asked`` what its includes name, patterns as they are.
    Errors: UsageError naming the file.
    """
    refuse_overwriting(files, read)
    written = [file for file in files if not _is_special(file)]
    if not written:
        return
    for name in dict.fromkeys(asked):
        for file in written:
            if is_asked(file, name):
                raise UsageError(
                    f"{file}: the configuration includes {name}, so nginx would read the result",
                    hint=_HINT,
                )


def is_same(one: str, other: str) -> bool:
    """True for two names of one file, by links too, or that would be once it is there."""
    try:
        return Path(one).samefile(other)
    except (OSError, ValueError):
        return _real(one) == _real(other)


def _is_special(file: str) -> bool:
    """A device or a pipe (``/dev/stdout``): nothing is put in its place."""
    return Path(file).exists() and not Path(file).is_file()


def is_asked(file: str, name: str) -> bool:
    """True where an include would read a file, by the written name or the one behind it."""
    if not is_pattern(name):
        return is_same(file, name)
    directory, last = posixpath.split(name)
    places = {os.path.abspath(file), _real(file)}  # noqa: PTH100  # a link's own name may match
    near = [one for one in places if matches_name(last, posixpath.basename(one))]
    if not near:
        return False
    try:
        directories = expand(directory, _names)
    except TooWideError:
        return False
    return any(is_same(posixpath.dirname(one), below) for one in near for below in directories)


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208  # names, as the patterns are held against
    except (OSError, ValueError):
        return []


def _real(file: str) -> str:
    try:
        return os.path.realpath(file)
    except ValueError:  # a NUL byte: no file's name
        return file
