"""``Host``: the only interface through which facts about the machine are read.

``LiveHost`` is this machine, ``RecordedHost`` replays a capture, ``RecordingHost`` wraps a live one
and records every answer. Readers take a Host, so a test can present any machine.

Parsers return ``Missing(reason)`` for an unknown value. Readers turn it into null and keep the
reason in ``Gaps``, by JSON pointer relative to the part that they return.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, ParamSpec, Protocol, TypeVar

from nginx_tune.documents.facts import Dataset, Link
from nginx_tune.documents.facts_machine import Listening
from nginx_tune.errors import UndecidedError


class HostReadError(UndecidedError):
    """The error for an unreadable part of the host; ``reason`` is the short cause.

    ``refused`` is the reason why a program that is there must not be run; empty for other errors.
    """

    def __init__(
        self, question: str, reason: str, *, refused: str = "", is_fifo: bool = False
    ) -> None:
        super().__init__(f"{question}: {reason}")
        self.question = question
        self.reason = reason
        self.refused = refused
        self.is_fifo = is_fifo


class ProgramResult(NamedTuple):
    """A program's exit status and output."""

    status: int
    stdout: str
    stderr: str


class Room(NamedTuple):
    """The size of a file system, and the space that an ordinary user can write."""

    size_bytes: int
    available_bytes: int


class Device(NamedTuple):
    """A device number."""

    major: int
    minor: int


MOST_BYTES = 64 << 20
"""The size limit of a file; real files of the kernel, logs and programs are smaller."""


class Host(Protocol):
    """A machine to read from. Every method raises HostReadError when it cannot answer."""

    def read_bytes(self, path: str, *, limit_bytes: int = MOST_BYTES) -> bytes:
        """The contents of a file; HostReadError above the limit."""

    def read_text(self, path: str) -> str:
        """The text of a file; bytes that are not UTF-8 become surrogate escapes."""

    def list_dir(self, path: str) -> list[str]:
        """The names in a directory, sorted."""

    def read_link(self, path: str) -> str:
        """The target of a symbolic link, as stored."""

    def real_path(self, path: str) -> str:
        """The path with every symbolic link resolved; the file must exist."""

    def device_of(self, path: str) -> Device:
        """The number of the device that holds a path (``st_dev``)."""

    def filesystem_magic(self, path: str) -> int:
        """The magic number of a path's file system (``f_type`` of statfs(2))."""

    def room(self, path: str) -> Room:
        """The size and free space of a path's file system.

        Source: ``f_blocks`` and ``f_bavail`` of statvfs(3), times ``f_frsize``.
        """

    def run(self, argv: Sequence[str], *, timeout_seconds: float = 10.0) -> ProgramResult:
        """Run a program without a shell, by its path or a name for ``find_program``."""

    def version_texts(self, path: str) -> str:
        """The output of ``nginx -V``, read from the program's file without running it."""

    def find_program(self, name: str) -> str:
        """The absolute path of a program that may be run; root searches only system directories."""

    def distrust(self, path: str) -> str:
        """The reason why untrusted users could write a program (or ``/proc/PID/exe``), or empty."""

    def caller(self) -> int:
        """The id of the calling user; under sudo, of the user who called sudo."""

    def is_in_lab(self, pid: int) -> bool:
        """True for a process of an nginx-tune lab, which does not belong to the host itself."""

    def processes(self, *names: str) -> list[int]:
        """The ids of the processes with one of these names (``comm``), ascending."""

    def links(self) -> list[Link]:
        """The network links (netlink), with the drivers' speeds."""

    def listening(self, pid: int | None) -> Listening:
        """The listening TCP sockets (sock_diag) in a process's network namespace (None: ours)."""

    def disk_activity(self, seconds: float) -> dict[str, float]:
        """The share of time in which each block device was busy, watched for ``seconds``."""

    def scan_dataset(
        self, path: str, *, budget_seconds: float, sample_ratio: float = 1.0
    ) -> Dataset:
        """The counts, size distribution and page-cache residency of a tree of files."""


T = TypeVar("T")
U = TypeVar("U")
P = ParamSpec("P")

Gaps = dict[str, str]
"""Reasons by JSON pointer, relative to a part: ``{"/total_bytes": "…"}``."""


class Missing(NamedTuple):
    """Takes the place of an unknown value, with the reason why it is unknown."""

    reason: str


def attempt(ask: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | Missing:
    """The result of ``ask(…)``, or the reason why the host did not answer."""
    try:
        return ask(*args, **kwargs)
    except HostReadError as error:
        return Missing(str(error))


def mapped(value: T | Missing, change: Callable[[T], U | Missing]) -> U | Missing:
    """The result of ``change`` for a known value; a missing value stays missing."""
    return value if isinstance(value, Missing) else change(value)


def read_parsed(host: Host, path: str, parse: Callable[[str], U | Missing]) -> U | Missing:
    """The parsed text of a file, or the reason why it is unknown."""
    return mapped(attempt(host.read_text, path), parse)


def known(value: T | Missing, gaps: Gaps, pointer: str) -> T | None:
    """The value; null if it is missing, with the reason kept in ``gaps`` under ``pointer``."""
    if isinstance(value, Missing):
        gaps[pointer] = value.reason
        return None
    return value


def under(prefix: str, gaps: Gaps) -> Gaps:
    """The gaps with ``prefix`` before each pointer."""
    return {prefix + pointer: reason for pointer, reason in gaps.items()}
