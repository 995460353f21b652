"""Findings that are already known: from a baseline file, or from the tree before a change; pure."""

from __future__ import annotations

import posixpath
from collections import Counter
from typing import NamedTuple

from msgspec.structs import replace

from nginx_tune.documents.baseline import Baseline, KnownFault
from nginx_tune.documents.findings import Finding, Findings, Suppressed, SuppressedBy


class Compared(NamedTuple):
    """Findings without the known ones, and how many of the known ones are no more."""

    findings: Findings
    gone: int


def baseline_of(findings: Findings, main: str) -> Baseline:
    """The findings of the tree with that main file as known faults, sorted."""
    counts = Counter(map(_key, findings.findings))
    files = {_key(one): relative_to_main(one.file, main) for one in findings.findings}
    return Baseline(
        faults=[
            KnownFault(rule=key[0], file=file, fingerprint=key[1], count=counts[key])
            for key, file in sorted(files.items(), key=lambda item: (item[1], item[0]))
        ]
    )


def without_known(
    findings: Findings, known: Baseline, *, by: SuppressedBy, reason: str
) -> Compared:
    """The findings that are not in the baseline; those that are stand under ``suppressed``.

    A fault counts as often as it was known: a copy of a faulty server is a new finding.
    """
    left: Counter[tuple[str, str]] = Counter()
    for fault in known.faults:
        left[fault.rule, fault.fingerprint] += fault.count
    fresh: list[Finding] = []
    suppressed: list[Suppressed] = []
    for finding in findings.findings:
        key = _key(finding)
        if left[key] > 0:
            left[key] -= 1
            suppressed.append(suppressed_finding(finding, by=by, reason=reason))
        else:
            fresh.append(finding)
    return Compared(
        replace(findings, findings=fresh, suppressed=[*findings.suppressed, *suppressed]),
        sum(count for count in left.values() if count > 0),
    )


def suppressed_finding(finding: Finding, *, by: SuppressedBy, reason: str) -> Suppressed:
    """A finding as one that is silenced."""
    return Suppressed(
        rule=finding.rule,
        file=finding.file,
        line=finding.line,
        reason=reason,
        by=by,
        fingerprint=finding.fingerprint,
        severity=finding.severity,
        message=finding.message,
    )


def relative_to_main(file: str, main: str) -> str:
    """A file's name as the same tree has it elsewhere: below the main file's directory."""
    directory = posixpath.dirname(main)
    return file.removeprefix(directory + "/") if directory else file


def _key(finding: Finding) -> tuple[str, str]:
    """A fault without its number among the same ones."""
    return finding.rule, finding.fingerprint.rpartition("-")[0]
