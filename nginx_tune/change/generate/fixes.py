"""Safe fixes of the audit in a plan, behind its decisions; pure.

The tree is audited as the decisions leave it, so that a fix and a decision on the same line meet
in the order in which an operator would take them. A fix after which a decision would ask for
something that it did not ask for before is left out: a plan must not fight itself. So is one that
does what a decision refused. Fixes are made until none is left that stands, so that a plan made
again is empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from nginx_tune.audit.fixes import changes_of, standing_fixes
from nginx_tune.change.generate.changes import Changes, Leaves
from nginx_tune.change.generate.hunks import Span, TracedFile, planned_file
from nginx_tune.change.plan.held_back import held_back
from nginx_tune.conf.directive import as_utf8
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.findings import FileEdit, Finding, Findings
from nginx_tune.documents.plan import Hunk, Refusal

Files = Mapping[str, bytes]


class Ground(NamedTuple):
    """What the fixes are held against."""

    read: Callable[[Files], ConfTree]
    """The tree with some files replaced."""
    audit: Callable[[ConfTree], Findings]
    leaves: Leaves
    """Of all decisions, also of those that are not to be written."""


def add_fixes(changes: Changes, tree: ConfTree, ground: Ground) -> Changes:
    """The changes of a tree with the safe fixes of what the audit finds once they are made."""
    hunks = {one.path: one.hunks for one in changes.files}
    traced = {
        one.source.file: TracedFile(one.source.data, hunks.get(one.source.file, ()))
        for one in tree.parsed
    }
    contents = {one.path: one.content for one in changes.files}
    asked = ground.leaves(contents)

    def undone_by(files: Files) -> set[str]:
        return ground.leaves({**contents, **files}) - asked

    def audit_again(files: Files) -> Findings:
        return ground.audit(ground.read({**contents, **files}))

    while True:
        now = ground.read(contents)
        findings = ground.audit(now)
        held = list(held_back(now, findings))
        findings = _without_edits(findings, [one for one, _ in held])
        fixed = standing_fixes(now, findings, audit_again, lambda files: not undone_by(files))
        if not fixed:
            break
        for change in changes_of(now, fixed):
            spans: dict[Span, list[Hunk]] = {}
            for edit, finding in _edits_of(change.file, fixed):
                span = (edit.start_byte, edit.end_byte, edit.text.encode())
                spans.setdefault(span, []).append(_reason(finding))
            traced[change.file].change(spans)
            contents[change.file] = change.new
    refused = (
        Refusal(
            decision=one.rule,
            setting=one.fix,
            reason=why,
            file=one.file,
            line=_origin(traced, one),
        )
        for one, why in [*held, *_left_out(now, findings, undone_by)]
    )
    files = [
        planned_file(one, traced[one.source.file])
        for one in tree.parsed
        if contents.get(one.source.file, one.source.data) != one.source.data
    ]
    return Changes(files, [*changes.refusals, *refused])


def _without_edits(findings: Findings, held: Sequence[Finding]) -> Findings:
    """The findings, of which some are not to be cured."""
    left = [replace(one, edits=[]) if one in held else one for one in findings.findings]
    return replace(findings, findings=left)


def brought(before: Findings, after: Findings) -> list[Finding]:
    """What a change brings beyond information: of rules that find more than they did."""
    count = Counter(one.rule for one in before.findings)
    known = {(one.rule, one.file, one.message) for one in before.findings}
    grown = Counter(one.rule for one in after.findings) - count
    found = []
    for one in sorted(after.findings, key=lambda f: (f.rule, f.file, f.message) in known):
        if grown[one.rule] > 0 and one.severity != "info":
            grown[one.rule] -= 1
            found.append(one)
    return found


def _origin(traced: Mapping[str, TracedFile], finding: Finding) -> int:
    """The line of a finding in the file as it is."""
    file = next((one for name, one in traced.items() if as_utf8(name) == finding.file), None)
    return finding.line if file is None else file.origin(finding.line)


def _edits_of(file: str, fixed: Iterable[Finding]) -> Iterator[tuple[FileEdit, Finding]]:
    """Each edit of a file once, with the first finding that asks for it."""
    seen = set()
    for finding in fixed:
        for edit in finding.edits:
            key = (edit.start_byte, edit.end_byte, edit.text)
            if edit.file == as_utf8(file) and key not in seen:
                seen.add(key)
                yield edit, finding


def _reason(finding: Finding) -> Hunk:
    return Hunk(
        line=finding.line,
        before="",
        after="",
        decision=finding.rule,
        reason=finding.message,
        evidence=finding.evidence,
        confidence="high",
    )


def _left_out(
    tree: ConfTree, findings: Findings, undone_by: Callable[[Files], set[str]]
) -> Iterator[tuple[Finding, str]]:
    """The findings whose safe fixes did not stand, and why."""
    left = [one for one in findings.findings if one.edits]
    for rule in dict.fromkeys(one.rule for one in left):
        alone = [one for one in left if one.rule == rule]
        undone = sorted(undone_by({one.file: one.new for one in changes_of(tree, alone)}))
        what = f"undo what {' and '.join(undone)} decided" if undone else "bring another finding"
        yield from ((one, f"it would {what}") for one in alone)
