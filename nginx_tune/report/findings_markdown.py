"""``findings`` as Markdown for a change ticket or a job summary."""

from __future__ import annotations

from itertools import groupby

from nginx_tune.documents.findings import Finding, Findings
from nginx_tune.documents.units import plural
from nginx_tune.report.evidence import evidence_text
from nginx_tune.report.findings import summary_text, unread_hint
from nginx_tune.report.markup import markdown_code, markdown_text
from nginx_tune.report.same_block import grouped, others_text

PLACES_SHOWN = 20
"""Of one rule; the rest is counted."""


def render_findings_markdown(findings: Findings) -> bytes:
    """A section for each rule that fired, the worst first."""
    parts = ["# nginx-tune audit\n", markdown_text(summary_text(findings)) + "\n"]
    if findings.files_unparsed:
        parts.append("## Not parsed\n")
        parts.append(
            "".join(
                f"- {_place(one.file, one.line or 1)}: {markdown_text(one.reason)}\n"
                for one in findings.files_unparsed
            )
        )
    if findings.files_missing:
        parts.append("## Not here, and so not judged\n")
        parts.append(
            "".join(
                f"- {_place(one.file, one.line)}: {markdown_text(one.reason)}"
                f"{f' (accepted: {markdown_text(one.accepted)})' if one.accepted else ''}\n"
                for one in findings.files_missing
            )
        )
    if findings.unread:
        parts.append(markdown_text(unread_hint(findings)) + "\n")
    for _, group in groupby(findings.findings, key=lambda one: (one.severity, one.rule, one.fix)):
        parts.append(_rule(list(group)))
    if findings.needs_facts:
        parts.append("## Not checked for want of facts\n")
        parts.append(
            "".join(
                f"- {_rules(findings, how)}: {markdown_code(how)}\n"
                for how in dict.fromkeys(one.how for one in findings.needs_facts)
            )
        )
    if findings.suppressed:
        parts.append("## Silenced\n")
        parts.append(
            "".join(
                f"- {_place(one.file, one.line)} {markdown_code(one.rule)}: "
                f"{markdown_text(one.reason)}\n"
                for one in findings.suppressed
            )
        )
    return "\n".join(parts).encode()


def _rule(found: list[Finding]) -> str:
    first = found[0]
    lines = [f"## {first.severity}: {markdown_code(first.rule)}\n"]
    groups = grouped(found)
    for group in groups[:PLACES_SHOWN]:
        one = group[0]
        evidence = "; ".join(map(evidence_text, one.evidence))
        lines.append(
            f"- {_place(one.file, one.line)}: {markdown_text(one.message)} "
            f"({markdown_text(evidence)})"
        )
        if others := others_text(group):
            lines.append(f"  - {markdown_text(others)}")
    if left := sum(map(len, groups[PLACES_SHOWN:])):
        lines.append(f"- and {plural(left, 'more place')}")
    lines.append(f"\n{markdown_text(first.why)}\n\n**Fix:** {markdown_text(first.fix)}\n")
    return "\n".join(lines)


def _rules(findings: Findings, how: str) -> str:
    return ", ".join(markdown_code(one.rule) for one in findings.needs_facts if one.how == how)


def _place(file: str, line: int) -> str:
    return markdown_code(f"{file}:{line}")
