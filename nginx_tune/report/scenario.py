"""``scenario_run`` for people: the source's figures and the prediction beside ours, the verdict."""

from __future__ import annotations

from functools import partial

from nginx_tune.documents.decisions import Predicted
from nginx_tune.documents.scenario import ArmCause, ClaimResult, PredictionResult, ScenarioRun
from nginx_tune.report.quantities import measured_text, one_line, predicted_text
from nginx_tune.report.scenario_page import expected_text
from nginx_tune.report.screen import Block, Line, Part, Screen, Table, plain_text
from nginx_tune.report.verdict import environment_block, particulars, verdict_sentence

_SILENT = ("keep", "not_applicable", "not_enough_evidence")
"""Verdicts that predict nothing."""


def render_scenario_run(run: ScenarioRun) -> str:
    """The run as text; its first line can be quoted, the claims come next."""
    return plain_text(scenario_screen(run))


def scenario_screen(run: ScenarioRun) -> Screen:
    """The sentence, the claims, the predictions, then the verdict and what it stands on."""
    return [
        [Line(scenario_sentence(run), "answer")],
        _claims(run.claims, judged=is_judged(run)),
        *_predictions(run),
        [
            Line(f"{one_line(arm.arm)} left out: {one_line(arm.left_out)}", "warning")
            for arm in run.arms
            if arm.left_out
        ],
        *particulars(run.verdict),
        _causes(run.causes),
        environment_block(run.verdict),
    ]


def scenario_sentence(run: ScenarioRun) -> str:
    """One sentence that can be quoted: the verdict, and how many of the source's claims held."""
    shown = [claim for claim in run.claims if not claim.left_out]
    held = sum(claim.held for claim in shown)
    if not shown:
        return verdict_sentence(run.verdict)
    if not is_judged(run):
        claims = f"interrupted: {_count(len(shown), 'claim')} not judged"
        return f"{one_line(run.name)}: {claims}. {verdict_sentence(run.verdict)}"
    if held == len(shown):
        claims = f"all {held} claims hold" if held > 1 else "the claim holds"
    else:
        claims = f"{held} of {len(shown)} claims hold"
    if len(shown) < len(run.claims):
        claims += f", {len(run.claims) - len(shown)} could not be tried here"
    predicted = f"; {outside}" if (outside := count_outside(run)) else ""
    return f"{one_line(run.name)}: {claims}{predicted}. {verdict_sentence(run.verdict)}"


def is_judged(run: ScenarioRun) -> bool:
    """Whether there was anything to judge: not where it was interrupted before its first pair."""
    return run.verdict.stopped != "interrupted" or run.verdict.environment.pairs > 0


def count_outside(run: ScenarioRun) -> str:
    """``2 of 5 predictions lie outside their range``; empty where none was judged."""
    judged = [one for one in run.predictions if one.inside is not None]
    outside = sum(not one.inside for one in judged)
    if not judged:
        return ""
    if outside:
        return f"{outside} of {_count(len(judged), 'prediction')} outside the stated range"
    return f"{_count(len(judged), 'prediction')} inside the stated range"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _predictions(run: ScenarioRun) -> Screen:
    """What was decided before the run, and each number of it beside source and measurement."""
    shown = [one for one in run.predictions if one.measured is not None]
    held = {(one.decision, one.metric) for one in shown}
    decided: list[Part] = []
    for decision in run.prediction.decisions:
        if decision.predicted or decision.verdict not in _SILENT:
            said = f"{decision.id}: {decision.verdict} – {one_line(decision.summary)}"
            decided.append(Line(said, indent=2))
        rest = [one for one in decision.predicted if (decision.id, one.metric) not in held]
        if rest:
            said = f"not measured: {'; '.join(map(_predicted, rest))}"
            decided.append(Line(said, indent=4))
    head = ("predicted", "expected (range)", "source's figure", "measured", "")
    rows = [head, *(_prediction_row(one) for one in shown)]
    table = [Table(rows, indent=2)] if shown else []
    heading = Line("predicted before the run", "heading")
    if decided:
        return [[heading, *decided], table]
    return [[heading, *table]] if table else []


def _predicted(one: Predicted) -> str:
    low, expected, high = (
        one_line(predicted_text(one.metric, value, one.unit))
        for value in (one.low, one.expected, one.high)
    )
    return f"{one_line(one.metric)} = {expected} ({_span(low, high)})"


def _span(low: str, high: str) -> str:
    return f"{low} – {high}" if " " in low + high else f"{low}–{high}"


def _prediction_row(one: PredictionResult) -> tuple[str, str, str, str, str]:
    text = partial(predicted_text, one.metric)
    place = "" if one.arm == "candidate" else f"{one_line(one.arm)}: "
    low, high = (text(value).removesuffix("×") for value in (one.low, one.high))
    measured = text(one.measured or 0.0)
    if one.measured_low is not None and one.measured_high is not None:
        bounds = (one.measured_low, one.measured_high)
        measured += f" [{_span(*(text(v).removesuffix('×') for v in bounds))}]"
    return (
        place + one_line(one.metric),
        f"{text(one.expected)} ({_span(low, high)})",
        one_line(one.source_figure) or "–",
        measured,
        "inside" if one.inside else "OUTSIDE",
    )


def _causes(causes: list[ArmCause]) -> Block:
    """What the server showed in each arm; of what is not known the document tells."""
    lines: list[Line] = []
    quiet = []
    for one in causes:
        if one.cause.id == "not-enough-evidence":
            continue
        if one.cause.id == "nothing-found":
            quiet.append(one_line(one.arm))
            continue
        seen = f"{one.blocks} of {one.of_blocks} blocks"
        lines.append(Line(f"{one_line(one.arm)}: {one.cause.id} ({seen})", indent=2))
        lines.append(Line(one_line(one.cause.summary), indent=4))
    if quiet:
        lines.append(Line(f"nothing found: {', '.join(quiet)}", indent=2))
    return [Line("what the server showed", "heading"), *lines] if lines else []


def _held(claim: ClaimResult) -> str:
    if claim.left_out:
        return "not tried"
    word = "held" if claim.held else "NOT HELD"
    agreed = claim.rounds_held if claim.held else claim.rounds - claim.rounds_held
    return word if agreed == claim.rounds else f"{word}; held in {_of(claim)} rounds"


def _of(claim: ClaimResult) -> str:
    return f"{claim.rounds_held} of {claim.rounds}"


def _claims(claims: list[ClaimResult], *, judged: bool) -> Block:
    if not claims:
        return []
    rows = [("source", "claim", "expected", "source's figure", "measured", "")]
    for claim in claims:
        measured = measured_text(claim.expected, claim.measured)
        if claim.measured is None and claim.reason:
            measured = one_line(claim.reason)
        rows.append(
            (
                one_line(claim.source_row) or "–",
                one_line(claim.name),
                expected_text(claim),
                one_line(claim.source_figure) or "–",
                measured,
                _held(claim) if judged else "not judged",
            )
        )
    return [Line("claims", "heading"), Table(rows, indent=2)]
