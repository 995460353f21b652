"""A configuration that is not on its host, such as a checkout: its names and its missing files.

A tree of another host is read through maps of names, and never completed by files of this machine.
Every command that reads a configuration takes both from here.
"""

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import islice, product
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from nginx_tune.conf.include_patterns import TooWideError, expand, is_pattern
from nginx_tune.conf.tree import STOCK_FILES, ConfTree, Maps, Reader, mapped, read_tree
from nginx_tune.documents.base import WITH_NGINX, MissingInclude
from nginx_tune.documents.facts import Nginx
from nginx_tune.host.door import Host, HostReadError
from nginx_tune.host.paths import absolute_path, from_here
from nginx_tune.nginx.subject import ConfigurationFiles, is_of_host

_MOST_LINKS = 40
"""The kernel's limit on links in a path (path_resolution(7))."""
_MOST_DIRECTORIES = 300
"""Maximum number of directories to search for files that a map would find."""
_MOST_UP = 3
_MOST_PROPOSED = 3
_NOT_LOOKED_IN = frozenset({"node_modules", "vendor"})


class NotHereError(HostReadError):
    """A name that leads to a file that is not in the tree; ``target`` is that file's name."""

    def __init__(self, path: str, target: str, how: str = "a link to") -> None:
        super().__init__(f"read {path}", f"No such file: {how} {target}")
        self.target = target


class FilesElsewhere(NamedTuple):
    """A reader of files by their names here; the maps resolve absolute links."""

    host: Host
    maps: Maps

    def read_bytes(self, path: str) -> bytes:
        """The contents of a file."""
        real = self.followed(path)
        try:
            return ConfigurationFiles(self.host).read_bytes(real)
        except HostReadError as error:
            if real != path and error.reason.startswith("No such file"):
                raise NotHereError(path, posixpath.normpath(real)) from None
            raise

    def list_dir(self, path: str) -> list[str]:
        """The names in a directory."""
        return self.host.list_dir(self.followed(path))

    def climb(self, path: str) -> str:
        """An absolute path without ``..``."""
        return ConfigurationFiles(self.host).climb(path)

    def followed(self, path: str) -> str:
        """The path; links in it are resolved if they lie below a directory of the maps."""
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
                self._check_inside(path)
                return path
        raise HostReadError(f"read {path}", "Too many levels of symbolic links")

    def _check_inside(self, path: str) -> None:
        """Raise NotHereError for a file outside the tree, its repository and the working directory.

        A checkout of a stranger may climb out of it with ``..`` or a relative link.
        """
        real = os.path.realpath(path)
        own = [os.path.realpath(here or ".") for _, here in self.maps]
        around = {*map(_repository, own), str(Path.cwd())} - {"", "/"}
        if not any(_is_below(real, place) for place in (*own, *around)):
            raise NotHereError(path, real, "outside of this tree:")

    def _target(self, link: str, target: str, rest: list[str]) -> str:
        if not posixpath.isabs(target):
            return posixpath.join(posixpath.dirname(link), target, *rest)
        there = posixpath.join(target, *rest)
        here = mapped(there, self.maps)
        if here is None:
            raise NotHereError(link, there)
        return here


def _repository(directory: str) -> str:
    """The nearest directory with a Git repository, at or above the given one; otherwise empty."""
    above = [directory]
    while above[-1] != posixpath.dirname(above[-1]):
        above.append(posixpath.dirname(above[-1]))
    return next((place for place in above if Path(place, ".git").exists()), "")


def files_of(host: Host, maps: Maps | None) -> Reader:
    """The reader of a tree's files; ``maps`` is None for a tree of this host."""
    return ConfigurationFiles(host) if maps is None else FilesElsewhere(host, maps)


def read_as_meant(
    host: Host,
    path: str,
    asked: Maps,
    read: Callable[[Maps | None], ConfTree],
    *,
    is_here: bool | None,
    recorded: Nginx | None = None,
) -> ConfTree:
    """The tree that ``read`` returns for the maps that apply.

    ``asked`` are the maps of the command line. Without them, a tree of this host needs none. In any
    other tree, absolute names lead only to the main file's directory, which stands for the
    directory of the ``recorded`` nginx. ``is_here``: true if an nginx of this host reads the file;
    None if that was not checked, because the tree is judged by its text alone or with recorded
    facts.
    """
    if not asked and is_here:
        return read(None)
    tree = read(with_own_directory(path, asked or _recorded_map(path, recorded)))
    if tree.missing and not asked and is_here is None and _is_of_live_nginx(host, path):
        return read(None)
    return tree


def with_own_directory(path: str, maps: Maps) -> tuple[tuple[str, str], ...]:
    """The maps, and a map of the main file's directory to itself.

    Of a main file in ``/``, such as one mounted into a container, only the file is mapped.
    """
    directory = posixpath.dirname(path)
    full = absolute_path(directory or ".")
    if full == "/":
        return (*maps, (absolute_path(path), path))
    own = dict.fromkeys((full, os.path.realpath(full)))
    given = dict(maps)
    return (*maps, *((name, directory) for name in own if name not in given and name != "/"))


def _recorded_map(path: str, nginx: Nginx | None) -> Maps:
    """A map from the directory of the recorded nginx's own file to the main file's directory."""
    running = nginx.running if nginx else None
    own = (running.conf_path if running else None) or (nginx.conf_path if nginx else None) or ""
    directory = posixpath.dirname(own)
    is_usable = directory.startswith("/") and directory != "/"
    return ((directory, posixpath.dirname(path)),) if is_usable else ()


def _is_of_live_nginx(host: Host, path: str) -> bool:
    """True if an nginx of this host reads the file now."""
    from nginx_tune.nginx.binary import read_nginx  # noqa: PLC0415  # rarely

    nginx, _ = read_nginx(host, conf_path=absolute_path(path))
    return is_of_host(host, path, nginx)


def includes_away(tree: ConfTree) -> list[str]:
    """The absolute includes of a tree that lead out of the main file's directory.

    Files that come with nginx are left out: they have only types and parameters.
    """
    own = posixpath.dirname(absolute_path(tree.path)).rstrip("/")
    names = (name for name in tree.absolute_includes if not name.startswith(f"{own}/"))
    return [name for name in names if posixpath.basename(name) not in STOCK_FILES]


def _is_below(path: str, directory: str) -> bool:
    if not directory:
        return not posixpath.isabs(path)
    return path == directory or path.startswith(f"{directory.rstrip('/')}/")


class MissingIncludes(NamedTuple):
    """The includes of a tree whose files are not here."""

    files_missing: list[MissingInclude]
    """The missing includes. The field ``accepted`` of each gives the reason why the file may be
    missing, or is empty."""
    likely_maps: list[str]
    """``--map`` values with which some of the missing files would be found."""

    @property
    def unread(self) -> list[MissingInclude]:
        """The includes that are not accepted. If there are any, no command passes."""
        return [include for include in self.files_missing if not include.accepted]


_NAMED = re.compile(r": (?:not here|a link to .*|outside of this tree: .*)$")
"""The text after the name of a missing include in its reason."""
NONE_MISSING = MissingIncludes([], [])


def missing_includes(tree: ConfTree, host: Host, globs: Iterable[str] = ()) -> MissingIncludes:
    """The missing includes of a tree; ``globs`` accept them by name.

    Files that come with nginx have only types and parameters: they are accepted unless a map would
    find them.
    """
    patterns = list(globs)
    likely = likely_maps(tree.path, tree.missing, host, tree.maps or ())
    prefixes = [value.partition("=")[0].rstrip("/") for value in likely]

    def taken(include: MissingInclude) -> MissingInclude:
        here = _NAMED.sub("", include.reason.removeprefix("include "))
        names = (include.path, here, posixpath.normpath(here))
        for glob in patterns:
            if any(name == glob or fnmatchcase(name, glob) for name in names):
                return replace(include, accepted=glob)
        is_findable = any(include.path.startswith(f"{prefix}/") for prefix in prefixes)
        if posixpath.basename(include.path) in STOCK_FILES and not is_findable:
            return replace(include, accepted=WITH_NGINX)
        return include

    return MissingIncludes(list(map(taken, tree.missing)), likely)


def likely_maps(
    main: str, missing: Iterable[MissingInclude], host: Host, given: Maps = ()
) -> list[str]:
    """The values of ``--map`` that would find most of the missing includes near the main file.

    Only names are compared, not contents. The ``given`` maps did not find them.
    """
    own = {absolute_path(here or ".") for _, here in given} & {name for name, _ in given}
    names = {
        include.path
        for include in missing
        if posixpath.isabs(include.path) and not any(_is_below(include.path, at) for at in own)
    }
    tried = {name: absolute_path(mapped(name, given) or name) for name in names}
    near = dict.fromkeys(_near(main) if names else ())
    order = {directory: index for index, directory in enumerate(near)}
    listed = _Listed(host, {})
    found: dict[tuple[str, str], set[str]] = {}
    for name, directory in product(sorted(names), order):
        for prefix, tail in _splits(name):
            if listed.has(directory, tail, other_than={name, tried[name]}):
                found.setdefault((prefix, directory), set()).add(name)
    proposed: list[str] = []
    while found and len(proposed) < _MOST_PROPOSED:
        best = max(
            found, key=lambda map_: (len(found[map_] & names), -order[map_[1]], len(map_[0]))
        )
        if not found[best] & names:
            break
        proposed.append(f"{best[0] or '/'}={from_here(best[1])}")
        names -= found[best]
        found = {pair: lost for pair, lost in found.items() if pair[0] != best[0]}
    return proposed


def main_file_above(tree: ConfTree, host: Host) -> list[str]:
    """The nginx.conf above that includes the tree's main file, and the options to read it.

    Empty if nothing is missing in the tree, or no such file is near.
    """
    own = os.path.realpath(tree.path)
    directory = posixpath.dirname(absolute_path(tree.path))
    for _ in range(_MOST_UP if tree.missing else 0):
        directory = posixpath.dirname(directory)
        main = from_here(posixpath.join(directory, "nginx.conf"))
        likely: list[str] = []
        for _ in range(2):
            pairs = [(name, here) for name, _, here in (one.partition("=") for one in likely)]
            maps = with_own_directory(main, pairs)
            found = read_tree(main, files_of(host, maps), maps=maps)
            if any(os.path.realpath(file) == own for file in found.files):
                return [main, *(word for one in likely for word in ("--map", one))]
            likely = likely_maps(main, found.missing, host, maps)
    return []


class _Listed(NamedTuple):
    """Directories of this machine, each listed at most once."""

    host: Host
    names: dict[str, list[str]]

    def has(self, directory: str, tail: str, *, other_than: set[str]) -> bool:
        """True if ``tail``, a name or pattern, exists in a directory, apart from ``other_than``."""
        path = posixpath.join(directory, tail)
        if absolute_path(path) in other_than:
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
    """The splits of a name into a directory and a rest, up to the first part that is a pattern."""
    parts = posixpath.normpath(name).strip("/").split("/")
    for index in range(len(parts)):
        if is_pattern(parts[index]):
            return
        yield "".join(f"/{part}" for part in parts[:index]), "/".join(parts[index:])


def _near(main: str) -> Iterator[str]:
    """The directories around a main file: its own, parents in the checkout, and all below.

    Branches with a main file of the same name are left out, since they belong to other trees.
    """
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
    found: list[str] = []
    others: list[str] = []
    for directory, below, files in islice(os.walk(start), _MOST_DIRECTORIES):
        below[:] = sorted(n for n in below if not n.startswith(".") and n not in _NOT_LOOKED_IN)
        found.append(posixpath.normpath(directory))
        others += found[-1:] if posixpath.basename(main) in files else []
    full = absolute_path(own or ".")
    branches = [_branch(absolute_path(other), full) for other in others]
    for directory in found:
        if not any(one and _is_below(absolute_path(directory), one) for one in branches):
            yield directory


def _branch(directory: str, own: str) -> str:
    """The highest directory above ``directory`` that does not contain ``own``; empty for none."""
    found = ""
    while not _is_below(own, directory):
        found, directory = directory, posixpath.dirname(directory)
    return found
