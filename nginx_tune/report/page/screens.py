"""Screens for documents that the terminal shows differently: findings, plans, measurements."""

import hashlib
from collections.abc import Mapping

from nginx_tune.change.generate.plan_files import HunkError, checked_host_parts, old_content
from nginx_tune.conf.secret_values import redact_text
from nginx_tune.documents.findings import Findings
from nginx_tune.documents.measured_class import ClassMeasurement, Latency
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.plan import Plan, PlannedFile
from nginx_tune.documents.units import plural
from nginx_tune.errors import UsageError
from nginx_tune.report.findings import grouped, others_text, summary_text, unread_hint
from nginx_tune.report.plan import count_changes, hunk_text, hunks_with_risks
from nginx_tune.report.screen import Line, Screen, ScreenBlock, ScreenPart, Table
from nginx_tune.report.text import (
    number_text,
    one_line,
    percent_text,
    quoted,
    seconds_text,
    shown_path,
)

_SHOWN = ("p50", "p90", "p99", "p999", "max")
_EFFECTS = {
    "refused": "the reload is refused",
    "loses": "the reload loses",
    "needs": "the reload needs",
}


def measurement_screen(measurement: Measurement) -> Screen:
    """A sentence on each class, the flags, a table of all classes, failures, and the load."""
    answer = "; ".join(_sentence(name, item) for name, item in measurement.classes.items())
    head = ("class", "intended", "answered", "per second", "failed", *_SHOWN)
    rows = [head, *(_class_row(name, item) for name, item in measurement.classes.items())]
    kinds = [
        Line(f"{one_line(name)} failed: {_counted(item.errors)}", "warning")
        for name, item in measurement.classes.items()
        if any(item.errors.values())
    ]
    generator = measurement.generator
    return [
        [Line(f"{answer or 'nothing was asked'}.", "answer")],
        [Line(f"degraded: {one_line(flag)}", "warning") for flag in measurement.flags],
        [Line("latency from the intended start", "heading"), Table(rows, right=range(1, 10))],
        kinds,
        [
            Line(
                f"measured for {number_text(measurement.duration_seconds)} s, seed "
                f"{measurement.seed}; the probe used {percent_text(generator.cpu_ratio)} of a CPU"
            )
        ],
    ]


def _sentence(name: str, item: ClassMeasurement) -> str:
    latency = item.response_seconds
    said = f"{one_line(name)}: {number_text(item.requests_per_second)} requests/s"
    if latency.p50 is None or latency.p99 is None:
        return said
    return f"{said}, median {_quantile(latency, 'p50')}, p99 {_quantile(latency, 'p99')}"


def _quantile(latency: Latency, name: str) -> str:
    value: float | None = getattr(latency, name)
    if value is None:
        return "–"
    return ("≥ " if name in latency.at_least else "") + seconds_text(value)


def _class_row(name: str, item: ClassMeasurement) -> tuple[str, ...]:
    return (
        one_line(name),
        number_text(item.intended),
        number_text(item.requests),
        number_text(item.requests_per_second),
        number_text(sum(item.errors.values())),
        *(_quantile(item.response_seconds, name) for name in _SHOWN),
    )


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {one_line(kind)}" for kind, count in counts.items() if count)


def findings_screen(findings: Findings) -> Screen:
    """A count by severity, each finding with its place and fix, then what was not judged."""
    return [
        [Line(f"{one_line(summary_text(findings))}.", "answer")],
        [
            Line(f"not parsed: {_place(file.file, file.line)}: {one_line(file.reason)}", "warning")
            for file in findings.files_unparsed
        ],
        _unread(findings),
        _found(findings),
        [
            Line(f"not checked: {one_line(need.rule)}: {one_line(need.how)}", "note")
            for need in findings.needs_facts
        ],
        _tested(findings),
    ]


def _unread(findings: Findings) -> ScreenBlock:
    """The missing includes; accepted includes are notes, and all others are warnings."""
    lines = [
        Line(
            f"not read: {_place(include.file, include.line)}: {one_line(include.reason)}"
            + (f" ({one_line(include.accepted)})" if include.accepted else ""),
            "note" if include.accepted else "warning",
        )
        for include in findings.files_missing
    ]
    if not findings.unread:
        return lines
    return [*lines, Line(unread_hint(findings.unread, findings.likely_maps), "note")]


def _found(findings: Findings) -> ScreenBlock:
    if not findings.findings:
        return []
    rows = [("severity", "place", "finding", "why", "fix")]
    rows += [
        (
            finding.severity,
            f"{_place(finding.file, finding.line)}",
            "; ".join(
                filter(None, (f"{one_line(finding.message)} [{one_line(finding.rule)}]", others))
            ),
            one_line(finding.why),
            one_line(finding.fix),
        )
        for group in grouped(findings.findings)
        for finding, others in [(group[0], others_text(group))]
    ]
    return [Line("findings", "heading"), Table(rows)]


def _tested(findings: Findings) -> ScreenBlock:
    test = findings.nginx_test
    if test is None:
        return []
    if test.accepted:
        return [Line("nginx -t accepts it")]
    return [
        Line(f"nginx -t rejects it: {one_line(message)}", "warning") for message in test.messages
    ]


def plan_screen(plan: Plan, here: Mapping[str, str] | None = None) -> Screen:
    """A count of the changed lines, each with its reason, then the effects of a reload.

    ``here``: the SHA-256 of the files on this host, by path. The lines are computed from the
    contents. Reasons may be written by anyone, so they are in quotes.
    """
    count = count_changes(plan)
    answer = "Nothing is to be changed."
    if count:
        answer = f"{plural(count, 'line')} in {plural(len(plan.files), 'file')} to be changed."
    return [
        [Line(answer, "answer")],
        *(_file(file, (here or {}).get(file.path)) for file in plan.files),
        [
            Line(
                f"{_EFFECTS[warning.effect]}, according to the plan: {quoted(warning.text)}",
                "warning",
            )
            for warning in plan.warnings
        ],
        _listed(
            "not written, according to the plan",
            [
                f"{quoted(refusal.setting or refusal.decision)}: {quoted(refusal.reason)}"
                for refusal in plan.refusals
            ],
        ),
        _listed(
            "audit findings afterwards, according to the plan",
            [
                f"{finding.severity} {shown_path(finding.file)}:{finding.line}: "
                f"{quoted(finding.message)}"
                for finding in plan.brings
            ],
        ),
        _host(plan),
    ]


def _host(plan: Plan) -> ScreenBlock:
    """The part for the host. Commands are made here, and never taken from the plan."""
    try:
        parts = checked_host_parts(plan.host)
    except UsageError as error:
        return [Line(f"of the host: {one_line(error.message)}", "warning")]
    return [
        part
        for entry in parts
        for part in _listed(
            f"of the host, {entry.path}",
            [
                *(f"{line.name} {line.before or '?'} → {line.value}" for line in entry.settings),
                *entry.commands,
            ],
        )
    ]


def _file(file: PlannedFile, here: str | None) -> ScreenBlock:
    rows = [("line", "before", "after", "reason, according to the plan")]
    rows += [
        (
            str(hunk.line),
            hunk_text(redact_text(hunk.before)) or "–",
            hunk_text(redact_text(hunk.after)) or "–",
            quoted(hunk.reason or hunk.decision),
        )
        for hunk in file.hunks
    ]
    risks = [
        Line(f"line {hunk.line}, a risk, according to the plan: {quoted(place)}", "warning")
        for hunk, new in hunks_with_risks(file)
        for place in new
    ]
    return [
        Line(shown_path(file.path), "heading"),
        _checked(file, here),
        Table(rows, right=(0,)),
        *risks,
    ]


def _checked(file: PlannedFile, here: str | None) -> Line:
    """A line on whether the file's lines could be checked."""
    try:
        is_whole = hashlib.sha256(old_content(file)).hexdigest() == file.sha256_before
    except HunkError:
        is_whole = False
    if not is_whole:
        why = "differ from the change in the file's content" if file.content else (
            "could not be checked: its content is left out"
        )  # fmt: skip
        return Line(f"these lines {why}", "warning")
    if here == file.sha256_before:
        return Line(
            "checked against the file on the host that wrote this page: nothing else changes"
        )
    if here == file.sha256_after:
        return Line(
            "checked: nothing else changes; on the host that wrote this page the file has "
            "these changes already"
        )
    why = "is not there" if here is None else "has changed since"
    return Line(
        f"not checked: on the host that wrote this page the file {why}. The text before and around "
        "these lines comes from the plan",
        "warning",
    )


def _listed(heading: str, lines: list[str]) -> ScreenBlock:
    parts: list[ScreenPart] = [Line(heading, "heading"), *map(Line, lines)]
    return parts if lines else []


def _place(file: str, line: int | None) -> str:
    return one_line(file) + (f":{line}" if line else "")
