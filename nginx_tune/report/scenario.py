"""``scenario_run`` for people: the prediction, the source's figures beside ours, the verdict."""

from __future__ import annotations

from nginx_tune.documents.decisions import Decision, Decisions
from nginx_tune.documents.scenario import ArmCause, ClaimResult, ScenarioRun
from nginx_tune.report.columns import align
from nginx_tune.report.quantities import measured_text, one_line
from nginx_tune.report.scenario_page import expected_text
from nginx_tune.report.text import number_text
from nginx_tune.report.verdict import render_verdict, verdict_sentence

_SILENT = ("keep", "not_applicable", "not_enough_evidence")
"""Verdicts that predict nothing."""


def render_scenario_run(run: ScenarioRun) -> str:
    """The run as text; its last line can be quoted."""
    body = render_verdict(run.verdict).removesuffix(verdict_sentence(run.verdict) + "\n")
    parts = [
        f"scenario {one_line(run.name)}\n",
        "".join(
            f"{one_line(arm.arm)} left out: {one_line(arm.left_out)}\n"
            for arm in run.arms
            if arm.left_out
        ),
        _prediction(run.prediction),
        body.rstrip("\n") + "\n",
        _causes(run.causes),
        _claims(run.claims),
        scenario_sentence(run) + "\n",
    ]
    return "\n".join(part for part in parts if part)


def scenario_sentence(run: ScenarioRun) -> str:
    """One sentence that can be quoted: the verdict, and how many of the source's claims held."""
    shown = [claim for claim in run.claims if not claim.left_out]
    held = sum(claim.held for claim in shown)
    if not shown:
        return verdict_sentence(run.verdict)
    if held == len(shown):
        claims = f"all {held} claims hold" if held > 1 else "the claim holds"
    else:
        claims = f"{held} of {len(shown)} claims hold"
    if len(shown) < len(run.claims):
        claims += f", {len(run.claims) - len(shown)} could not be tried here"
    return f"{one_line(run.name)}: {claims}. {verdict_sentence(run.verdict)}"


def _prediction(decisions: Decisions) -> str:
    lines = []
    for decision in decisions.decisions:
        if decision.verdict in _SILENT and not decision.predicted:
            continue
        lines.append(f"  {decision.id}: {decision.verdict} – {one_line(decision.summary)}\n")
        lines += [f"    {line}\n" for line in _predicted(decision)]
    return "predicted before the run\n" + "".join(lines) if lines else ""


def _predicted(decision: Decision) -> list[str]:
    return [
        f"{one_line(one.metric)} = {number_text(one.expected)}{_unit(one.unit)} "
        f"({number_text(one.low)}–{number_text(one.high)})"
        for one in decision.predicted
    ]


def _unit(unit: str) -> str:
    return f" {one_line(unit)}" if unit else ""


def _causes(causes: list[ArmCause]) -> str:
    """What the server showed in each arm; of what is not known the document tells."""
    lines = []
    for one in causes:
        if one.cause.id == "not-enough-evidence":
            continue
        seen = f"{one.blocks} of {one.of_blocks} blocks"
        lines.append(f"  {one_line(one.arm)}: {one.cause.id} ({seen})\n")
        lines.append(f"    {one_line(one.cause.summary)}\n")
    return "what the server showed\n" + "".join(lines) if lines else ""


def _held(claim: ClaimResult) -> str:
    if claim.left_out:
        return "not tried"
    return "held" if claim.held else "NOT HELD"


def _claims(claims: list[ClaimResult]) -> str:
    if not claims:
        return ""
    rows = [("source", "claim", "expected", "source's figure", "measured", "")]
    for claim in claims:
        measured = measured_text(claim.expected, claim.measured)
        if claim.measured is None and claim.reason:
            measured = one_line(claim.reason)
        rows.append(
            (
                one_line(claim.source_row),
                one_line(claim.name),
                expected_text(claim),
                one_line(claim.source_figure) or "–",
                measured,
                _held(claim),
            )
        )
    return "claims\n" + align(rows, indent=2)
