"""``plan`` for people: a diff with the reason of each line before it, or a page of Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from nginx_tune.documents.findings import Finding, NginxTest
from nginx_tune.documents.plan import HostPart, Hunk, Plan, PlannedFile, Refusal, ReloadWarning
from nginx_tune.documents.units import plural
from nginx_tune.report.diff import render_diff
from nginx_tune.report.evidence import evidence_text
from nginx_tune.report.markup import markdown_block, markdown_code, markdown_text
from nginx_tune.report.text import plain

_MOST_FIGURES = 3


class _Form(NamedTuple):
    """How text from outside is written: a name or a line of a file, and prose."""

    code: Callable[[str], str]
    text: Callable[[str], str]


_PLAIN, _MARKDOWN = _Form(plain, plain), _Form(markdown_code, markdown_text)
_EFFECTS = {"refused": "A RELOAD IS REFUSED", "loses": "a reload loses", "needs": "needs"}


def render_plan_diff(
    plan: Plan, old: Mapping[str, bytes], targets: Mapping[str, str] | None = None
) -> bytes:
    """The unified diff behind lines that ``patch`` and ``git apply`` pass over.

    ``old``: the bytes of each file as it is. ``targets``: the files behind names that are links,
    which neither of them follows.
    """
    count = count_changes(plan)
    lines = [f"{_size(plan, count)}; nothing is written yet"] if count else []
    for file in plan.files:
        for hunk, risks in hunks_with_risks(file):
            lines.append(f"{plain(file.path)}:{hunk.line}: {_hunk(hunk, _PLAIN)}")
            lines += [f"  risk: {plain(one)}" for one in risks]
    lines += [
        f"{_EFFECTS[one.effect]}: {_place(one, _PLAIN)}{plain(one.text)}" for one in plan.warnings
    ]
    lines += [f"not written: {_refusal(one, _PLAIN)}" for one in plan.refusals]
    lines += [f"the audit finds then: {_finding(one, _PLAIN)}" for one in plan.brings]
    lines += [line for part in plan.host for line in _host_lines(part)]
    lines += _said(plan.nginx_test, _PLAIN)
    head = "".join(f"# {line}\n" for line in lines) + ("\n" if lines else "")
    named = targets or {}
    changes = (
        (named.get(file.path, file.path), old[file.path], file.content) for file in plan.files
    )
    return head.encode(errors="backslashreplace") + render_diff(changes)


def render_plan_markdown(plan: Plan, old: Mapping[str, bytes]) -> str:
    """The change as a review reads it."""
    count = count_changes(plan)
    parts = [f"# Plan for {markdown_code(plan.conf_path)}\n"]
    parts.append(f"{_size(plan, count)}.\n" if count else "Nothing is to be changed.\n")
    for file in plan.files:
        parts.append(f"## {markdown_code(file.path)}\n")
        for hunk, risks in hunks_with_risks(file):
            parts.append(f"- line {hunk.line}: {_hunk(hunk, _MARKDOWN)}")
            parts += [f"  - risk: {markdown_text(one)}" for one in risks]
        diff = render_diff([(file.path, old[file.path], file.content)])
        parts.append(f"\n{markdown_block(diff.decode(errors='backslashreplace'), 'diff')}")
    if plan.warnings:
        parts.append("## What a reload does\n")
        parts += [
            f"- **{_EFFECTS[one.effect]}**: {_place(one, _MARKDOWN)}{markdown_text(one.text)}"
            for one in plan.warnings
        ]
    if plan.refusals:
        parts.append("\n## Not written\n")
        parts += [f"- {_refusal(one, _MARKDOWN)}" for one in plan.refusals]
    if plan.brings:
        parts.append("\n## What the audit finds then\n")
        parts += [f"- {_finding(one, _MARKDOWN)}" for one in plan.brings]
    for part in plan.host:
        parts.append(f"\n## Of the host: {markdown_code(part.path)}\n")
        parts.append("Not part of the change of nginx's files, and not written by apply.\n")
        parts.append(markdown_block(part.content))
        parts.append(
            f"{markdown_code(_written(part))}, then {markdown_code('; '.join(part.commands))}."
        )
        parts.append(f"Back: {markdown_code('; '.join(part.undo))}.")
    if plan.nginx_test:
        parts.append("\n## Tested\n")
        parts += [f"- {line}" for line in _said(plan.nginx_test, _MARKDOWN)]
    return "\n".join(parts).rstrip() + "\n"


def _size(plan: Plan, count: int) -> str:
    return f"{plural(count, 'line')} in {plural(len(plan.files), 'file')}"


def _host_lines(part: HostPart) -> list[str]:
    """Its settings, and how it is written and taken back by hand."""
    wanted = "; ".join(
        f"{one.name} {one.before or 'not known'} → {one.value} ({one.decision}: {one.reason})"
        for one in part.settings
    )
    return [
        f"of the host: {plain(part.path)}: {plain(wanted)}",
        f"  {_written(part)}; {'; '.join(part.commands)}",
        f"  back: {'; '.join(part.undo)}",
    ]


def _written(part: HostPart) -> str:
    return f"nginx-tune plan … -f {part.kind} | sudo install -Dm644 /dev/stdin {part.path}"


def render_host_part(plan: Plan, kind: str) -> bytes:
    """The content of a part's file alone; empty where nothing is asked of the host."""
    return "".join(part.content for part in plan.host if part.kind == kind).encode()


def _finding(one: Finding, form: _Form) -> str:
    return f"{_place(one, form)}{one.severity}[{one.rule}] {form.text(one.message)}"


def _said(test: NginxTest | None, form: _Form) -> list[str]:
    """What nginx said of the changed files."""
    if test is None:
        return []
    word = "accepted" if test.accepted else "REFUSED"
    rest = [*test.messages, *filter(None, [test.next_step])]
    shown = [] if test.accepted else [f"nginx -t: {form.text(line)}" for line in rest]
    return [f"nginx -t on the changed files, inside walls: {word}", *shown]


def count_changes(plan: Plan) -> int:
    """How many lines change; one for which there are several reasons counts once."""
    return sum(
        len({(one.start_byte, one.before, one.after) for one in file.hunks}) for file in plan.files
    )


def hunk_text(text: str) -> str:
    """What a hunk takes away or puts in, on one line: an end of a line inside is shown as one."""
    shown = text.strip() or text
    return plain(shown.replace("\t", " ").replace("\n", "\\n"))


def hunks_with_risks(file: PlannedFile) -> Iterator[tuple[Hunk, list[str]]]:
    """Each line with its risks; one that lines of a decision share stands beside the first."""
    told: set[tuple[str, str]] = set()
    for hunk in file.hunks:
        new = [one for one in hunk.risks if (hunk.decision, one) not in told]
        told |= {(hunk.decision, one) for one in new}
        yield hunk, new


def _hunk(hunk: Hunk, form: _Form) -> str:
    before, after = (form.code(hunk_text(one)) for one in (hunk.before, hunk.after))
    what = f"{before} → {after}" if hunk.before and hunk.after else f"+ {after}"
    if not hunk.after:
        what = f"- {before}"
    figures = ", ".join(form.text(evidence_text(one)) for one in hunk.evidence[:_MOST_FIGURES])
    said = "; ".join(filter(None, [form.text(hunk.reason), figures]))
    return f"{what}  ({hunk.decision}, {hunk.confidence}: {said})"


def _refusal(one: Refusal, form: _Form) -> str:
    setting = f"{form.code(one.setting)}: " if one.setting else ""
    return f"{one.decision}: {setting}{_place(one, form)}{form.text(one.reason)}"


def _place(one: Finding | Refusal | ReloadWarning, form: _Form) -> str:
    return f"{form.code(f'{one.file}:{one.line}')}: " if one.file else ""
