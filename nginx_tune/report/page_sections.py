"""A document as a section of a page: the answer, a few figures, plots, then what it stands on."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from nginx_tune.documents.base import Document
from nginx_tune.documents.findings import Findings
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.plan import Plan
from nginx_tune.documents.rehearsal import Rehearsal
from nginx_tune.documents.run import Run
from nginx_tune.documents.scenario import ArmText, ScenarioRun
from nginx_tune.documents.validation import Validation
from nginx_tune.documents.verdict import Verdict
from nginx_tune.errors import UsageError
from nginx_tune.prove.blocks import pair_blocks
from nginx_tune.prove.rounds import select_pairs
from nginx_tune.report.page_screens import findings_screen, measurement_screen, plan_screen
from nginx_tune.report.plot_quantiles import QuantilePlot, quantile_plots
from nginx_tune.report.plot_ratios import RatioPlot, metrics_plot, pairs_plot, predictions_plot
from nginx_tune.report.quantities import interval_text, metric_words, one_line, value_text
from nginx_tune.report.rehearsal import rehearsal_screen
from nginx_tune.report.runs import started_text
from nginx_tune.report.scenario import scenario_screen
from nginx_tune.report.screen import Screen
from nginx_tune.report.verdict import columns_of, verdict_screen

PAGE_KINDS: tuple[type[Document], ...] = (
    Run, ScenarioRun, Validation, Verdict, Measurement, Findings, Plan, Rehearsal,
)  # fmt: skip
"""The documents that a page shows."""

Plot = RatioPlot | QuantilePlot


@dataclass(frozen=True)
class Figure:
    """A number that is shown large."""

    name: str
    text: str
    value: float | None
    """As the document has it."""


@dataclass(frozen=True)
class Text:
    """What is folded away and shown letter by letter: a configuration, a difference."""

    title: str
    content: str
    is_diff: bool = False


@dataclass(frozen=True)
class Section:
    """A document on a page; the screen's first block is its answer."""

    kind: str
    title: str
    screen: Screen
    tag: str = ""
    """The outcome in a word or two, and whether that is good, bad or neither."""
    tone: str = "plain"
    figures: Sequence[Figure] = ()
    plots: Sequence[Plot] = ()
    texts: Sequence[Text] = ()


def section_of(document: Document) -> Section:
    """The section of a document of one of the ``PAGE_KINDS``.

    Errors: UsageError that names another kind.
    """
    if isinstance(document, Run):
        return _run(document)
    if isinstance(document, ScenarioRun):
        return _scenario(document, "scenario run")
    if isinstance(document, Validation):
        return _validation(document, "Two configurations under the same load", "validation")
    if isinstance(document, Verdict):
        return _verdict(document, "Two configurations under the same load", "verdict")
    if isinstance(document, Measurement):
        title = f"Load measured {one_line(document.arm)}".rstrip()
        plots = quantile_plots([document])
        return Section("measurement", title, measurement_screen(document), plots=plots)
    if isinstance(document, Findings):
        tone = "bad" if any(one.severity == "error" for one in document.findings) else "plain"
        return Section("audit", "Audit", findings_screen(document), tone=tone)
    if isinstance(document, Plan):
        return Section("plan", f"Plan for {one_line(document.conf_path)}", plan_screen(document))
    if isinstance(document, Rehearsal):
        title = f"Rehearsal of {one_line(document.conf_path)}"
        return Section("rehearsal", title, rehearsal_screen(document))
    name = type(document).__name__
    raise UsageError(f"a report shows no {name} document", hint=f"it shows {kinds_text()}")


def kinds_text() -> str:
    """The names of the documents that a page shows."""
    return ", ".join(str(kind.__struct_config__.tag).split("/")[1] for kind in PAGE_KINDS)


def _run(run: Run) -> Section:
    summary = run.summary
    when = f"{summary.kind} run {one_line(summary.id)}, {started_text(summary)} UTC"
    if isinstance(run.result, ScenarioRun):
        return _scenario(run.result, when)
    return _validation(run.result, one_line(summary.name), when)


def _scenario(run: ScenarioRun, kind: str) -> Section:
    said = _blocks_plots(run.verdict, run.measurements)
    predicted = predictions_plot(run.predictions)
    plots = [*said[:1], *([predicted] if predicted else []), *said[1:]]
    texts = _arm_texts(run.arms)
    base = _verdict(run.verdict, one_line(run.name), kind)
    return Section(
        kind, base.title, scenario_screen(run), base.tag, base.tone, base.figures, plots, texts
    )


def _validation(found: Validation, title: str, kind: str) -> Section:
    base = _verdict(found.verdict, title, kind)
    plots = _blocks_plots(found.verdict, found.measurements)
    texts = _arm_texts(found.arms)
    return Section(kind, title, base.screen, base.tag, base.tone, base.figures, plots, texts)


def _verdict(verdict: Verdict, title: str, kind: str) -> Section:
    tone = {"better": "good", "worse": "bad"}.get(verdict.outcome, "plain")
    plot = metrics_plot(verdict)
    return Section(
        kind,
        title,
        verdict_screen(verdict),
        verdict.outcome.replace("_", " "),
        tone,
        _figures(verdict),
        [plot] if plot else [],
    )


def _figures(verdict: Verdict) -> list[Figure]:
    primary = next((m for m in verdict.metrics if m.name == verdict.primary_metric), None)
    if primary is None:
        return []
    before, after = columns_of(primary)
    words = metric_words(primary.name)
    bounds = {arm: "≥ " if arm in primary.at_least else "" for arm in ("baseline", "candidate")}
    shown = [
        Figure(
            f"{words}, baseline",
            bounds["baseline"] + value_text(primary.name, before),
            before,
        ),
        Figure(
            f"{words}, candidate",
            bounds["candidate"] + value_text(primary.name, after),
            after,
        ),
    ]
    if primary.ratio is not None:
        ratio, _, interval = interval_text(primary).partition(" [")
        name = "candidate ÷ baseline" + (f", interval {interval.rstrip(']')}" if interval else "")
        shown.append(Figure(name, ratio, primary.ratio))
    return shown


def _blocks_plots(verdict: Verdict, measurements: Sequence[Measurement]) -> list[Plot]:
    """Of the two arms that the verdict compares; other arms have their curves too."""
    arms = len({one.arm for one in measurements})
    compared = select_pairs(measurements, max(arms, 1), against="baseline", arm="candidate")
    plots: list[Plot] = [plot for plot in [metrics_plot(verdict)] if plot]
    try:
        pairs = pairs_plot(verdict, pair_blocks(compared))
    except UsageError:
        pairs = None  # blocks that are no pairs, of a document that somebody wrote by hand
    return [*plots, *([pairs] if pairs else []), *quantile_plots(measurements)]


def _arm_texts(arms: Sequence[ArmText]) -> list[Text]:
    texts = []
    first = next((arm for arm in arms if arm.arm == "baseline"), None)
    for arm in arms:
        if first is None or arm is first or not arm.nginx_conf:
            continue
        lines = difflib.unified_diff(
            first.nginx_conf.splitlines(),
            arm.nginx_conf.splitlines(),
            "baseline",
            one_line(arm.arm),
            n=2,
            lineterm="",
        )
        title = f"What {one_line(arm.arm)} changes in the configuration"
        texts.append(Text(title, "\n".join(lines) or "nothing", is_diff=True))
    texts += [
        Text(f"nginx.conf of {one_line(arm.arm)}", arm.nginx_conf) for arm in arms if arm.nginx_conf
    ]
    return texts
