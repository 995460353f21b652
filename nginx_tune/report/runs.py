"""Stored runs as text: the list, one run, a comparison; and comparisons of observations."""

from collections.abc import Mapping

from nginx_tune.documents.rehearsal import Rehearsal
from nginx_tune.documents.run import KeptRun, KeptRuns, RunComparison, RunMetric, RunSummary
from nginx_tune.documents.scenario import ScenarioRun
from nginx_tune.documents.units import bytes_text, plural
from nginx_tune.documents.verdict import ComparedMetric, Comparison
from nginx_tune.measure.proof.by_seconds import TRAFFIC
from nginx_tune.report.quantities import metric_words, ratio_text, unit_text, value_text
from nginx_tune.report.rehearsal import rehearsal_screen
from nginx_tune.report.scenario import scenario_screen
from nginx_tune.report.screen import Line, Screen, Table
from nginx_tune.report.text import one_line, percent_text
from nginx_tune.report.verdict import verdict_screen


def runs_screen(runs: KeptRuns) -> Screen:
    """A row for each run, then the skipped files and the space taken by all."""
    header = ("id", "started (UTC)", "run", "outcome", "primary metric")
    rows = [
        (
            one_line(run.id),
            started_text(run),
            f"{run.kind} {one_line(run.name)}",
            run.outcome.replace("_", " ") + _counts(run),
            f"{_ratio(run)} {one_line(run.primary_metric)}" if run.primary_metric else "",
        )
        for run in runs.runs
    ]
    skipped = [Line(f"skipped {one_line(s.file)}: {one_line(s.reason)}") for s in runs.skipped]
    where = (
        f"{bytes_text(runs.bytes)} of at most {bytes_text(runs.bytes_most)} "
        f"in {one_line(runs.directory)}"
    )
    table = Table([header, *rows]) if rows else Line("no runs are kept")
    return [[table, *skipped, Line(where)]]


def run_screen(run: KeptRun) -> Screen:
    """A run as it was shown at the time, below a line with its date."""
    summary = run.summary
    head = (
        f"run {one_line(summary.id)}: {summary.kind} {one_line(summary.name)}, "
        f"started {started_text(summary)} UTC, {summary.seconds:.0f} s, "
        f"nginx-tune {one_line(summary.version)}"
    )
    result = run.result
    if isinstance(result, ScenarioRun):
        return [[Line(head)], *scenario_screen(result)]
    if isinstance(result, Rehearsal):
        return [[Line(head)], *rehearsal_screen(result)]
    return [[Line(head)], *verdict_screen(result.verdict)]


def run_comparison_screen(comparison: RunComparison) -> Screen:
    """The answer in a sentence, the metrics side by side, then warnings."""
    header = ("metric", comparison.a.id, comparison.b.id, "baseline", "ratio", "outcome")
    rows = [
        (
            one_line(metric.name)
            + (" (primary)" if metric.name == comparison.primary_metric else ""),
            *(
                ("≥ " if run in metric.at_least else "") + value_text(metric.name, value)
                for run, value in (("a", metric.a), ("b", metric.b))
            ),
            ratio_text(metric.baseline_ratio),
            _interval(metric),
            metric.outcome.replace("_", " ")
            + (f": {one_line(metric.reason)}" if metric.reason else ""),
        )
        for metric in comparison.metrics
    ]
    return [
        [Line(run_comparison_sentence(comparison), "answer")],
        [Table([header, *rows], right=(1, 2, 3))],
        [Line(f"warning: {one_line(warning)}", "warning") for warning in comparison.warnings],
    ]


def run_comparison_sentence(comparison: RunComparison) -> str:
    """One sentence that can be quoted."""
    primary = comparison.metrics[0]
    basis = (
        ("corrected for the baseline's change") if comparison.same_baseline else "without a control"
    )
    said = (
        f"{metric_words(primary.name)} in run {comparison.b.id} is {_interval(primary)} that in "
        f"run {comparison.a.id} ({primary.pairs_a} and {primary.pairs_b} pairs, {basis})"
    )
    if comparison.outcome == "inconclusive":
        return f"Not settled: {said}: {one_line(comparison.reason)}."
    return f"{comparison.outcome.replace('_', ' ').capitalize()}: {said}."


def started_text(summary: RunSummary) -> str:
    """The start of a run, to the minute, in UTC."""
    day, _, moment = one_line(summary.started_at).partition("T")
    return f"{day} {moment[:5]}"


def _counts(run: RunSummary) -> str:
    said = [plural(run.pairs, "pair")] if run.primary_metric else []
    if run.gates:
        said.append(f"{run.gates_passed} of {run.gates} gates")
    if run.interrupted:
        said.insert(0, "interrupted")
    if run.claims:
        said.append(f"{run.claims_held} of {run.claims} claims")
    return f" ({', '.join(said)})" if said else ""


def _ratio(run: RunSummary) -> str:
    if run.low is None or run.high is None:
        return ratio_text(run.ratio)
    return f"{ratio_text(run.ratio)} [{run.low:.3g}–{run.high:.3g}]"


def _interval(metric: RunMetric) -> str:
    if metric.low is None or metric.high is None:
        return ratio_text(metric.ratio)
    return f"{ratio_text(metric.ratio)} [{metric.low:.3g}–{metric.high:.3g}]"


def comparison_screen(comparison: Comparison) -> Screen:
    """The answer in a sentence, the table, the reasons below it, then the unknown figures."""
    header = ("metric", "before", "after", "ratio", "outcome")
    notes: dict[str, int] = {}
    rows = [
        (
            one_line(metric.name)
            + (" (primary)" if metric.name == comparison.primary_metric else ""),
            unit_text(metric.unit, metric.before),
            unit_text(metric.unit, metric.after),
            _ratio_with_range(metric),
            metric.outcome.replace("_", " ") + _mark(one_line(metric.reason), notes),
        )
        # The basis that all share comes first.
        for metric in sorted(comparison.metrics, key=lambda metric: metric.name != TRAFFIC)
    ]
    return [
        [Line(comparison_sentence(comparison), "answer")],
        [Table([header, *rows], right=(1, 2)), *_numbered(notes)],
        [Line(f"warning: {one_line(warning)}", "warning") for warning in comparison.warnings],
    ]


def _mark(reason: str, notes: dict[str, int]) -> str:
    """The mark of the note that explains an outcome; rows with the same reason share a note."""
    return f" [{notes.setdefault(reason, len(notes) + 1)}]" if reason else ""


def _numbered(notes: Mapping[str, int]) -> list[Table]:
    rows = [(f"[{number}]", reason) for reason, number in notes.items()]
    return [Table(rows, indent=2, has_head=False)] if rows else []


def comparison_sentence(comparison: Comparison) -> str:
    """One sentence that can be quoted."""
    found = [metric for metric in comparison.metrics if metric.name == comparison.primary_metric]
    words = metric_words(comparison.primary_metric)
    if comparison.outcome == "invalid" or not found:
        return f"No verdict: {one_line(comparison.reason)}."
    primary = found[0]
    basis = "against the control" if comparison.controlled else "without a control"
    if primary.level is not None:
        basis += (
            f", {percent_text(primary.level)} interval from stretches of {primary.seconds} seconds"
        )
    said = f"{words} is {_ratio_with_range(primary)} what it was ({basis})"
    if primary.ratio is None:
        said = f"{words} {_without_ratio(primary)} ({basis})"
    if comparison.outcome == "inconclusive":
        return f"Not settled: {said}: {one_line(comparison.reason)}."
    if comparison.outcome == "no_difference":
        if primary.before is None or primary.after is None:
            return f"No verdict: {said}."
        return f"No difference: {said}."
    if primary.outcome != comparison.outcome:
        return f"Worse: {one_line(comparison.reason)}; {said}."
    return f"{comparison.outcome.capitalize()}: {said}."


def _without_ratio(metric: ComparedMetric) -> str:
    """The text in place of a ratio, if one of the two values is zero or not known."""
    if metric.before is None or metric.after is None:
        return "cannot be compared with its earlier value"
    if metric.before == metric.after == 0:
        return "was zero before and is zero now"
    old, new = unit_text(metric.unit, metric.before), unit_text(metric.unit, metric.after)
    return f"is {new} after {old}"


def _ratio_with_range(metric: ComparedMetric) -> str:
    if metric.low is None or metric.high is None:
        return ratio_text(metric.ratio)
    return f"{ratio_text(metric.ratio)} [{metric.low:.3g}–{metric.high:.3g}]"
