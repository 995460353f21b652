"""Edits of a configuration for decisions, then for safe fixes of the audit; no I/O.

Either all settings of a decision are written or none. The caller's ``leaves`` checks the result: a
decision that would still change something is refused, so that a second plan is empty.

The audit runs on the tree with the decisions applied. A fix is left out if a decision would then
want a new change, or if a decision refused the same change: a plan must not contradict itself.
Fixes are applied until none is left.

If the audit would report an error in a decision's lines, the decision is refused with that finding.
Warnings stay in the plan.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace as changed
from typing import NamedTuple

from msgspec.structs import replace

from nginx_tune.audit.fixes import changes_of, current_fixes
from nginx_tune.change.generate.plan_files import ByteSpan, TracedFile, planned_file
from nginx_tune.change.generate.writing import comment, statement, words
from nginx_tune.change.plan.current import CurrentTree, own_blocks
from nginx_tune.change.plan.kept import KeptConnections, closes_by_default, lacks_ports
from nginx_tune.change.plan.naming import needed_line
from nginx_tune.change.plan.placing import SettingPlace, UnplacedError, find_places
from nginx_tune.change.plan.solver import left_alone
from nginx_tune.conf.directive import Directive, as_utf8
from nginx_tune.conf.edits import (
    Edit,
    EditSet,
    add_after,
    add_argument,
    add_to,
    change_arguments,
    replace_argument,
)
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.decisions import Decision, Decisions, Setting
from nginx_tune.documents.findings import FileEdit, Finding, Findings
from nginx_tune.documents.plan import Hunk, PlannedFile, Refusal
from nginx_tune.errors import UsageError

_TO_ADD = re.compile(r" \((main|events|http|server|location|upstream)( [^)]*)?\)$")
"""The end of a text in ``needs`` for a line that must still be added, which names its context."""
_UNNAMED_FORMAT = "combined"
"""Default format of a log, since a format must precede options (ngx_http_log_set_log())."""
Leaves = Callable[[Mapping[str, bytes]], set[str]]
"""The ids of decisions that would still change something once the given files are replaced."""


class Changes(NamedTuple):
    """Planned files, and the changes that were refused."""

    files: list[PlannedFile]
    refusals: list[Refusal]


class _Written(NamedTuple):
    """One edit of a decision, with its reason."""

    edit: Edit
    hunk: Hunk


def plan_changes(
    decisions: Decisions, tree: ConfTree, leaves: Leaves, *, annotates: bool = False
) -> Changes:
    """Edits of the tree for the settings of decisions from ``as_changes``."""
    current = CurrentTree(
        tree, closes_by_default=closes_by_default(decisions), lacks_ports=lacks_ports(decisions)
    )
    refusals: list[Refusal] = []
    planned: dict[str, list[_Written]] = {}
    taken = EditSet()
    for decision in decisions.decisions:
        if not decision.settings:
            continue
        try:
            found = _written(decision, current, annotates=annotates)
        except UnplacedError as error:
            refusals.append(_refusal(decision, error.reason, error.directive))
            continue
        except UsageError as error:
            refusals.append(_refusal(decision, error.message, None))
            continue
        if not taken.add(place.edit for place in found):
            refusals.append(_refusal(decision, "another decision changes the same line", None))
            continue
        planned[decision.id] = found
    by_id: dict[str, Decision] = {decision.id: decision for decision in decisions.decisions}
    while planned:
        lacking = _lacking([by_id[name] for name in planned], decisions.decisions)
        files = [] if lacking else _files(tree, planned)
        if not lacking:
            left = leaves({file.path: file.content for file in files}) & set(planned)
            lacking = dict.fromkeys(left, "the change would not take effect everywhere")
        if not lacking:
            return Changes(files, refusals)
        for name, why in lacking.items():
            refusals.append(_refusal(by_id[name], why, None))
            del planned[name]
    return Changes([], refusals)


def _lacking(decisions: Sequence[Decision], every: Sequence[Decision]) -> dict[str, str]:
    """The decisions that depend on a decision that is left out, each with the reason."""
    ids = {decision.id for decision in decisions}
    lines = {needed_line(s) for d in decisions for s in d.settings}
    found = {
        name: f"it depends on {need}, which is left out"
        for name, need in left_alone(every, ids).items()
    }
    for decision in decisions:
        needs = [need for s in decision.settings for need in s.needs if _TO_ADD.search(need)]
        if absent := next((need for need in needs if need not in lines), None):
            found[decision.id] = f"it needs {absent}, which is left out"
    return found


_SUPPRESSION = re.compile(r"^nginx-tune: ignore\[[^\]]*\] ")
"""The beginning of a reason that also silences a rule, where it is written as a comment."""


def _written(decision: Decision, current: CurrentTree, *, annotates: bool) -> list[_Written]:
    found = []
    for wanted in decision.settings:
        apart = own_blocks(decision, wanted.directive)
        for target in find_places(current, wanted, apart):
            edit = _edit(target, wanted, annotates=annotates)
            hunk = Hunk(
                line=target.directive.line,
                before="",
                after="",
                decision=decision.id,
                reason=_SUPPRESSION.sub("", wanted.reason) or decision.summary,
                evidence=wanted.evidence or decision.evidence,
                confidence=decision.confidence,
                risks=decision.risks,
            )
            found.append(_Written(edit, hunk))
    return found


def _edit(target: SettingPlace, wanted: Setting, *, annotates: bool) -> Edit:
    directive = target.directive
    if target.how == "option":
        return _with_option(directive, wanted.args[-1])
    if target.how == "change":
        if wanted.lines:
            raise UnplacedError("an existing block is not rewritten", directive)
        if _keeps_its_words(wanted):
            return _with_options(directive, wanted)
        return change_arguments(directive, wanted.args, lambda word: words([word]))
    line = _line(wanted)
    reason = f"  # {comment(wanted.reason)}" if annotates and wanted.reason else ""
    if target.how == "before":
        return _before(directive, line + reason)
    last = directive.block.directives[-1:] if directive.block else []
    if wanted.directive == "keepalive" and last and last[0].block is None:
        # A balancing method after keepalive would replace it (ngx_http_upstream_keepalive()).
        return add_after(last[0], line)
    alike = directive.block.all(wanted.directive)[-1:] if directive.block else []
    if wanted.directive == "proxy_set_header" and alike and alike[0].file == directive.file:
        return add_after(alike[0], line)
    edit = changed(add_to(directive, line), claim=None)
    if reason and edit.text.startswith(
        ("\n", "\r")
    ):  # a comment elsewhere would hide the next words
        return changed(edit, text=edit.text + reason)
    return edit


def _with_options(log: Directive, wanted: Setting) -> Edit:
    """Add the missing options to a log; its path, format and ``if=`` stay."""
    if "=" in "".join(log.args[1:2]):
        raise UnplacedError("the log has options but no format", log)
    return add_argument(log, words(_missing(log, wanted)))


def _keeps_its_words(wanted: Setting) -> bool:
    return wanted.directive == "access_log" and wanted.args[0] != "off"


def _missing(log: Directive, wanted: Setting) -> list[str]:
    """The options that a log lacks, after the default format if the log names none."""
    names = {arg.partition("=")[0] for arg in log.args[1:]}
    lacking = [arg for arg in wanted.args[2:] if arg.partition("=")[0] not in names]
    return lacking if len(log.args) > 1 else [_UNNAMED_FORMAT, *lacking]


def _with_option(listen: Directive, option: str) -> Edit:
    name, _, value = option.partition("=")
    for index, argument in enumerate(listen.args):
        if index and value and argument.partition("=")[0] == name:
            return replace_argument(listen, index, words([option]))
    # Another decision may change the last argument.
    behind = 0 if "=" in listen.args[-1] else -1
    return add_argument(listen, words([option]), behind=behind)


def _before(block: Directive, line: str) -> Edit:
    """Insert a line before a block that starts its line, or words before another block."""
    text = block.source.text
    start = text.rfind("\n", 0, block.start) + 1
    lead = text[start : block.start]
    if lead.strip(" \t"):
        return Edit(block.source, block.start, block.start, f"{line.partition('  # ')[0]} ")
    line_end = text.find("\n", block.start)
    newline = "\r\n" if line_end > 0 and text[line_end - 1] == "\r" else "\n"
    return Edit(block.source, start, start, f"{lead}{line}{newline}")


def _line(wanted: Setting) -> str:
    if not wanted.lines:
        return statement(wanted)
    inner = " ".join(f"{words(line)};" for line in wanted.lines)
    return f"{statement(wanted)} {inner} }}"


def _files(tree: ConfTree, planned: Mapping[str, Sequence[_Written]]) -> list[PlannedFile]:
    every = [place for each in planned.values() for place in each]
    files = []
    for parsed in tree.parsed:
        source = parsed.source
        own = [place for place in every if place.edit.source.file == source.file]
        if not own:
            continue
        traced = TracedFile(source.data)
        spans: dict[ByteSpan, list[Hunk]] = {}
        for edit, hunk in own:
            start, end = source.byte_offset(edit.start), source.byte_offset(edit.end)
            text = edit.text.encode("utf-8", "surrogateescape")
            spans.setdefault((start, end, text), []).append(hunk)
        traced.change(spans)
        files.append(planned_file(parsed, traced))
    return files


def _refusal(decision: Decision, reason: str, directive: Directive | None) -> Refusal:
    lines = []
    for setting in decision.settings:
        try:
            lines.append(_line(setting))
        except UsageError:
            lines.append(setting.directive)
    return Refusal(
        decision=decision.id,
        setting=" ".join(lines),
        reason=reason,
        file=directive.file if directive else "",
        line=directive.line if directive else 0,
    )


Files = Mapping[str, bytes]


class Ground(NamedTuple):
    """The functions that check fixes."""

    read: Callable[[Files], ConfTree]
    """Reads the tree with the given files replaced."""
    audit: Callable[[ConfTree], Findings]
    leaves: Leaves
    """Checks all decisions, including those that are not written."""


def add_fixes(changes: Changes, tree: ConfTree, ground: Ground) -> Changes:
    """Add the safe fixes for the audit's findings in the changed configuration."""
    hunks = {file.path: file.hunks for file in changes.files}
    traced = {
        source.source.file: TracedFile(source.source.data, hunks.get(source.source.file, ()))
        for source in tree.parsed
    }
    contents = {file.path: file.content for file in changes.files}
    asked = ground.leaves(contents)

    def undone_by(files: Files) -> set[str]:
        return ground.leaves({**contents, **files}) - asked

    def audit_again(files: Files) -> Findings:
        return ground.audit(ground.read({**contents, **files}))

    while True:
        now = ground.read(contents)
        findings = ground.audit(now)
        held = list(blocked_fixes(now, findings))
        findings = _without_edits(findings, [finding for finding, _ in held])
        fixed = current_fixes(now, findings, audit_again, lambda files: not undone_by(files))
        if not fixed:
            break
        for change in changes_of(now, fixed):
            spans: dict[ByteSpan, list[Hunk]] = {}
            for edit, finding in _edits_of(change.file, fixed):
                span = (edit.start_byte, edit.end_byte, edit.text.encode())
                spans.setdefault(span, []).append(_reason(finding))
            traced[change.file].change(spans)
            contents[change.file] = change.new
    refused = (
        Refusal(
            decision=finding.rule,
            setting=finding.fix,
            reason=why,
            file=finding.file,
            line=_origin(traced, finding),
        )
        for finding, why in [*held, *_left_out(now, findings, undone_by)]
    )
    files = [
        planned_file(source, traced[source.source.file])
        for source in tree.parsed
        if contents.get(source.source.file, source.source.data) != source.source.data
    ]
    return Changes(files, [*changes.refusals, *refused])


def _without_edits(findings: Findings, held: Sequence[Finding]) -> Findings:
    """The findings, without the edits of those in ``held``."""
    left = [
        replace(finding, edits=[]) if finding in held else finding for finding in findings.findings
    ]
    return replace(findings, findings=left)


def brought(before: Findings, after: Findings) -> list[Finding]:
    """The findings above "info" that a change adds, of rules that had fewer findings before."""
    count = Counter(finding.rule for finding in before.findings)
    known = {(finding.rule, finding.file, finding.message) for finding in before.findings}
    grown = Counter(finding.rule for finding in after.findings) - count
    found = []
    for finding in sorted(after.findings, key=lambda f: (f.rule, f.file, f.message) in known):
        if grown[finding.rule] > 0 and finding.severity != "info":
            grown[finding.rule] -= 1
            found.append(finding)
    return found


def _origin(traced: Mapping[str, TracedFile], finding: Finding) -> int:
    """The line of a finding in the original file."""
    file = next(
        (traced_file for name, traced_file in traced.items() if as_utf8(name) == finding.file), None
    )
    return finding.line if file is None else file.origin(finding.line)


def _edits_of(file: str, fixed: Iterable[Finding]) -> Iterator[tuple[FileEdit, Finding]]:
    """The distinct edits of a file, each with the first finding that has it."""
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
    """The findings whose safe fixes are not applied, each with the reason."""
    left = [finding for finding in findings.findings if finding.edits]
    for rule in dict.fromkeys(finding.rule for finding in left):
        alone = [finding for finding in left if finding.rule == rule]
        undone = sorted(
            undone_by({changed.file: changed.new for changed in changes_of(tree, alone)})
        )
        what = f"undo a change made by {' and '.join(undone)}" if undone else "add another finding"
        yield from ((finding, f"it would {what}") for finding in alone)


_WAKES_KEEPALIVE = "up-keepalive-before-lb"


def blocked_fixes(tree: ConfTree, findings: Findings) -> Iterator[tuple[Finding, str]]:
    """The findings whose fixes a decision refused, each with the reason.

    The fix that moves ``keepalive`` after a balancing method is one. It could enable ``keepalive``
    in an upstream for which the decision ``upstream-keepalive`` refused it.
    """
    concerned = [finding for finding in findings.findings if finding.rule == _WAKES_KEEPALIVE]
    if not concerned:
        return
    kept = KeptConnections(tree)
    refused = {
        (as_utf8(own.file), own.line, own.column): kept.refused[group.name]
        for group in kept.groups
        if (own := group.keepalive) is not None and group.name in kept.refused
    }
    for finding in concerned:
        if why := refused.get((finding.file, finding.line, finding.column)):
            yield finding, f"it would enable keepalive, which must stay off: {why}"


Make = Callable[[Sequence[Decision]], Changes]
"""Makes the changes for the given decisions."""
Brings = Callable[[Changes], Sequence[Finding]]
"""Returns the findings that the given changes add."""


def make_faultless(decisions: Sequence[Decision], make: Make, brings: Brings) -> Changes:
    """The changes of those decisions that add no error of the audit; the others are refused.

    An error that only several decisions together cause stays in the plan.
    """
    left = list(decisions)
    changes, refused = make(left), list[Refusal]()
    while found := _faults(brings, changes):
        for decision in [d for d in left if d.id in _decisions_of(changes)]:
            others = [d for d in left if d.id != decision.id]
            without = make(others)
            still = _faults(brings, without)
            if len(still) < len(found):
                cured = next(fault for fault in found if fault not in still)
                refused.append(_fault_refusal(decision, changes, cured))
                left, changes = others, without
                break
        else:
            break
    return changes._replace(refusals=[*changes.refusals, *refused])


def _decisions_of(changes: Changes) -> set[str]:
    return {hunk.decision for file in changes.files for hunk in file.hunks}


def _faults(brings: Brings, changes: Changes) -> list[tuple[str, str, str]]:
    """Rule, file and message of each new error, without the line, which varies with the changes."""
    found = brings(changes) if changes.files else []
    return [
        (finding.rule, finding.file, finding.message)
        for finding in found
        if finding.severity == "error"
    ]


def _fault_refusal(decision: Decision, changes: Changes, fault: tuple[str, str, str]) -> Refusal:
    rule, file, message = fault
    hunks = (hunk for file in changes.files for hunk in file.hunks if hunk.decision == decision.id)
    return Refusal(
        decision=decision.id,
        setting=" ".join(dict.fromkeys(" ".join(hunk.after.split()) for hunk in hunks)),
        reason=f"it would cause {rule} in {file}: {message}",
    )
