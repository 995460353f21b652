"""Changes of files for tests: entries, staged and stored as ``apply`` does."""

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

from nginx_tune.change.apply.journal import Journal, State, boot_id, this_process
from nginx_tune.change.apply.model_journal import Attributes, Begin, Entry, TargetNginx
from nginx_tune.change.apply.swap import read_attributes, stage

NEW_FILE = Attributes(mode=0o644, user=os.geteuid(), group=os.getegid(), accessed_ns=0,
                      modified_ns=0)  # fmt: skip


class Change(NamedTuple):
    """A change that is begun: journal written, nothing swapped."""

    journal: Journal
    entries: list[Entry]
    contents: dict[str, bytes]

    def stage(self) -> None:
        for entry in self.entries:
            stage(entry, self.contents[entry.path], entry.attributes or NEW_FILE)


def attributes_of(path: Path) -> Attributes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return read_attributes(descriptor)
    finally:
        os.close(descriptor)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def begin(state: State, edits: dict[Path, bytes], *, seed: str = "r") -> Change:
    """A change that gives each path these bytes."""
    entries = []
    for path, content in edits.items():
        there = path.exists()
        entries.append(
            Entry(
                path=str(path),
                kind="edit" if there else "create",
                sha256_before=sha256(path.read_bytes()) if there else None,
                sha256_after=sha256(content),
                beside=f".{path.name}.nginx-tune.{seed}",
                attributes=attributes_of(path) if there else None,
            )
        )
    state.prepare()
    journal = state.new()
    originals = {str(path): path.read_bytes() for path in edits if path.exists()}
    journal.begin(
        Begin(
            id=journal.id, at="", boot_id=boot_id(), owner=this_process(),
            target=TargetNginx(conf_path=""), entries=entries,
        ),
        originals,
    )  # fmt: skip
    return Change(journal, entries, {str(path): content for path, content in edits.items()})


def snapshot(tree: Path) -> dict[str, object]:
    """Everything of a tree that a change must give back."""
    found: dict[str, object] = {}
    for path in sorted(tree.rglob("*")):
        name = str(path.relative_to(tree))
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()))
        elif path.is_file():
            one = attributes_of(path)
            found[name] = (path.read_bytes(), one.mode, one.user, one.group, one.modified_ns,
                           tuple(sorted(one.extended.items())), one.inode_flags)  # fmt: skip
    return found
