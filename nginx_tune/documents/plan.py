"""``plan``: a change of an operator's own configuration; ``history``: the changes that were made.

A plan goes file by file, to be read and applied. A history comes from the journals of ``apply``.
"""

from __future__ import annotations

from typing import Literal

from nginx_tune.documents.base import Document, Part
from nginx_tune.documents.decisions import Confidence, Evidence, HostSetting
from nginx_tune.documents.findings import Finding, NginxTest
from nginx_tune.documents.search import Search


class Hunk(Part, frozen=True, kw_only=True):
    """One change of a file, and why; several reasons for one change follow each other.

    All of a file's hunks, put in, make its new content byte for byte: a plan is refused otherwise.
    """

    line: int
    """In the file as it is."""
    start_byte: int = -1
    """Where it begins in the file as it is; -1 is a plan of a version that did not say so."""
    before: str
    """What stands there, such as a directive; empty where something is only added."""
    after: str
    """What takes its place, with the spaces and line ends around it; empty where it is taken
    away."""
    decision: str
    """What asks for it: the id of a decision, or of the audit's rule whose safe fix it is."""
    reason: str = ""
    evidence: list[Evidence] = []
    confidence: Confidence = "low"
    risks: list[str] = []
    """What the decision may cost: what clients may get, what else must be so."""


class PlannedFile(Part, frozen=True, kw_only=True):
    """A file before and after."""

    path: str
    """As the configuration names it, absolute."""
    sha256_before: str
    sha256_after: str
    content: bytes
    """All of the new file; base64 in JSON."""
    hunks: list[Hunk]


class Refusal(Part, frozen=True, kw_only=True):
    """A decision or a safe fix that was not written into the configuration, and why."""

    decision: str
    """Its id, or that of the audit's rule."""
    setting: str
    """As it would be written; what a rule advises; empty where the configuration itself speaks
    against what a decision would change, so that nothing was worked out."""
    reason: str
    file: str = ""
    line: int = 0


class ReloadWarning(Part, frozen=True, kw_only=True):
    """What a reload does with the change, or cannot do."""

    effect: Literal["refused", "loses", "needs"]
    """nginx refuses the reload; what it holds is lost; something else must be so."""
    text: str
    file: str = ""
    line: int = 0


class HostPart(Part, frozen=True, kw_only=True):
    """A file of the host, beside nginx's, that the decisions ask for; ``apply`` never writes it."""

    kind: Literal["sysctl", "unit", "udev"]
    path: str
    """Where it goes; of nobody else."""
    content: str
    settings: list[HostSetting]
    commands: list[str]
    """What makes it effective once it is written."""
    undo: list[str]
    """What takes it back."""


class Plan(Document, frozen=True, kw_only=True, tag="nginx-tune/plan/1"):
    """The change, what it rests on, and what was left out."""

    conf_path: str
    """The main file, absolute."""
    prefix: str | None = None
    nginx_version: str = ""
    nginx_choice: str = ""
    headline: str = ""
    binding: str = ""
    """What the host cannot do of what is asked for, and what binds first, as ``recommend`` has
    them."""
    files: list[PlannedFile] = []
    reads: dict[str, str] = {}
    """SHA-256 of every other file of the tree: where one changes the plan is out of date."""
    warnings: list[ReloadWarning] = []
    refusals: list[Refusal] = []
    brings: list[Finding] = []
    """What the audit warns of once the files are changed and does not now, by their new lines."""
    host: list[HostPart] = []
    """What the decisions ask of the host besides; a part of its own, written by its operator."""
    nginx_test: NginxTest | None = None
    """What ``nginx -t`` said of just these bytes; null where it was not asked."""
    proof: Search | None = None
    """The search that chose it (``validate --search``); null where none did."""


ChangeState = Literal[
    "kept", "awaiting", "rolled_back", "stuck", "left", "unfinished", "damaged", "dry_run"
]
"""``left``: by the operator's word the files stay as they are. ``unfinished``: its process is
at work, or has died and the next one takes it back. ``damaged``: its journal cannot be read.
``dry_run``: only looked at, and in no journal."""


class ChangedFile(Part, frozen=True, kw_only=True):
    """One file of a change, links resolved."""

    path: str
    kind: Literal["edit", "create"]
    sha256_before: str | None = None
    """Null for a file that was created."""
    sha256_after: str


class ChangeRecord(Part, frozen=True, kw_only=True):
    """One change."""

    id: str
    """Empty for a dry run."""
    state: ChangeState
    begun_at: str
    """UTC."""
    conf_path: str
    files: list[ChangedFile] = []
    reason: str = ""
    """Why it was taken back, or could not be."""
    server: str = ""
    """What nginx did when it was taken back."""
    stuck_paths: list[str] = []
    """Files that somebody else has written to since."""
    confirm_until: str = ""
    """UTC; until then it waits to be confirmed."""
    new_workers: int | None = None
    """Of the generation that was seen; null when none was."""
    workers_seen: int | None = None
    """Of them, how many were seen to accept."""
    listeners: int | None = None
    next_step: str = ""
    """What to do or to type now; empty where it has ended."""
    notes: list[str] = []
    """Said while it was made."""


class History(Document, frozen=True, kw_only=True, tag="nginx-tune/history/1"):
    """The changes of a state directory, oldest first."""

    changes: list[ChangeRecord] = []
