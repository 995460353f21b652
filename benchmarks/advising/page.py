"""The page: a table of all cells, and the details of each advice."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from advising.book import Advice, Book, Lab, directives
from nginx_tune.documents.verdict import MetricVerdict, Verdict
from nginx_tune.report.quantities import ratio_text, value_text

WORDS = {
    "better": "better",
    "worse": "**worse**",
    "no_difference": "no difference",
    "inconclusive": "not settled",
    "invalid": "not valid",
}
CONTROL = "nothing"
"""The advice without any change, as a control."""
_SHOWN_BESIDE = 2
_GREAT = 1.25
"""The factor of a great gain: the texts promise more, and nobody would copy advice for less."""
_TEMPLATE = Path(__file__).with_name("page.md")


@dataclass(frozen=True)
class Cell:
    """An advice in a lab: the command, and its verdict if it has run."""

    advice: Advice
    lab: Lab
    command: list[str]
    verdict: Verdict | None = None
    measured: datetime | None = None


def page(book: Book, cells: list[Cell]) -> str:
    """The whole page in Markdown."""
    dates = [cell.measured for cell in cells if cell.measured is not None]
    return _TEMPLATE.read_text().format(
        date=min(dates).date().isoformat() if dates else "never",
        machine=_machine(cells),
        counts=_counts(cells),
        labs="\n".join(
            f"- **{lab.title}**: {lab.data} (`{lab.file}`); `{lab.primary}` decides"
            for lab in book.labs
        ),
        head=" | ".join(lab.title for lab in book.labs),
        rule="|".join(["---"] * (len(book.labs) + 1)),
        rows="\n".join(_row(advice, cells) for advice in book.advice),
        command=" ".join(cells[-1].command),
        sections="\n".join(_section(advice) for advice in book.advice),
        sources="\n".join(
            f"- **{name}**: [{one.title}]({one.link})" for name, one in book.sources.items()
        ),
    )


def summary(cell: Cell) -> str:
    """The outcome, the metric that decides, and other metrics that clearly differ."""
    verdict = cell.verdict
    if verdict is None:
        return "–"
    primary = next(one for one in verdict.metrics if one.name == verdict.primary_metric)
    clear = [one for one in verdict.metrics if one.outcome in {"better", "worse"}]
    beside = [one for one in clear if one is not primary]
    # The deciding metric comes first: the primary one, or one that made the candidate worse anyway.
    beside.sort(key=lambda one: one.outcome != verdict.outcome)
    texts = [f"*{one.name} {_figure(one)}*" for one in beside[:_SHOWN_BESIDE]]
    if primary.outcome == verdict.outcome or not texts:
        texts.insert(0, _figure(primary))
    else:
        texts.insert(1, f"*{primary.name} {_figure(primary)}*")
    return f"{WORDS[verdict.outcome]}{_ruled_out(verdict)}: " + "<br>".join(texts)


def _ruled_out(verdict: Verdict) -> str:
    """A note on an effect that is not known to a twentieth but is certainly not great."""
    if verdict.outcome != "inconclusive":
        return ""
    if not _is_no_great(verdict, gain=True):
        return ""
    if _is_no_great(verdict, gain=False):
        return ", less than a quarter either way"
    return ", no gain of a quarter"


def _is_no_great(verdict: Verdict, *, gain: bool) -> bool:
    """True if the deciding metric's interval ends before a great gain, or before a great loss."""
    primary = next(one for one in verdict.metrics if one.name == verdict.primary_metric)
    if primary.low is None or primary.high is None:
        return False
    if gain is (primary.better_when == "higher"):
        return primary.high < _GREAT
    return primary.low > 1 / _GREAT


def _figure(metric: MetricVerdict) -> str:
    if metric.ratio is None:
        variants = (metric.baseline, metric.candidate)
        return " → ".join(value_text(metric.name, value) for value in variants)
    text = f"{ratio_text(metric.ratio)}"
    if metric.low is not None and metric.high is not None:
        text += f" [{ratio_text(metric.low)}–{ratio_text(metric.high)}]"
    return text.replace("×", "") + " ×"


def _row(advice: Advice, cells: list[Cell]) -> str:
    own = " | ".join(summary(cell) for cell in cells if cell.advice is advice)
    return f"| [{advice.name}](#{advice.name}) | {own} |"


def _counts(cells: list[Cell]) -> str:
    outcomes: list[str] = [
        cell.verdict.outcome
        for cell in cells
        if cell.verdict is not None and cell.advice.name != CONTROL
    ]
    said = {"better": "better", "no_difference": "without a difference", "worse": "worse"}
    parts = [f"{outcomes.count(name)} {word}" for name, word in said.items()]
    unsettled = sum(outcome not in said for outcome in outcomes)
    text = f"Of {len(outcomes)} cells {', '.join(parts)}, {unsettled} not settled."
    no_gain = sum(
        _is_no_great(cell.verdict, gain=True)
        for cell in cells
        if cell.verdict is not None
        and cell.verdict.outcome == "inconclusive"
        and cell.advice.name != CONTROL
    )
    if no_gain:
        text += f" In {no_gain} of these a gain of a quarter, or a greater one, is ruled out."
    missing = sum(cell.verdict is None for cell in cells)
    return f"{text} {missing} cells (–) were not measured." if missing else text


def _section(advice: Advice) -> str:
    who = ", ".join(advice.sources)
    parts = [f"### {advice.name}", advice.said + (f" ({who})" if who else "")]
    changed = [
        f"{line};"
        for text in (advice.with_.main, advice.with_.events, advice.with_.http)
        for line in directives(text)
    ]
    if advice.with_.listen:
        changed.append(f"listen 80 {advice.with_.listen};")
    if changed:
        parts.append("```nginx\n" + "\n".join(changed) + "\n```")
    if advice.connections == "new":
        parts.append("Each request brings a new connection, with and without it.")
    if advice.reading:
        parts.append(advice.reading)
    return "\n\n".join(parts) + "\n"


def _machine(cells: list[Cell]) -> str:
    for cell in cells:
        if cell.verdict is not None:
            there = cell.verdict.environment
            return f"nginx {there.nginx_version}, kernel {there.kernel_release}"
    return "no machine"
