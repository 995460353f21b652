"""The plan and the scoring of the regret benchmark; running it is no test."""

import math
import random
from pathlib import Path

import matrix
import msgspec
import pytest
import scoring
from rows import each_row

from nginx_tune.documents.scenario import Scenario
from nginx_tune.measure.proof.metrics import find_metric

HERE = Path(__file__).resolve().parents[2] / "benchmarks" / "regret"


CANDIDATES = matrix.read_candidates(msgspec.toml.decode((HERE / "candidates.toml").read_bytes()))
CELLS = sorted((HERE / "cells").glob("*.toml"))


def scenario(path: Path) -> Scenario:
    cell = msgspec.toml.decode(path.read_bytes())
    return matrix.scenario_of(path.stem, cell, CANDIDATES, rounds=8)


def test_there_are_the_ten_cells_and_those_that_lost() -> None:
    assert [int(path.name[:2]) for path in CELLS] == list(range(1, len(CELLS) + 1))
    assert len(CELLS) > 10
    total = matrix.minutes(scenario(path) for path in CELLS[:10])
    assert total <= 55, "one quiet hour, with room for what is filled and repeated"
    for path in CELLS[10:]:
        assert matrix.minutes([scenario(path)]) <= 5, "a drawn cell is short"


@each_row("path", CELLS, ids=lambda path: path.stem)
def test_every_cell_is_a_scenario_of_all_candidates(path: Path) -> None:
    s = scenario(path)
    names = {"stock", "recommended", *(variant.name for variant in s.variants)}
    assert set(matrix.EVERYWHERE) < names
    assert s.candidate.decisions == "recommended"
    metric = find_metric(s.primary_metric, [c.name for c in s.classes])
    assert metric.better_when in ("higher", "lower")
    assert s.seed != matrix.CALIBRATION_SEED
    assert {d.disk for d in s.lab.data} <= {d.name for d in s.lab.disks}
    stock = s.baseline.settings
    assert (
        next(variant for variant in s.variants if variant.name == "stock-again").settings == stock
    )


def rounds(
    means: dict[str, float], *, noise: float = 0.03, count: int = 8, seed: int = 1
) -> dict[str, list[float]]:
    """Synthetic rounds: a drift that all share, and noise of their own."""
    rng = random.Random(seed)
    drift = [rng.gauss(0, 0.1) for _ in range(count)]
    return {
        name: [mean * math.exp(d + rng.gauss(0, noise)) for d in drift]
        for name, mean in means.items()
    }


EQUAL = {"stock": 1.0, "stock-again": 1.0, "recommended": 1.0, "always-on": 1.0, "threads": 1.0}


def test_equal_candidates_have_no_regret_however_many_there_are() -> None:
    """Chosen and scored on the same rounds the luckiest of twenty would look better."""
    many = {**EQUAL, **{f"other-{n}": 1.0 for n in range(20)}}
    regrets = [
        scoring.score_cell("x", rounds(many, noise=0.1, seed=seed), "higher").regret
        for seed in range(60)
    ]
    assert abs(sum(regrets) / len(regrets)) < 0.02
    in_sample = []
    for seed in range(60):
        drawn = rounds(many, noise=0.1, seed=seed)
        best = max(math.fsum(map(math.log, values)) for values in drawn.values())
        own = math.fsum(map(math.log, drawn["recommended"]))
        in_sample.append(math.expm1((best - own) / 8))
    assert sum(in_sample) / len(in_sample) > 0.05


def test_a_regret_that_is_there_is_found_in_either_direction() -> None:
    higher = scoring.score_cell("x", rounds({**EQUAL, "threads": 1.5}), "higher")
    assert higher.opponents == ("threads", "threads")
    assert higher.regret == pytest.approx(0.5, abs=0.06)
    lower = scoring.score_cell("x", rounds({**EQUAL, "threads": 0.5}), "lower")
    assert lower.regret == pytest.approx(1.0, abs=0.1)
    outcomes = [j.outcome for j in scoring.judge_cells([higher, lower])]
    assert outcomes == ["worse", "worse"]


def test_what_noise_hides_is_open() -> None:
    score = scoring.score_cell("x", rounds({**EQUAL, "threads": 1.08}, noise=0.4, seed=4), "higher")
    (judged,) = scoring.judge_cells([score])
    assert judged.outcome == "open"
    assert score.noise_floor > 0.1


def test_within_ten_percent_is_seldom_called_worse() -> None:
    """Regret at the edge of what is tolerated: one in twenty sets of ten cells at most errs."""
    wrong = 0
    for seed in range(40):
        scores = [
            scoring.score_cell(
                str(n), rounds({**EQUAL, "threads": 1.10}, seed=40 * n + seed), "higher"
            )
            for n in range(10)
        ]
        wrong += any(j.outcome == "worse" for j in scoring.judge_cells(scores))
    assert wrong <= 4


def test_what_noise_alone_does_is_told_from_regret() -> None:
    even = [1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 1.01]
    apart = [1.0, 1.5, 0.7, 1.0, 1.6, 0.6, 1.1, 0.9]

    def beyond(recommended: list[float]) -> float:
        return scoring.chance_beyond({"stock": even, "recommended": recommended}, "lower")

    assert beyond([value / 2 for value in even]) == 0, "best in both halves"
    assert beyond([value * 2 for value in even]) == 0, "surely worse, by no noise"
    assert 0.05 < beyond([value * 1.3 for value in apart]) < 0.5, "as good, for all that is seen"


@each_row(
    ("times", "seconds", "is_within"), [(1.05, 1.0, True), (2.0, 1e-4, True), (2.0, 1.0, False)]
)
def test_regret_has_a_floor_of_what_a_busy_host_adds(
    times: float, seconds: float, *, is_within: bool
) -> None:
    """A tenth of a millisecond is no regret, however many times the best it is."""
    values = {"stock": seconds, "threads": seconds, "recommended": times * seconds}
    score = scoring.score_cell("x", rounds(values, noise=0.01), "lower", of_answers=True)
    assert scoring.is_within(score) == is_within
    assert scoring.judge_cells([score])[0].outcome == ("within" if is_within else "worse")
