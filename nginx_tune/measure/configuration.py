"""The configuration files of the nginx that was found, for a capture that may hold them."""

from __future__ import annotations

import posixpath

from nginx_tune.conf.secrets import redact_configuration
from nginx_tune.conf.tree import read_tree
from nginx_tune.documents.capture import Answer
from nginx_tune.documents.facts import Nginx
from nginx_tune.host.door import Host
from nginx_tune.host.recording import RecordingHost, to_bytes
from nginx_tune.host.redaction import from_bytes


def read_configuration(host: Host, nginx: Nginx) -> dict[str, Answer]:
    """Answers for the main file and all that it includes, each without its secrets.

    An nginx in another mount namespace has its files there: they are read through its root and
    recorded by the names that it knows them by.
    """
    running = nginx.running
    path = (running and running.conf_path) or nginx.conf_path
    if path is None or not posixpath.isabs(path):
        return {}
    root = f"/proc/{running.pid}/root" if running and running.other_mount_namespace else ""
    recording = RecordingHost(host)
    read_tree(root + path, recording)
    return {
        question.replace(f" {root}/", " /", 1): _redacted(question, answer)
        for question, answer in recording.answers.items()
    }


def _redacted(question: str, answer: Answer) -> Answer:
    if answer.error is not None or not question.startswith("read "):
        return answer
    return Answer(value=from_bytes(redact_configuration(to_bytes(answer.value))))
