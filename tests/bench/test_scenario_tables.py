"""The tables of benchmarks/scenarios.py, from runs that were made up."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nginx_tune.documents.decisions import Decisions
from nginx_tune.documents.scenario import ClaimResult, PredictionResult, ScenarioRun
from nginx_tune.documents.verdict import Environment, MetricVerdict, Verdict
from nginx_tune.experiment.scenario.files import check_scenario
from nginx_tune.measure.proof.gates import check_expressions

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import scenarios  # noqa: E402

RUN = ScenarioRun(
    name="thread-pools",
    prediction=Decisions(),
    predictions=[
        PredictionResult(
            decision="thread-pools", metric="ratio(hot.requests_per_second)", low=32.5,
            expected=54.6, high=65.8, source_figure="31x", measured=29.9, inside=False,
        )
    ],
    claims=[
        ClaimResult(
            name="the rate | of the hot file", source_row="A7", source_figure="31x",
            expected="ratio(hot.requests_per_second) >= 10", measured=29.9, held=True, rounds=6,
            rounds_held=5,
        ),
        ClaimResult(
            name="a variant that is not here", source_row="B2", source_figure="", measured=None,
            expected="total.errors == 0", held=False, left_out=True, reason="no nginx 1.18",
        ),
    ],
    verdict=Verdict(
        outcome="better", primary_metric="hot.requests_per_second",
        metrics=[
            MetricVerdict(
                name="hot.requests_per_second", baseline=4.6, candidate=138.0, ratio=29.9,
                low=20.2, high=39.8, level=0.97, pairs=6, better_when="higher", outcome="better",
            )
        ],
        environment=Environment(nginx_version="1.22.1", kernel_release="6.18", pairs=6),
    ),
)  # fmt: skip


def test_a_claim_stands_beside_source_prediction_and_measurement() -> None:
    text = scenarios.tables([RUN], {"cold-open": "no nbdkit"}, "on a day")
    assert text.startswith(
        "Seen on a day: 1 of 1 claims hold; 1 of 1 predictions lie outside their range.\n"
    )
    row = next(line for line in text.splitlines() if "| A7 |" in line)
    assert "the rate \\| of the hot file" in row
    assert "54.6× (32.5–65.8), **outside**" in row
    assert row.endswith("| 29.9× | held, in 5 of 6 rounds |")
    assert "| no nginx 1.18 | not tried |" in text
    assert "cold-open gave no result: no nbdkit" in text


def test_scenarios_are_short_and_the_marks_are_there() -> None:
    every = scenarios.all_scenarios().values()
    seconds = {one.name: scenarios.expected_seconds(one) for one in every}
    # Expected is more than it takes: three minutes are the bound.
    assert {name: time for name, time in seconds.items() if time >= 240} == {}
    assert sum(seconds.values()) < 60 * 60
    page = (ROOT / "benchmarks" / "README.md").read_text()
    assert all(f"<!-- {mark} -->" in page for mark in ("thread-pools", "scenarios"))


FILES = {given: one for given, one in scenarios.all_scenarios().items() if given != one.name}


@pytest.mark.parametrize("given", FILES, ids=lambda given: Path(given).stem)
def test_what_no_source_text_speaks_of_can_be_run_from_its_file(given: str) -> None:
    one = FILES[given]
    assert Path(given).stem == one.name
    check_scenario(one)
    expressions = [claim.expression for claim in one.claims]
    names = [item.name for item in one.classes]
    check_expressions([*expressions, f"{one.primary_metric} >= 0"], names)
    assert {claim.source_row for claim in one.claims} == {""}
    assert any(claim.source_figure for claim in one.claims)
