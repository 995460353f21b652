"""Safe fixes of findings, as new file contents that have passed a trial. No I/O.

Edits never overlap (the engine ensures it). All are applied together and the result is audited
again: a rule whose findings remain, or whose edits cause new ones, loses its edits.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from nginx_tune.conf.directive import as_utf8
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.findings import Finding, Findings

Audit = Callable[[dict[str, bytes]], Findings]
"""Audits the tree with some files replaced, by their names in the tree."""

Accepts = Callable[[dict[str, bytes]], bool]
"""Another check of the tree with some files replaced, such as ``nginx -t``."""


class Change(NamedTuple):
    """A file before and after."""

    file: str
    old: bytes
    new: bytes


class Fixed(NamedTuple):
    """The changes, and the number of findings that they fix."""

    changes: list[Change]
    cured: int


def fix_findings(
    tree: ConfTree, findings: Findings, audit_again: Audit, accepts: Accepts | None = None
) -> Fixed:
    """The file changes for all findings whose edits pass the trial."""
    fixed = current_fixes(tree, findings, audit_again, accepts)
    return Fixed(changes_of(tree, fixed), len(fixed))


def current_fixes(
    tree: ConfTree, findings: Findings, audit_again: Audit, accepts: Accepts | None = None
) -> list[Finding]:
    """The findings whose edits, applied together, pass the trial.

    ``accepts`` is another check of the tree with replaced files, such as ``nginx -t``.
    """
    trial = _Trial(tree, findings, audit_again, accepts)
    fixable = [finding for finding in findings.findings if finding.edits]
    rules = list(dict.fromkeys(finding.rule for finding in fixable))
    if not trial.passes(fixable):
        for rule in rules:  # find the failing rules, each tried alone
            alone = [finding for finding in fixable if finding.rule == rule]
            if not trial.passes(alone):
                fixable = [finding for finding in fixable if finding.rule != rule]
        if not trial.passes(fixable):
            return []
    return fixable


class _Trial(NamedTuple):
    """Applies fixes to the tree in memory and audits the result."""

    tree: ConfTree
    before: Findings
    audit_again: Audit
    accepts: Accepts | None

    def passes(self, fixed: list[Finding]) -> bool:
        """True if the fixes together remove their findings and cause no others."""
        if not fixed:
            return True
        files = {change.file: change.new for change in changes_of(self.tree, fixed)}
        after = self.audit_again(files)
        if len(after.files_unparsed) > len(self.before.files_unparsed):
            return False
        expected = Counter(finding.rule for finding in self.before.findings)
        expected.subtract(finding.rule for finding in fixed)
        found = Counter(finding.rule for finding in after.findings)
        if not all(found[rule] <= expected[rule] for rule in found):
            return False
        return self.accepts is None or self.accepts(files)


def changes_of(tree: ConfTree, fixed: Iterable[Finding]) -> list[Change]:
    """The files of a tree that change when the edits of these findings are applied."""
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
        file_edits = sorted(order.get(as_utf8(file.source.file), ()), key=lambda edit: edit[:2])
        if file_edits:
            old = file.source.data
            changes.append(Change(file.source.file, old, _applied(old, file_edits)))
    return changes


def _applied(old: bytes, edits: list[tuple[int, int, str]]) -> bytes:
    parts: list[bytes] = []
    at = 0
    for start, end, text in edits:
        parts += old[at:start], text.encode()
        at = end
    return b"".join([*parts, old[at:]])
