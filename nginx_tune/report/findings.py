"""Findings as text and as Markdown: the worst first, each rule explained once.

A mark below a line of a configuration shows the subject of a finding, as in compilers. Findings of
one kind in one block are one entry with several places, as one mistake made them.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from nginx_tune.documents.base import WITH_NGINX, MissingInclude
from nginx_tune.documents.findings import Finding, Findings, NeedsFacts, Severity
from nginx_tune.documents.units import plural
from nginx_tune.report.folding import fold
from nginx_tune.report.text import (
    evidence_text,
    markdown_code,
    markdown_text,
    one_line,
    plain,
    weaker_sandbox_text,
)

Sources = Mapping[str, Sequence[tuple[str, str]]]
"""The lines of each file: as they are, to find a place, and without secrets, to show them."""
PLACES_SHOWN = 5
"""Maximum number of findings of one rule that are shown; the rest is counted."""
_LEAST_WIDTH = 40

_COLORS: dict[Severity, str] = {"error": "31", "warning": "33", "advice": "36", "info": "2"}


def render_findings(
    findings: Findings,
    *,
    color: bool = False,
    width: int | None = None,
    verbose: bool = False,
    sources: Sources | None = None,
) -> str:
    """The findings as text; with ``width``, long lines are wrapped.

    ``verbose`` names the rules that lack facts and gives the command for each; ``sources`` are the
    lines in which findings are shown.
    """
    parts = ["".join(_wrapped(line, width) for line in unparsed_lines(findings))]
    parts.append(_missing(findings, width))
    for _, group in groupby(findings.findings, key=_kind):
        parts.append(_rule(list(group), sources or {}, color=color, width=width))
    parts.append(_wrapped(summary_text(findings), width))
    parts.append(_wrapped(one_line(findings.nginx_choice), width) if findings.nginx_choice else "")
    parts.append(_nginx_test(findings, width))
    parts.append(_needs(findings, width=width, verbose=verbose))
    return "\n".join(part for part in parts if part)


def _kind(finding: Finding) -> tuple[str, ...]:
    """The key of findings that are shown with one reason and one fix."""
    return (finding.severity, finding.rule, finding.why, finding.fix)


def _rule(findings: list[Finding], sources: Sources, *, color: bool, width: int | None) -> str:
    first = findings[0]
    lines = []
    groups = grouped(findings)
    for group in groups[:PLACES_SHOWN]:
        finding = group[0]
        label = f"{finding.severity}[{finding.rule}]"
        if color:
            label = f"\x1b[1;{_COLORS[finding.severity]}m{label}\x1b[0m"
        lines.append(f"{one_line(finding.file)}:{finding.line}: {label}")
        lines += excerpt(finding, sources, width=width)
        lines.append(_field("", finding.message, width))
        lines.append(_field("evidence", "; ".join(map(evidence_text, finding.evidence)), width))
        if others := others_text(group):
            lines.append(_field("", others, width))
    if left := sum(map(len, groups[PLACES_SHOWN:])):
        lines.append(f"  and {plural(left, 'more place')} (-f json lists them)")
    lines += [_field("why", first.why, width), _field("fix", first.fix, width), ""]
    return "\n".join(lines)


def _field(name: str, text: str, width: int | None) -> str:
    label = f"  {name}: " if name else "  "
    text = one_line(text)
    if width is None:
        return label + text
    return "\n".join(fold(label + text, max(width, _LEAST_WIDTH), hang=4))


def unparsed_lines(findings: Findings) -> list[str]:
    """A line for each file that was not parsed."""
    return [
        f"{one_line(file.file)}:{file.line or 1}: not parsed: {one_line(file.reason)}"
        for file in findings.files_unparsed
    ]


LINES_SHOWN = 10
"""Maximum number of findings that are shown where the report itself is in a file."""


def finding_lines(findings: Sequence[Finding], file: str) -> list[str]:
    """A line for each of ``LINES_SHOWN`` findings, and the number of the others in ``file``."""
    lines = [
        f"{one_line(finding.file)}:{finding.line}: {finding.severity}[{finding.rule}] "
        f"{one_line(finding.message)}"
        for finding in findings[:LINES_SHOWN]
    ]
    if len(findings) > LINES_SHOWN:
        lines.append(f"{len(findings) - LINES_SHOWN} more in {one_line(file)}")
    return lines


def _missing(findings: Findings, width: int | None) -> str:
    taken = [include for include in findings.files_missing if include.accepted]
    lines = []
    if findings.unread:
        hint = unread_hint(findings.unread, findings.likely_maps)
        lines = [unread_text(findings.unread), f"  {hint}"]
    if own := [include for include in taken if include.accepted == WITH_NGINX]:
        lines.append(_named(f"nginx's own {'file' if len(own) == 1 else 'files'}, not needed", own))
    if accepted := accepted_text(taken):
        lines.append(accepted)
    return "".join(_wrapped(line, width) for line in lines)


def unread_text(includes: Sequence[MissingInclude]) -> str:
    """One line that names the includes that were not read."""
    return _named("not found here, so not read", includes)


def _named(head: str, includes: Sequence[MissingInclude]) -> str:
    names = [
        f"{include.file}:{include.line}: {include.reason.removesuffix(': not here')}"
        for include in includes
    ]
    more = f" and {len(names) - PLACES_SHOWN} more" if len(names) > PLACES_SHOWN else ""
    return f"{head}: {', '.join(map(one_line, names[:PLACES_SHOWN]))}{more}"


def accepted_text(includes: Sequence[MissingInclude]) -> str:
    """One line that names the includes that ``--accept-missing`` accepts; empty without one."""
    named = [include for include in includes if include.accepted not in {"", WITH_NGINX}]
    return _named("not found here, accepted by --accept-missing", named) if named else ""


def unread_hint(includes: Sequence[MissingInclude], likely_maps: Sequence[str]) -> str:
    """One line on what to do about includes that were not read, with the maps that find them.

    Those that no map finds are named in options that accept them, unless they are many.
    """
    found: dict[str, list[str]] = {}
    for path in dict.fromkeys(include.path for include in includes):
        below = (m for m in likely_maps if path.startswith(f"{m.partition('=')[0].rstrip('/')}/"))
        found.setdefault(next(below, ""), []).append(path)
    lost = found.pop("", [])
    maps = " ".join(f"--map {shlex.quote(likely)}" for likely in likely_maps if likely in found)
    count = sum(map(len, found.values()))
    them = f"{count} of them" if lost else "it" if count == 1 else "them"
    hints = [f"{maps} reads {them} here"] if maps else []
    if lost:
        names = map(shlex.quote, lost) if len(lost) <= PLACES_SHOWN else ["GLOB"]
        accept = " ".join(f"--accept-missing {name}" for name in names)
        hints.append(f"{accept} accepts that {'it is' if len(lost) == 1 else 'they are'} absent")
    return one_line("; ".join(hints))


def missing_text(include: MissingInclude, likely_maps: Sequence[str]) -> str:
    """The reason why a missing include is accepted; otherwise, what to do about it."""
    return include.accepted or unread_hint([include], likely_maps)


def summary_text(findings: Findings) -> str:
    """A line that counts the findings by severity, and the files."""
    counts = {
        severity: sum(finding.severity == severity for finding in findings.findings)
        for severity in ("error", "warning", "advice", "info")
    }
    found = ", ".join(_counted(severity, count) for severity, count in counts.items() if count)
    files = len(findings.files_parsed)
    lost = len(findings.files_unparsed)
    return (
        f"{found or 'no findings'} in {files} {'file' if files == 1 else 'files'}"
        + (f", {lost} not parsed" if lost else "")
        + (f", {plural(len(findings.unread), 'include')} not read" if findings.unread else "")
        + _silenced(findings)
    )


def _nginx_test(findings: Findings, width: int | None) -> str:
    test = findings.nginx_test
    if test is None:
        return ""
    weaker = test.weaker_sandbox
    without = _wrapped(one_line(weaker_sandbox_text(weaker)), width) if weaker else ""
    if test.accepted:
        return f"nginx -t accepts it\n{without}"
    words = [line for line in test.messages if "[emerg]" in line] or test.messages[-1:]
    said = "".join(_wrapped(f"nginx -t rejects it: {one_line(line)}", width) for line in words)
    step = _wrapped(f"  {one_line(test.next_step)}", width) if test.next_step else ""
    return said + step + without


def _silenced(findings: Findings) -> str:
    names = {"comment": "by comments", "baseline": "in the baseline", "revision": "not new"}
    counts = [
        f"{count} {name}"
        for by, name in names.items()
        if (count := sum(finding.by == by for finding in findings.suppressed))
    ]
    return f"; silenced: {', '.join(counts)}" if counts else ""


def _counted(severity: str, count: int) -> str:
    ending = "s" if count > 1 and severity in {"error", "warning"} else ""
    return f"{count} {severity}{ending}"


def _needs(findings: Findings, *, width: int | None, verbose: bool) -> str:
    by_way: dict[str, list[NeedsFacts]] = {}
    for need in findings.needs_facts:
        by_way.setdefault(need.how, []).append(need)
    unread = {how: found for how, found in by_way.items() if found[0].unread}
    lines = [
        _wrapped(f"{one_line(how)}: {', '.join(need.rule for need in found)}", width)
        for how, found in unread.items()
    ]
    lacking = {how: found for how, found in by_way.items() if how not in unread}
    if lacking and not verbose:
        count = sum(map(len, lacking.values()))
        were = "rule was" if count == 1 else "rules were"
        how = one_line(max(lacking, key=lambda one: len(lacking[one])))
        names = "nginx-tune -v audit names them"
        text = f"{count} {were} not checked for lack of facts ({names}): {how}"
        return "".join([*lines, _wrapped(text, width)])
    for how, found in lacking.items():
        rules = ", ".join(need.rule for need in found)
        lines.append(_wrapped(f"not checked for lack of facts: {rules}", width))
        lines.append(_wrapped(f"  {one_line(how)}", width))
    return "".join(lines)


def _wrapped(text: str, width: int | None) -> str:
    if width is None:
        return text + "\n"
    return "".join(f"{line}\n" for line in fold(text, max(width, _LEAST_WIDTH)))


MARKDOWN_PLACES = 20
"""Maximum number of findings of one rule that are shown; the rest is counted."""


def render_findings_markdown(findings: Findings) -> bytes:
    """A section for each rule that fired, the worst first."""
    parts = ["# nginx-tune audit\n", markdown_text(summary_text(findings)) + "\n"]
    if findings.files_unparsed:
        parts.append("## Not parsed\n")
        parts.append(
            "".join(
                f"- {_markdown_place(file.file, file.line or 1)}: {markdown_text(file.reason)}\n"
                for file in findings.files_unparsed
            )
        )
    if findings.files_missing:
        parts.append("## Not here, and so not judged\n")
        parts.append(
            "".join(
                f"- {_markdown_place(include.file, include.line)}: {markdown_text(include.reason)}"
                f"{f' (accepted: {markdown_text(include.accepted)})' if include.accepted else ''}\n"
                for include in findings.files_missing
            )
        )
    if findings.unread:
        parts.append(markdown_text(unread_hint(findings.unread, findings.likely_maps)) + "\n")
    for _, group in groupby(findings.findings, key=_kind):
        parts.append(_markdown_rule(list(group)))
    if findings.needs_facts:
        parts.append("## Not judged\n")
        parts.append(
            "".join(
                f"- {_markdown_rules(findings, how)}: {way(how)}\n"
                for how, way in {
                    need.how: markdown_text if need.unread else markdown_code
                    for need in findings.needs_facts
                }.items()
            )
        )
    if findings.suppressed:
        parts.append("## Silenced\n")
        parts.append(
            "".join(
                f"- {_markdown_place(finding.file, finding.line)} {markdown_code(finding.rule)}: "
                f"{markdown_text(finding.reason)}\n"
                for finding in findings.suppressed
            )
        )
    return "\n".join(parts).encode()


def _markdown_rule(found: list[Finding]) -> str:
    first = found[0]
    lines = [f"## {first.severity}: {markdown_code(first.rule)}\n"]
    groups = grouped(found)
    for group in groups[:MARKDOWN_PLACES]:
        one = group[0]
        evidence = "; ".join(map(evidence_text, one.evidence))
        lines.append(
            f"- {_markdown_place(one.file, one.line)}: {markdown_text(one.message)} "
            f"({markdown_text(evidence)})"
        )
        if others := others_text(group):
            lines.append(f"  - {markdown_text(others)}")
    if left := sum(map(len, groups[MARKDOWN_PLACES:])):
        lines.append(f"- and {plural(left, 'more place')}")
    lines.append(f"\n{markdown_text(first.why)}\n\n**Fix:** {markdown_text(first.fix)}\n")
    return "\n".join(lines)


def _markdown_rules(findings: Findings, how: str) -> str:
    return ", ".join(markdown_code(need.rule) for need in findings.needs_facts if need.how == how)


def _markdown_place(file: str, line: int) -> str:
    return markdown_code(f"{file}:{line}")


WIDEST = 100
"""Maximum number of columns of a line that are shown; a longer line is cut around the mark."""
_FEWEST_COLUMNS = 24
_WORD = re.compile(r"[^\s;{}\"']+")


def excerpt(finding: Finding, sources: Sources, *, width: int | None = None) -> list[str]:
    """The line and a mark below it, at most ``width`` wide; empty if the line is not known.

    In a shortened line, the directive's first word is located again.
    """
    lines = sources.get(finding.file)
    if lines is None or not 1 <= finding.line <= len(lines):
        return []
    original, text = (line.rstrip("\r\n") for line in lines[finding.line - 1])
    if not text.strip():
        return []
    is_one_line = finding.end_line == finding.line and finding.end_column > finding.column
    if original.startswith(text.rstrip(" #")):  # as it is, or without its comment
        start = min(finding.column - 1, len(text) - 1)
        end = finding.end_column - 1 if is_one_line else len(text)
    else:
        word = _WORD.match(original, finding.column - 1)
        start = _nearest(text, word[0] if word else "", finding.column - 1)
        end = start + (len(word[0]) if word else 1)
    end = max(start + 1, min(end, len(text.rstrip())))
    number = f"{finding.line:>5} | "
    room = WIDEST if width is None else max(_FEWEST_COLUMNS, min(WIDEST, width - len(number)))
    if len(text) <= room:
        cut = 0
    elif width is None:
        cut = max(0, min(start - room // 4, len(text) - room))
    else:  # as much of the subject as fits
        cut = max(0, min(start - min(room // 4, max(room - (end - start), 0)), len(text) - room))
    shown = plain(text[cut : cut + room].replace("\t", " "))
    marks = "^" * max(1, min(end, cut + room) - start)
    return [number + shown, " " * 5 + " | " + " " * (start - cut) + marks]


def _nearest(text: str, word: str, wanted: int) -> int:
    """The position of a word, the nearest to ``wanted``; if missing, that of the first word."""
    places = [match.start() for match in re.finditer(re.escape(word), text)] if word else []
    if not places:
        return len(text) - len(text.lstrip())
    return min(places, key=lambda at: abs(at - wanted))


_QUOTED = re.compile(r'"[^"]*"')
_FEWEST_GROUPED = 3
"""Minimum number of findings in one entry."""
_MOST_NAMED = 12


def grouped(findings: Iterable[Finding]) -> list[list[Finding]]:
    """The findings in groups of one kind and one block, in the order of their first findings.

    One kind: the same rule, severity, reason and fix; messages differ only in their quotes.
    """
    kinds: dict[tuple[object, ...], list[Finding]] = {}
    for number, finding in enumerate(findings):
        message = _QUOTED.sub('""', finding.message)
        block = f"alone {number}" if finding.block_line is None else finding.block_line
        key = (*_kind(finding), finding.file, block, message)
        kinds.setdefault(key, []).append(finding)
    parts = []
    for group in kinds.values():
        parts += [group] if len(group) >= _FEWEST_GROUPED else [[finding] for finding in group]
    return parts


def others_text(group: list[Finding]) -> str:
    """``5 more in this block: line 10 "root", 11 "index", …``; empty for a single finding."""
    if len(group) == 1:
        return ""
    shown = []
    for finding in group[1 : _MOST_NAMED + 1]:
        quoted = _QUOTED.search(finding.message)
        shown.append(f"{finding.line} {quoted[0]}" if quoted else f"{finding.line}")
    left = len(group) - 1 - len(shown)
    places = plain(" ".join(", ".join(shown).split())) + (f" and {left} more" if left else "")
    where = "block" if group[0].block_line else "file"
    return f"{len(group) - 1} more of the kind in this {where}: line {places}"
