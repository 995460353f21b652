"""What a disk may hold after the power went: recorded calls, replayed up to any of them.

Model, weaker than what ext4, xfs and btrfs promise: each file and each directory has what it had at
its last fsync, or any later state that it went through up to then (a file also half of what was
written since), each one for itself. Of a directory a state is its names; fsync of a file keeps no
name.
"""

import contextlib
import os
import random
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from change_files import attributes_of

from nginx_tune.change.apply import calls
from nginx_tune.change.apply.model_journal import Attributes
from nginx_tune.change.apply.swap import put_attributes


class FileState(NamedTuple):
    """A file at one time."""

    content: bytes
    attributes: Attributes


class DirectoryState(NamedTuple):
    """The names of a directory at one time."""

    names: dict[str, int]
    mode: int


Version = FileState | DirectoryState


class Recorder:
    """Every state that the files below a directory went through, and which were flushed."""

    def __init__(self, root: Path, forgets: Callable[[Path], bool] = lambda _: False) -> None:
        self.root = root
        self._forgets = forgets
        """Of what the disk loses a flush."""
        self.calls: list[str] = []
        self._versions: dict[int, list[tuple[int, Version]]] = {}
        self._flushed: dict[int, list[tuple[int, int]]] = {}
        """By object: at which call, and how many versions it had by then."""
        self._objects: dict[int, int] = {}
        """By inode number, which another file can get later."""
        self._add(root)

    def _add(self, path: Path) -> int:
        """What is there at the beginning is on the disk."""
        inode = path.lstat().st_ino
        self._objects[inode] = number = len(self._versions)
        self._versions[number] = []
        if path.is_dir():
            for one in path.iterdir():
                self._add(one)
        self._see(path)
        self._flush(path)
        return number

    def _see(self, path: Path) -> None:
        number = self._objects[path.lstat().st_ino]
        state: Version
        if path.is_dir():
            names = {one.name: self._objects[one.lstat().st_ino] for one in path.iterdir()}
            state = DirectoryState(names, stat.S_IMODE(path.stat().st_mode))
        else:
            state = FileState(path.read_bytes(), attributes_of(path))
        self._versions[number].append((len(self.calls), state))

    def _flush(self, path: Path) -> None:
        number = self._objects[path.lstat().st_ino]
        self._flushed.setdefault(number, []).append((len(self.calls), len(self._versions[number])))

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """While this lasts."""
        with pytest.MonkeyPatch.context() as patch:
            for name in ("write", "cut", "own", "permit", "set_attribute", "remove_attribute",
                         "set_times", "set_inode_flags"):  # fmt: skip
                self._wrap(patch, name, self._after_change)
            for name in ("exchange", "rename_new", "rename_over", "unlink"):
                self._wrap(patch, name, self._after_change)
            self._wrap(patch, "flush", self._after_flush)
            self._wrap(patch, "create", self._after_create)
            self._wrap(patch, "make_directory", self._after_directory)
            yield

    def _wrap(self, patch: pytest.MonkeyPatch, name: str, after: Callable[..., None]) -> None:
        real = getattr(calls, name)

        def wrapped(*arguments: Any, **named: Any) -> Any:
            if name == "make_directory":  # its own flush comes after its name is there
                path = arguments[0]
                path.mkdir(mode=arguments[1])
                self.calls.append(name)
                after(None, path)
                with contextlib.closing(_Opened(path.parent)) as parent:
                    calls.flush(parent.descriptor)
                return None
            found = real(*arguments, **named)
            self.calls.append(name)
            after(found, *arguments)
            return found

        patch.setattr(calls, name, wrapped)

    def _after_change(self, _found: object, descriptor: int, *_rest: object) -> None:
        self._see(_path(descriptor))

    def _after_flush(self, _found: None, descriptor: int) -> None:
        if not self._forgets(_path(descriptor)):
            self._flush(_path(descriptor))

    def _after_create(self, found: int, directory: int, *_rest: object) -> None:
        self._after_new(_path(found))
        self._see(_path(directory))

    def _after_directory(self, _found: None, path: Path) -> None:
        self._after_new(path)
        self._see(path.parent)

    def _after_new(self, path: Path) -> None:
        self._objects[path.lstat().st_ino] = number = len(self._versions)
        self._versions[number] = []
        self._see(path)
        self._flushed[number] = [(len(self.calls), 1)]  # a name that leads to it finds it empty

    def cuts(self, at: int, draw: random.Random, more: int) -> Iterator[dict[int, Version]]:
        """What the disk may hold when the power goes behind that many calls."""
        allowed = {number: self._allowed(number, at) for number in self._versions}
        allowed = {number: states for number, states in allowed.items() if states}
        yield {number: states[0] for number, states in allowed.items()}
        yield {number: states[-1] for number, states in allowed.items()}
        open_ones = [number for number, states in allowed.items() if len(states) > 1]
        for _ in range(more if open_ones else 0):
            yield {number: draw.choice(states) for number, states in allowed.items()}

    def _allowed(self, number: int, at: int) -> list[Version]:
        versions = self._versions[number]
        seen = sum(1 for when, _ in versions if when <= at)
        kept = max((count for when, count in self._flushed[number] if when <= at), default=0)
        found: list[Version] = []
        for index in range(max(kept - 1, 0), seen):
            state = versions[index][1]
            if index >= kept and isinstance(state, FileState):
                found.append(_torn(versions[index - 1][1], state))
            found.append(state)
        return found

    def restore(self, held: dict[int, Version]) -> None:
        """Make the directory what the disk holds."""
        shutil.rmtree(self.root, ignore_errors=True)
        self._make(self.root, 0, held)

    def _make(self, path: Path, number: int, held: dict[int, Version]) -> None:
        state = held[number]
        if isinstance(state, FileState):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                os.write(descriptor, state.content)
                put_attributes(descriptor, state.attributes, with_times=True)
            finally:
                os.close(descriptor)
            return
        path.mkdir()
        path.chmod(state.mode)
        for name, one in state.names.items():
            self._make(path / name, one, held)


def _torn(before: Version, state: FileState) -> FileState:
    """Half of what was written since: bytes that stood before are not lost by more behind them."""
    old = before.content if isinstance(before, FileState) else b""
    same = len(old) if state.content.startswith(old) else 0
    return FileState(state.content[: (same + len(state.content)) // 2], state.attributes)


class _Opened:
    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)

    def close(self) -> None:
        os.close(self.descriptor)


def _path(descriptor: int) -> Path:
    return Path(f"/proc/self/fd/{descriptor}").readlink()
