"""``plan``: a change to an operator's configuration; ``history``: the changes that were made.

A plan lists its changes file by file, for people and for ``apply``. It may include the search that
proves it. A history comes from the journals of ``apply``.
"""

from typing import Literal

from nginx_tune.documents.base import Document, MissingInclude, Part
from nginx_tune.documents.decisions import Confidence, Evidence, HostSetting
from nginx_tune.documents.findings import Finding, NginxTest
from nginx_tune.documents.verdict import Verdict

SearchAnswer = Literal["candidate", "recommendation", "today"]
"""The best configuration. ``candidate``: it beat the recommendation and the current configuration;
``recommendation``: it beat the current one; ``today``: neither beat the current one."""


class SearchCandidate(Part, frozen=True, kw_only=True):
    """A configuration that was compared with others in short runs."""

    name: str
    """``today`` for the current configuration, ``recommended`` for the recommendation."""
    changes: list[str] = []
    """Lines that the candidate adds to the recommendation; after ``without``, lines that it leaves
    out."""
    reason: str = ""
    """The reason to try it: a fact near its break-even, or another doubt."""
    ratio: float | None = None
    """The primary metric's ratio to the reference: the middle value of the rounds."""
    low: float | None = None
    high: float | None = None
    level: float | None = None
    """Coverage of the interval. With few rounds it is low: such an interval ranks candidates, but
    proves nothing."""
    regret_ratio: float | None = None
    """Ratio of the best candidate's result to this candidate's; 1 for the best."""
    rounds: int = 0
    """Valid short runs."""
    confirmed: bool = False
    """True if the candidate was measured again, with other seeds."""


class Search(Part, frozen=True, kw_only=True):
    """A bounded search around a recommendation."""

    answer: SearchAnswer
    name: str
    """The name of the best configuration."""
    reference: Literal["recommended", "today"]
    """The reference of the ratios: the current configuration if nothing is recommended."""
    primary_metric: str
    candidates: list[SearchCandidate]
    against_today: Verdict
    """The best configuration against the current one; if the current one is the best, the candidate
    that failed to beat it."""
    against_recommended: Verdict | None = None
    """The confirmed candidate against the recommendation; null if no candidate was confirmed."""
    runs: int = 0
    """Number of all runs, including the short ones."""
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
    """A file of the host (not of nginx) that the decisions need; ``apply`` never writes it."""

    kind: Literal["sysctl", "unit", "udev"]
    path: str
    """Path of the file, which no other package uses."""
    content: str
    settings: list[HostSetting]
    commands: list[str]
    """Commands that activate it."""
    undo: list[str]
    """Commands that undo it."""


class Plan(Document, frozen=True, kw_only=True, tag="nginx-tune/plan/1"):
    """A change with its basis, and with the decisions that were not written."""

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
    files_missing: list[MissingInclude] = []
    """Missing files of the tree, which were not read; ``apply`` refuses the plan unless each of
    them is accepted."""
    warnings: list[ReloadWarning] = []
    refusals: list[Refusal] = []
    brings: list[Finding] = []
    """Audit warnings that the change introduces, with their lines in the new files."""
    host: list[HostPart] = []
    """Host settings that the decisions need, to be written by the operator."""
    nginx_test: NginxTest | None = None
    """Result of ``nginx -t`` for exactly these files; null if the test did not run."""
    proof: Search | None = None
    """The search that chose it (``validate --search``); null if there was no search."""


ChangeState = Literal[
    "kept", "awaiting", "rolled_back", "stuck", "left", "unfinished", "damaged", "dry_run"
]
"""``left``: the operator chose to keep the files as they are. ``unfinished``: the change's process
is still at work, or has died; in that case the next process undoes the change. ``damaged``: the
change's journal cannot be read. ``dry_run``: the change was only checked, and is in no journal."""


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
    """The change's id; empty for a dry run."""
    state: ChangeState
    begun_at: str
    """Time at which the change began, in UTC."""
    conf_path: str
    files: list[ChangedFile] = []
    reason: str = ""
    """The reason why the change was undone, or could not be."""
    server: str = ""
    """State of nginx after the undo."""
    stuck_paths: list[str] = []
    """Files that another process has since changed."""
    confirm_until: str = ""
    """Time until which the change must be confirmed, in UTC."""
    new_workers: int | None = None
    """Number of new workers; null if none were seen."""
    workers_seen: int | None = None
    """Number of new workers that were seen to accept connections."""
    listeners: int | None = None
    next_step: str = ""
    """The next action or command; empty if none is left."""
    notes: list[str] = []
    """Notes that were made during the change."""


class History(Document, frozen=True, kw_only=True, tag="nginx-tune/history/1"):
    """The changes of a state directory, oldest first."""

    changes: list[ChangeRecord] = []
