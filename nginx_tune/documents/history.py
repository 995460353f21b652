"""``history``: the changes that ``apply`` made, from their journals."""

from __future__ import annotations

from typing import Literal

from nginx_tune.documents.base import Document, Part

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
