"""A document as a section of a page: the answer, a few figures, plots, then the evidence."""

import dataclasses
import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from nginx_tune.documents.base import Document
from nginx_tune.documents.decisions import Decisions
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.findings import Findings
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.observation import Observation
from nginx_tune.documents.plan import Plan
from nginx_tune.documents.rehearsal import Rehearsal
from nginx_tune.documents.run import KeptRun, Validation
from nginx_tune.documents.scenario import ScenarioRun, VariantText
from nginx_tune.documents.sizing import Sizing
from nginx_tune.documents.units import plural
from nginx_tune.documents.verdict import Verdict
from nginx_tune.documents.workload import Workload
from nginx_tune.errors import UsageError
from nginx_tune.measure.proof.runs import PairedRuns, pair_runs, select_pairs
from nginx_tune.report.decisions import decisions_screen
from nginx_tune.report.facts import facts_screen
from nginx_tune.report.observation import observation_screen
from nginx_tune.report.page.plot.curves import (
    CurvePlot,
    disk_plots,
    quantile_plots,
    sizing_plots,
    turns_plot,
)
from nginx_tune.report.page.plot.ratios import (
    RatioPlot,
    SharesPlot,
    metrics_plot,
    pairs_plot,
    predictions_plot,
    regret_plot,
    workers_plots,
)
from nginx_tune.report.page.plot.seconds import loop_plot, seconds_plots
from nginx_tune.report.page.screens import findings_screen, measurement_screen, plan_screen
from nginx_tune.report.quantities import interval_text, metric_words, value_text
from nginx_tune.report.rehearsal import rehearsal_screen
from nginx_tune.report.runs import started_text
from nginx_tune.report.scenario import scenario_screen
from nginx_tune.report.screen import Screen
from nginx_tune.report.search import search_screen
from nginx_tune.report.size import sizing_screen
from nginx_tune.report.text import number_text, one_line, shown_path
from nginx_tune.report.verdict import columns_of, verdict_screen
from nginx_tune.report.workload import workload_screen

Plot = RatioPlot | CurvePlot | SharesPlot


@dataclass(frozen=True)
class Figure:
    """A number that is shown large."""

    name: str
    text: str
    value: float | None
    """The value in the document."""
    tone: str = "plain"
    """``good``, ``bad`` or ``plain``."""


@dataclass(frozen=True)
class Text:
    """A text that is folded away and shown verbatim: a configuration, a diff."""

    title: str
    content: str
    is_diff: bool = False


@dataclass(frozen=True)
class Section:
    """A document on a page; the first block of its screen is the document's answer."""

    kind: str
    title: str
    screen: Screen
    tag: str = ""
    """The outcome in a word or two."""
    tone: str = "plain"
    """The value of the outcome: ``good``, ``bad`` or ``plain``."""
    figures: Sequence[Figure] = ()
    plots: Sequence[Plot] = ()
    texts: Sequence[Text] = ()
    basis: str = ""
    """The basis of the answer and its gaps, in a sentence or two."""


_TWO_VARIANTS = "Two configurations under the same load"


def section_of(document: Document, here: Mapping[str, str] | None = None) -> Section:
    """The section of a document of one of the ``PAGE_KINDS``.

    ``here``: the SHA-256 of those files of plans that exist on this host, by path.
    Errors: UsageError that names the kind, if it is another one.
    """
    make = _SECTIONS.get(type(document))
    if make is None:
        name = type(document).__name__
        raise UsageError(
            f"a report cannot show a {name} document", hint=f"it can show {kinds_text()}"
        )
    if isinstance(document, Plan):
        return _plan(document, here)
    return make(document)


def kinds_text() -> str:
    """The names of the documents that a page shows."""
    return ", ".join(str(kind.__struct_config__.tag).split("/")[1] for kind in PAGE_KINDS)


def _run(run: KeptRun) -> Section:
    summary = run.summary
    when = f"{summary.kind} run {one_line(summary.id)}, {started_text(summary)} UTC"
    if isinstance(run.result, ScenarioRun):
        return _scenario(run.result, when)
    if isinstance(run.result, Rehearsal):
        return _rehearsal(run.result, when)
    return _validation(run.result, one_line(summary.name), when)


def _scenario(run: ScenarioRun, kind: str = "scenario run") -> Section:
    said = _runs_plots(run.verdict, run.measurements)
    predicted = predictions_plot(run.predictions)
    plots = [*said[:1], *([predicted] if predicted else []), *said[1:]]
    texts = _variant_texts(run.variants)
    base = _verdict(run.verdict, one_line(run.name), kind)
    return dataclasses.replace(base, screen=scenario_screen(run), plots=plots, texts=texts)


def _validation(found: Validation, title: str = _TWO_VARIANTS, kind: str = "validation") -> Section:
    base = _verdict(found.verdict, title, kind)
    plots = _runs_plots(found.verdict, found.measurements)
    texts = _variant_texts(found.variants)
    return dataclasses.replace(base, plots=plots, texts=texts)


_COMPARED = ("baseline", "candidate")
_TONES = {"better": "good", "worse": "bad"}


def _verdict(verdict: Verdict, title: str = _TWO_VARIANTS, kind: str = "verdict") -> Section:
    tone = _TONES.get(verdict.outcome, "plain")
    plot = metrics_plot(verdict)
    return Section(
        kind,
        title,
        verdict_screen(verdict),
        verdict.outcome.replace("_", " "),
        tone,
        _figures(verdict),
        [plot] if plot else [],
        basis=_basis(verdict),
    )


def _basis(verdict: Verdict) -> str:
    """Failed gates, pairs, missing metrics, truncated bodies, and the number of warnings."""
    gates = [one_line(result.expression) for result in verdict.gates if not result.passed]
    unmeasured = [
        one_line(metric.name)
        for metric in verdict.metrics
        if metric.baseline is None and metric.candidate is None
    ]
    cut = [metric for metric in verdict.metrics if metric.name.endswith(".truncated")]
    are_whole = all(verdict.baseline == 0 and verdict.candidate == 0 for verdict in cut)
    environment = verdict.environment
    parts = [
        f"Failed: {', '.join(gates)}" if gates else "",
        f"{plural(environment.pairs, 'pair')}, {environment.discarded_pairs or 'none'} discarded",
        f"Not measured: {', '.join(unmeasured)}" if unmeasured else "",
        ("No body was cut short" if are_whole else "BODIES WERE CUT SHORT") if cut else "",
        f"{plural(len(verdict.warnings), 'warning')} below" if verdict.warnings else "",
    ]
    return ". ".join(filter(None, parts)) + "."


def _figures(verdict: Verdict) -> list[Figure]:
    primary = next((m for m in verdict.metrics if m.name == verdict.primary_metric), None)
    if primary is None:
        return []
    before, after = columns_of(primary)
    words = metric_words(primary.name)
    bounds = {variant: "≥ " if variant in primary.at_least else "" for variant in _COMPARED}
    shown = [
        Figure(f"{words}, baseline", bounds["baseline"] + value_text(primary.name, before), before),
        Figure(f"{words}, candidate", bounds["candidate"] + value_text(primary.name, after), after),
    ]
    if primary.ratio is not None:
        ratio, _, interval = interval_text(primary).partition(" [")
        name = "candidate ÷ baseline" + (f", interval {interval.rstrip(']')}" if interval else "")
        shown.append(Figure(name, ratio, primary.ratio, _TONES.get(primary.outcome, "plain")))
    return shown


def _runs_plots(verdict: Verdict, measurements: Sequence[Measurement]) -> list[Plot]:
    """Plots for the two variants that the verdict compares; the curves include other variants."""
    variants = len({measurement.variant for measurement in measurements})
    compared = select_pairs(measurements, max(variants, 1), against="baseline", variant="candidate")
    plots: list[Plot] = [plot for plot in [metrics_plot(verdict)] if plot]
    counting = measurements
    try:
        runs = pair_runs(compared)
        pairs = pairs_plot(verdict, runs)
        counting = _counting(runs, measurements, max(variants, 1))
    except UsageError:
        pairs = None  # runs without pairs: a document edited by a person
    return [*plots, *([pairs] if pairs else []), *_load_plots(measurements, counting)]


def _counting(
    runs: PairedRuns, measurements: Sequence[Measurement], variants: int
) -> list[Measurement]:
    """The measurements that count: without discarded pairs, and without a pair's spoilt classes.

    So curves and the figures in the table are of the same requests.
    """
    spoilt = {pair.index: pair.spoilt for pair in runs.pairs}
    counting = []
    for measurement in measurements:
        if measurement.variant not in _COMPARED:
            counting.append(measurement)
        elif measurement.number // variants in spoilt:
            left_out = spoilt[measurement.number // variants]
            classes = {
                name: part for name, part in measurement.classes.items() if name not in left_out
            }
            counting.append(replace(measurement, classes=classes))
    return counting


def _load_plots(
    measurements: Sequence[Measurement], counting: Sequence[Measurement] | None = None
) -> list[Plot]:
    """Plots of every class: by quantile, then by second, then by worker.

    ``counting``: the runs behind the figures; None for all.
    """
    of = measurements if counting is None else counting
    return [*quantile_plots(of), *seconds_plots(measurements, of), *workers_plots(of)]


def _variant_texts(variants: Sequence[VariantText]) -> list[Text]:
    texts = []
    first = next((variant for variant in variants if variant.variant == "baseline"), None)
    for variant in variants:
        if first is None or variant is first or not variant.nginx_conf:
            continue
        lines = difflib.unified_diff(
            first.nginx_conf.splitlines(),
            variant.nginx_conf.splitlines(),
            "baseline",
            one_line(variant.variant),
            n=2,
            lineterm="",
        )
        title = f"What {one_line(variant.variant)} changes in the configuration"
        texts.append(Text(title, "\n".join(lines) or "nothing", is_diff=True))
    texts += [
        Text(f"nginx.conf of {one_line(variant.variant)}", variant.nginx_conf)
        for variant in variants
        if variant.nginx_conf
    ]
    return texts


def _measurement(found: Measurement) -> Section:
    title = f"Load measured {one_line(found.variant)}".rstrip()
    plots = _load_plots([found])
    return Section("measurement", title, measurement_screen(found), plots=plots)


def _findings(found: Findings) -> Section:
    tone = "bad" if any(finding.severity == "error" for finding in found.findings) else "plain"
    return Section("audit", "Audit", findings_screen(found), tone=tone)


def _plan(plan: Plan, here: Mapping[str, str] | None = None) -> Section:
    title, screen = f"Plan for {shown_path(plan.conf_path)}", plan_screen(plan, here)
    search = plan.proof
    if search is None:
        return Section("plan", title, screen)
    base = _verdict(search.against_today)
    drawn = (regret_plot(search), metrics_plot(search.against_today))
    plots: list[Plot] = [plot for plot in drawn if plot is not None]
    found = search_screen(search)
    tag = f"best: {one_line(search.name)}"
    return Section(
        "plan", title, [*found[:1], *screen, *found[1:]], tag, base.tone, base.figures, plots
    )


def _rehearsal(found: Rehearsal, kind: str = "rehearsal") -> Section:
    title = f"Rehearsal of {one_line(found.conf_path)}"
    return Section(kind, title, rehearsal_screen(found))


def _observation(found: Observation) -> Section:
    """The causes, then the turns of the loops and the work of the workers."""
    turns = found.server.loop_turn_seconds
    histogram = turns.histogram if turns is not None else ""
    drawn = (turns_plot(histogram), loop_plot(found.server.series))
    plots: list[Plot] = [plot for plot in drawn if plot is not None]
    title = f"nginx under its own traffic for {number_text(found.duration_seconds)} s"
    return Section("observation", title, observation_screen(found), plots=plots)


def _facts(facts: Facts) -> Section:
    """The host, with plots for each disk that was measured."""
    return Section("facts", "Host", facts_screen(facts), plots=disk_plots(facts.storage))


def _workload(workload: Workload) -> Section:
    """The traffic of a site."""
    return Section("workload", "Traffic of a site", workload_screen(workload))


def _decisions(decisions: Decisions) -> Section:
    """The switches to change, with the reasons."""
    return Section("decisions", "What helps this host", decisions_screen(decisions))


def _sizing(sizing: Sizing) -> Section:
    """The rates of hosts, with the miss ratio by memory and the latency by rate."""
    return Section(
        "size", "What this host carries", sizing_screen(sizing), plots=sizing_plots(sizing)
    )


_SECTIONS: dict[type[Document], Callable[[Any], Section]] = {
    KeptRun: _run,
    ScenarioRun: _scenario,
    Validation: _validation,
    Verdict: _verdict,
    Measurement: _measurement,
    Findings: _findings,
    Plan: _plan,
    Rehearsal: _rehearsal,
    Observation: _observation,
    Facts: _facts,
    Workload: _workload,
    Decisions: _decisions,
    Sizing: _sizing,
}
PAGE_KINDS: tuple[type[Document], ...] = tuple(_SECTIONS)
"""The documents that a page shows."""
