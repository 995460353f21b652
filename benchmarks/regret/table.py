"""The report of the regret benchmark, as Markdown. Pure: runs in, text out."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import matrix
import predicted
import scoring

from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.scenario import Scenario, ScenarioRun
from nginx_tune.measure.proof.latency import FEWEST_BEYOND
from nginx_tune.measure.proof.metrics import find_metric
from nginx_tune.measure.proof.runs import pair_runs, select_pairs

OTHERS = ("stock", "always-on", "form")
"""The candidates with which the recommended configuration is compared over all cells."""
NEXT_TO_NOTHING = 0.005
"""Shares below this have no relative error."""
_ANSWER_TIMES = ("mean", "p50", "p90", "p99", "p999")
FEWEST_FOR_TAIL = 100 * FEWEST_BEYOND
"""The fewest samples of each run for which its p99 is scored."""


class Cell(NamedTuple):
    """A cell as planned and as run."""

    name: str
    scenario: Scenario
    run: ScenarioRun


class Scored(NamedTuple):
    """A metric of a cell."""

    cell: Cell
    metric: str
    rounds: scoring.Rounds
    better: scoring.Better
    score: scoring.CellScore


def render(cells: Sequence[Cell], missing: Iterable[str] = ()) -> str:
    """The tables: regret, tails, candidates, predictions, and what could not be scored."""
    notes = [f"- {name}: not measured" for name in missing]
    first = _score_all(cells, {c.name: c.scenario.primary_metric for c in cells}, notes)
    tails = _score_all(cells, {c.name: tail for c in cells if (tail := _tail_of(c))}, notes)
    medians = _score_all(cells, {c.name: m for c in cells if (m := _median_of(c))}, notes)
    parts = [_regret_table(first), *_means(first)]
    if tails:
        parts += ["", "The 99th percentile, where every block has the samples for it:", ""]
        parts += [_regret_table(tails)]
    if medians:
        parts += ["", "The median, which what else the machine does disturbs least:", ""]
        parts += [_regret_table(medians)]
    parts += ["", _candidate_table(first), "", _prediction_table(cells)]
    return "\n".join([*parts, *(["", *notes] if notes else [])])


def is_clear(cell: Cell) -> bool:
    """True if the existing rounds suffice for the primary metric."""
    scored = _score_all([cell], {cell.name: cell.scenario.primary_metric}, [])
    return bool(scored) and all(scoring.is_clear(one.score) for one in scored)


def verdict_lines(cells: Sequence[Cell]) -> str:
    """For each cell, if the recommendation lost and the outcome of its predictions; then a sum."""
    notes: list[str] = []
    scored = _score_all(cells, {c.name: c.scenario.primary_metric for c in cells}, notes)
    judged = scoring.judge_cells([one.score for one in scored])
    outcomes = {j.score.cell: j for j in judged}
    lines, worse, near, inside, answered = [], 0, 0, 0, 0
    for cell in cells:
        told = [one.inside for one in predicted.compare_all(cell.run, cell.scenario)]
        told = [one for one in told if one is not None]
        inside, answered = inside + sum(told), answered + len(told)
        said = f"{sum(told)} of {len(told)} predictions inside"
        if cell.name not in outcomes:
            lines.append(f"- {cell.name}: not scored; {said}")
            continue
        one = outcomes[cell.name]
        s = one.score
        lost = s.stock_high < 1
        worse, near = worse + lost, near + scoring.is_within(s)
        lines.append(
            f"- {cell.name}: {'WORSE' if lost else 'not worse'} than stock "
            f"({s.against_stock:.2f} times as good, {s.stock_low:.2f} to {s.stock_high:.2f}); "
            f"regret {_share(s.regret)} ({one.outcome}); {said}"
        )
    lines.append(
        f"\n{len(scored)} cells: {worse} worse than stock beyond noise, {near} within "
        f"{scoring.TOLERATED_TEXT} of the best, {inside} of {answered} predictions inside."
    )
    return "\n".join(lines)


def rounds_of(measurements: Sequence[Measurement], metric: str) -> dict[str, list[float]]:
    """Each candidate's values, from rounds in which no flag discards a variant."""
    found = find_metric(metric)
    variants = sorted({block.variant for block in measurements})
    valid = _valid_rounds(measurements, variants)
    by_round: dict[int, dict[str, float]] = {}
    for block in measurements:
        value, number = found.read([block]).value, block.number // len(variants)
        if value is not None and value > 0 and number in valid:
            by_round.setdefault(number, {})[block.variant] = value
    whole = [values for _, values in sorted(by_round.items()) if len(values) == len(variants)]
    return {
        matrix.name_of_variant(variant): [values[variant] for values in whole]
        for variant in variants
    }


def _valid_rounds(measurements: Sequence[Measurement], variants: Sequence[str]) -> set[int]:
    first, *others = variants
    pairs = [
        pair_runs(select_pairs(measurements, len(variants), against=first, variant=variant)).pairs
        for variant in others
    ]
    return set.intersection(*({pair.index for pair in of_variant} for of_variant in pairs))


def _score_all(cells: Sequence[Cell], metrics: Mapping[str, str], notes: list[str]) -> list[Scored]:
    scored = []
    for cell in cells:
        metric = metrics.get(cell.name)
        if metric is None:
            continue
        rounds = rounds_of(cell.run.measurements, metric)
        count = len(rounds.get("stock", ()))
        if count < scoring.FEWEST_ROUNDS:
            notes.append(f"- {cell.name}: {metric} has {count} valid rounds, too few to score")
            continue
        better: scoring.Better = (
            "higher" if find_metric(metric).better_when == "higher" else "lower"
        )
        score = scoring.score_cell(cell.name, rounds, better, of_answers=is_answer_time(metric))
        scored.append(Scored(cell, metric, rounds, better, score))
    return scored


def is_answer_time(metric: str) -> bool:
    """True for a metric in seconds of an answer, whose regret has a floor."""
    return metric.rpartition(".")[2] in _ANSWER_TIMES and find_metric(metric).unit == "seconds"


def _tail_of(cell: Cell) -> str | None:
    name = cell.scenario.primary_metric.partition(".")[0]
    counts = [block.classes[name].response_seconds.count for block in cell.run.measurements]
    return f"{name}.p99" if counts and min(counts) >= FEWEST_FOR_TAIL else None


def _median_of(cell: Cell) -> str | None:
    name, _, statistic = cell.scenario.primary_metric.rpartition(".")
    return f"{name}.p50" if statistic == "mean" else None


def _regret_table(scored: Sequence[Scored]) -> str:
    lines = [
        "| cell | metric | regret | interval | verdict | best of each half | over stock | noise |",
        "|---|---|--:|--:|---|---|--:|--:|",
    ]
    judged = scoring.judge_cells([one.score for one in scored])
    for one, verdict in zip(scored, judged, strict=True):
        s = one.score
        lines.append(
            f"| {s.cell} | {one.metric} | {_share(s.regret)} | {_share(s.low)} to {_share(s.high)} "
            f"| {verdict.outcome} (p {verdict.p_adjusted:.2g}) "
            f"| {', '.join(dict.fromkeys(s.opponents))} "
            f"| {s.against_stock:.2f} ({s.stock_low:.2f} to {s.stock_high:.2f}) "
            f"| {s.noise_floor:.1%} |"
        )
    return "\n".join(lines)


def _share(value: float) -> str:
    text = f"{value:+.1%}"
    return "+0.0%" if text == "-0.0%" else text


def _means(scored: Sequence[Scored]) -> list[str]:
    pairs = [(one.rounds, one.better) for one in scored]
    if not pairs:
        return []
    means = [
        f"{scoring.geometric_mean_over(pairs, 'recommended', other):.2f} times {other}"
        for other in OTHERS
        if all(other in rounds for rounds, _ in pairs)
    ]
    return ["", f"Geometric mean of the recommended configuration: {', '.join(means)}."]


def _candidate_table(scored: Sequence[Scored]) -> str:
    lines = [
        "| cell | metric | candidate | median | times as good as stock |",
        "|---|---|---|--:|--:|",
    ]
    for one in scored:
        for name, values in one.rounds.items():
            ratio = scoring.ratio_of(one.rounds, one.better, name, "stock")
            shown = "" if name == "stock" else f"{ratio[0]:.2f} ({ratio[1]:.2f} to {ratio[2]:.2f})"
            marked = f"**{name}**" if name == "recommended" else name
            lines.append(
                f"| {one.cell.name} | {one.metric} | {marked} "
                f"| {_quantity(one.metric, sorted(values)[len(values) // 2])} | {shown} |"
            )
    return "\n".join(lines)


def _quantity(metric: str, value: float) -> str:
    unit = find_metric(metric).unit
    return f"{1e3 * value:.3g} ms" if unit == "seconds" else f"{value:.4g}"


def _prediction_table(cells: Sequence[Cell]) -> str:
    lines = [
        "| cell | hits predicted | measured | off by | blocked predicted | measured | off by |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for cell in cells:
        hits = predicted.compare_hits(cell.run, cell.scenario)
        blocked = predicted.compare_blocked(cell.run, cell.scenario)
        lines.append(f"| {cell.name} | {_beside(hits)} | {_beside(blocked)} |")
    return "\n".join(lines)


def _beside(one: predicted.Compared) -> str:
    expected = "" if one.predicted is None else f"{one.predicted:.3f}"
    if one.low is not None and one.high is not None:
        expected += f" ({one.low:.3f} to {one.high:.3f})"
    measured = "" if one.measured is None else f"{one.measured:.3f}"
    nothing = max(one.predicted or 0.0, one.measured or 0.0) < NEXT_TO_NOTHING
    error = "" if one.error is None or nothing else f"{one.error:+.0%}"
    return f"{expected} | {measured} | {error}"
