"""The safe fixes of findings as new contents of files, tried before they are given out; pure.

Edits never touch each other (the engine sees to that). All are applied together and the result
is audited: a rule whose findings do not go, or whose edits bring new ones, loses its edits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from nginx_tune.conf.directive import as_utf8
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.findings import Finding, Findings

Audit = Callable[[dict[str, bytes]], Findings]
"""Audits the tree with some files replaced, by their names in the tree."""

Accepts = Callable[[dict[str, bytes]], bool]
"""Asks nginx, or another judge, to accept the tree with some files replaced."""


class Change(NamedTuple):
    """A file before and after."""

    file: str
    old: bytes
    new: bytes


class Fixed(NamedTuple):
    """The changes, and how many findings they cure."""

    changes: list[Change]
    cured: int


def fix_findings(
    tree: ConfTree, findings: Findings, audit_again: Audit, accepts: Accepts | None = None
) -> Fixed:
    """The changes of all findings that carry edits and stand the trial."""
    fixed = current_fixes(tree, findings, audit_again, accepts)
    return Fixed(changes_of(tree, fixed), len(fixed))


def current_fixes(
    tree: ConfTree, findings: Findings, audit_again: Audit, accepts: Accepts | None = None
) -> list[Finding]:
    """The findings whose edits stand the trial, all together.

    ``accepts`` is another's word on the tree with some files replaced: nginx's own, a plan's.
    """
    trial = _Trial(tree, findings, audit_again, accepts)
    fixable = [one for one in findings.findings if one.edits]
    rules = list(dict.fromkeys(one.rule for one in fixable))
    if not trial.stands(fixable):
        for rule in rules:  # the guilty ones, each tried by itself
            alone = [one for one in fixable if one.rule == rule]
            if not trial.stands(alone):
                fixable = [one for one in fixable if one.rule != rule]
        if not trial.stands(fixable):
            return []
    return fixable


class _Trial(NamedTuple):
    """The trial that fixes have to stand."""

    tree: ConfTree
    before: Findings
    audit_again: Audit
    accepts: Accepts | None

    def stands(self, fixed: list[Finding]) -> bool:
        """True when the fixes together cure what they are for and do nothing else."""
        if not fixed:
            return True
        files = {change.file: change.new for change in changes_of(self.tree, fixed)}
        after = self.audit_again(files)
        if len(after.files_unparsed) > len(self.before.files_unparsed):
            return False
        expected = Counter(one.rule for one in self.before.findings)
        expected.subtract(one.rule for one in fixed)
        found = Counter(one.rule for one in after.findings)
        if not all(found[rule] <= expected[rule] for rule in found):
            return False
        return self.accepts is None or self.accepts(files)


def changes_of(tree: ConfTree, fixed: Iterable[Finding]) -> list[Change]:
    """The files of a tree with the edits of some of its findings."""
    edits: dict[str, set[tuple[int, int, str]]] = {}
    order: dict[str, list[tuple[int, int, str]]] = {}
    for finding in fixed:
        for edit in finding.edits:
            key = (edit.start_byte, edit.end_byte, edit.text)
            if key not in edits.setdefault(edit.file, set()):
                edits[edit.file].add(key)
                order.setdefault(edit.file, []).append(key)
    changes = []
    for file in tree.parsed:
        wanted = sorted(order.get(as_utf8(file.source.file), ()), key=lambda edit: edit[:2])
        if wanted:
            old = file.source.data
            changes.append(Change(file.source.file, old, _applied(old, wanted)))
    return changes


def _applied(old: bytes, edits: list[tuple[int, int, str]]) -> bytes:
    parts: list[bytes] = []
    at = 0
    for start, end, text in edits:
        parts += old[at:start], text.encode()
        at = end
    return b"".join([*parts, old[at:]])
