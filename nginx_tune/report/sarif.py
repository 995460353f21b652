"""``findings`` as SARIF 2.1.0, with what GitHub code scanning requires beyond the standard.

Source: OASIS SARIF 2.1.0; GitHub, "SARIF support for code scanning". No times, no absolute paths
of this machine: the same findings give the same bytes.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from nginx_tune import __version__
from nginx_tune.documents.findings import FileEdit, Finding, Findings, Severity, Suppressed
from nginx_tune.report.findings import missing_text
from nginx_tune.report.rule_page import render_markdown_page, rules_by_id
from nginx_tune.report.text import evidence_text, one_line, uri, weaker_sandbox_text

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"

_LEVELS: dict[Severity, str] = {
    "error": "error",
    "warning": "warning",
    "advice": "note",
    "info": "note",
}


def render_sarif(findings: Findings) -> bytes:
    """The findings as one SARIF run."""
    ids = sorted(
        {finding.rule for finding in findings.findings}
        | {finding.rule for finding in findings.suppressed}
    )
    indexes = {name: index for index, name in enumerate(ids)}
    results = [_result(finding, indexes) for finding in findings.findings]
    results += [_suppressed(finding, indexes) for finding in findings.suppressed]
    driver = {"name": "nginx-tune", "version": __version__, "rules": [_rule(name) for name in ids]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(findings)],
        "results": results,
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return msgspec.json.format(msgspec.json.encode(log), indent=2) + b"\n"


def _rule(name: str) -> dict[str, Any]:
    rule = rules_by_id()[name]
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {"text": f"{rule.why}\n\n{rule.fix}", "markdown": render_markdown_page(rule)},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {
            "tags": ["nginx", rule.id.partition("-")[0], rule.proof],
            "precision": "high" if rule.proof == "proven" else "medium",
            "problem.severity": {"error": "error", "warning": "warning"}.get(
                rule.severity, "recommendation"
            ),
        },
    }


def _result(finding: Finding, indexes: dict[str, int]) -> dict[str, Any]:
    result = {
        **_common(finding, indexes),
        "message": {"text": _message(finding)},
        "locations": [_location(finding.file, _region(finding))],
        "properties": {
            "severity": finding.severity,
            "evidence": [one_line(evidence_text(item)) for item in finding.evidence],
        },
    }
    if finding.edits:
        result["fixes"] = [
            {"description": {"text": one_line(finding.fix)}, "artifactChanges": _changes(finding)}
        ]
    return result


def _suppressed(one: Suppressed, indexes: dict[str, int]) -> dict[str, Any]:
    kind = "inSource" if one.by == "comment" else "external"
    return {
        **_common(one, indexes),
        "message": {"text": one_line(one.message) or one.rule},
        "locations": [_location(one.file, {"startLine": max(1, one.line)})],
        "suppressions": [{"kind": kind, "justification": one_line(one.reason)}],
    }


def _common(one: Finding | Suppressed, indexes: dict[str, int]) -> dict[str, Any]:
    return {
        "ruleId": one.rule,
        "ruleIndex": indexes[one.rule],
        "level": _LEVELS[one.severity],
        "partialFingerprints": {"primaryLocationLineHash": one.fingerprint.replace("-", ":")},
    }


def _message(finding: Finding) -> str:
    evidence = "; ".join(map(evidence_text, finding.evidence))
    parts = [finding.message, f"evidence: {evidence}", f"fix: {finding.fix}"]
    return "\n".join(map(one_line, parts))


def _region(finding: Finding) -> dict[str, int]:
    return {
        "startLine": finding.line,
        "startColumn": finding.column,
        "endLine": max(finding.line, finding.end_line),
        "endColumn": max(1, finding.end_column),
    }


def _location(file: str, region: dict[str, int] | None) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": uri(file)}}
    if region is not None:
        place["region"] = region
    return {"physicalLocation": place}


def _changes(finding: Finding) -> list[dict[str, Any]]:
    files = dict.fromkeys(edit.file for edit in finding.edits)
    return [
        {
            "artifactLocation": {"uri": uri(file)},
            "replacements": [_replacement(edit) for edit in finding.edits if edit.file == file],
        }
        for file in files
    ]


def _replacement(edit: FileEdit) -> dict[str, Any]:
    return {
        "deletedRegion": {
            "byteOffset": edit.start_byte,
            "byteLength": edit.end_byte - edit.start_byte,
        },
        "insertedContent": {"text": edit.text},
    }


def _invocation(findings: Findings) -> dict[str, Any]:
    test = findings.nginx_test
    is_read = not findings.files_unparsed and not findings.unread
    return {
        "executionSuccessful": is_read and (test is None or test.accepted),
        "toolExecutionNotifications": [*_notifications(findings)],
    }


def _notifications(findings: Findings) -> Iterable[dict[str, Any]]:
    for file in findings.files_unparsed:
        yield {
            "level": "error",
            "message": {"text": f"not parsed: {one_line(file.reason)}"},
            "locations": [_location(file.file, {"startLine": max(1, file.line or 1)})],
        }
    for missing in findings.files_missing:
        text = missing_text(missing, findings.likely_maps)
        yield {
            "level": "note" if missing.accepted else "error",
            "message": {"text": f"not read: {one_line(missing.reason)} ({one_line(text)})"},
            "locations": [_location(missing.file, {"startLine": max(1, missing.line)})],
        }
    if findings.nginx_test is not None:
        for line in findings.nginx_test.messages:
            level = "error" if "[emerg]" in line else "note"
            yield {"level": level, "message": {"text": one_line(f"nginx -t: {line}")}}
        if findings.nginx_test.weaker_sandbox:
            text = one_line(weaker_sandbox_text(findings.nginx_test.weaker_sandbox))
            yield {"level": "note", "message": {"text": text}}
    for need in findings.needs_facts:
        yield {
            "level": "note",
            "message": {
                "text": one_line(
                    f"{need.rule} was not checked for lack of {', '.join(need.facts)}: {need.how}"
                )
            },
        }
