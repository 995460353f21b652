"""The configuration files of the nginx that was found, for a capture that may hold them."""

from __future__ import annotations

import posixpath
from typing import NamedTuple

from nginx_tune.conf.secrets import redact_configuration, redact_tree
from nginx_tune.conf.tree import read_tree
from nginx_tune.documents.capture import Answer
from nginx_tune.documents.facts import Nginx
from nginx_tune.errors import UndecidedError
from nginx_tune.host.door import Host, HostReadError, Missing
from nginx_tune.host.recording import RecordingHost, to_bytes
from nginx_tune.host.redaction import escaped, from_bytes
from nginx_tune.host.view import View, view_of


def read_configuration(host: Host, nginx: Nginx) -> dict[str, Answer]:
    """Answers for the main file and all that it includes, each without its secrets.

    An nginx in another mount namespace has its files there: they are read through its root, links
    too, and recorded by the names that it knows them by.
    Errors: UndecidedError for a process of somebody else's: its title would choose what is read.
    """
    running = nginx.running
    path = (running and running.conf_path) or nginx.conf_path
    if path is None or not posixpath.isabs(path):
        return {}
    if running is None or not running.other_mount_namespace:
        if running is not None and not nginx.may_run:
            raise UndecidedError(
                f"the configuration of process {running.pid} is not read: its title names it, and "
                f"{next((one.reason for one in nginx.candidates if one.pid == running.pid), '')}",
                hint="leave --with-config out",
            )
        recording = RecordingHost(host)
        return _redacted(recording.answers, redact_tree(read_tree(path, recording)))
    view = view_of(host, running.pid)
    if isinstance(view, Missing):
        raise UndecidedError(
            f"the files of process {running.pid} cannot be seen: {view.reason}",
            hint="leave --with-config out",
        )
    inside = _Inside(view, {})
    return _redacted(inside.answers, redact_tree(read_tree(path, inside)))


class _Inside(NamedTuple):
    """Files of a container by the names that they have there, each answer kept."""

    view: View
    answers: dict[str, Answer]

    def read_bytes(self, path: str) -> bytes:
        """Contents of a file."""
        question = escaped(f"read {path}")
        try:
            data = self.view.host.read_bytes(self._outside(question, path))
        except HostReadError as error:
            self.answers[question] = Answer(error=escaped(error.reason))
            raise
        self.answers[question] = Answer(value=from_bytes(data))
        return data

    def list_dir(self, path: str) -> list[str]:
        """Names in a directory."""
        question = escaped(f"list {path}")
        try:
            names = self.view.host.list_dir(self._outside(question, path))
        except HostReadError as error:
            self.answers[question] = Answer(error=escaped(error.reason))
            raise
        self.answers[question] = Answer(value=list(map(escaped, names)))
        return names

    def _outside(self, question: str, path: str) -> str:
        """Our name of a file: the kernel would take a link in there for one of ours."""
        real = self.view.real_path(path)
        if isinstance(real, Missing):
            raise HostReadError(question, real.reason)
        return self.view.outside(real)


def _redacted(answers: dict[str, Answer], files: dict[str, bytes]) -> dict[str, Answer]:
    return {question: _without(question, answer, files) for question, answer in answers.items()}


def _without(question: str, answer: Answer, redacted: dict[str, bytes]) -> Answer:
    if answer.error is not None or not question.startswith("read "):
        return answer
    data = redacted.get(question.removeprefix("read "))
    if data is None:  # it could not be parsed
        data = redact_configuration(to_bytes(answer.value))
    return Answer(value=from_bytes(data))
