"""Scenarios as benchmarks/scenarios.py runs them: short, and complete in their files."""

from pathlib import Path

import pytest
import scenarios

from nginx_tune.experiment.scenario.files import check_scenario
from nginx_tune.measure.proof.gates import check_expressions

ROOT = Path(__file__).resolve().parents[2]


def test_scenarios_are_short_and_the_marks_are_there() -> None:
    every = scenarios.all_scenarios().values()
    seconds = {one.name: scenarios.expected_seconds(one) for one in every}
    # Expected is more than it takes: three minutes are the bound.
    assert {name: time for name, time in seconds.items() if time >= 240} == {}
    assert sum(seconds.values()) < 60 * 60
    page = (ROOT / "benchmarks" / "README.md").read_text()
    assert all(f"<!-- {mark} -->" in page for mark in ("thread-pools", "scenario runs"))


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
