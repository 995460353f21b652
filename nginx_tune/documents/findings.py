"""``findings``: the result of an audit; ``baseline``: known faults, not to be told again."""

from __future__ import annotations

from typing import Literal

import msgspec

from nginx_tune.documents.base import Document, Part
from nginx_tune.documents.decisions import Evidence

Severity = Literal["error", "warning", "advice", "info"]
SuppressedBy = Literal["comment", "baseline", "revision"]


class FileEdit(Part, frozen=True, kw_only=True):
    """Bytes of a file replaced by a text (in UTF-8)."""

    file: str
    start_byte: int
    end_byte: int
    """Past the last byte replaced; the same as the start where text is only put in."""
    text: str


class Finding(Part, frozen=True, kw_only=True):
    """One fault at one place."""

    rule: str
    severity: Severity
    file: str
    line: int
    column: int = 1
    end_line: int = 1
    end_column: int = 1
    """Just past the directive's ``;`` or ``{``."""
    block_line: int | None = None
    """Where the block that it stands in begins, in this file; 0 outside of any."""
    message: str
    why: str
    evidence: list[Evidence] = []
    fix: str
    edits: list[FileEdit] = []
    """What cures it safely; no edits of two findings of a document touch each other."""
    fingerprint: str = ""
    """The same for the same fault on another line or machine; unique in a document."""


class NeedsFacts(Part, frozen=True, kw_only=True):
    """A rule that could not be checked, and what would make it checkable."""

    rule: str
    facts: list[str]
    how: str
    """The command that gets them, or which files were not read."""
    unread: list[str] = []
    """The includes that were not read and may hold the answer, as they are written."""


class Suppressed(Part, frozen=True, kw_only=True):
    """A finding silenced by the operator."""

    rule: str
    file: str
    line: int
    reason: str
    by: SuppressedBy = "comment"
    fingerprint: str = ""
    severity: Severity = "info"
    message: str = ""


class Unparsed(Part, frozen=True, kw_only=True):
    """A file that could not be read or parsed."""

    file: str
    line: int | None = None
    reason: str


class MissingInclude(Part, frozen=True, kw_only=True):
    """An include of which nothing is here, in a tree that lies elsewhere than on its host."""

    file: str
    line: int
    reason: str
    path: str = ""
    """As nginx would look for it: the include's own words, or where a link leads to."""
    accepted: str = ""
    """Why it fails nothing: the pattern of ``--accept-missing`` that takes it, or that it comes
    with nginx; empty where nothing takes it."""


class NginxTest(Part, frozen=True, kw_only=True):
    """What the target's ``nginx -t`` said, run in the sandbox."""

    accepted: bool
    messages: list[str] = []
    next_step: str = ""
    """What to do about a refusal whose words do not say it."""
    weaker_sandbox: list[str] = msgspec.field(default_factory=list, name="weaker_walls")
    """Sandbox around nginx that the user gave up where the host cannot have them."""


class Findings(Document, frozen=True, kw_only=True, tag="nginx-tune/findings/1"):
    """The result of an audit."""

    findings: list[Finding] = []
    needs_facts: list[NeedsFacts] = []
    suppressed: list[Suppressed] = []
    files_parsed: list[str] = []
    files_unparsed: list[Unparsed] = []
    files_missing: list[MissingInclude] = []
    """What was not read, and so not judged, since it is not here: absent is never empty."""
    likely_maps: list[str] = []
    """``--map`` values by which some of it would be read."""
    profile: str = "default"
    nginx_choice: str = ""
    """Which nginx of this host was taken, and why; empty where none was asked."""
    nginx_test: NginxTest | None = None
    """Null when it was not asked for."""

    @property
    def unread(self) -> list[MissingInclude]:
        """The includes that were not read, and that nothing takes."""
        return [one for one in self.files_missing if not one.accepted]


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
