"""``findings`` as a GitLab code quality report.

Source: GitLab documentation, "Code Quality report format": a JSON array without byte order mark;
the fingerprint is unique, the path relative; ``check_name`` is not shown, so that the description
begins with it.
"""

from __future__ import annotations

import msgspec

from nginx_tune.documents.findings import Findings, Severity
from nginx_tune.report.findings import unread_hint
from nginx_tune.report.markup import one_line

_SEVERITIES: dict[Severity, str] = {
    "error": "critical",
    "warning": "major",
    "advice": "minor",
    "info": "info",
}


def render_gitlab(findings: Findings) -> bytes:
    """The findings as issues; a file that could not be parsed, and an include not read, blocks."""
    issues = [
        {
            "description": f"unparsed: {one_line(one.reason)}",
            "check_name": "unparsed",
            "fingerprint": f"unparsed-{number}",
            "severity": "blocker",
            "location": {"path": _path(one.file), "lines": {"begin": max(1, one.line or 1)}},
        }
        for number, one in enumerate(findings.files_unparsed, 1)
    ]
    issues += [
        {
            "description": f"not read: {one_line(one.reason)} "
            f"({one_line(one.accepted or unread_hint(findings))})",
            "check_name": "not-read",
            "fingerprint": f"not-read-{number}",
            "severity": "info" if one.accepted else "blocker",
            "location": {"path": _path(one.file), "lines": {"begin": max(1, one.line)}},
        }
        for number, one in enumerate(findings.files_missing, 1)
    ]
    issues += [
        {
            "description": f"{one.rule}: {one_line(one.message)}",
            "check_name": one.rule,
            "fingerprint": one.fingerprint,
            "severity": _SEVERITIES[one.severity],
            "location": {
                "path": _path(one.file),
                "lines": {"begin": one.line, "end": max(one.line, one.end_line)},
            },
        }
        for one in findings.findings
    ]
    return msgspec.json.format(msgspec.json.encode(issues), indent=2) + b"\n"


def _path(file: str) -> str:
    return file.removeprefix("./")
