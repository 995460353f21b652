"""Findings in the formats that CI systems read: annotations, code quality, test reports.

GitHub: workflow commands, which become annotations of a change. Source: actions/toolkit,
command.ts: ``%``, CR and LF are escaped in messages, ``:`` and ``,`` in properties too; a column
counts only where the line is also the end line.

GitLab: a code quality report. Source: GitLab documentation, "Code Quality report format": a JSON
array without byte order mark; the fingerprint is unique, the path relative; ``check_name`` is not
shown, so the description begins with it.

Checkstyle XML, which most CI systems and editors read. Source: checkstyle's XMLLogger:
``checkstyle > file(name) > error(line, column, severity, message, source)``; severities are
error, warning and info.

JUnit XML: a suite per file, and one for what could not be checked. There is no standard; the format
is defined by Jenkins' junit-10.xsd; GitLab reads it too. Errors and warnings fail; advice and
information pass and are shown in the output.
"""

from collections.abc import Iterator

import msgspec

from nginx_tune.documents.findings import Finding, Findings, Severity
from nginx_tune.report.findings import missing_text
from nginx_tune.report.text import evidence_text, one_line, xml_text

_GITHUB_COMMANDS: dict[Severity, str] = {
    "error": "error",
    "warning": "warning",
    "advice": "notice",
    "info": "notice",
}


def render_github(findings: Findings) -> bytes:
    """The findings as workflow commands, one per line."""
    lines = [
        f"::error file={_property(file.file)},line={file.line or 1},title=not parsed::"
        f"{_data(file.reason)}\n"
        for file in findings.files_unparsed
    ]
    lines += [
        f"::{'notice' if include.accepted else 'error'} file={_property(include.file)},"
        f"line={include.line},title=not read::{_data(include.reason)} "
        f"({_data(missing_text(include, findings.likely_maps))})\n"
        for include in findings.files_missing
    ]
    lines += map(_github_finding, findings.findings)
    return "".join(lines).encode()


def _github_finding(finding: Finding) -> str:
    place = f"file={_property(finding.file)},line={finding.line}"
    if finding.line == finding.end_line:
        place += f",col={finding.column},endLine={finding.end_line},endColumn={finding.end_column}"
    else:
        place += f",endLine={finding.end_line}"
    message = f"{one_line(finding.message)}\nfix: {one_line(finding.fix)}"
    command = _GITHUB_COMMANDS[finding.severity]
    return f"::{command} {place},title={_property(finding.rule)}::{_escape(message)}\n"


def _data(text: str) -> str:
    return _escape(one_line(text))


def _property(text: str) -> str:
    return _escape(one_line(text)).replace(":", "%3A").replace(",", "%2C")


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


_GITLAB_SEVERITIES: dict[Severity, str] = {
    "error": "critical",
    "warning": "major",
    "advice": "minor",
    "info": "info",
}


def render_gitlab(findings: Findings) -> bytes:
    """The findings as issues; unparsed files and unread includes are blockers."""
    issues = [
        {
            "description": f"unparsed: {one_line(file.reason)}",
            "check_name": "unparsed",
            "fingerprint": f"unparsed-{number}",
            "severity": "blocker",
            "location": {
                "path": _gitlab_path(file.file),
                "lines": {"begin": max(1, file.line or 1)},
            },
        }
        for number, file in enumerate(findings.files_unparsed, 1)
    ]
    issues += [
        {
            "description": f"not read: {one_line(include.reason)} "
            f"({one_line(missing_text(include, findings.likely_maps))})",
            "check_name": "not-read",
            "fingerprint": f"not-read-{number}",
            "severity": "info" if include.accepted else "blocker",
            "location": {
                "path": _gitlab_path(include.file),
                "lines": {"begin": max(1, include.line)},
            },
        }
        for number, include in enumerate(findings.files_missing, 1)
    ]
    issues += [
        {
            "description": f"{finding.rule}: {one_line(finding.message)}",
            "check_name": finding.rule,
            "fingerprint": finding.fingerprint,
            "severity": _GITLAB_SEVERITIES[finding.severity],
            "location": {
                "path": _gitlab_path(finding.file),
                "lines": {"begin": finding.line, "end": max(finding.line, finding.end_line)},
            },
        }
        for finding in findings.findings
    ]
    return msgspec.json.format(msgspec.json.encode(issues), indent=2) + b"\n"


def _gitlab_path(file: str) -> str:
    return file.removeprefix("./")


_CHECKSTYLE_SEVERITIES: dict[Severity, str] = {
    "error": "error",
    "warning": "warning",
    "advice": "info",
    "info": "info",
}


def render_checkstyle(findings: Findings) -> bytes:
    """The findings by file; files that were not parsed or not read are errors."""
    by_file: dict[str, list[str]] = {file: [] for file in findings.files_parsed}
    for unparsed in findings.files_unparsed:
        by_file.setdefault(unparsed.file, []).append(
            _checkstyle_error(
                unparsed.line or 1, 1, "error", f"not parsed: {unparsed.reason}", "unparsed"
            )
        )
    for missing in findings.files_missing:
        text = f"not read: {missing.reason} ({missing_text(missing, findings.likely_maps)})"
        severity = "info" if missing.accepted else "error"
        by_file.setdefault(missing.file, []).append(
            _checkstyle_error(missing.line, 1, severity, text, "not-read")
        )
    for finding in findings.findings:
        by_file.setdefault(finding.file, []).append(_checkstyle_finding(finding))
    files = "".join(
        f'  <file name="{xml_text(file)}">\n{"".join(errors)}  </file>\n'
        for file, errors in by_file.items()
    )
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<checkstyle version="4.3">\n'
    return f"{head}{files}</checkstyle>\n".encode()


def _checkstyle_finding(finding: Finding) -> str:
    return _checkstyle_error(
        finding.line,
        finding.column,
        _CHECKSTYLE_SEVERITIES[finding.severity],
        f"{finding.message}. {finding.fix}",
        finding.rule,
    )


def _checkstyle_error(line: int, column: int, severity: str, message: str, source: str) -> str:
    return (
        f'    <error line="{line}" column="{column}" severity="{severity}" '
        f'message="{xml_text(one_line(message))}" source="nginx-tune.{source}"/>\n'
    )


_JUNIT_FAILS = frozenset({"error", "warning"})


def render_junit(findings: Findings) -> bytes:
    """The findings as test suites."""
    suites = "".join(
        [
            *_junit_files(findings),
            *_junit_unparsed(findings),
            *_junit_unread(findings),
            *_junit_needs(findings),
        ]
    )
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="nginx-tune">\n'
    return f"{head}{suites}</testsuites>\n".encode()


def _junit_files(findings: Findings) -> Iterator[str]:
    by_file: dict[str, list[Finding]] = {file: [] for file in findings.files_parsed}
    for finding in findings.findings:
        by_file.setdefault(finding.file, []).append(finding)
    for file, found in by_file.items():
        cases = [_junit_case(finding) for finding in found] or [
            f'    <testcase classname="{xml_text(file)}" name="audit"/>\n'
        ]
        failures = sum(finding.severity in _JUNIT_FAILS for finding in found)
        yield _junit_suite(file, cases, failures=failures)


def _junit_case(finding: Finding) -> str:
    head = (
        f'    <testcase classname="{xml_text(finding.file)}" '
        f'name="{finding.rule} (line {finding.line}, column {finding.column})">\n'
    )
    evidence = "; ".join(map(evidence_text, finding.evidence))
    text = "\n".join(
        one_line(part)
        for part in (
            f"{finding.file}:{finding.line}: {finding.message}",
            f"evidence: {evidence}",
            f"why: {finding.why}",
            f"fix: {finding.fix}",
        )
    )
    if finding.severity in _JUNIT_FAILS:
        message = xml_text(one_line(finding.message))
        body = (
            f'      <failure type="{finding.severity}" message="{message}">'
            f"{_xml_lines(text)}</failure>\n"
        )
    else:
        body = f"      <system-out>{_xml_lines(finding.severity + ': ' + text)}</system-out>\n"
    return f"{head}{body}    </testcase>\n"


def _junit_unparsed(findings: Findings) -> Iterator[str]:
    for file in findings.files_unparsed:
        case = (
            f'    <testcase classname="{xml_text(file.file)}" name="parse">\n'
            f'      <error type="unparsed" message="line {file.line or 1}: '
            f'{xml_text(one_line(file.reason))}"/>\n    </testcase>\n'
        )
        yield _junit_suite(file.file, [case], errors=1)


def _junit_unread(findings: Findings) -> Iterator[str]:
    for include in findings.files_missing:
        text = f"line {include.line}: {one_line(include.reason)} "
        text = xml_text(text + f"({one_line(missing_text(include, findings.likely_maps))})")
        said = "skipped" if include.accepted else 'error type="not-read"'
        case = (
            f'    <testcase classname="{xml_text(include.file)}" name="read">\n'
            f'      <{said} message="{text}"/>\n    </testcase>\n'
        )
        is_taken = bool(include.accepted)
        yield _junit_suite(include.file, [case], errors=int(not is_taken), skipped=int(is_taken))


def _junit_needs(findings: Findings) -> Iterator[str]:
    cases = [
        f'    <testcase classname="facts" name="{need.rule}">\n'
        f'      <skipped message="{xml_text(one_line(need.how))}"/>\n    </testcase>\n'
        for need in findings.needs_facts
    ]
    if cases:
        yield _junit_suite("not checked for lack of facts", cases, skipped=len(cases))


def _junit_suite(
    name: str, cases: list[str], *, failures: int = 0, errors: int = 0, skipped: int = 0
) -> str:
    return (
        f'  <testsuite name="{xml_text(name)}" tests="{len(cases)}" failures="{failures}" '
        f'errors="{errors}" skipped="{skipped}">\n{"".join(cases)}  </testsuite>\n'
    )


def _xml_lines(text: str) -> str:
    return "\n".join(map(xml_text, text.split("\n")))
