"""``findings``: what an audit says about a configuration."""

from __future__ import annotations

from typing import Literal

from nginx_tune.documents.base import Document, Part
from nginx_tune.documents.decisions import Evidence

Severity = Literal["error", "warning", "advice", "info"]


class Finding(Part, frozen=True, kw_only=True):
    """One fault at one place."""

    rule: str
    severity: Severity
    file: str
    line: int
    column: int = 1
    message: str
    why: str
    evidence: list[Evidence] = []
    fix: str


class NeedsFacts(Part, frozen=True, kw_only=True):
    """A rule that could not be checked, and what would make it checkable."""

    rule: str
    facts: list[str]
    how: str
    """The command that gets them."""


class Suppressed(Part, frozen=True, kw_only=True):
    """A finding silenced by the operator."""

    rule: str
    file: str
    line: int
    reason: str


class Unparsed(Part, frozen=True, kw_only=True):
    """A file that could not be read or parsed."""

    file: str
    line: int | None = None
    reason: str


class Findings(Document, frozen=True, kw_only=True, tag="nginx-tune/findings/1"):
    """The result of an audit."""

    findings: list[Finding] = []
    needs_facts: list[NeedsFacts] = []
    suppressed: list[Suppressed] = []
    files_parsed: list[str] = []
    files_unparsed: list[Unparsed] = []
