"""``findings`` as Checkstyle XML, which most CI systems and editors read.

Source: checkstyle's XMLLogger: ``checkstyle > file(name) > error(line, column, severity, message,
source)``; severities are error, warning and info.
"""

from __future__ import annotations

from nginx_tune.documents.findings import Finding, Findings, Severity
from nginx_tune.report.findings import unread_hint
from nginx_tune.report.markup import one_line, xml_text

_SEVERITIES: dict[Severity, str] = {
    "error": "error",
    "warning": "warning",
    "advice": "info",
    "info": "info",
}


def render_checkstyle(findings: Findings) -> bytes:
    """The findings by file; what could not be parsed, or was not read, is an error."""
    by_file: dict[str, list[str]] = {file: [] for file in findings.files_parsed}
    for one in findings.files_unparsed:
        by_file.setdefault(one.file, []).append(
            _error(one.line or 1, 1, "error", f"not parsed: {one.reason}", "unparsed")
        )
    for missing in findings.files_missing:
        text = f"not read: {missing.reason} ({missing.accepted or unread_hint(findings)})"
        severity = "info" if missing.accepted else "error"
        by_file.setdefault(missing.file, []).append(
            _error(missing.line, 1, severity, text, "not-read")
        )
    for finding in findings.findings:
        by_file.setdefault(finding.file, []).append(_finding(finding))
    files = "".join(
        f'  <file name="{xml_text(file)}">\n{"".join(errors)}  </file>\n'
        for file, errors in by_file.items()
    )
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<checkstyle version="4.3">\n'
    return f"{head}{files}</checkstyle>\n".encode()


def _finding(finding: Finding) -> str:
    return _error(
        finding.line,
        finding.column,
        _SEVERITIES[finding.severity],
        f"{finding.message}. {finding.fix}",
        finding.rule,
    )


def _error(line: int, column: int, severity: str, message: str, source: str) -> str:
    return (
        f'    <error line="{line}" column="{column}" severity="{severity}" '
        f'message="{xml_text(one_line(message))}" source="nginx-tune.{source}"/>\n'
    )
