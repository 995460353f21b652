"""A search as text: the answer, the candidates by rank, the proof, and the cost."""

from collections.abc import Sequence

from nginx_tune.documents.plan import Search, SearchAnswer, SearchCandidate
from nginx_tune.documents.verdict import MetricVerdict, Outcome, Verdict
from nginx_tune.report.quantities import interval_text, metric_words, ratio_text
from nginx_tune.report.screen import Line, Screen, ScreenBlock, Table
from nginx_tune.report.text import number_text, one_line, percent_text, quoted, seconds_text
from nginx_tune.report.verdict import environment_block, particulars, verdict_sentence

_SAME = 1.005
"""A regret ratio below this is shown as 0 %."""


def candidate_text(name: str, changes: Sequence[str], reason: str) -> str:
    """A line on a candidate, printed before the run."""
    why = f" ({one_line(reason)})" if reason else ""
    return f"candidate {one_line(name)}: {' '.join(map(one_line, changes))}{why}"


def search_sentence(search: Search) -> str:
    """One sentence that can be quoted: the best configuration, and the certainty of this answer."""
    metric = metric_words(search.primary_metric)
    today = _primary(search.against_today)
    against = _ratio(today)
    if search.answer == "candidate":
        name = one_line(search.name)
        if search.against_recommended is None:
            return f"{name} is better than today's configuration: {metric} {against} of today's."
        other = _ratio(_primary(search.against_recommended))
        return (
            f"{name} is better than the recommendation and than today's configuration: {metric} "
            f"{other} of the recommendation's and {against} of today's, with new seeds."
        )
    if search.answer == "recommendation":
        rest = "no candidate is better beyond noise"
        return f"The recommendation is the best: {metric} {against} of today's; {rest}."
    if search.against_today.outcome == "invalid":
        return f"No answer: {one_line(search.against_today.reason)}."
    why = _LEFT[search.against_today.outcome]
    return f"Today's configuration stays: {why} ({metric} {against})."


_LEFT: dict[Outcome, str] = {
    "better": "a candidate is better than today's, but not better than the recommendation",
    "worse": "the best other candidate is worse",
    "no_difference": "the best other candidate does not differ from it",
    "inconclusive": "nothing was proved better within the time limit",
}


def search_screen(search: Search) -> Screen:
    """The answer, the candidates, the verdict against the current configuration, the cost."""
    return [
        [Line(search_sentence(search), "answer")],
        _candidates(search),
        _against_recommended(search),
        [Line(_SUBJECT[search.answer], "heading"), Line(verdict_sentence(search.against_today))],
        *particulars(search.against_today),
        _spent(search),
        environment_block(search.against_today),
    ]


_SUBJECT: dict[SearchAnswer, str] = {
    "candidate": "measured again with new seeds; the baseline is today's configuration",
    "recommendation": "the recommendation with new seeds; the baseline is today's configuration",
    "today": "candidates that may be better, with new seeds; the baseline is today's configuration",
}


def _candidates(search: Search) -> ScreenBlock:
    """The table; ratios of a few short runs rank the candidates and prove nothing."""
    reference = "recommended" if search.reference == "recommended" else "today's"
    rows = [("candidate", f"to {reference}", "regret", "runs", "what is different")]
    rows += [_row(candidate, search) for candidate in search.candidates]
    return [
        Line("short runs of all candidates, the best first", "heading"),
        Table(rows, right=(2, 3)),
        *(
            Line(f"{one_line(candidate.name)}: {quoted(candidate.reason)}", "note")
            for candidate in search.candidates
            if candidate.reason
        ),
    ]


def _row(one: SearchCandidate, search: Search) -> tuple[str, str, str, str, str]:
    mark = " (measured anew)" if one.confirmed else ""
    changes = " ".join(map(one_line, one.changes)) or "–"
    is_reference = one.name == search.reference
    ratio = "1×" if is_reference else ratio_with_interval(one)
    return f"{one_line(one.name)}{mark}", ratio, regret_text(one), str(one.rounds), changes


def ratio_with_interval(one: SearchCandidate) -> str:
    """``1.3× [1.1–1.6]``; only the ratio for a single round."""
    if one.low is None or one.high is None:
        return ratio_text(one.ratio)
    low, high = (ratio_text(end).removesuffix("×") for end in (one.low, one.high))
    return f"{ratio_text(one.ratio)} [{low}–{high}]"


def regret_text(one: SearchCandidate) -> str:
    """The gain of the best candidate over this one; ``–`` without a measurement."""
    if one.regret_ratio is None:
        return "–"
    return "0 %" if one.regret_ratio < _SAME else f"+{percent_text(one.regret_ratio - 1, 2)}"


def _against_recommended(search: Search) -> ScreenBlock:
    if search.against_recommended is None:
        return []
    name = next(
        (
            candidate.name
            for candidate in search.candidates
            if candidate.confirmed and candidate.changes
        ),
        "",
    )
    return [
        Line("measured again with new seeds; the baseline is the recommendation", "heading"),
        Line(f"{one_line(name)}: {verdict_sentence(search.against_recommended)}"),
    ]


def _spent(search: Search) -> ScreenBlock:
    most = f" of at most {seconds_text(search.most_seconds)}" if search.most_seconds else ""
    return [
        Line(
            f"spent: {number_text(search.runs)} runs in {seconds_text(search.seconds)}{most}, "
            f"the short ones of {seconds_text(search.short_seconds)}"
        )
    ]


def _primary(verdict: Verdict) -> MetricVerdict | None:
    return next(
        (metric for metric in verdict.metrics if metric.name == verdict.primary_metric), None
    )


def _ratio(metric: MetricVerdict | None) -> str:
    return "not measured" if metric is None else interval_text(metric)
