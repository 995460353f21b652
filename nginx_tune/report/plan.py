"""A plan as a diff with the reasons below it, or as a page of Markdown.

The diff is a unified one that ``patch -p1`` and ``git apply`` take.
Source: POSIX diff -u; git-diff(1) for quoted names and for a missing line end.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from posixpath import dirname
from typing import NamedTuple

from nginx_tune.change.generate.plan_files import host_lines
from nginx_tune.documents.base import WITH_NGINX
from nginx_tune.documents.findings import Finding, NginxTest
from nginx_tune.documents.plan import HostPart, Hunk, Plan, PlannedFile, Refusal, ReloadWarning
from nginx_tune.documents.units import plural
from nginx_tune.report.findings import unread_text
from nginx_tune.report.text import (
    evidence_text,
    markdown_block,
    markdown_code,
    markdown_text,
    plain,
)

_MOST_FIGURES = 3


class _Form(NamedTuple):
    """Writers of untrusted text: ``code`` for names and lines of files, ``text`` for prose."""

    code: Callable[[str], str]
    text: Callable[[str], str]


_PLAIN, _MARKDOWN = _Form(plain, plain), _Form(markdown_code, markdown_text)
_EFFECTS = {"refused": "A RELOAD IS REFUSED", "loses": "a reload loses", "needs": "needs"}


def render_plan_diff(
    plan: Plan,
    old: Mapping[str, bytes],
    targets: Mapping[str, str] | None = None,
    *,
    verbose: bool = False,
) -> bytes:
    """The unified diff, between comments that ``patch`` and ``git apply`` skip.

    The answer and the warnings about a reload come first, the reasons last. ``old``: the current
    bytes of each file. ``targets``: names for the diff, such as the targets of links, which neither
    program follows. ``verbose`` adds the evidence, and the commands for the parts of the host.
    """
    count = count_changes(plan)
    head = [f"{_size(plan, count)}; nothing is written yet"] if count else []
    head += _unread(plan)
    head += [
        f"{_EFFECTS[warning.effect]}: {_place(warning, _PLAIN)}{plain(warning.text)}"
        for warning in plan.warnings
    ]
    head += [
        f"findings of the audit afterwards: {_finding(finding, _PLAIN)}" for finding in plan.brings
    ]
    head += _said(plan.nginx_test, _PLAIN)
    named = targets or {}
    changes = (
        (named.get(file.path, file.path), old[file.path], file.content) for file in plan.files
    )
    in_full = verbose or not plan.files
    tail = [*_reasons(plan, verbose=verbose)]
    tail += [f"not written: {line}" for line in _refusals(plan.refusals, _PLAIN)]
    tail += [line for part in plan.host for line in _host_lines(part, in_full=in_full)]
    parts = [_comment(head), render_diff(changes), _comment(tail)]
    return b"\n".join(filter(None, parts))


def _unread(plan: Plan) -> list[str]:
    """A line on the includes that were not read; none for nginx's own files."""
    missing = [one for one in plan.files_missing if one.accepted != WITH_NGINX]
    return [plain(unread_text(missing))] if missing else []


def _comment(lines: Sequence[str]) -> bytes:
    return "".join(f"# {line}\n" for line in lines).encode(errors="backslashreplace")


def _reasons(plan: Plan, *, verbose: bool) -> Iterator[str]:
    """Each reason with the places of its lines; a shared risk is shown with the first reason."""
    groups: dict[tuple[str, str], list[tuple[str, Hunk]]] = {}
    for file in plan.files:
        for hunk in file.hunks:
            place = f"{_near(file.path, plan.conf_path)}:{hunk.line}"
            groups.setdefault((hunk.decision, hunk.reason), []).append((plain(place), hunk))
    reported: set[str] = set()
    for (decision, reason), found in groups.items():
        where = ", ".join(dict.fromkeys(place for place, _ in found))
        said = f": {plain(reason)}" if reason else ""
        yield f"{decision}, {found[0][1].confidence} confidence ({where}){said}"
        risks = dict.fromkeys(risk for _, hunk in found for risk in hunk.risks)
        yield from (f"  risk: {plain(risk)}" for risk in risks if risk not in reported)
        reported.update(risks)
        figures = dict.fromkeys(evidence_text(item) for _, hunk in found for item in hunk.evidence)
        if verbose and figures:
            yield f"  evidence: {', '.join(map(plain, figures))}"


def _near(path: str, conf_path: str) -> str:
    """The path, relative to the main file's directory if it is below it."""
    return path.removeprefix(f"{dirname(conf_path)}/")


def _refusals(refusals: Sequence[Refusal], form: _Form) -> list[str]:
    """A line for each reason, with the decisions and rules that the reason blocks."""
    reasons: dict[str, list[str]] = {}
    for refusal in refusals:
        setting = f" ({form.code(refusal.setting.rstrip(';'))})" if refusal.setting else ""
        reason = f"{_place(refusal, form)}{form.text(refusal.reason)}"
        reasons.setdefault(reason, []).append(f"{refusal.decision}{setting}")
    return [f"{', '.join(dict.fromkeys(names))}: {reason}" for reason, names in reasons.items()]


def render_plan_markdown(
    plan: Plan, old: Mapping[str, bytes], targets: Mapping[str, str] | None = None
) -> str:
    """The change as Markdown, for a review; ``targets`` as for the diff."""
    named = targets or {}
    count = count_changes(plan)
    parts = [f"# Plan for {markdown_code(plan.conf_path)}\n"]
    parts += [f"{markdown_text(text)}\n" for text in (plan.headline, plan.binding) if text]
    parts.append(f"{_size(plan, count)}.\n" if count else "Nothing is to be changed.\n")
    parts += [f"{markdown_text(line)}.\n" for line in _unread(plan)]
    for file in plan.files:
        parts.append(f"## {markdown_code(file.path)}\n")
        for hunk, risks in hunks_with_risks(file):
            parts.append(f"- line {hunk.line}: {_hunk(hunk)}")
            parts += [f"  - risk: {markdown_text(risk)}" for risk in risks]
        name = named.get(file.path, file.path)
        diff = render_diff([(name, old[file.path], file.content)])
        parts.append(f"\n{markdown_block(diff.decode(errors='backslashreplace'), 'diff')}")
    if plan.warnings:
        parts.append("## What a reload does\n")
        parts += [
            f"- **{_EFFECTS[warning.effect]}**: {_place(warning, _MARKDOWN)}"
            f"{markdown_text(warning.text)}"
            for warning in plan.warnings
        ]
    if plan.refusals:
        parts.append("\n## Not written\n")
        parts += [f"- {line}" for line in _refusals(plan.refusals, _MARKDOWN)]
    if plan.brings:
        parts.append("\n## Audit findings afterwards\n")
        parts += [f"- {_finding(finding, _MARKDOWN)}" for finding in plan.brings]
    for part in plan.host:
        parts += _host_markdown(part, _written(part))
    if plan.nginx_test:
        parts.append("\n## Tested\n")
        parts += [f"- {line}" for line in _said(plan.nginx_test, _MARKDOWN)]
    return "\n".join(parts).rstrip() + "\n"


def _size(plan: Plan, count: int) -> str:
    return f"{plural(count, 'line')} in {plural(len(plan.files), 'file')}"


def _host_markdown(part: HostPart, written: str) -> list[str]:
    then = markdown_code("; ".join(part.commands))
    return [
        f"\n## Of the host: {markdown_code(part.path)}\n",
        "These files are not nginx's, and apply does not write them.\n",
        markdown_block(part.content),
        f"{markdown_code(written)}, then {then}.",
        f"Back: {markdown_code('; '.join(part.undo))}.",
    ]


def render_generated_markdown(
    text: str, host: Sequence[HostPart], kept_defaults: Sequence[str]
) -> bytes:
    """A generated nginx.conf, the defaults that it keeps, and the files of the host."""
    parts = ["# nginx.conf\n", markdown_block(text)]
    if kept_defaults:
        lines = "".join(f"- {markdown_text(text)}\n" for text in kept_defaults)
        parts += ["## Left at nginx's default\n", lines]
    for part in host:
        parts += _host_markdown(part, f"sudo install -Dm644 FILE {part.path}")
    return ("\n".join(parts).rstrip() + "\n").encode(errors="backslashreplace")


def _host_lines(part: HostPart, *, in_full: bool) -> list[str]:
    """The settings of a part for the host, and the commands that make and undo it."""
    wanted = "; ".join(host_lines(part)).replace(" -> ", " → ")
    if not in_full:
        return [f"of the host: {plain(wanted)} (-f {part.kind} prints the file, -v says how)"]
    return [
        f"of the host: {plain(part.path)}: {plain(wanted)}",
        f"  {_written(part)}; {'; '.join(part.commands)}",
        f"  back: {'; '.join(part.undo)}",
    ]


def _written(part: HostPart) -> str:
    return f"nginx-tune plan … -f {part.kind} | sudo install -Dm644 /dev/stdin {part.path}"


def render_host_part(plan: Plan, kind: str) -> bytes:
    """The content of the file of one part; empty without changes to the host."""
    return "".join(part.content for part in plan.host if part.kind == kind).encode()


def _finding(one: Finding, form: _Form) -> str:
    return f"{_place(one, form)}{one.severity}[{one.rule}] {form.text(one.message)}"


def _said(test: NginxTest | None, form: _Form) -> list[str]:
    """The result of ``nginx -t`` on the changed files."""
    if test is None:
        return []
    word = "accepted" if test.accepted else "REFUSED"
    rest = [*test.messages, *filter(None, [test.next_step])]
    shown = [] if test.accepted else [f"nginx -t: {form.text(line)}" for line in rest]
    return [f"nginx -t on the changed files, in the sandbox: {word}", *shown]


_MOST_NAMED = 4


def plan_title(plan: Plan) -> str:
    """The configuration and the decisions that change it, for lists and pages."""
    ids = list(dict.fromkeys(hunk.decision for file in plan.files for hunk in file.hunks))
    more = f" and {len(ids) - _MOST_NAMED} more" if len(ids) > _MOST_NAMED else ""
    return f"{plan.conf_path}: {', '.join(ids[:_MOST_NAMED]) or 'no change'}{more}"


def count_changes(plan: Plan) -> int:
    """The number of lines that change; a line with several reasons counts once."""
    return sum(
        len({(hunk.start_byte, hunk.before, hunk.after) for hunk in file.hunks})
        for file in plan.files
    )


def hunk_text(text: str) -> str:
    """The text that a hunk removes or adds, on one line, with visible line ends."""
    shown = text.strip() or text
    return plain(shown.replace("\t", " ").replace("\n", "\\n"))


def hunks_with_risks(file: PlannedFile) -> Iterator[tuple[Hunk, list[str]]]:
    """Each hunk with its risks; a risk shared by hunks of a decision is given with the first."""
    told: set[tuple[str, str]] = set()
    for hunk in file.hunks:
        new = [risk for risk in hunk.risks if (hunk.decision, risk) not in told]
        told |= {(hunk.decision, risk) for risk in new}
        yield hunk, new


def _hunk(hunk: Hunk) -> str:
    before, after = (markdown_code(hunk_text(text)) for text in (hunk.before, hunk.after))
    what = f"{before} → {after}" if hunk.before and hunk.after else f"+ {after}"
    if not hunk.after:
        what = f"- {before}"
    figures = ", ".join(
        markdown_text(evidence_text(item)) for item in hunk.evidence[:_MOST_FIGURES]
    )
    said = "; ".join(filter(None, [markdown_text(hunk.reason), figures]))
    return f"{what}  ({hunk.decision}, {hunk.confidence}: {said})"


def _place(one: Finding | Refusal | ReloadWarning, form: _Form) -> str:
    return f"{form.code(f'{one.file}:{one.line}')}: " if one.file else ""


CONTEXT_LINES = 3
_NO_LINE_END = b"\n\\ No newline at end of file\n"
_ESCAPES = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}
_FIRST_PRINTABLE, _DELETE = 32, 127


def render_diff(changes: Iterable[tuple[str, bytes, bytes]]) -> bytes:
    """The diff of (name, old bytes, new bytes); names lose a leading slash.

    Changed lines keep every byte, in any encoding and with any line ends.
    """
    return b"".join(part for change in changes for part in _file(*change))


def _file(name: str, old: bytes, new: bytes) -> Iterator[bytes]:
    old_lines, new_lines = _lines(old), _lines(new)
    groups = list(SequenceMatcher(None, old_lines, new_lines).get_grouped_opcodes(CONTEXT_LINES))
    if not groups:
        return
    yield b"--- " + _name("a/", name) + b"\n+++ " + _name("b/", name) + b"\n"
    for group in groups:
        first, last = group[0], group[-1]
        yield b"@@ -%s +%s @@\n" % (_range(first[1], last[2]), _range(first[3], last[4]))
        for kind, old_from, old_to, new_from, new_to in group:
            if kind == "equal":
                yield from (_line(b" ", line) for line in old_lines[old_from:old_to])
                continue
            yield from (_line(b"-", line) for line in old_lines[old_from:old_to])
            yield from (_line(b"+", line) for line in new_lines[new_from:new_to])


def _lines(data: bytes) -> list[bytes]:
    """Lines with their line ends; only a line feed ends a line, as for ``diff``."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _line(mark: bytes, line: bytes) -> bytes:
    return mark + (line if line.endswith(b"\n") else line + _NO_LINE_END)


def _range(start: int, end: int) -> bytes:
    length = end - start
    begin = start + 1 if length else start
    return b"%d" % begin if length == 1 else b"%d,%d" % (begin, length)


def _name(prefix: str, name: str) -> bytes:
    """A file's name, quoted as by git if it is not plain ASCII."""
    raw = (prefix + name.lstrip("/")).encode("utf-8", "surrogateescape")
    if all(_FIRST_PRINTABLE < byte < _DELETE and byte not in _ESCAPES for byte in raw):
        return raw
    quoted = "".join(
        "\\" + _ESCAPES[byte]
        if byte in _ESCAPES
        else chr(byte)
        if _FIRST_PRINTABLE <= byte < _DELETE
        else f"\\{byte:03o}"
        for byte in raw
    )
    return f'"{quoted}"'.encode()
