"""``findings`` as Prometheus metrics: how many of each rule, and what was not judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sized

from nginx_tune.documents.findings import Findings, Severity
from nginx_tune.report.prometheus import Family, MetricSample, render_exposition

_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "advice", "info")


def render_findings_prometheus(findings: Findings) -> bytes:
    """Counts by severity are always there, so that an alert sees them go back to 0."""
    severities = Counter(one.severity for one in findings.findings)
    rules = Counter((one.rule, one.severity) for one in findings.findings)
    return render_exposition(
        [
            Family(
                "nginx_tune_audit_findings",
                "gauge",
                "Findings of the audit by severity.",
                tuple(MetricSample(severities[one], {"severity": one}) for one in _SEVERITIES),
            ),
            Family(
                "nginx_tune_audit_rule_findings",
                "gauge",
                "Findings of the audit by rule.",
                tuple(
                    MetricSample(count, {"rule": rule, "severity": severity})
                    for (rule, severity), count in sorted(rules.items())
                ),
            ),
            _count("files_parsed", "Configuration files that were read.", findings.files_parsed),
            _count(
                "files_unparsed",
                "Configuration files that could not be parsed.",
                findings.files_unparsed,
            ),
            _count(
                "includes_unread",
                "Includes that were not read, since they are not here.",
                findings.unread,
            ),
            _count(
                "rules_without_facts",
                "Rules that could not judge for want of facts.",
                findings.needs_facts,
            ),
            _count("suppressed", "Findings that a comment suppresses.", findings.suppressed),
        ]
    )


def _count(name: str, text: str, found: Sized) -> Family:
    return Family(f"nginx_tune_audit_{name}", "gauge", text, (MetricSample(len(found)),))
