"""Which files nginx reads: the includes followed here, from the main file on.

What ``nginx -T`` prints is not believed by itself, since any file may hold a line that looks like
the head of another one.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from nginx_tune.change.apply.errors import RefusedError
from nginx_tune.conf.tree import ConfTree, read_tree
from nginx_tune.host.door import MOST_BYTES, Host


class FollowedFiles(NamedTuple):
    """A configuration as it lies on the disk."""

    tree: ConfTree
    files: dict[str, bytes]
    """Of every file that could be read, by the name that the include gives it."""
    directories: list[str]
    """In which a pattern of an include was looked for."""
    places: list[str]
    """All of these, and files that are not there."""


class _Reader:
    """A host's files with those of a change in their places, and which of them were asked for."""

    def __init__(self, host: Host, contents: Mapping[str, bytes]) -> None:
        self._host = host
        self._contents = contents
        self.files: dict[str, bytes] = {}
        self.directories: dict[str, None] = {}
        self.places: dict[str, None] = {}

    def read_bytes(self, path: str) -> bytes:
        """Contents of a file."""
        self.places[path] = None
        new = self._contents.get(os.path.realpath(path))
        data = self._host.read_bytes(path, limit_bytes=MOST_BYTES) if new is None else new
        self.files[path] = data
        return data

    def list_dir(self, path: str) -> list[str]:
        """Names in a directory, new ones too."""
        self.places[path] = self.directories[path] = None
        real = os.path.realpath(path)
        new = {posixpath.basename(one) for one in self._contents if posixpath.dirname(one) == real}
        return [*new, *(one for one in self._host.list_dir(path) if one not in new)]


def read_files(
    host: Host, conf_path: str, *, prefix: str, contents: Mapping[str, bytes] | None = None
) -> FollowedFiles:
    """The files that the includes reach; ``contents`` stand in the place of what is there.

    ``contents`` are by path with every link resolved. Errors: none, as of ``read_tree``.
    """
    reader = _Reader(host, contents or {})
    tree = read_tree(conf_path, reader, prefix=prefix)
    return FollowedFiles(tree, reader.files, list(reader.directories), list(reader.places))


def check_included(changed: Iterable[str], files: Iterable[str]) -> None:
    """Nothing is written that the includes of the new configuration do not reach.

    ``changed`` are paths with every link resolved. Errors: RefusedError.
    """
    loaded = {os.path.realpath(path) for path in files}
    for path in changed:
        if path not in loaded:
            raise RefusedError(f"{path}: nothing includes it, so it has no effect")
