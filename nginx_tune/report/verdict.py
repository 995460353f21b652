"""A verdict as text: a sentence to quote, the gates, a table, the circumstances."""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Literal

from nginx_tune.documents.measurement import Capacity
from nginx_tune.documents.units import plural
from nginx_tune.documents.verdict import LOADED, Environment, GateResult, MetricVerdict, Verdict
from nginx_tune.measure.proof.comparison import COST, TOO_FEW
from nginx_tune.measure.proof.statistics import fewest_pairs
from nginx_tune.measure.proof.verdict import FEWEST_FIRST
from nginx_tune.report.measurement_parts import variants_text
from nginx_tune.report.quantities import (
    interval_text,
    measured_text,
    metric_words,
    ratio_text,
    value_text,
)
from nginx_tune.report.screen import Line, Screen, ScreenBlock, ScreenPart, Table
from nginx_tune.report.text import number_text, one_line, percent_text, weaker_sandbox_text


def verdict_sentence(verdict: Verdict) -> str:
    """One sentence to quote: the effect of the candidate on the deciding metrics."""
    return f"{_claim(verdict)}{_gate_words(verdict.gates)}."


def settles_text(metric: MetricVerdict) -> str:
    """The number of pairs that would settle a metric, as text; empty if not known."""
    needed = metric.pairs_needed
    if not needed:
        return ""
    if needed <= metric.pairs:  # the estimate is too low: so many pairs were run
        return "a few more pairs may settle it"
    return f"about {needed} pairs would settle it"


def _claim(verdict: Verdict) -> str:
    if verdict.lost:
        return f"The candidate no longer serves what the baseline does ({_lost(verdict)}): worse"
    primary = next((m for m in verdict.metrics if m.name == verdict.primary_metric), None)
    if verdict.outcome == "invalid" or primary is None:
        return f"No verdict: {one_line(verdict.reason) or 'nothing was measured'}"
    cost = next((m for m in verdict.metrics if m.name == COST and m is not primary), None)
    basis = f"({_basis(primary)})"
    said = f"{_against(primary)} {basis}"
    if verdict.outcome == "inconclusive":
        return f"Not settled: {said}{_unsettled(verdict, primary, cost)}"
    if verdict.outcome == "no_difference":
        if primary.ratio is None:
            return f"With the candidate, {said}: no difference"
        return (
            f"With the candidate, {metric_words(primary.name)} does not differ from the "
            f"baseline's: {interval_text(primary)} {basis}"
        )
    claim = f"With the candidate, {said}"
    if verdict.outcome == "worse" and primary.outcome != "worse":
        why = _worse(verdict) or one_line(verdict.reason)
        if primary.outcome in {"better", "no_difference"}:
            return f"{claim}, but it is worse: {why}"
        return f"The candidate is worse: {why}; {said}"
    if verdict.outcome == "better" and primary.outcome != "better" and cost is not None:
        return f"{claim}, and {_against(cost)}: better"
    return f"{claim}: {verdict.outcome}"


def _lost(verdict: Verdict) -> str:
    more = len(verdict.lost) - 1
    return one_line(verdict.lost[0]) + (f", and {more} more" if more else "")


def _against(metric: MetricVerdict) -> str:
    """``hot requests/s is 231× [228–240] the baseline's``; if there is no ratio, both values."""
    words = metric_words(metric.name)
    if metric.ratio is not None:
        return f"{words} is {interval_text(metric)} the baseline's"
    values = [value_text(metric.name, value) for value in (metric.candidate, metric.baseline)]
    return f"{words} is {values[0]} against the baseline's {values[1]}"


def _unsettled(verdict: Verdict, primary: MetricVerdict, cost: MetricVerdict | None) -> str:
    """The metric that is undecided, and the reason."""
    fewest = _fewest(verdict)
    if primary.outcome == "inconclusive" and 0 < primary.pairs < fewest:
        return f": too few for an outcome, {fewest} are needed"
    if primary.outcome == "inconclusive":
        parts = [one_line(primary.reason), settles_text(primary)]
        return "".join(f"; {part}" if i else f", {part}" for i, part in enumerate(parts) if part)
    if cost is None:
        return f", {one_line(verdict.reason)}" if verdict.reason else ""
    parts = [_against(cost), one_line(cost.reason), settles_text(cost)]
    return ", but " + "; ".join(part for part in parts if part)


def _fewest(verdict: Verdict) -> int:
    """Minimum number of pairs for an outcome.

    An interim analysis, which may spend only a part of the 5 %, needs more.
    """
    return fewest_pairs() if verdict.stopped == "pairs" else FEWEST_FIRST


def _worse(verdict: Verdict) -> str:
    """The metrics that make the candidate worse; empty if something else does, such as failures."""
    named = {part.partition(": ")[0] for part in verdict.reason.split("; ")}
    return "; ".join(_against(metric) for metric in verdict.metrics if metric.name in named)


def _basis(metric: MetricVerdict) -> str:
    pairs = plural(metric.pairs, "pair")
    return pairs if metric.level is None else f"{pairs}, {percent_text(metric.level, 2)} interval"


def _gate_words(gates: list[GateResult]) -> str:
    passed = sum(gate.passed for gate in gates)
    if not gates:
        return ""
    if passed == len(gates):
        return "; the gate holds" if passed == 1 else f"; all {passed} gates hold"
    return f"; {len(gates) - passed} of {len(gates)} gates failed"


_MOST_ALIKE = 8
"""Maximum number of rows for metrics that do not differ; if there are more, the metrics are only
named."""
_MOST_PAIRS = 100
"""The largest value of ``validate --pairs``."""
_MINUTE = 60.0
_STOPPED = {"settled": "it was settled", "time": "time was up", "interrupted": "interrupted"}


def _loaded(environment: Environment) -> ScreenBlock:
    """The line on the root whose files are requested."""
    said = [text for text in environment.differences if text.startswith(LOADED)]
    return [Line(one_line(text)) for text in said[:1]]


def verdict_screen(verdict: Verdict, command: str = "nginx-tune validate …") -> Screen:
    """The answer in a sentence, the deciding metrics, their basis, and the circumstances.

    ``command``: the command that would measure again, without the number of pairs.
    """
    return [
        [
            Line(verdict_sentence(verdict), "answer"),
            *_way_out(verdict, command),
            *_loaded(verdict.environment),
        ],
        _builds(verdict),
        *particulars(verdict),
        environment_block(verdict),
    ]


def _way_out(verdict: Verdict, command: str) -> ScreenBlock:
    """The line on how to settle an undecided verdict; empty for any other verdict."""
    primary = next((m for m in verdict.metrics if m.name == verdict.primary_metric), None)
    if verdict.outcome != "inconclusive" or primary is None or primary.outcome != "inconclusive":
        return []
    accept = "--accept-inconclusive accepts it as it is"
    needed, ran, fewest = primary.pairs_needed, max(primary.pairs, 1), _fewest(verdict)
    if primary.pairs < fewest:
        needed = fewest  # so few pairs show no spread to go by
    if needed is None:
        return [Line(f"Next: no number of pairs is sure to settle it on this host; {accept}.")]
    if needed > _MOST_PAIRS:
        said = f"{needed} pairs are out of reach ({ran} were run): measure on a quieter host"
        return [Line(f"Next: {said}; {accept}.")]
    way = f"--pairs {needed}"
    if verdict.stopped == "time":
        each = verdict.seconds_per_pair
        way = f"--max-time {math.ceil(needed / ran)} times as long"
        if each is not None:
            # One pair more than needed: set-up takes time too, and pairs may be discarded.
            way = f"--max-time {math.ceil((needed + 1) * each / _MINUTE)}min"
    return [Line(f"Next ({accept}): {one_line(command)} {way}")]


def _builds(verdict: Verdict) -> ScreenBlock:
    """A block on the differences between the two programs, shown before their results."""
    lines = [one_line(line) for line in verdict.environment.build_differences]
    return [Line(f"two builds: {line}") for line in lines[:1]] + [
        Line(line, indent=2) for line in lines[1:]
    ]


def particulars(verdict: Verdict) -> Screen:
    """The deciding metrics, then their basis, without the sentence and the circumstances."""
    return [
        [Line(f"no longer served: {one_line(address)}", "warning") for address in verdict.lost],
        gates_block(verdict.gates),
        _capacities(verdict),
        _metrics(verdict),
        [
            Line(f"warning: {one_line(warning)}", "note" if _is_usual(warning) else "warning")
            for warning in verdict.warnings
        ],
    ]


_OF_RUNS = re.compile(r" \((?:baseline|candidate): \d+ of \d+ runs.*\)$")
_OF_HOST = ("processes other than the probe", "the hypervisor", "a control group")


def _is_usual(warning: str) -> bool:
    """True for a doubt about some runs, unless other work on the host caused it."""
    return _OF_RUNS.search(warning) is not None and not warning.startswith(_OF_HOST)


def environment_block(verdict: Verdict) -> ScreenBlock:
    """The place of the measurement, deviations from the configuration, the reason for the end."""
    return [*_environment(verdict.environment), *_looks(verdict)]


def _looks(verdict: Verdict) -> ScreenBlock:
    if verdict.stopped == "pairs":
        return []
    if verdict.stopped == "interrupted" and verdict.looks == 1:
        said = "interrupted: judged by the pairs so far, as at the first of several checks"
        return [Line(said, indent=2)]
    why = _STOPPED[verdict.stopped]
    times = "once" if verdict.looks == 1 else f"{verdict.looks} times"
    said = (
        f"{why}; the pairs were judged {times}, with a risk of at most 5 % that any claim is wrong"
    )
    return [Line(said, indent=2)]


def _capacities(verdict: Verdict) -> ScreenBlock:
    """The capacities, as ``hot.p99 <= 50ms: 310/s → 2,900/s``.

    If something other than nginx limited the load, it is named.
    """
    if not verdict.capacities:
        return []
    found = verdict.capacities
    first = next(iter(found.values()))
    objective = " and ".join(one_line(text) for text in first.objectives)
    lines = [Line(f"{objective}: " + " → ".join(map(_capacity_text, found.values())))]
    lines += [
        Line(f"{one_line(variant)}: {one_line(capacity.reason)}", indent=2)
        for variant, capacity in found.items()
        if capacity.reason
    ]
    return lines


def _capacity_text(capacity: Capacity) -> str:
    if capacity.capacity_per_second is not None:
        return f"{number_text(capacity.capacity_per_second)}/s"
    if capacity.at_least_per_second is not None:
        limit = " (the probe was the limit)" if capacity.limited_by == "probe" else ""
        return f"at least {number_text(capacity.at_least_per_second)}/s{limit}"
    return "unknown"


_OF_DATA = {
    "cold": "nothing in memory at the start",
    "warm": "all data in memory at the start",
    "full": "memory full of data at the start",
}


_TOLD = ("not loaded: ", "accepted: ", "the sandbox refused ", "error_log ")
"""First words of notes on what was not looked at, which are never folded away."""


def _lab_text(environment: Environment) -> str:
    if environment.lab == "none":
        return ""
    started = f" ({_OF_DATA[environment.starts]})" if environment.starts else ""
    return f"lab {environment.lab}{started}"


def _environment(environment: Environment) -> ScreenBlock:
    said = [
        f"nginx {environment.nginx_version}" if environment.nginx_version else "",
        f"kernel {environment.kernel_release}" if environment.kernel_release else "",
        _lab_text(environment),
        plural(environment.pairs, "pair"),
        f"{environment.discarded_pairs} discarded" if environment.discarded_pairs else "",
        f"seed {environment.seed}",
    ]
    lines = [Line(", ".join(one_line(part) for part in said if part))]
    if environment.nginx_choice:
        lines.append(Line(one_line(environment.nginx_choice), indent=2))
    if environment.weaker_sandbox:
        lines.append(Line(one_line(weaker_sandbox_text(environment.weaker_sandbox)), indent=2))
    lines += [Line(variants_text(environment.tls), indent=2)] if environment.tls else []
    lines += [
        Line(
            f"note: {one_line(difference)}",
            "text" if difference.startswith(_TOLD) else "note",
            indent=2,
        )
        for difference in environment.differences
        if not difference.startswith(LOADED)
    ]
    return lines


def _metrics(verdict: Verdict) -> ScreenBlock:
    """A table of the deciding metrics; below it, the names of metrics without an outcome."""
    if not verdict.metrics:
        return []
    few = _too_few(verdict)
    idle = [metric for metric in verdict.metrics if _is_idle(metric, verdict)]
    gates = " ".join(gate.expression for gate in verdict.gates)
    others = [
        metric
        for metric in verdict.metrics
        if metric not in idle and metric.name != verdict.primary_metric and metric.name not in gates
    ]
    unmeasured = [
        metric for metric in others if metric.baseline is None and metric.candidate is None
    ]
    alike = [
        metric for metric in others if metric.outcome == "no_difference" and metric.name != COST
    ]
    folded = {
        "not measured": unmeasured,
        "no outcome": [
            metric
            for metric in others
            if metric.outcome == "inconclusive" and not few and metric not in unmeasured
        ],
        "no difference": alike if len(alike) > _MOST_ALIKE else [],
    }
    left_out = [*idle, *(metric for found in folded.values() for metric in found)]
    block: list[ScreenPart] = [
        *_table([metric for metric in verdict.metrics if metric not in left_out], verdict, few)
    ]
    for what, found in folded.items():
        if found:
            names = ", ".join(one_line(metric.name) for metric in found)
            more = "why" if what == "not measured" else "figures"
            block.append(Line(f"{what}: {names} ({more}: -v)", "text", 2, over_details=f"{what}:"))
            block += _table(found, verdict, few, is_detail=True)
    if idle:
        names = ", ".join(one_line(metric.name) for metric in idle)
        block.append(Line(f"zero in both: {names}", "note", indent=2))
    return [*block, *([Line(few, indent=2)] if few else [])]


def _table(
    metrics: Sequence[MetricVerdict], verdict: Verdict, few: str, *, is_detail: bool = False
) -> Iterator[Table]:
    """The metrics as rows, and their notes below."""
    notes: dict[str, int] = {}
    rows = [("metric", "baseline", "candidate", "ratio", "" if few else "outcome")]
    for metric in metrics:
        note = _note(metric, few)
        if metric.name == verdict.primary_metric and note in verdict_sentence(verdict):
            note = ""
        mark = f" [{notes.setdefault(note, len(notes) + 1)}]" if note else ""
        primary = " (primary)" if metric.name == verdict.primary_metric else ""
        before, after = columns_of(metric)
        rows.append(
            (
                one_line(metric.name) + primary,
                _bound("baseline", metric) + value_text(metric.name, before),
                _bound("candidate", metric) + value_text(metric.name, after),
                interval_text(metric),
                ("" if few else _outcome(metric, verdict)) + mark,
            )
        )
    yield Table(rows, right=(1, 2), is_detail=is_detail)
    if notes:
        numbered = [(f"[{number}]", note) for note, number in notes.items()]
        yield Table(numbered, indent=2, has_head=False, is_detail=is_detail)


def columns_of(metric: MetricVerdict) -> tuple[float | None, float | None]:
    """The values of both variants in the table: the middle of their runs, as for the ratio.

    Without a ratio of pairs, the values of all runs together.
    """
    if metric.baseline_middle is None or metric.candidate_middle is None:
        return metric.baseline, metric.candidate
    return metric.baseline_middle, metric.candidate_middle


def _bound(variant: Literal["baseline", "candidate"], metric: MetricVerdict) -> str:
    """``≥`` before a number that is a lower bound; empty for any other."""
    return "≥ " if variant in metric.at_least else ""


def _outcome(metric: MetricVerdict, verdict: Verdict) -> str:
    if not metric.judged:
        return "not judged"
    accepted = metric.outcome == "worse" and metric.name in verdict.accept_worse
    return metric.outcome.replace("_", " ") + (" (accepted)" if accepted else "")


def _is_idle(metric: MetricVerdict, verdict: Verdict) -> bool:
    """True for a count that is zero for both variants and needs no row."""
    return (
        metric.baseline == 0
        and metric.candidate == 0
        and metric.outcome in ("no_difference", "inconclusive")
        and metric.name != verdict.primary_metric
    )


def _too_few(verdict: Verdict) -> str:
    """A note if there are too few pairs for any outcome; otherwise empty."""
    counts = {metric.pairs for metric in verdict.metrics if metric.pairs}
    told = [metric for metric in verdict.metrics if TOO_FEW in metric.reason]
    if len(counts) != 1 or not told or any(m.outcome != "inconclusive" for m in verdict.metrics):
        return ""
    return (
        f"{one_line(told[0].reason)} for an outcome of any metric; gates and claims are judged by "
        "the figures alone"
    )


def _note(metric: MetricVerdict, few: str) -> str:
    said = [_by_seconds(metric)]
    if metric.outcome != "no_difference" and not (few and TOO_FEW in metric.reason):
        said = [one_line(metric.reason), "" if few else settles_text(metric), *said]
    return "; ".join(part for part in said if part)


def _by_seconds(metric: MetricVerdict) -> str:
    check = metric.by_seconds
    if check is None or check.agrees:
        return ""
    low, high = ratio_text(check.low), ratio_text(check.high)
    return f"the seconds within the runs do not confirm that: {low} to {high}"


def gates_block(gates: list[GateResult]) -> ScreenBlock:
    """Each gate with its measured value; empty without gates."""
    rows = [
        (
            "pass" if gate.passed else "FAIL",
            one_line(gate.expression),
            measured_text(gate.expression, gate.measured),
            one_line(gate.reason),
        )
        for gate in gates
    ]
    return [Line("gates", "heading"), Table(rows, indent=2, has_head=False)] if rows else []
