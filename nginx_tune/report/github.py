"""``findings`` as GitHub workflow commands, which become annotations of a change.

Source: actions/toolkit, command.ts: ``%``, CR and LF are escaped in messages, ``:`` and ``,`` in
properties too; a column counts only where the line is also the end line.
"""

from __future__ import annotations

from nginx_tune.documents.findings import Finding, Findings, Severity
from nginx_tune.report.findings import unread_hint
from nginx_tune.report.markup import one_line

_COMMANDS: dict[Severity, str] = {
    "error": "error",
    "warning": "warning",
    "advice": "notice",
    "info": "notice",
}


def render_github(findings: Findings) -> bytes:
    """One command per line."""
    lines = [
        f"::error file={_property(one.file)},line={one.line or 1},title=not parsed::"
        f"{_data(one.reason)}\n"
        for one in findings.files_unparsed
    ]
    lines += [
        f"::{'notice' if one.accepted else 'error'} file={_property(one.file)},line={one.line},"
        f"title=not read::{_data(one.reason)} ({_data(one.accepted or unread_hint(findings))})\n"
        for one in findings.files_missing
    ]
    lines += map(_finding, findings.findings)
    return "".join(lines).encode()


def _finding(finding: Finding) -> str:
    place = f"file={_property(finding.file)},line={finding.line}"
    if finding.line == finding.end_line:
        place += f",col={finding.column},endLine={finding.end_line},endColumn={finding.end_column}"
    else:
        place += f",endLine={finding.end_line}"
    message = f"{one_line(finding.message)}\nfix: {one_line(finding.fix)}"
    command = _COMMANDS[finding.severity]
    return f"::{command} {place},title={_property(finding.rule)}::{_escape(message)}\n"


def _data(text: str) -> str:
    return _escape(one_line(text))


def _property(text: str) -> str:
    return _escape(one_line(text)).replace(":", "%3A").replace(",", "%2C")


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
