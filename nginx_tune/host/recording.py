"""Hosts that write down what they were asked, and hosts that answer from what was written."""

from __future__ import annotations

import base64
import binascii
import shlex
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from nginx_tune.documents.facts import Dataset, Link
from nginx_tune.documents.facts_machine import Listening
from nginx_tune.documents.inspection import Answer, Capture, Request
from nginx_tune.host.door import MOST_BYTES, Device, Host, HostReadError, ProgramResult, Room
from nginx_tune.host.redaction import escaped, from_bytes, redact_answers

T = TypeVar("T")


def _question(verb: str, *parts: str) -> str:
    """The key of an answer."""
    return escaped(" ".join([verb, *parts]))


def to_bytes(value: Any) -> bytes:
    """Contents of a file from an answer.

    Errors: ValueError, msgspec.ValidationError.
    """
    if isinstance(value, dict) and isinstance(value.get("base64"), str):
        return base64.b64decode(value["base64"], validate=True)
    return msgspec.convert(value, str).encode()


def _to_builtins(value: object) -> Any:
    """Links and datasets as JSON holds them."""
    return _each_text(escaped, msgspec.to_builtins(value))


def _each_text(change: Callable[[str], str], value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _each_text(change, part) for key, part in value.items()}
    if isinstance(value, list):
        return [_each_text(change, part) for part in value]
    return change(value) if isinstance(value, str) else value


class RecordingHost:
    """Passes every question on and keeps the answer, errors too."""

    def __init__(self, host: Host) -> None:
        self.answers: dict[str, Answer] = {}
        self._host = host

    def _keep(self, question: str, ask: Callable[[], T], to_value: Callable[[T], Any]) -> T:
        try:
            answer = ask()
        except HostReadError as error:
            self.answers[question] = Answer(error=escaped(error.reason))
            raise
        self.answers[question] = Answer(value=to_value(answer))
        return answer

    def read_bytes(self, path: str, *, limit_bytes: int = MOST_BYTES) -> bytes:
        """Contents of a file; HostReadError for one that is larger than the limit."""
        ask = lambda: self._host.read_bytes(path, limit_bytes=limit_bytes)  # noqa: E731
        return self._keep(_question("read", path), ask, from_bytes)

    def read_text(self, path: str) -> str:
        """Contents of a file; bytes that are no UTF-8 become surrogate escapes."""
        return self.read_bytes(path).decode(errors="surrogateescape")

    def list_dir(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        ask = lambda: self._host.list_dir(path)  # noqa: E731
        return self._keep(_question("list", path), ask, lambda names: list(map(escaped, names)))

    def read_link(self, path: str) -> str:
        """Target of a symbolic link, as stored."""
        return self._keep(_question("link", path), lambda: self._host.read_link(path), escaped)

    def real_path(self, path: str) -> str:
        """The path with every symbolic link resolved; the file must exist."""
        return self._keep(_question("real", path), lambda: self._host.real_path(path), escaped)

    def device_of(self, path: str) -> Device:
        """``st_dev`` of a path."""
        ask = lambda: self._host.device_of(path)  # noqa: E731
        return self._keep(_question("device", path), ask, list)

    def filesystem_magic(self, path: str) -> int:
        """``f_type`` of statfs(2)."""
        ask = lambda: self._host.filesystem_magic(path)  # noqa: E731
        return self._keep(_question("magic", path), ask, int)

    def room(self, path: str) -> Room:
        """Size and free space of the file system of a path."""
        return self._keep(_question("room", path), lambda: self._host.room(path), list)

    def run(self, argv: Sequence[str], *, timeout_seconds: float = 10.0) -> ProgramResult:
        """Run a program without a shell; a path, or a name that ``find_program`` finds."""
        return self._keep(
            _question("run", shlex.join(argv)),
            lambda: self._host.run(argv, timeout_seconds=timeout_seconds),
            lambda said: {
                "status": said.status,
                "stdout": escaped(said.stdout),
                "stderr": escaped(said.stderr),
            },
        )

    def version_texts(self, path: str) -> str:
        """The text that an nginx program would print for ``-V``, read out of its file."""
        ask = lambda: self._host.version_texts(path)  # noqa: E731
        return self._keep(_question("texts", path), ask, escaped)

    def find_program(self, name: str) -> str:
        """Absolute path of a program that may be run; as root only in system directories."""
        return self._keep(
            _question("program", name), lambda: self._host.find_program(name), escaped
        )

    def distrust(self, path: str) -> str:
        """The reason to distrust a program (or ``/proc/PID/exe``) of others; empty for none."""
        return self._keep(_question("distrust", path), lambda: self._host.distrust(path), escaped)

    def caller(self) -> int:
        """The id of the user who called, behind sudo too."""
        return self._keep("caller", self._host.caller, int)

    def is_in_lab(self, pid: int) -> bool:
        """Tell whether a process is of a laboratory; the answer alone is kept, no environment."""
        ask = lambda: self._host.is_in_lab(pid)  # noqa: E731
        return self._keep(_question("in-lab", str(pid)), ask, bool)

    def processes(self, *names: str) -> list[int]:
        """Ids of the processes whose ``comm`` is one of the names, ascending."""
        ask = lambda: self._host.processes(*names)  # noqa: E731
        return self._keep(_question("processes", *names), ask, list)

    def links(self) -> list[Link]:
        """Network links (netlink); speeds as the driver tells them."""
        return self._keep("links", self._host.links, _to_builtins)

    def listening(self, pid: int | None) -> Listening:
        """Listening TCP sockets (sock_diag) of a process's network namespace, else of ours."""
        ask = lambda: self._host.listening(pid)  # noqa: E731
        return self._keep(_question("listening", str(pid or "self")), ask, _to_builtins)

    def disk_activity(self, seconds: float) -> dict[str, float]:
        """Share of the time that each block device was busy, watched now for so long."""
        return self._keep("activity", lambda: self._host.disk_activity(seconds), dict)

    def scan_dataset(
        self, path: str, *, budget_seconds: float, sample_ratio: float = 1.0
    ) -> Dataset:
        """Walk a tree of files: counts, size distribution and page-cache residency."""
        ask = lambda: self._host.scan_dataset(  # noqa: E731
            path, budget_seconds=budget_seconds, sample_ratio=sample_ratio
        )
        return self._keep(_question("dataset", path), ask, _to_builtins)


class RecordedHost:
    """Answers from a capture; whatever was not recorded cannot be read."""

    def __init__(self, answers: dict[str, Answer]) -> None:
        self._answers = answers

    def _answer(self, question: str, from_value: Callable[[Any], T]) -> T:
        answer = self._answers.get(question)
        if answer is None:
            raise HostReadError(question, "not in the capture")
        if answer.error is not None:
            raise HostReadError(question, answer.error)
        try:
            return from_value(answer.value)
        except (msgspec.ValidationError, binascii.Error, ValueError):
            raise HostReadError(question, "the capture holds no fit answer") from None

    def read_bytes(self, path: str, *, limit_bytes: int = MOST_BYTES) -> bytes:
        """Contents of a file; what is recorded was within the limit."""
        return self._answer(_question("read", path), to_bytes)

    def read_text(self, path: str) -> str:
        """Contents of a file; bytes that are no UTF-8 become surrogate escapes."""
        return self.read_bytes(path).decode(errors="surrogateescape")

    def list_dir(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        return self._answer(
            _question("list", path), lambda value: sorted(msgspec.convert(value, list[str]))
        )

    def read_link(self, path: str) -> str:
        """Target of a symbolic link, as stored."""
        return self._answer(_question("link", path), _to_text)

    def real_path(self, path: str) -> str:
        """The path with every symbolic link resolved; the file must exist."""
        return self._answer(_question("real", path), _to_text)

    def device_of(self, path: str) -> Device:
        """``st_dev`` of a path."""
        return self._answer(
            _question("device", path),
            lambda value: Device(*msgspec.convert(value, tuple[int, int])),
        )

    def filesystem_magic(self, path: str) -> int:
        """``f_type`` of statfs(2)."""
        return self._answer(_question("magic", path), lambda value: msgspec.convert(value, int))

    def room(self, path: str) -> Room:
        """Size and free space as they were."""
        return self._answer(
            _question("room", path), lambda value: Room(*msgspec.convert(value, tuple[int, int]))
        )

    def run(self, argv: Sequence[str], *, timeout_seconds: float = 10.0) -> ProgramResult:
        """The words of the program then."""
        return self._answer(
            _question("run", shlex.join(argv)), lambda value: msgspec.convert(value, _Said).result()
        )

    def version_texts(self, path: str) -> str:
        """The text of the program's file then."""
        return self._answer(_question("texts", path), _to_text)

    def find_program(self, name: str) -> str:
        """The place of the program then."""
        return self._answer(_question("program", name), _to_text)

    def distrust(self, path: str) -> str:
        """The answer of then; captures of earlier versions do not tell, and nothing is run here."""
        question = _question("distrust", path)
        return self._answer(question, _to_text) if question in self._answers else ""

    def caller(self) -> int:
        """Who called then."""
        return self._answer("caller", lambda value: msgspec.convert(value, int))

    def is_in_lab(self, pid: int) -> bool:
        """The answer of then; captures of earlier versions do not tell."""
        question = _question("in-lab", str(pid))
        return question in self._answers and self._answer(question, bool)

    def processes(self, *names: str) -> list[int]:
        """Ids of the processes that were recorded."""
        return self._answer(
            _question("processes", *names), lambda value: msgspec.convert(value, list[int])
        )

    def links(self) -> list[Link]:
        """Network links as recorded."""
        return self._answer("links", lambda value: msgspec.convert(value, list[Link]))

    def listening(self, pid: int | None) -> Listening:
        """Listening sockets as recorded."""
        return self._answer(
            _question("listening", str(pid or "self")),
            lambda value: msgspec.convert(value, Listening),
        )

    def disk_activity(self, seconds: float) -> dict[str, float]:
        """The share of time that the disks were busy then."""
        return self._answer("activity", lambda value: msgspec.convert(value, dict[str, float]))

    def scan_dataset(
        self, path: str, *, budget_seconds: float, sample_ratio: float = 1.0
    ) -> Dataset:
        """The dataset as it was scanned then."""
        return self._answer(
            _question("dataset", path), lambda value: msgspec.convert(value, Dataset)
        )


class _Said(msgspec.Struct):
    status: int
    stdout: str
    stderr: str

    def result(self) -> ProgramResult:
        return ProgramResult(self.status, self.stdout, self.stderr)


def _to_text(value: Any) -> str:
    return msgspec.convert(value, str)


def redact(capture: Capture) -> Capture:
    """The capture without secrets; doing it twice changes nothing more."""
    answers, request = redact_answers(
        msgspec.to_builtins(capture.answers), msgspec.to_builtins(capture.request)
    )
    return msgspec.structs.replace(
        capture,
        request=msgspec.convert(request, Request),
        answers=msgspec.convert(answers, dict[str, Answer]),
    )
