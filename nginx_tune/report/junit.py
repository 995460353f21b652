"""``findings`` as JUnit XML: a suite per file, and one for what could not be checked.

Source: there is no standard; the shape is that of Jenkins' junit-10.xsd, which GitLab reads too.
Errors and warnings fail; advice and information pass and are told in the output.
"""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.documents.findings import Finding, Findings
from nginx_tune.report.evidence import evidence_text
from nginx_tune.report.findings import unread_hint
from nginx_tune.report.markup import one_line, xml_text

_FAILS = frozenset({"error", "warning"})


def render_junit(findings: Findings) -> bytes:
    """The findings as test suites."""
    suites = "".join(
        [*_file_suites(findings), *_unparsed(findings), *_unread(findings), *_needs(findings)]
    )
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="nginx-tune">\n'
    return f"{head}{suites}</testsuites>\n".encode()


def _file_suites(findings: Findings) -> Iterator[str]:
    by_file: dict[str, list[Finding]] = {file: [] for file in findings.files_parsed}
    for finding in findings.findings:
        by_file.setdefault(finding.file, []).append(finding)
    for file, found in by_file.items():
        cases = [_case(finding) for finding in found] or [
            f'    <testcase classname="{xml_text(file)}" name="audit"/>\n'
        ]
        failures = sum(one.severity in _FAILS for one in found)
        yield _suite(file, cases, failures=failures)


def _case(finding: Finding) -> str:
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
    if finding.severity in _FAILS:
        message = xml_text(one_line(finding.message))
        body = (
            f'      <failure type="{finding.severity}" message="{message}">'
            f"{_lines(text)}</failure>\n"
        )
    else:
        body = f"      <system-out>{_lines(finding.severity + ': ' + text)}</system-out>\n"
    return f"{head}{body}    </testcase>\n"


def _unparsed(findings: Findings) -> Iterator[str]:
    for one in findings.files_unparsed:
        case = (
            f'    <testcase classname="{xml_text(one.file)}" name="parse">\n'
            f'      <error type="unparsed" message="line {one.line or 1}: '
            f'{xml_text(one_line(one.reason))}"/>\n    </testcase>\n'
        )
        yield _suite(one.file, [case], errors=1)


def _unread(findings: Findings) -> Iterator[str]:
    for one in findings.files_missing:
        text = f"line {one.line}: {one_line(one.reason)} "
        text = xml_text(text + f"({one_line(one.accepted or unread_hint(findings))})")
        said = "skipped" if one.accepted else 'error type="not-read"'
        case = (
            f'    <testcase classname="{xml_text(one.file)}" name="read">\n'
            f'      <{said} message="{text}"/>\n    </testcase>\n'
        )
        is_taken = bool(one.accepted)
        yield _suite(one.file, [case], errors=int(not is_taken), skipped=int(is_taken))


def _needs(findings: Findings) -> Iterator[str]:
    cases = [
        f'    <testcase classname="facts" name="{need.rule}">\n'
        f'      <skipped message="{xml_text(one_line(need.how))}"/>\n    </testcase>\n'
        for need in findings.needs_facts
    ]
    if cases:
        yield _suite("not checked for want of facts", cases, skipped=len(cases))


def _suite(
    name: str, cases: list[str], *, failures: int = 0, errors: int = 0, skipped: int = 0
) -> str:
    return (
        f'  <testsuite name="{xml_text(name)}" tests="{len(cases)}" failures="{failures}" '
        f'errors="{errors}" skipped="{skipped}">\n{"".join(cases)}  </testsuite>\n'
    )


def _lines(text: str) -> str:
    return "\n".join(map(xml_text, text.split("\n")))
