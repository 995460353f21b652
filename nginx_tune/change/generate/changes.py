"""Decisions as edits of a configuration that stands: each line with what it rests on; pure.

All settings of a decision are written or none. What was written is held against the decisions
once more by the caller's ``leaves``: a decision that would still ask for something is refused, so
that a plan made again is empty.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as changed
from typing import NamedTuple

from nginx_tune.change.generate.hunks import Span, TracedFile, planned_file
from nginx_tune.change.generate.quoting import comment
from nginx_tune.change.generate.settings import statement, words
from nginx_tune.change.plan.naming import needed_line
from nginx_tune.change.plan.own_connections import closes_by_default, lacks_ports
from nginx_tune.change.plan.placing import SettingPlace, UnplacedError, find_places
from nginx_tune.change.plan.standing import Standing, own_blocks
from nginx_tune.change.plan.together import left_alone
from nginx_tune.conf.directive import Directive
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
from nginx_tune.documents.plan import Hunk, PlannedFile, Refusal
from nginx_tune.errors import UsageError

_TO_ADD = re.compile(r" \((main|events|http|server|location|upstream)( [^)]*)?\)$")
"""What a setting needs and is not there yet ends in the context that it is to go into."""
_UNNAMED_FORMAT = "combined"
"""Of a log that names none; options stand behind a format. Source: ngx_http_log_set_log()."""
Leaves = Callable[[Mapping[str, bytes]], set[str]]
"""The decisions that still ask for something once some files are other ones."""


class Changes(NamedTuple):
    """What is written, and what is not."""

    files: list[PlannedFile]
    refusals: list[Refusal]


class _Written(NamedTuple):
    """One line of a decision, and the reason for it."""

    edit: Edit
    hunk: Hunk


def plan_changes(
    decisions: Decisions, tree: ConfTree, leaves: Leaves, *, annotates: bool = False
) -> Changes:
    """The settings of decisions that were held against the tree (``hold_against``), as edits."""
    standing = Standing(
        tree, closes_by_default=closes_by_default(decisions), lacks_ports=lacks_ports(decisions)
    )
    refusals: list[Refusal] = []
    planned: dict[str, list[_Written]] = {}
    taken = EditSet()
    for decision in decisions.decisions:
        if not decision.settings:
            continue
        try:
            found = _written(decision, standing, annotates=annotates)
        except UnplacedError as error:
            refusals.append(_refusal(decision, error.reason, error.directive))
            continue
        except UsageError as error:
            refusals.append(_refusal(decision, error.message, None))
            continue
        if not taken.add(one.edit for one in found):
            refusals.append(_refusal(decision, "another decision changes the same line", None))
            continue
        planned[decision.id] = found
    by_id: dict[str, Decision] = {one.id: one for one in decisions.decisions}
    while planned:
        lacking = _lacking([by_id[name] for name in planned], decisions.decisions)
        files = [] if lacking else _files(tree, planned)
        if not lacking:
            left = leaves({one.path: one.content for one in files}) & set(planned)
            lacking = dict.fromkeys(left, "it would not hold where it is wanted")
        if not lacking:
            return Changes(files, refusals)
        for name, why in lacking.items():
            refusals.append(_refusal(by_id[name], why, None))
            del planned[name]
    return Changes([], refusals)


def _lacking(decisions: Sequence[Decision], every: Sequence[Decision]) -> dict[str, str]:
    """The decisions that need what another one of all would have written, which is not of these."""
    ids = {one.id for one in decisions}
    lines = {needed_line(s) for d in decisions for s in d.settings}
    found = {
        name: f"it goes with {need}, which is left out"
        for name, need in left_alone(every, ids).items()
    }
    for decision in decisions:
        needs = [need for s in decision.settings for need in s.needs if _TO_ADD.search(need)]
        if absent := next((need for need in needs if need not in lines), None):
            found[decision.id] = f"it needs {absent}, which is left out"
    return found


def _written(decision: Decision, standing: Standing, *, annotates: bool) -> list[_Written]:
    found = []
    for wanted in decision.settings:
        apart = own_blocks(decision, wanted.directive)
        for target in find_places(standing, wanted, apart):
            edit = _edit(target, wanted, annotates=annotates)
            hunk = Hunk(
                line=target.directive.line,
                before="",
                after="",
                decision=decision.id,
                reason=wanted.reason or decision.summary,
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
            raise UnplacedError("a block that stands is not rewritten", directive)
        if _keeps_its_words(wanted):
            return _with_options(directive, wanted)
        return change_arguments(directive, wanted.args, lambda word: words([word]))
    line = _line(wanted)
    said = f"  # {comment(wanted.reason)}" if annotates and wanted.reason else ""
    if target.how == "before":
        return _before(directive, line + said)
    last = directive.block.directives[-1:] if directive.block else []
    if wanted.directive == "keepalive" and last and last[0].block is None:
        # A method that comes behind it would take its place (ngx_http_upstream_keepalive()).
        return add_after(last[0], line)
    alike = directive.block.all(wanted.directive)[-1:] if directive.block else []
    if wanted.directive == "proxy_set_header" and alike and alike[0].file == directive.file:
        return add_after(alike[0], line)
    edit = changed(add_to(directive, line), claim=None)
    if said and edit.text.startswith(("\n", "\r")):  # else what follows would be a comment too
        return changed(edit, text=edit.text + said)
    return edit


def _with_options(log: Directive, wanted: Setting) -> Edit:
    """A log with the options that it has not; what else it says stays (``if=``, its format).

    Its path too, by which nginx tells its buffer from others'.
    """
    if "=" in "".join(log.args[1:2]):
        raise UnplacedError("it has options and no format", log)
    return add_argument(log, words(_missing(log, wanted)))


def _keeps_its_words(wanted: Setting) -> bool:
    return wanted.directive == "access_log" and wanted.args[0] != "off"


def _missing(log: Directive, wanted: Setting) -> list[str]:
    """The options that a log has not; one without a format is in nginx's own, which is named."""
    names = {arg.partition("=")[0] for arg in log.args[1:]}
    lacking = [arg for arg in wanted.args[2:] if arg.partition("=")[0] not in names]
    return lacking if len(log.args) > 1 else [_UNNAMED_FORMAT, *lacking]


def _with_option(listen: Directive, option: str) -> Edit:
    name, _, value = option.partition("=")
    for index, argument in enumerate(listen.args):
        if index and value and argument.partition("=")[0] == name:
            return replace_argument(listen, index, words([option]))
    # Another decision may have another value for what stands last.
    behind = 0 if "=" in listen.args[-1] else -1
    return add_argument(listen, words([option]), behind=behind)


def _before(block: Directive, line: str) -> Edit:
    """A line of its own in front of a block that begins its line, else words before it."""
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
    inner = " ".join(f"{words(one)};" for one in wanted.lines)
    return f"{statement(wanted)} {inner} }}"


def _files(tree: ConfTree, planned: Mapping[str, Sequence[_Written]]) -> list[PlannedFile]:
    every = [one for each in planned.values() for one in each]
    files = []
    for parsed in tree.parsed:
        source = parsed.source
        own = [one for one in every if one.edit.source.file == source.file]
        if not own:
            continue
        traced = TracedFile(source.data)
        spans: dict[Span, list[Hunk]] = {}
        for edit, hunk in own:
            start, end = source.byte_offset(edit.start), source.byte_offset(edit.end)
            text = edit.text.encode("utf-8", "surrogateescape")
            spans.setdefault((start, end, text), []).append(hunk)
        traced.change(spans)
        files.append(planned_file(parsed, traced))
    return files


def _refusal(decision: Decision, reason: str, directive: Directive | None) -> Refusal:
    lines = []
    for one in decision.settings:
        try:
            lines.append(_line(one))
        except UsageError:
            lines.append(one.directive)
    return Refusal(
        decision=decision.id,
        setting=" ".join(lines),
        reason=reason,
        file=directive.file if directive else "",
        line=directive.line if directive else 0,
    )
