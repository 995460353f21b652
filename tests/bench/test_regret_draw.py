"""Cells drawn at random: that the lab takes each, and that they differ as the real world does."""

from pathlib import Path
from typing import Any

import draw
import matrix
import msgspec
import pytest
import run
from rows import each_row

from nginx_tune.documents.decisions import Decision, Decisions, Setting
from nginx_tune.documents.measurement import ClassMeasurement, Latency, Measurement
from nginx_tune.documents.scenario import Scenario, ScenarioRun
from nginx_tune.documents.verdict import Environment, Verdict
from nginx_tune.experiment.scenario.files import check_scenario

HERE = Path(__file__).resolve().parents[2] / "benchmarks" / "regret"


CANDIDATES = matrix.read_candidates(msgspec.toml.decode((HERE / "candidates.toml").read_bytes()))
CELLS = dict(draw.draw_cells(seed=5, count=200))


def scenario(name: str, cell: dict[str, Any]) -> Scenario:
    return matrix.scenario_of(name, cell, CANDIDATES, rounds=8)


def test_every_drawn_cell_can_be_run() -> None:
    for name, cell in CELLS.items():
        drawn = scenario(name, cell)
        check_scenario(drawn)
        data = sum(sum(one.sizes.values()) or one.files * one.file_bytes for one in drawn.lab.data)
        assert data <= 2 * draw.MOST_BYTES
        if drawn.lab.topology != "proxy":
            assert {c.disk for c in drawn.classes if c.source == "random"} == {
                d.name for d in drawn.lab.disks
            }


def test_the_same_seed_draws_the_same_cells_and_another_draws_others() -> None:
    assert dict(draw.draw_cells(5, 3)) == {n: CELLS[n] for n in list(CELLS)[:3]}
    others = dict(draw.draw_cells(6, 3))
    assert list(others.values()) != [CELLS[n] for n in list(CELLS)[:3]]


def test_forty_cells_take_an_hour_and_a_half_at_most_where_half_of_the_rounds_tell() -> None:
    halves = [scenario(name, cell) for name, cell in list(CELLS.items())[:40]]
    assert matrix.minutes(msgspec.structs.replace(one, pairs=4) for one in halves) < 90


def _ran(rounds: int, values: dict[str, float]) -> ScenarioRun:
    """So many rounds of variants whose answers take so long."""
    blocks = [
        Measurement(
            number=number * len(values) + place,
            variant=variant,
            classes={
                "memory": ClassMeasurement(
                    requests=99, response_seconds=Latency(count=99, mean=mean)
                )
            },
        )
        for number in range(rounds)
        for place, (variant, mean) in enumerate(values.items())
    ]
    verdict = Verdict(outcome="better", primary_metric="x", environment=Environment())
    return ScenarioRun(name="a", prediction=Decisions(), verdict=verdict, measurements=blocks)


EVEN = {"baseline": 1.0, "candidate": 1.0}
LOSING = {"baseline": 1.0, "candidate": 1.5}


@each_row(
    ("values", "most", "asked"),
    [
        (EVEN, 8, [(4, 0)]),
        (LOSING, 8, [(4, 0), (4, 4)]),
        (LOSING, 24, [(4, 0), (4, 4), (8, 8), (8, 16)]),
        (LOSING, 11, [(4, 0), (4, 4)]),
    ],
)
def test_a_cell_runs_as_many_rounds_again_while_they_leave_a_doubt(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    values: dict[str, float],
    most: int,
    asked: list[tuple[int, int]],
) -> None:
    cell = {"primary_metric": "memory.mean"}
    whole = msgspec.structs.replace(
        run._scenarios(["01-hdd-cold"], most, None)["01-hdd-cold"], **cell
    )
    seen: list[tuple[int, int]] = []

    def measured(part: Scenario) -> ScenarioRun:
        seen.append((part.pairs, part.seed - whole.seed))
        return _ran(part.pairs, values)

    monkeypatch.setattr(run, "_measured", measured)
    run._run_until_clear(whole, tmp_path / "a.json")
    assert seen == asked
    run._run_until_clear(whole, tmp_path / "a.json")
    assert seen == asked, "what leaves no doubt, or is as much as there is to be, is not run again"


def test_rounds_of_another_recommendation_are_run_again_and_never_joined(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = msgspec.structs.replace(
        run._scenarios(["01-hdd-cold"], 8, None)["01-hdd-cold"], primary_metric="memory.mean"
    )
    chunks = iter(["2m", "128k", "128k", "128k"])
    ran: list[int] = []

    def measured(part: Scenario) -> ScenarioRun:
        ran.append(part.pairs)
        line = Setting(context="http", directive="sendfile_max_chunk", args=[next(chunks)])
        decision = Decision(
            id="sendfile-max-chunk", verdict="lower", summary="a", confidence="low", settings=[line]
        )
        return msgspec.structs.replace(
            _ran(part.pairs, LOSING), prediction=Decisions(decisions=[decision])
        )

    monkeypatch.setattr(run, "_measured", measured)
    run._run_until_clear(whole, tmp_path / "a.json")
    kept = run._kept(tmp_path / "a.json")
    assert kept is not None
    assert ran == [4, 4, 4, 4]
    assert run.rounds_of(kept) == 8
    assert kept.prediction.decisions[0].settings[0].args == ["128k"]
