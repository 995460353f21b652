"""A configuration as a git revision has it."""

from __future__ import annotations

import os
import posixpath
import shlex
import subprocess
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from nginx_tune.conf.tree import Maps, Reader, mapped
from nginx_tune.errors import MissingToolError, UsageError
from nginx_tune.host.door import HostReadError
from nginx_tune.host.programs import ProgramError, run_program, start_program

if TYPE_CHECKING:
    from typing_extensions import Self

_LINK = "120000"
_ENVIRONMENT = {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1"}
"""The environment of git, as a repository may configure a program that fetches objects."""
_FOREIGN = (
    "the settings of a repository can make git run programs, so root reads only root's "
    "repositories, even under sudo: run this as the owner, with --facts, or allow the repository "
    "for all users: git config --system --add safe.directory {}"
)
_MOST_LINKS = 40
"""Maximum number of links that the kernel follows (path_resolution(7))."""


class _Entry(NamedTuple):
    mode: str
    object: str


class RevisionReader:
    """A reader that takes files of a git repository from a revision, and all others from disk.

    Use as a context manager, in which a ``git cat-file`` process runs.
    """

    def __init__(
        self, reader: Reader, path: str, revision: str, *, maps: Maps | None = None
    ) -> None:
        self._reader = reader
        self._maps = maps
        directory = os.path.dirname(os.path.abspath(path))  # noqa: PTH100, PTH120  # links stay
        self._top = _git(directory, "rev-parse", "--show-toplevel").decode().rstrip("\n")
        commit = _git(
            directory,
            *("rev-parse", "--verify", "--quiet", "--end-of-options", revision + "^{commit}"),
            fault=f"--diff-base {revision}: no such revision (a shallow clone: fetch it first)",
        )
        self._entries: dict[str, _Entry] = {}
        self._names: dict[str, set[str]] = {}
        tree = _git(self._top, "ls-tree", "-r", "-z", "--full-tree", commit.decode().strip())
        for record in tree.split(b"\0"):
            head, _, name = record.decode("utf-8", "surrogateescape").partition("\t")
            if name:
                mode, _, blob = head.split(" ")
                self._entries[name] = _Entry(mode, blob)
                self._add_names(name)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._process = start_program(
            ["git", "-C", self._top, "cat-file", "--batch"],
            environment=_ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def read_bytes(self, path: str) -> bytes:
        """Contents of a file."""
        name = self._name(path)
        if name is None:
            return self._reader.read_bytes(path)
        for _ in range(_MOST_LINKS):
            entry = self._entries.get(name)
            if entry is None:
                raise HostReadError(f"read {path}", "No such file in the revision")
            data = self._blob(entry.object)
            if entry.mode != _LINK:
                return data
            target = data.decode("utf-8", "surrogateescape")
            if self._maps is not None and posixpath.isabs(target):
                here = mapped(target, self._maps)
                if here is None:
                    raise HostReadError(f"read {path}", "No such file in the revision")
                target = os.path.abspath(here)  # noqa: PTH100  # links are followed in the revision
            full = posixpath.normpath(posixpath.join(self._top, posixpath.dirname(name), target))
            inside = self._name(full)
            if inside is None:
                return self._reader.read_bytes(full)
            name = inside
        raise HostReadError(f"read {path}", "Too many levels of symbolic links")

    def list_dir(self, path: str) -> list[str]:
        """Names in a directory."""
        name = self._name(path)
        if name is None:
            return self._reader.list_dir(path)
        if name not in self._names:
            raise HostReadError(f"list {path}", "No such directory in the revision")
        return sorted(self._names[name])

    def _name(self, path: str) -> str | None:
        """The name of a path in the revision; None if it is outside the repository."""
        full = os.path.abspath(path)  # noqa: PTH100  # links are followed in the revision
        if full == self._top:
            return ""
        if full.startswith(self._top + "/"):
            return full[len(self._top) + 1 :]
        real = os.path.realpath(os.path.dirname(full))  # noqa: PTH120
        if real == self._top or real.startswith(self._top + "/"):
            return posixpath.join(real, posixpath.basename(full))[len(self._top) + 1 :]
        return None

    def _add_names(self, name: str) -> None:
        while name:
            directory, _, last = name.rpartition("/")
            known = self._names.setdefault(directory, set())
            if last in known:
                return
            known.add(last)
            name = directory

    def _blob(self, name: str) -> bytes:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise HostReadError(f"object {name}", "git does not run")
        process.stdin.write(name.encode() + b"\n")
        process.stdin.flush()
        head = process.stdout.readline().split()
        if len(head) != len(("name", "type", "size")):
            raise HostReadError(f"object {name}", "not in the repository")
        data = process.stdout.read(int(head[2]) + 1)
        return data[:-1]


def _git(directory: str, *arguments: str, fault: str = "") -> bytes:
    try:
        run = run_program(["git", "-C", directory, *arguments], environment=_ENVIRONMENT)
    except ProgramError as error:
        raise MissingToolError(f"git: {error}", hint="apt-get install git") from None
    if run.returncode != 0:
        words = run.stderr.decode(errors="replace").strip().partition("\n")[0]
        is_foreign = "dubious ownership" in words
        raise UsageError(
            (fault if not is_foreign else "") or f"--diff-base: {words.removeprefix('fatal: ')}",
            hint=_FOREIGN.format(shlex.quote(directory)) if is_foreign else "",
        )
    return run.stdout
