"""``findings``: the result of an audit; ``baseline``: known faults to suppress."""

from typing import Literal

import msgspec

from nginx_tune.documents.base import Document, MissingInclude, Part
from nginx_tune.documents.decisions import Evidence

Severity = Literal["error", "warning", "advice", "info"]
SuppressedBy = Literal["comment", "baseline", "revision"]


class FileEdit(Part, frozen=True, kw_only=True):
    """Bytes of a file to replace by text (in UTF-8)."""

    file: str
    start_byte: int
    end_byte: int
    """End of the replaced bytes (exclusive); equal to the start for an insertion."""
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
    """Column just past the directive's ``;`` or ``{``."""
    block_line: int | None = None
    """First line of the enclosing block in this file; 0 outside of any block."""
    message: str
    why: str
    evidence: list[Evidence] = []
    fix: str
    edits: list[FileEdit] = []
    """Edits that fix it safely; edits of different findings never overlap or adjoin."""
    fingerprint: str = ""
    """An id that does not depend on line numbers or the machine, and is unique in a document."""


class NeedsFacts(Part, frozen=True, kw_only=True):
    """A rule that could not be checked, with the missing facts."""

    rule: str
    facts: list[str]
    how: str
    """The command that supplies the missing facts, or the files that were not read."""
    unread: list[str] = []
    """The unread includes that may hold the answer, as written."""


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
    is_fifo: bool = False
    """True for an include of a FIFO, for which ``nginx -t`` would wait."""


class NginxTest(Part, frozen=True, kw_only=True):
    """The result of the target's ``nginx -t`` in the sandbox."""

    accepted: bool
    messages: list[str] = []
    next_step: str = ""
    """Advice on a rejection whose message has none."""
    weaker_sandbox: list[str] = msgspec.field(default_factory=list, name="weaker_walls")
    """Parts of the sandbox that the host lacks and the user agreed to do without."""


class Findings(Document, frozen=True, kw_only=True, tag="nginx-tune/findings/1"):
    """The result of an audit."""

    findings: list[Finding] = []
    needs_facts: list[NeedsFacts] = []
    suppressed: list[Suppressed] = []
    files_parsed: list[str] = []
    files_unparsed: list[Unparsed] = []
    files_missing: list[MissingInclude] = []
    """Missing files, which were neither read nor judged."""
    likely_maps: list[str] = []
    """``--map`` values with which some of the missing files would be found."""
    profile: str = "default"
    nginx_choice: str = ""
    """The chosen nginx of this host with the reason; empty if no nginx was needed."""
    nginx_test: NginxTest | None = None
    """Result of ``nginx -t``; null unless requested."""

    @property
    def unread(self) -> list[MissingInclude]:
        """The unread includes that are not accepted."""
        return [include for include in self.files_missing if not include.accepted]


class KnownFault(Part, frozen=True, kw_only=True):
    """A known fault, with its number of occurrences."""

    rule: str
    file: str
    """Path, relative to the main file's directory if the file is below that."""
    fingerprint: str
    """Fingerprint of the directive's words, which survives moving the line."""
    count: int = 1


class Baseline(Document, frozen=True, kw_only=True, tag="nginx-tune/baseline/1"):
    """The findings of an earlier audit."""

    faults: list[KnownFault] = []
