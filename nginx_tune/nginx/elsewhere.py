"""Files of a configuration that lies elsewhere than on its host, such as in a checkout.

Its absolute names are of that host: ``--map`` says where they are here, and nothing else of this
machine is looked at for them. That holds for the targets of links too, such as those that Debian
keeps in sites-enabled.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import product
from typing import NamedTuple

from msgspec.structs import replace

from nginx_tune.conf.globs import TooWideError, expand, is_pattern
from nginx_tune.conf.tree import STOCK_FILES, ConfTree, Maps, Reader, mapped
from nginx_tune.documents.findings import Findings, MissingInclude
from nginx_tune.host.climbing import absolute_path
from nginx_tune.host.door import Host, HostReadError
from nginx_tune.nginx.subject import ConfigurationFiles

WITH_NGINX = "it comes with nginx"
_MOST_LINKS = 40
"""As the kernel follows at most (path_resolution(7))."""
_MOST_DIRECTORIES = 300
"""That are looked through for files that a map would find."""
_MOST_UP = 3
_MOST_PROPOSED = 3
_NOT_LOOKED_IN = frozenset({"node_modules", "vendor"})


class NotHereError(HostReadError):
    """A link that leads to a file of the other host; ``target`` is its name there."""

    def __init__(self, path: str, target: str) -> None:
        super().__init__(f"read {path}", "No such file: a link to a file that is not here")
        self.target = target


class FilesElsewhere(NamedTuple):
    """Files by their names here, whose absolute links lead through the maps."""

    host: Host
    maps: Maps

    def read_bytes(self, path: str) -> bytes:
        """Contents of a file."""
        return ConfigurationFiles(self.host).read_bytes(self.followed(path))

    def list_dir(self, path: str) -> list[str]:
        """Names in a directory."""
        return self.host.list_dir(self.followed(path))

    def climb(self, path: str) -> str:
        """An absolute path without ``..``."""
        return ConfigurationFiles(self.host).climb(path)

    def followed(self, path: str) -> str:
        """The path without links below the directories that stand for those of the host."""
        for _ in range(_MOST_LINKS):
            bases = [here for _, here in self.maps if _is_below(path, here)]
            base = max(bases, key=len, default=path)
            found = base
            rest = path[len(base) :].strip("/").split("/")
            for index, part in enumerate(rest):
                step = posixpath.join(found, part)
                target = ""
                with suppress(HostReadError):
                    target = self.host.read_link(step)
                if target:
                    path = self._target(step, target, rest[index + 1 :])
                    break
                found = step
            else:
                return path
        raise HostReadError(f"read {path}", "Too many levels of symbolic links")

    def _target(self, link: str, target: str, rest: list[str]) -> str:
        if not posixpath.isabs(target):
            return posixpath.join(posixpath.dirname(link), target, *rest)
        there = posixpath.join(target, *rest)
        here = mapped(there, self.maps)
        if here is None:
            raise NotHereError(link, there)
        return here


def files_of(host: Host, maps: Maps | None) -> Reader:
    """What the files of a tree are read through; ``maps`` is null for one of this host."""
    return ConfigurationFiles(host) if maps is None else FilesElsewhere(host, maps)


def with_own_directory(path: str, maps: Maps) -> tuple[tuple[str, str], ...]:
    """The maps, by which files below the main file's directory are where they are named, too."""
    directory = posixpath.dirname(path)
    full = absolute_path(directory or ".")
    own = dict.fromkeys((full, os.path.realpath(full)))
    given = dict(maps)
    return (*maps, *((name, directory) for name in own if name not in given and name != "/"))


def includes_away(tree: ConfTree) -> list[str]:
    """The absolute includes of a tree that lead out of the main file's directory.

    Without nginx's own files, which hold types and parameters alone.
    """
    own = posixpath.dirname(absolute_path(tree.path)).rstrip("/")
    names = (one for one in tree.absolute_includes if not one.startswith(f"{own}/"))
    return [one for one in names if posixpath.basename(one) not in STOCK_FILES]


def _is_below(path: str, directory: str) -> bool:
    if not directory:
        return not posixpath.isabs(path)
    return path == directory or path.startswith(f"{directory.rstrip('/')}/")


def accept_missing(findings: Findings, globs: Iterable[str]) -> Findings:
    """The findings with what takes each include that is not here.

    Nginx's own files are taken where no map would find one: they hold types and parameters alone.
    """
    patterns = list(globs)
    likely = [one.partition("=")[0].rstrip("/") for one in findings.likely_maps]

    def taken(one: MissingInclude) -> MissingInclude:
        here = one.reason.removeprefix("include ").removesuffix(": not here")
        names = (one.path, here, posixpath.normpath(here))
        for glob in patterns:
            if any(name == glob or fnmatchcase(name, glob) for name in names):
                return replace(one, accepted=glob)
        is_findable = any(one.path.startswith(f"{prefix}/") for prefix in likely)
        if posixpath.basename(one.path) in STOCK_FILES and not is_findable:
            return replace(one, accepted=WITH_NGINX)
        return one

    return replace(findings, files_missing=list(map(taken, findings.files_missing)))


def likely_maps(main: str, missing: Iterable[MissingInclude], host: Host) -> list[str]:
    """The values of ``--map`` by which most of what is missing would be found near the main file.

    Only names are looked at.
    """
    names = {one.path for one in missing if posixpath.isabs(one.path)}
    near = dict.fromkeys(_near(main) if names else ())
    order = {directory: index for index, directory in enumerate(near)}
    listed = _Listed(host, {})
    found: dict[tuple[str, str], set[str]] = {}
    for name, directory in product(sorted(names), order):
        for prefix, tail in _splits(name):
            if listed.has(directory, tail, other_than=name):
                found.setdefault((prefix, directory), set()).add(name)
    proposed: list[str] = []
    while found and len(proposed) < _MOST_PROPOSED:
        best = max(found, key=lambda one: (len(found[one] & names), -order[one[1]], len(one[0])))
        if not found[best] & names:
            break
        proposed.append(f"{best[0] or '/'}={best[1]}")
        names -= found.pop(best)
    return proposed


class _Listed(NamedTuple):
    """Directories of this machine, each listed once."""

    host: Host
    names: dict[str, list[str]]

    def has(self, directory: str, tail: str, *, other_than: str) -> bool:
        """Whether a name or a pattern is below a directory, and not itself the name of the host."""
        path = posixpath.join(directory, tail)
        if absolute_path(path) == other_than:
            return False
        if not is_pattern(tail):
            return posixpath.basename(path) in self._list(posixpath.dirname(path) or ".")
        with suppress(TooWideError):
            return bool(expand(path, self._list))
        return False

    def _list(self, path: str) -> list[str]:
        if path not in self.names:
            self.names[path] = []
            with suppress(HostReadError):
                self.names[path] = self.host.list_dir(path)
        return self.names[path]


def _splits(name: str) -> Iterator[tuple[str, str]]:
    """A name as a directory and what is below it, which begins with no pattern."""
    parts = posixpath.normpath(name).strip("/").split("/")
    for index in range(len(parts)):
        if is_pattern(parts[index]):
            return
        yield "".join(f"/{part}" for part in parts[:index]), "/".join(parts[index:])


def _near(main: str) -> Iterator[str]:
    """Directories around a main file: its own, those above it in the checkout, all below these."""
    own = posixpath.dirname(main)
    top = own or "."
    yield top
    is_here = not posixpath.isabs(own) or absolute_path(own).startswith(f"{os.getcwd()}/")  # noqa: PTH109
    for _ in range(_MOST_UP):
        above = posixpath.dirname(top) or "."
        if above in {top, "/"} or top in {".", ".."} or absolute_path(top) == os.getcwd():  # noqa: PTH109
            break
        top = above
        yield top
    start = top if is_here else own
    if absolute_path(start) == "/":
        return
    for count, (directory, below, _) in enumerate(os.walk(start)):
        if count == _MOST_DIRECTORIES:
            return
        below[:] = sorted(n for n in below if not n.startswith(".") and n not in _NOT_LOOKED_IN)
        yield posixpath.normpath(directory)
