"""``capture``: everything a Host was asked and answered, so that it can be replayed anywhere."""

from __future__ import annotations

from nginx_tune.documents.base import Document, Part


class Answer(Part, frozen=True, kw_only=True):
    """One answer of the host; exactly one of ``value`` and ``error`` is set."""

    value: (
        str | int | float | bool | list[str] | dict[str, str | int | float | bool | None] | None
    ) = None
    error: str | None = None


class Capture(Document, frozen=True, kw_only=True, tag="nginx-tune/capture/1"):
    """A recorded host.

    Secrets (serial numbers, MAC addresses, command-line values) are redacted when it is written.
    """

    tool_version: str = ""
    answers: dict[str, Answer] = {}
    """By question, e.g. ``read /proc/meminfo``, ``list /sys/block``, ``run nginx -V``."""
