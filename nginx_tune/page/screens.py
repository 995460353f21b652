"""Screens of the documents that a terminal shows in other ways: findings, plans, measurements."""

from __future__ import annotations

from nginx_tune.documents.findings import Findings
from nginx_tune.documents.measured_class import ClassMeasurement, Latency
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.plan import Plan
from nginx_tune.report.findings import summary_text
from nginx_tune.report.plan import hunks_with_risks
from nginx_tune.report.quantities import one_line
from nginx_tune.report.same_block import grouped, others_text
from nginx_tune.report.screen import Block, Line, Part, Screen, Table
from nginx_tune.report.text import bytes_text, number_text, percent_text, seconds_text

_SHOWN = ("p50", "p90", "p99", "p999", "max")
_EFFECTS = {
    "refused": "the reload is refused",
    "loses": "the reload loses",
    "needs": "the reload needs",
}


def measurement_screen(measurement: Measurement) -> Screen:
    """The answer of each class, a table of them, then what makes the figures worth less."""
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
    """How many of which severity, each with its place and its cure, then what was not judged."""
    return [
        [Line(f"{one_line(summary_text(findings))}.", "answer")],
        [
            Line(f"not parsed: {_place(one.file, one.line)}: {one_line(one.reason)}", "warning")
            for one in findings.files_unparsed
        ],
        _found(findings),
        [
            Line(f"not checked: {one_line(one.rule)}: {one_line(one.how)}", "note")
            for one in findings.needs_facts
        ],
        _tested(findings),
    ]


def _found(findings: Findings) -> Block:
    if not findings.findings:
        return []
    rows = [("severity", "place", "finding", "why", "fix")]
    rows += [
        (
            one.severity,
            f"{_place(one.file, one.line)}",
            "; ".join(filter(None, (f"{one_line(one.message)} [{one_line(one.rule)}]", others))),
            one_line(one.why),
            one_line(one.fix),
        )
        for group in grouped(findings.findings)
        for one, others in [(group[0], others_text(group))]
    ]
    return [Line("findings", "heading"), Table(rows)]


def _tested(findings: Findings) -> Block:
    test = findings.nginx_test
    if test is None:
        return []
    if test.accepted:
        return [Line("nginx -t accepts it")]
    return [Line(f"nginx -t rejects it: {one_line(one)}", "warning") for one in test.messages]


def plan_screen(plan: Plan) -> Screen:
    """How many lines change, each with its reason, then what a reload does with them."""
    count = sum(len(file.hunks) for file in plan.files)
    answer = "Nothing is to be changed."
    if count:
        answer = f"{_many(count, 'line')} in {_many(len(plan.files), 'file')} to be changed."
    return [
        [Line(answer, "answer")],
        *(_file(file.path, plan, number) for number, file in enumerate(plan.files)),
        [Line(f"{_EFFECTS[one.effect]}: {one_line(one.text)}", "warning") for one in plan.warnings],
        _listed(
            "not written",
            [
                f"{one_line(one.setting or one.decision)}: {one_line(one.reason)}"
                for one in plan.refusals
            ],
        ),
        _listed(
            "what the audit finds then",
            [
                f"{one.severity} {_place(one.file, one.line)}: {one_line(one.message)}"
                for one in plan.brings
            ],
        ),
        *(
            _listed(
                f"of the host, {one_line(part.path)} ({bytes_text(len(part.content))})",
                [one_line(line) for line in [*part.content.splitlines(), *part.commands]],
            )
            for part in plan.host
        ),
    ]


def _file(path: str, plan: Plan, number: int) -> Block:
    rows = [("line", "before", "after", "why")]
    rows += [
        (
            str(hunk.line),
            one_line(hunk.before) or "–",
            one_line(hunk.after) or "–",
            one_line(hunk.reason or hunk.decision),
        )
        for hunk in plan.files[number].hunks
    ]
    risks = [
        Line(f"risk ({one_line(hunk.decision)}, line {hunk.line}): {one_line(one)}", "warning")
        for hunk, new in hunks_with_risks(plan.files[number])
        for one in new
    ]
    return [Line(one_line(path), "heading"), Table(rows, right=(0,)), *risks]


def _listed(heading: str, lines: list[str]) -> Block:
    parts: list[Part] = [Line(heading, "heading"), *map(Line, lines)]
    return parts if lines else []


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _place(file: str, line: int | None) -> str:
    return one_line(file) + (f":{line}" if line else "")
