"""A tree of files with some replaced: what an audit would say of a change not yet made."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping

from nginx_tune.conf.tree import Reader
from nginx_tune.errors import UsageError
from nginx_tune.host.climbing import absolute_path


class Overlaid:
    """A reader that gives other bytes for some files; symbolic links to them are followed."""

    def __init__(self, reader: Reader, files: Mapping[str, bytes]) -> None:
        self.reader = reader
        self.climb = getattr(reader, "climb", posixpath.normpath)
        self._files = {_real(path): data for path, data in files.items()}
        self._unread = {_real(path): path for path in files}  # one file may have several names
        self._new_names: dict[str, set[str]] = {}
        for path in files:
            directory, name = posixpath.split(_absolute(path))
            self._new_names.setdefault(directory, set()).add(name)

    def read_bytes(self, path: str) -> bytes:
        """Contents of a file."""
        real = _real(path)
        if real in self._files:
            self._unread.pop(real, None)
            return self._files[real]
        return self.reader.read_bytes(path)

    def list_dir(self, path: str) -> list[str]:
        """Names in a directory, with those of files that are only here."""
        new = self._new_names.get(_absolute(path), set())
        if not new:
            return self.reader.list_dir(path)
        old = self.reader.list_dir(path) if os.path.isdir(path) else []  # noqa: PTH112
        return sorted({*old, *new})

    def check_all_read(self) -> None:
        """Raise UsageError for a replaced file that the tree does not include."""
        for path in self._unread.values():
            raise UsageError(f"--overlay {path}: the configuration does not include this file")


def _absolute(path: str) -> str:
    return absolute_path(path)


def _real(path: str) -> str:
    return os.path.realpath(path)
