"""``plan``: a change of an operator's own configuration; ``history``: the changes that were made.

A plan goes file by file, to be read and applied; it may be proved by a search around it. A history
comes from the journals of ``apply``.
"""

from __future__ import annotations

from typing import Literal

from nginx_tune.documents.base import Document, Part
from nginx_tune.documents.decisions import Confidence, Evidence, HostSetting
from nginx_tune.documents.findings import Finding, NginxTest
from nginx_tune.documents.verdict import Verdict

SearchAnswer = Literal["candidate", "recommendation", "today"]
"""The best one: a candidate beat both, the recommendation beat today's alone, or neither did."""


class SearchCandidate(Part, frozen=True, kw_only=True):
    """A configuration that was measured beside others in short runs."""

    name: str
    """``today`` or ``recommended`` for those two."""
    changes: list[str] = []
    """Its lines beyond the recommendation, and after ``without`` the lines of that alone."""
    reason: str = ""
    """The recommendation's fact near its break-even, or the reason for the doubt."""
    ratio: float | None = None
    """The primary metric's ratio to the reference, in the middle of the rounds."""
    low: float | None = None
    high: float | None = None
    level: float | None = None
    """Coverage of the interval, low for few rounds: it ranks candidates and claims nothing."""
    regret_ratio: float | None = None
    """The ratio of the best of all to this one; 1 for the best."""
    rounds: int = 0
    """Valid short runs."""
    confirmed: bool = False
    """True if it was measured again, with other seeds."""


class Search(Part, frozen=True, kw_only=True):
    """A bounded search around a recommendation."""

    answer: SearchAnswer
    name: str
    """The name of the best configuration."""
    reference: Literal["recommended", "today"]
    """The reference of the ratios; today's where nothing is recommended."""
    primary_metric: str
    candidates: list[SearchCandidate]
    against_today: Verdict
    """The best one against today's; for today's, the contender that did not beat it."""
    against_recommended: Verdict | None = None
    """The confirmed candidate against the recommendation; null without one."""
    runs: int = 0
    """All runs, with the short ones."""
    short_seconds: float = 0.0
    """Measured time of a short run."""
    seconds: float = 0.0
    """Duration of the whole search."""
    most_seconds: float | None = None


class Hunk(Part, frozen=True, kw_only=True):
    """One change of a file, with its reasons."""

    line: int
    """Line in the current file."""
    start_byte: int = -1
    """Offset in the current file; -1 in plans of older versions."""
    before: str
    """The replaced text, such as a directive; empty for an insertion."""
    after: str
    """The new text, with spaces and line ends around it; empty for a removal."""
    decision: str
    """Id of the decision, or of the audit rule with the safe fix."""
    reason: str = ""
    evidence: list[Evidence] = []
    confidence: Confidence = "low"
    risks: list[str] = []
    """Risks of the decision for clients, and its conditions."""


class PlannedFile(Part, frozen=True, kw_only=True):
    """A file before and after."""

    path: str
    """Absolute path, as in the configuration."""
    sha256_before: str
    sha256_after: str
    content: bytes
    """The entire new file; base64 in JSON."""
    hunks: list[Hunk]


class Refusal(Part, frozen=True, kw_only=True):
    """A decision or a safe fix that was not written into the configuration, with the reason."""

    decision: str
    """Id of the decision or of the audit rule."""
    setting: str
    """The setting as it would be written, or the rule's advice; empty if the configuration forbids
    the decision as a whole."""
    reason: str
    file: str = ""
    line: int = 0


class ReloadWarning(Part, frozen=True, kw_only=True):
    """An effect of the reload with this change."""

    effect: Literal["refused", "loses", "needs"]
    """nginx refuses the reload, loses state, or needs something else."""
    text: str
    file: str = ""
    line: int = 0


class HostPart(Part, frozen=True, kw_only=True):
    """A file of the host, not nginx's, that the decisions need; ``apply`` never writes it."""

    kind: Literal["sysctl", "unit", "udev"]
    path: str
    """Its path, used by no other package."""
    content: str
    settings: list[HostSetting]
    commands: list[str]
    """Commands that activate it."""
    undo: list[str]
    """Commands that undo it."""


class Plan(Document, frozen=True, kw_only=True, tag="nginx-tune/plan/1"):
    """The change with its basis and with what was not written."""

    conf_path: str
    """Absolute path of the main file."""
    prefix: str | None = None
    nginx_version: str = ""
    nginx_choice: str = ""
    headline: str = ""
    binding: str = ""
    """Unmet demand and the first limit, as in ``recommend``."""
    files: list[PlannedFile] = []
    reads: dict[str, str] = {}
    """SHA-256 of every other file of the tree; the plan is out of date if one changes."""
    warnings: list[ReloadWarning] = []
    refusals: list[Refusal] = []
    brings: list[Finding] = []
    """Audit warnings that the change introduces, by their new lines."""
    host: list[HostPart] = []
    """Host settings that the decisions need, to be written by the operator."""
    nginx_test: NginxTest | None = None
    """Result of ``nginx -t`` for exactly these files; null if it did not run."""
    proof: Search | None = None
    """The search that chose it (``validate --search``); null without one."""


ChangeState = Literal[
    "kept", "awaiting", "rolled_back", "stuck", "left", "unfinished", "damaged", "dry_run"
]
"""``left``: the operator chose to keep the files as they are. ``unfinished``: its process is at
work, or has died and the next one undoes it. ``damaged``: its journal cannot be read. ``dry_run``:
checked only, and in no journal."""


class ChangedFile(Part, frozen=True, kw_only=True):
    """One file of a change, with links resolved."""

    path: str
    kind: Literal["edit", "create"]
    sha256_before: str | None = None
    """Digest before the change; null for a created file."""
    sha256_after: str


class ChangeRecord(Part, frozen=True, kw_only=True):
    """One change."""

    id: str
    """Its id; empty for a dry run."""
    state: ChangeState
    begun_at: str
    """UTC."""
    conf_path: str
    files: list[ChangedFile] = []
    reason: str = ""
    """The reason why it was undone, or could not be."""
    server: str = ""
    """State of nginx after the undo."""
    stuck_paths: list[str] = []
    """Files that another process has since changed."""
    confirm_until: str = ""
    """End of the time for confirmation, UTC."""
    new_workers: int | None = None
    """Number of new workers; null if none were seen."""
    workers_seen: int | None = None
    """Number of these that were seen to accept."""
    listeners: int | None = None
    next_step: str = ""
    """The next action or command; empty if none is left."""
    notes: list[str] = []
    """Notes from while it was made."""


class History(Document, frozen=True, kw_only=True, tag="nginx-tune/history/1"):
    """The changes of a state directory, oldest first."""

    changes: list[ChangeRecord] = []
