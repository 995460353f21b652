"""The configuration that a command is about: its main file, the files around it, and its nginx.

A configuration that is not on its host, such as a checkout, is read through maps of names. Code and
special files that a configuration names are checked before an nginx starts with it.
"""

from __future__ import annotations

import os
import posixpath
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from nginx_tune.conf.tree import (
    STOCK_FILES,
    ConfTree,
    Maps,
    Reader,
    TooWideError,
    expand,
    is_pattern,
    mapped,
    read_tree,
)
from nginx_tune.documents.facts import Nginx
from nginx_tune.documents.findings import Findings, MissingInclude
from nginx_tune.errors import ConfigurationError, UndecidedError, UsageError
from nginx_tune.host.door import Host, HostReadError
from nginx_tune.host.paths import absolute_path, climbed
from nginx_tune.host.programs import is_vouched_for, why_not_run

MOST_BYTES = 256 << 20
"""The most bytes of a configuration file; maps and lists of addresses make some very large."""
_NAME_ONE = "name a configuration file"


class Subject(NamedTuple):
    """The configuration file that a command is about."""

    path: str
    prefix: str | None
    """The directory that relative paths start from; None if not known."""
    is_hosts: bool
    """True if this host's nginx runs with it or would start with it."""
    maps: tuple[tuple[str, str], ...] | None = None
    """Pairs of directories: absolute names below the first lead to the second, in a tree that is
    not on its host. None for a tree of this host."""
    given: str = ""
    """Directives from nginx's command line (``-g``), which come before the file."""
    is_here: bool = False
    """True if the file is in a tree that an nginx of this host reads."""


class NoNginxError(UsageError):
    """No configuration is named, and this host has no nginx."""


class ConfigurationFiles(NamedTuple):
    """A reader of configuration files on a host, of up to 256 MiB each."""

    host: Host

    def read_bytes(self, path: str) -> bytes:
        """The contents of a file."""
        return self.host.read_bytes(path, limit_bytes=MOST_BYTES)

    def list_dir(self, path: str) -> list[str]:
        """The names in a directory."""
        return self.host.list_dir(path)

    def climb(self, path: str) -> str:
        """An absolute path without ``..``, resolved as text if the host cannot resolve it."""
        with suppress(HostReadError):
            return climbed(path, self.host.real_path)
        return posixpath.normpath(path)


def find_subject(
    host: Host,
    conf: str | None,
    *,
    prefix: str | None = None,
    nginx_binary: str | None = None,
    pid: int | None = None,
) -> Subject:
    """The named configuration, otherwise the running master's, otherwise the installed nginx's.

    Errors: UsageError if none is named and the host has none; UndecidedError if the running nginx
            is in a container, whose files this process does not see.
    """
    from nginx_tune.nginx.binary import read_nginx  # noqa: PLC0415  # not for a file by its text

    meant = None if conf is None else absolute_path(place_of(conf, prefix))
    nginx, _ = read_nginx(host, binary=nginx_binary, pid=pid, conf_path=meant)
    own = _own_path(nginx)
    if conf is None and prefix is not None:
        conf = built_conf(nginx)
    if conf is None:
        if nginx.running is not None and nginx.running.other_mount_namespace:
            raise UndecidedError(
                f"the running nginx (process {nginx.running.pid}) sees other files: a container",
                hint=f"run nginx-tune inside it, or {_NAME_ONE}",
            )
        if pid is not None and not nginx.may_run:
            # A process can set any title, so its title must not choose a file that root reads.
            reasons = (candidate.reason for candidate in nginx.candidates if candidate.pid == pid)
            raise UndecidedError(
                f"the configuration of process {pid} is not read by its title: {next(reasons, '')}",
                hint=_NAME_ONE,
            )
        if own is None:
            raise NoNginxError("no nginx found on this host", hint=_NAME_ONE)
        return Subject(own, own_prefix(nginx), True, is_here=True)
    path = place_of(conf, prefix)
    is_hosts = own is not None and _real(host, path) == _real(host, own)
    base = prefix or (own_prefix(nginx) if is_hosts else None)
    return Subject(path, base, is_hosts, is_here=is_hosts or is_of_host(host, path, nginx))


def read_subject(reader: Reader, subject: Subject, *, may_be_absent: bool = False) -> ConfTree:
    """The tree of a subject; file names stay as they are given.

    Errors: UsageError if the main file is missing or unreadable, unless it may be absent.
    """
    tree = read_tree(
        subject.path, reader, prefix=subject.prefix, maps=subject.maps, given=subject.given
    )
    if may_be_absent:
        return tree
    if not tree.files and tree.unparsed[0].line is None:
        raise UsageError(f"{subject.path}: {tree.unparsed[0].reason}")
    return tree


def place_of(conf: str, prefix: str | None) -> str:
    """The path of a named file; a relative name is below the prefix, as in nginx.

    If a file exists here but not below the prefix, as when a shell completed the name, it is meant.
    Source: ngx_process_options, which passes -c to ngx_conf_full_name.
    """
    if prefix is None or posixpath.isabs(conf):
        return conf
    below = posixpath.join(prefix, conf)
    return conf if Path(conf).exists() and not Path(below).exists() else below


def own_prefix(nginx: Nginx, *meant: str) -> str | None:
    """The base of relative paths without ``-p``: the running master's prefix, else the built one.

    The master's prefix applies only to its own configuration; if ``meant`` is given, that must be
    one of them. An nginx started for another file has no such ``-p``.
    """
    running = nginx.running
    own = running.conf_path if running else None
    if meant and (own is None or os.path.realpath(own) not in map(os.path.realpath, meant)):
        return nginx.prefix
    return (running.prefix if running else None) or nginx.prefix


def given_to(nginx: Nginx, path: str) -> str:
    """The ``-g`` directives of the running master, if it reads that file; otherwise empty."""
    running = nginx.running
    if running is None or running.conf_path is None or not running.given:
        return ""
    is_own = os.path.realpath(running.conf_path) == os.path.realpath(path)
    return running.given if is_own else ""


def built_conf(nginx: Nginx) -> str:
    """The file that the program reads without ``-c``, possibly relative to the prefix.

    Source: auto/options, NGX_CONF_PATH.
    """
    option = "--conf-path="
    given = [flag.removeprefix(option) for flag in nginx.flags if flag.startswith(option)]
    return given[-1] if given and given[-1] else "conf/nginx.conf"


def _own_path(nginx: Nginx) -> str | None:
    return (nginx.running.conf_path if nginx.running else None) or nginx.conf_path


def is_of_host(host: Host, path: str, nginx: Nginx) -> bool:
    """True if a file is in a tree that an nginx of this host reads, so that its paths are here.

    Such a file is the configuration of a master here, or is in the directory of the installed
    nginx's own file.
    """
    running = (
        [(nginx.running.conf_path, nginx.running.other_mount_namespace)] if nginx.running else []
    )
    running += [(found.conf_path, found.other_mount_namespace) for found in nginx.instances]
    real = _real(host, path)
    if any(own is not None and not away and real == _real(host, own) for own, away in running):
        return True
    if nginx.conf_path is None:
        return False
    directory = posixpath.dirname(_real(host, nginx.conf_path))
    return directory != "/" and real.startswith(f"{directory}/")


def _real(host: Host, path: str) -> str:
    try:
        return host.real_path(path)
    except HostReadError:
        return path


WITH_NGINX = "it comes with nginx"
_MOST_LINKS = 40
"""The kernel's limit on links in a path (path_resolution(7))."""
_MOST_DIRECTORIES = 300
"""The most directories to search for files that a map would find."""
_MOST_UP = 3
_MOST_PROPOSED = 3
_NOT_LOOKED_IN = frozenset({"node_modules", "vendor"})


class NotHereError(HostReadError):
    """A link to a file of the other host; ``target`` is the file's name there."""

    def __init__(self, path: str, target: str) -> None:
        super().__init__(f"read {path}", "No such file: a link to a file that is not here")
        self.target = target


class FilesElsewhere(NamedTuple):
    """A reader of files by their names here; absolute links lead through the maps."""

    host: Host
    maps: Maps

    def read_bytes(self, path: str) -> bytes:
        """The contents of a file."""
        return ConfigurationFiles(self.host).read_bytes(self.followed(path))

    def list_dir(self, path: str) -> list[str]:
        """The names in a directory."""
        return self.host.list_dir(self.followed(path))

    def climb(self, path: str) -> str:
        """An absolute path without ``..``."""
        return ConfigurationFiles(self.host).climb(path)

    def followed(self, path: str) -> str:
        """The path, with links resolved below the directories of the maps."""
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
    """The reader of a tree's files; ``maps`` is None for a tree of this host."""
    return ConfigurationFiles(host) if maps is None else FilesElsewhere(host, maps)


def with_own_directory(path: str, maps: Maps) -> tuple[tuple[str, str], ...]:
    """The maps, and a map of the main file's directory to itself."""
    directory = posixpath.dirname(path)
    full = absolute_path(directory or ".")
    own = dict.fromkeys((full, os.path.realpath(full)))
    given = dict(maps)
    return (*maps, *((name, directory) for name in own if name not in given and name != "/"))


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


def accept_missing(findings: Findings, globs: Iterable[str]) -> Findings:
    """The findings, with the pattern that accepts each missing include.

    Files that come with nginx have only types and parameters: they are accepted unless a map would
    find them.
    """
    patterns = list(globs)
    likely = [value.partition("=")[0].rstrip("/") for value in findings.likely_maps]

    def taken(include: MissingInclude) -> MissingInclude:
        here = include.reason.removeprefix("include ").removesuffix(": not here")
        names = (include.path, here, posixpath.normpath(here))
        for glob in patterns:
            if any(name == glob or fnmatchcase(name, glob) for name in names):
                return replace(include, accepted=glob)
        is_findable = any(include.path.startswith(f"{prefix}/") for prefix in likely)
        if posixpath.basename(include.path) in STOCK_FILES and not is_findable:
            return replace(include, accepted=WITH_NGINX)
        return include

    return replace(findings, files_missing=list(map(taken, findings.files_missing)))


def likely_maps(main: str, missing: Iterable[MissingInclude], host: Host) -> list[str]:
    """The values of ``--map`` that would find most of the missing includes near the main file.

    Only names are compared, not contents.
    """
    names = {include.path for include in missing if posixpath.isabs(include.path)}
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
        best = max(
            found, key=lambda map_: (len(found[map_] & names), -order[map_[1]], len(map_[0]))
        )
        if not found[best] & names:
            break
        proposed.append(f"{best[0] or '/'}={best[1]}")
        names -= found.pop(best)
    return proposed


class _Listed(NamedTuple):
    """Directories of this machine, each listed at most once."""

    host: Host
    names: dict[str, list[str]]

    def has(self, directory: str, tail: str, *, other_than: str) -> bool:
        """True if a directory has the name or a match for it, other than the host's own file."""
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
    """The splits of a name into a directory and a rest, up to the first part that is a pattern."""
    parts = posixpath.normpath(name).strip("/").split("/")
    for index in range(len(parts)):
        if is_pattern(parts[index]):
            return
        yield "".join(f"/{part}" for part in parts[:index]), "/".join(parts[index:])


def _near(main: str) -> Iterator[str]:
    """The directories around a main file: its own, those above in the checkout, and all below."""
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


def refuse_foreign_code(binary: str, modules: Iterable[str]) -> None:
    """Check that only root can write nginx and the modules that ``load_module`` names.

    If the user vouches for the program (``--trust``), this covers its modules too.
    Errors: UndecidedError that names the first file that others can write.
    """
    if is_vouched_for(binary):
        return
    # nginx itself reports a missing file.
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
    """True for a path that leads to the standard output or error of the process that opens it."""
    return _STREAM.fullmatch(path) is not None


def refuse_special_files(paths: Iterable[str]) -> None:
    """Check that nginx would open no disk and no file that makes it hang.

    Standard streams are allowed: they are nginx's own, and images log to them.
    Errors: ConfigurationError that names the first such file.
    """
    for path in paths:
        if is_own_stream(path) or is_own_stream(_link(path)):
            continue
        try:
            mode = os.stat(path).st_mode  # noqa: PTH116  # follows links
        except (OSError, ValueError):
            continue  # nginx itself reports a missing file
        for is_kind, kind in _KINDS:
            if is_kind(mode):
                raise ConfigurationError(
                    f"{path}: {kind}, not a file: nginx is not started with it",
                    hint="try it with a file in its place: --overlay, or another path",
                )


def _link(path: str) -> str:
    """The target of a symbolic link; empty if the file is not a link."""
    try:
        return os.readlink(path)  # noqa: PTH115
    except (OSError, ValueError):
        return ""
