"""Protection of the files that a command reads from being overwritten by its results.

A report that replaces an included file would be read at the next reload of nginx. So would a new
file whose name matches the pattern of an include. Names are compared by the file behind them, so
neither symbolic nor hard links get around the check.
"""

import os
import posixpath
from collections.abc import Iterable, Sequence
from pathlib import Path

from nginx_tune.conf.include_patterns import TooWideError, expand, is_pattern, matches_name
from nginx_tune.errors import UsageError

_HINT = "name another file for the result"


def refuse_overwriting(files: Sequence[str], read: Iterable[str]) -> None:
    """Refuse results that would overwrite a file that the command reads.

    Errors: UsageError that names the file.
    """
    written = [file for file in files if Path(file).is_file()]
    if not written:
        return
    for source in read:
        for file in written:
            if is_same(file, source):
                raise UsageError(
                    f"{file}: this command reads it and would overwrite it", hint=_HINT
                )


def refuse_in_tree(files: Sequence[str], read: Iterable[str], asked: Iterable[str]) -> None:
    """Refuse results that would overwrite a configuration's files, or that its includes would read.

    ``read`` are its files; ``asked`` are the names and patterns of its includes.
    Errors: UsageError that names the file.
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


def is_same(name: str, other: str) -> bool:
    """True if two names lead to one file, even by links; a missing file is compared by path."""
    try:
        return Path(name).samefile(other)
    except (OSError, ValueError):
        return _real(name) == _real(other)


def _is_special(file: str) -> bool:
    """True for a device or a pipe (``/dev/stdout``), which no result replaces."""
    return Path(file).exists() and not Path(file).is_file()


def is_asked(file: str, name: str) -> bool:
    """True if an include would read a file, under its written name or the name behind links."""
    if not is_pattern(name):
        return is_same(file, name)
    directory, last = posixpath.split(name)
    places = {os.path.abspath(file), _real(file)}  # noqa: PTH100  # the name of a link may match
    near = [place for place in places if matches_name(last, posixpath.basename(place))]
    if not near:
        return False
    try:
        directories = expand(directory, _names)
    except TooWideError:
        return False
    return any(is_same(posixpath.dirname(place), below) for place in near for below in directories)


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208  # names, to match the patterns
    except (OSError, ValueError):
        return []


def _real(file: str) -> str:
    try:
        return os.path.realpath(file)
    except ValueError:  # a NUL byte, which no file name has
        return file
