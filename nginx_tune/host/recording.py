"""The hosts of captures: one that records answers, and one that replays them."""

import base64
import binascii
import shlex
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import msgspec

from nginx_tune.documents.facts import Dataset, Link
from nginx_tune.documents.facts_machine import Listening
from nginx_tune.documents.inspection import Answer, Capture, Request
from nginx_tune.host.door import MOST_BYTES, Device, Host, HostReadError, ProgramResult, Room
from nginx_tune.host.redaction import escaped, from_bytes, redact_answers

T = TypeVar("T")
P = ParamSpec("P")


def _question(verb: str, *parts: str) -> str:
    """The key of an answer."""
    return escaped(" ".join([verb, *parts]))


def to_bytes(value: Any) -> bytes:
    """The contents of a file, decoded from a recorded answer.

    Errors: ValueError, msgspec.ValidationError.
    """
    if isinstance(value, dict) and isinstance(value.get("base64"), str):
        return base64.b64decode(value["base64"], validate=True)
    return msgspec.convert(value, str).encode()


def _to_builtins(value: object) -> Any:
    """A value for JSON, with texts escaped."""
    return _each_text(escaped, msgspec.to_builtins(value))


def _each_text(change: Callable[[str], str], value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _each_text(change, part) for key, part in value.items()}
    if isinstance(value, list):
        return [_each_text(change, part) for part in value]
    return change(value) if isinstance(value, str) else value


class RecordingHost:
    """A host that passes every question on and records the answers, errors included."""

    def __init__(self, host: Host) -> None:
        self.answers: dict[str, Answer] = {}
        self._host = host

    def _keep(
        self,
        question: str,
        to_value: Callable[[T], Any],
        ask: Callable[P, T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        try:
            answer = ask(*args, **kwargs)
        except HostReadError as error:
            self.answers[question] = Answer(
                error=escaped(error.reason), refused=escaped(error.refused) or msgspec.UNSET
            )
            raise
        self.answers[question] = Answer(value=to_value(answer))
        return answer

    def read_bytes(self, path: str, *, limit_bytes: int = MOST_BYTES) -> bytes:
        read = self._host.read_bytes
        return self._keep(_question("read", path), from_bytes, read, path, limit_bytes=limit_bytes)

    def read_text(self, path: str) -> str:
        return self.read_bytes(path).decode(errors="surrogateescape")

    def list_dir(self, path: str) -> list[str]:
        return self._keep(_question("list", path), _to_builtins, self._host.list_dir, path)

    def read_link(self, path: str) -> str:
        return self._keep(_question("link", path), escaped, self._host.read_link, path)

    def real_path(self, path: str) -> str:
        return self._keep(_question("real", path), escaped, self._host.real_path, path)

    def device_of(self, path: str) -> Device:
        return self._keep(_question("device", path), list, self._host.device_of, path)

    def filesystem_magic(self, path: str) -> int:
        return self._keep(_question("magic", path), int, self._host.filesystem_magic, path)

    def room(self, path: str) -> Room:
        return self._keep(_question("room", path), list, self._host.room, path)

    def run(self, argv: Sequence[str], *, timeout_seconds: float = 10.0) -> ProgramResult:
        question = _question("run", shlex.join(argv))
        run = self._host.run
        return self._keep(question, _run_value, run, argv, timeout_seconds=timeout_seconds)

    def version_texts(self, path: str) -> str:
        return self._keep(_question("texts", path), escaped, self._host.version_texts, path)

    def find_program(self, name: str) -> str:
        return self._keep(_question("program", name), escaped, self._host.find_program, name)

    def distrust(self, path: str) -> str:
        return self._keep(_question("distrust", path), escaped, self._host.distrust, path)

    def caller(self) -> int:
        return self._keep("caller", int, self._host.caller)

    def is_in_lab(self, pid: int) -> bool:
        """The answer for a process. The capture records the answer, not the environment."""
        return self._keep(_question("in-lab", str(pid)), bool, self._host.is_in_lab, pid)

    def processes(self, *names: str) -> list[int]:
        return self._keep(_question("processes", *names), list, self._host.processes, *names)

    def links(self) -> list[Link]:
        return self._keep("links", _to_builtins, self._host.links)

    def listening(self, pid: int | None) -> Listening:
        question = _question("listening", str(pid or "self"))
        return self._keep(question, _to_builtins, self._host.listening, pid)

    def disk_activity(self, seconds: float) -> dict[str, float]:
        return self._keep("activity", dict, self._host.disk_activity, seconds)

    def scan_dataset(
        self, path: str, *, budget_seconds: float, sample_ratio: float = 1.0
    ) -> Dataset:
        return self._keep(
            _question("dataset", path),
            _to_builtins,
            self._host.scan_dataset,
            path,
            budget_seconds=budget_seconds,
            sample_ratio=sample_ratio,
        )


def _run_value(run: ProgramResult) -> dict[str, Any]:
    return {"status": run.status, "stdout": escaped(run.stdout), "stderr": escaped(run.stderr)}


class RecordedHost:
    """A host that answers from a capture; a question that is not in it is an error."""

    def __init__(self, answers: dict[str, Answer]) -> None:
        self._answers = answers

    def _answer(self, question: str, kind: type[T]) -> T:
        return self._converted(question, lambda value: msgspec.convert(value, kind))

    def _converted(self, question: str, convert: Callable[[Any], T]) -> T:
        answer = self._answers.get(question)
        if answer is None:
            raise HostReadError(question, "not in the capture")
        if answer.error is not None:
            raise HostReadError(question, answer.error, refused=answer.refused or "")
        try:
            return convert(answer.value)
        except (msgspec.ValidationError, binascii.Error, ValueError):
            raise HostReadError(question, "the capture has no valid answer") from None

    def read_bytes(self, path: str, *, limit_bytes: int = MOST_BYTES) -> bytes:
        """The contents of a file; the limit applied when they were recorded."""
        return self._converted(_question("read", path), to_bytes)

    def read_text(self, path: str) -> str:
        return self.read_bytes(path).decode(errors="surrogateescape")

    def list_dir(self, path: str) -> list[str]:
        return sorted(self._answer(_question("list", path), list[str]))

    def read_link(self, path: str) -> str:
        return self._answer(_question("link", path), str)

    def real_path(self, path: str) -> str:
        return self._answer(_question("real", path), str)

    def device_of(self, path: str) -> Device:
        return self._answer(_question("device", path), Device)

    def filesystem_magic(self, path: str) -> int:
        return self._answer(_question("magic", path), int)

    def room(self, path: str) -> Room:
        return self._answer(_question("room", path), Room)

    def run(self, argv: Sequence[str], *, timeout_seconds: float = 10.0) -> ProgramResult:
        run = self._answer(_question("run", shlex.join(argv)), _RecordedRun)
        return ProgramResult(run.status, run.stdout, run.stderr)

    def version_texts(self, path: str) -> str:
        return self._answer(_question("texts", path), str)

    def find_program(self, name: str) -> str:
        return self._answer(_question("program", name), str)

    def distrust(self, path: str) -> str:
        """The recorded answer; empty in captures of earlier versions, since nothing is run here."""
        question = _question("distrust", path)
        return self._answer(question, str) if question in self._answers else ""

    def caller(self) -> int:
        return self._answer("caller", int)

    def is_in_lab(self, pid: int) -> bool:
        """The recorded answer; False in captures of earlier versions."""
        question = _question("in-lab", str(pid))
        return question in self._answers and self._converted(question, bool)

    def processes(self, *names: str) -> list[int]:
        return self._answer(_question("processes", *names), list[int])

    def links(self) -> list[Link]:
        return self._answer("links", list[Link])

    def listening(self, pid: int | None) -> Listening:
        return self._answer(_question("listening", str(pid or "self")), Listening)

    def disk_activity(self, seconds: float) -> dict[str, float]:
        return self._answer("activity", dict[str, float])

    def scan_dataset(
        self, path: str, *, budget_seconds: float, sample_ratio: float = 1.0
    ) -> Dataset:
        return self._answer(_question("dataset", path), Dataset)


class _RecordedRun(msgspec.Struct):
    status: int
    stdout: str
    stderr: str


def redact(capture: Capture) -> Capture:
    """The capture without secrets; idempotent."""
    answers, request = redact_answers(
        msgspec.to_builtins(capture.answers), msgspec.to_builtins(capture.request)
    )
    return msgspec.structs.replace(
        capture,
        request=msgspec.convert(request, Request),
        answers=msgspec.convert(answers, dict[str, Answer]),
    )
