"""Safe fixes of the audit in a plan, behind its decisions; pure.

The tree is audited as the decisions leave it, so that a fix and a decision on the same line meet
in the order in which an operator would take them. A fix after which a decision would ask for
something that it did not ask for before is left out: a plan must not fight itself. So is one that
does what a decision refused. Fixes are made until none is left that stands, so that a plan made
again is empty.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from nginx_tune.adopt.held_back import held_back
from nginx_tune.audit.fixes import changes_of, standing_fixes
from nginx_tune.conf.directive import as_utf8
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.findings import FileEdit, Finding, Findings
from nginx_tune.documents.plan import Hunk, PlannedFile, Refusal
from nginx_tune.emit.changes import Changes, Leaves

_MOST_SHOWN = 160
"""Characters of a line: a whole configuration may stand on one."""
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
    contents = {one.path: one.content for one in changes.files}
    hunks = {one.path: list(one.hunks) for one in changes.files}
    asked = ground.leaves(contents)
    places = _Places(tree, changes)

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
            own = list(_edits_of(change.file, fixed))
            hunks.setdefault(change.file, []).extend(
                _hunk(change.old, edit, finding, places) for edit, finding in own
            )
            places.move(change.file, change.old, [edit for edit, _ in own])
            contents[change.file] = change.new
    refused = (
        Refusal(
            decision=one.rule,
            setting=one.fix,
            reason=why,
            file=one.file,
            line=places.origin(one.file, one.line),
        )
        for one, why in [*held, *_left_out(now, findings, undone_by)]
    )
    return Changes(_files(tree, contents, hunks), [*changes.refusals, *refused], changes.edits)


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


class _Places:
    """The lines of the files as they are from which the lines of the changed ones come."""

    def __init__(self, tree: ConfTree, changes: Changes) -> None:
        self._lines: dict[str, list[int]] = {}
        for parsed in tree.parsed:
            source = parsed.source
            own = [one for one in changes.edits if one.source.file == source.file]
            spans = sorted({(one.start, one.end, one.text) for one in own}, key=lambda s: s[:2])
            if spans:
                self._lines[source.file] = list(_origins(source.text, spans))

    def move(self, file: str, old: bytes, edits: Iterable[FileEdit]) -> None:
        """The edits are made: what follows is about the new lines."""
        spans = sorted((one.start_byte, one.end_byte, one.text) for one in edits)
        found = list(_origins(old.decode("latin-1"), spans))  # a character for each byte
        self._lines[file] = [self.origin(file, line) for line in found]

    def origin(self, file: str, line: int) -> int:
        """The line (from 1) of the file as it is."""
        lines = self._lines.get(file)
        if lines is None:
            return line
        return lines[min(line, len(lines)) - 1]


def _origins(text: str, spans: Iterable[tuple[int, int, str]]) -> Iterator[int]:
    """For each line after the replacements the line before them; of a new one, that it follows."""
    line, at = 1, 0
    current = 1
    for start, end, new in spans:
        for _ in range(text.count("\n", at, start)):
            yield current
            line += 1
            current = line
        for _ in range(new.count("\n")):
            yield current
        line += text.count("\n", start, end)
        if new.endswith("\n") or (not new and (start == 0 or text[start - 1] == "\n")):
            current = line  # what follows the replaced text begins the new line
        at = end
    for _ in range(text.count("\n", at)):
        yield current
        line += 1
        current = line
    yield current


def _edits_of(file: str, fixed: Iterable[Finding]) -> Iterator[tuple[FileEdit, Finding]]:
    """Each edit of a file once, with the first finding that asks for it."""
    seen = set()
    for finding in fixed:
        for edit in finding.edits:
            key = (edit.start_byte, edit.end_byte, edit.text)
            if edit.file == as_utf8(file) and key not in seen:
                seen.add(key)
                yield edit, finding


def _hunk(old: bytes, edit: FileEdit, finding: Finding, places: _Places) -> Hunk:
    before, after = _shown(old, edit)
    line = old.count(b"\n", 0, edit.start_byte) + 1
    return Hunk(
        line=places.origin(edit.file, line),
        before=before,
        after=after,
        decision=finding.rule,
        reason=finding.message,
        evidence=finding.evidence,
        confidence="high",
    )


def _shown(old: bytes, edit: FileEdit) -> tuple[str, str]:
    """The lines that an edit is about, before and after it."""
    start, end, text = edit.start_byte, edit.end_byte, edit.text.encode()
    if start == end and text.strip().endswith((b";", b"}")):
        return "", _short(text)
    first = old.rfind(b"\n", 0, start) + 1
    if end > start and old[end - 1 : end] == b"\n":
        last = end
    else:
        last = old.find(b"\n", end)
        last = len(old) if last < 0 else last
    return _short(old[first:last]), _short(old[first:start] + text + old[end:last])


def _short(lines: bytes) -> str:
    text = as_utf8(" ".join(lines.decode("utf-8", "surrogateescape").split()))
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


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


def _files(tree: ConfTree, contents: Files, hunks: Mapping[str, list[Hunk]]) -> list[PlannedFile]:
    return [
        PlannedFile(
            path=source.file,
            sha256_before=hashlib.sha256(source.data).hexdigest(),
            sha256_after=hashlib.sha256(contents[source.file]).hexdigest(),
            content=contents[source.file],
            hunks=sorted(hunks[source.file], key=lambda hunk: hunk.line),
        )
        for source, _ in tree.parsed
        if contents.get(source.file, source.data) != source.data
    ]
