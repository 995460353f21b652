"""Kept runs of the scenarios: what of a run is kept, and how often a claim held."""

from datetime import datetime, timezone
from pathlib import Path

import scenario_runs
from rows import each_row
from scenario_runs import KeptClaim, judged_anew, kept, read, summary
from scenarios import all_scenarios

from nginx_tune.documents.decisions import Decisions
from nginx_tune.documents.scenario import Claim, ClaimResult, PredictionResult, ScenarioRun
from nginx_tune.documents.verdict import Environment, Verdict

ROOT = Path(__file__).resolve().parents[2]


SCENARIOS = list(all_scenarios().values())
SCENARIO = next(one for one in SCENARIOS if one.name == "thread-pools")
CLAIM = SCENARIO.claims[0]
DAY = datetime(2026, 11, 24, 12, tzinfo=timezone.utc)


def run(measured: float | None, *, held: bool, expected: str = CLAIM.expression) -> ScenarioRun:
    claims = [
        ClaimResult(
            name=CLAIM.name, source_row=CLAIM.source_row, source_figure="", expected=expected,
            measured=measured, held=held, expect=CLAIM.expect, variant=CLAIM.variant,
            against=CLAIM.against, less_than=CLAIM.less_than,
        ),
        ClaimResult(
            name="not tried", source_row="B2", source_figure="", measured=None,
            expected="total.errors == 0", held=False, left_out=True,
        ),
    ]  # fmt: skip
    environment = Environment(nginx_version="1.22.1", kernel_release="6.18")
    verdict = Verdict(outcome="better", primary_metric="x", environment=environment)
    told = {"decision": "thread-pools", "metric": "ratio(hot.mean)", "low": 0.1, "expected": 0.2}
    predictions = [
        PredictionResult(**told, high=0.4, measured=measured, inside=held),
        PredictionResult(**told, high=0.4, variant="other", reason="not tried"),
    ]
    return ScenarioRun(
        name=SCENARIO.name, prediction=Decisions(), claims=claims, verdict=verdict,
        predictions=predictions,
    )  # fmt: skip


def test_the_table_counts_runs_of_the_claim_as_it_is_now() -> None:
    runs = [
        kept(run(12.5, held=True), DAY),
        kept(run(9.5, held=False), DAY),
        kept(run(0.1, held=True, expected="total.errors == 0"), DAY),
    ]
    text = summary(SCENARIOS, runs)
    assert text.startswith("1 claims in 2 to 2 runs each, 2026-11-24 to 2026-11-24 (10 are wanted")
    assert text.partition("2 of 3 predictions")[0].count("| thread-pools |") == 1
    assert "**1 of 2** |" in text
    assert "\n2 of 3 predictions lay in the range stated before the run.\n" in text
    said = "| thread-pools | ratio(hot.mean) | 0.2 (0.1 to 0.4) | 0.1 to 12.5 | **2 of 3** |\n"
    assert text.endswith(said)
    both = summary(SCENARIOS, [runs[0], runs[0]])
    assert "| 2 of 2 |" in both
    assert "1 held in all of theirs" in both


@each_row(
    ("expected", "measured", "held"),
    [
        ("server.max <= 1.5s", 2.5, None),  # another quantity
        ("server.mean >= 2s", 2.5, None),  # another comparison
        ("server.mean <= 2s", 2.5, True),
        ("server.mean <= 100ms", 3.5, False),
        ("server.mean <= 4s", 3.5, False),
        ("server.mean <= 2s", None, None),
        ("server.mean <= 3s", None, True),
    ],
)
def test_a_bound_that_was_changed_judges_what_was_measured(
    expected: str, measured: float | None, held: bool | None
) -> None:
    claim = Claim(name="x", source_row="", expression="server.mean <= 3s")
    found = judged_anew(claim, KeptClaim(expected, held=measured is None, measured=measured))
    assert (None if found is None else found.held) is held
    # What is to fail is no comparison with a bound.
    fails = Claim(name="x", source_row="", expression="server.mean <= 3s", expect="fails")
    assert (
        judged_anew(fails, KeptClaim("fails: server.mean <= 2s", held=True, measured=2.5)) is None
    )


def test_the_table_in_benchmarks_is_of_the_kept_runs() -> None:
    text = (ROOT / "benchmarks" / "README.md").read_text()
    begin, end = "<!-- scenario runs -->\n", "<!-- end of scenario runs -->\n"
    shown = text.partition(begin)[2].partition(end)[0]
    assert shown == summary(SCENARIOS, read(scenario_runs.KEPT))
    assert "| no truncated body |" not in shown, "no source has a figure of it"
