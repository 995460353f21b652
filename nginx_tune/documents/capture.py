"""``capture``: everything a Host was asked and answered, so that it can be replayed anywhere."""

from __future__ import annotations

from typing import Any

from nginx_tune.documents.base import Document, Part
from nginx_tune.documents.curve import DiskProbe


class Answer(Part, frozen=True, kw_only=True):
    """One answer of the host; exactly one of ``value`` and ``error`` is set."""

    value: Any = None
    """Text, ``{"base64": …}`` for bytes that are no UTF-8, a list of names, a number, or the
    parts of a process result, of links or of a dataset: by the kind of question."""
    error: str | None = None


class Request(Part, frozen=True, kw_only=True):
    """What the recorded inspection was asked for; a replay asks the same."""

    paths: list[str] = []
    datasets: list[str] = []
    nginx_binary: str | None = None
    pid: int | None = None
    link_speeds: dict[str, int] = {}
    """Bits per second by link."""
    watch_seconds: float = 0.0
    """How long the disks were watched for how busy they are; 0: not at all."""
    sample_ratio: float = 1.0
    """Share of a dataset's files whose size was asked."""


class Capture(Document, frozen=True, kw_only=True, tag="nginx-tune/capture/1"):
    """A recorded host.

    Secrets (serial numbers, MAC addresses, command-line values) are redacted when it is written.
    """

    tool_version: str = ""
    request: Request = Request()
    disk_probes: list[DiskProbe] = []
    """What probing the disks gave, when that was asked for."""
    answers: dict[str, Answer] = {}
    """By question, e.g. ``read /proc/meminfo``, ``list /sys/block``, ``run nginx -V``."""
