"""The one door to the machine: everything that is read of a host goes through ``Host``.

``LiveHost`` is this machine, ``RecordedHost`` replays a capture, ``RecordingHost`` wraps a live
one and keeps every answer. Readers take a Host, so any machine can stand in a test.

Parsers return ``Missing(reason)`` in place of a value that is not known. Readers turn it into null
and keep the reason in ``Gaps``, by JSON pointer relative to the part they return.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, ParamSpec, Protocol, TypeVar

from nginx_tune.documents.facts import Dataset, Link
from nginx_tune.documents.facts_machine import Listening
from nginx_tune.errors import UndecidedError


class HostReadError(UndecidedError):
    """Something of the host could not be read; ``reason`` is the short cause."""

    def __init__(self, question: str, reason: str) -> None:
        super().__init__(f"{question}: {reason}")
        self.question = question
        self.reason = reason


class ProgramResult(NamedTuple):
    """The words of a program, and its status."""

    status: int
    stdout: str
    stderr: str


class Room(NamedTuple):
    """The size of a file system, and what an ordinary user can still write there."""

    size_bytes: int
    available_bytes: int


class Device(NamedTuple):
    """A device number."""

    major: int
    minor: int


MOST_BYTES = 64 << 20
"""No file of a kernel, log or program that is asked for is larger, unless it is something else."""


class Host(Protocol):
    """A machine that can be asked. Every method raises HostReadError when it cannot answer."""

    def read_bytes(self, path: str, *, limit_bytes: int = MOST_BYTES) -> bytes:
        """Contents of a file; HostReadError for one that is larger than the limit."""

    def read_text(self, path: str) -> str:
        """Contents of a file; bytes that are no UTF-8 become surrogate escapes."""

    def list_dir(self, path: str) -> list[str]:
        """Names in a directory, sorted."""

    def read_link(self, path: str) -> str:
        """Target of a symbolic link, as stored."""

    def real_path(self, path: str) -> str:
        """The path with every symbolic link resolved; the file must exist."""

    def device_of(self, path: str) -> Device:
        """``st_dev`` of a path."""

    def filesystem_magic(self, path: str) -> int:
        """``f_type`` of statfs(2)."""

    def room(self, path: str) -> Room:
        """Size and free space of the file system of a path.

        Source: ``f_blocks`` and ``f_bavail`` of statvfs(3), times ``f_frsize``.
        """

    def run(self, argv: Sequence[str], *, timeout_seconds: float = 10.0) -> ProgramResult:
        """Run a program without a shell; a path, or a name that ``find_program`` finds."""

    def version_texts(self, path: str) -> str:
        """The text that an nginx program would print for ``-V``, read out of its file."""

    def find_program(self, name: str) -> str:
        """Absolute path of a program that may be run; as root only in system directories."""

    def distrust(self, path: str) -> str:
        """The reason to distrust a program (or ``/proc/PID/exe``) of others; empty for none."""

    def caller(self) -> int:
        """The id of the user who called, behind sudo too."""

    def is_in_lab(self, pid: int) -> bool:
        """Tell if a process is of a laboratory of nginx-tune, and so none of the host's own."""

    def processes(self, *names: str) -> list[int]:
        """Ids of the processes whose ``comm`` is one of the names, ascending."""

    def links(self) -> list[Link]:
        """Network links (netlink); speeds as the driver tells them."""

    def listening(self, pid: int | None) -> Listening:
        """Listening TCP sockets (sock_diag) of a process's network namespace, else of ours."""

    def disk_activity(self, seconds: float) -> dict[str, float]:
        """Share of the time that each block device was busy, watched now for so long."""

    def scan_dataset(
        self, path: str, *, budget_seconds: float, sample_ratio: float = 1.0
    ) -> Dataset:
        """Walk a tree of files: counts, size distribution and page-cache residency."""


T = TypeVar("T")
P = ParamSpec("P")

Gaps = dict[str, str]
"""Reason by JSON pointer, relative to the part it came with: ``{"/total_bytes": "…"}``."""


class Missing(NamedTuple):
    """In place of a value that could not be read."""

    reason: str


def attempt(ask: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | Missing:
    """The answer to ``ask(…)``, or why the host could not give it."""
    try:
        return ask(*args, **kwargs)
    except HostReadError as error:
        return Missing(str(error))


def known(value: T | Missing, gaps: Gaps, pointer: str) -> T | None:
    """The value; for a missing one null, its reason kept under ``pointer``."""
    if isinstance(value, Missing):
        gaps[pointer] = value.reason
        return None
    return value


def under(prefix: str, gaps: Gaps) -> Gaps:
    """The same gaps seen from further up: each pointer behind ``prefix``."""
    return {prefix + pointer: reason for pointer, reason in gaps.items()}
