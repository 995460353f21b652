"""``baseline``: faults that were there when the operator began to look, and are not told again."""

from __future__ import annotations

from nginx_tune.documents.base import Document, Part


class KnownFault(Part, frozen=True, kw_only=True):
    """A fault that was there, as often as it was there."""

    rule: str
    file: str
    """Relative to the main file's directory where it lies below."""
    fingerprint: str
    """Of the directive's words, so that moving the line changes nothing."""
    count: int = 1


class Baseline(Document, frozen=True, kw_only=True, tag="nginx-tune/baseline/1"):
    """What an audit had found."""

    faults: list[KnownFault] = []
