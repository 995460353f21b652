"""Files of plans as ``plan`` writes them, for any old and new bytes."""

import hashlib
from typing import Any

import msgspec

from nginx_tune.documents.plan import Hunk, PlannedFile


def planned_file(path: object, old: bytes, new: bytes, **hunk: Any) -> PlannedFile:
    """A file with one hunk: all of it."""
    shown = Hunk(
        line=1, start_byte=0, before=old.decode(), after=new.decode(),
        **{"decision": "accept", **hunk},
    )  # fmt: skip
    return PlannedFile(
        path=str(path),
        sha256_before=hashlib.sha256(old).hexdigest(),
        sha256_after=hashlib.sha256(new).hexdigest(),
        content=new,
        hunks=[] if old == new else [shown],
    )


def as_json(file: PlannedFile) -> dict[str, Any]:
    """The file as JSON has it."""
    return dict(msgspec.to_builtins(file))
