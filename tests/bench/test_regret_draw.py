"""Cells drawn at random: that the lab takes each, and that they differ as the real world does."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rows import each_row

HERE = Path(__file__).resolve().parents[2] / "benchmarks" / "regret"
sys.path.insert(0, str(HERE))

import draw  # noqa: E402
import matrix  # noqa: E402
import run  # noqa: E402
import scoring  # noqa: E402

from nginx_tune.documents.decisions import Decision, Decisions, Setting  # noqa: E402
from nginx_tune.documents.measurement import (  # noqa: E402
    ClassMeasurement,
    Latency,
    Measurement,
)
from nginx_tune.documents.scenario import Scenario, ScenarioRun  # noqa: E402
from nginx_tune.documents.verdict import Environment, Verdict  # noqa: E402
from nginx_tune.experiment.scenario.files import check_scenario  # noqa: E402

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


def test_a_written_cell_is_the_drawn_one(tmp_path: Path) -> None:
    for name, cell in list(CELLS.items())[:40]:
        path = tmp_path / f"{name}.toml"
        path.write_text(draw.write_toml(cell))
        assert scenario(name, msgspec.toml.decode(path.read_bytes())) == scenario(name, cell)


@each_row(
    "holds",
    [
        lambda c: len(c["lab"]["disks"]) > 1 and "model" in c["lab"]["disks"][0],
        lambda c: len(c["lab"]["disks"]) > 1 and "model" in c["lab"]["disks"][-1],
        lambda c: c["lab"].get("tls"),
        lambda c: c["lab"].get("cold_names"),
        lambda c: c["lab"].get("topology") == "link",
        lambda c: any("sizes" in one for one in c["lab"]["data"]),
        lambda c: any("exponent" in one for one in c["classes"]),
        lambda c: any(one["name"] == "hot" for one in c["classes"]),
        lambda c: any(one.get("keepalive") is False for one in c["classes"]),
        lambda c: c["classes"][0]["arrivals"]["kind"] == "closed",
        lambda c: c["kind"] == "cache" and len(c["lab"]["disks"]) > 1,
        lambda c: c["kind"] == "proxy",
        lambda c: any("read_bytes_per_second" in one for one in c["classes"]),
    ],
    ids=[
        "slow-first",
        "slow-last",
        "tls",
        "names",
        "link",
        "sizes",
        "zipf",
        "hot",
        "short",
        "wait",
        "two-caches",
        "proxy",
        "slow-clients",
    ],
)
def test_every_kind_of_cell_is_drawn(holds: Any) -> None:
    count = sum(bool(holds(cell)) for cell in CELLS.values())
    assert 4 <= count < len(CELLS)


def test_data_is_from_less_than_memory_to_several_times_it() -> None:
    ratios = []
    for name, cell in CELLS.items():
        lab = scenario(name, cell).lab
        if lab.topology == "proxy":
            continue
        data = sum(sum(d.sizes.values()) or d.files * d.file_bytes for d in lab.data)
        ratios.append(data / (lab.memory_bytes or 1))
    assert min(ratios) < 0.5
    assert max(ratios) > 4


def test_one_cell_says_what_it_is() -> None:
    cell = draw.draw_cell(random.Random(1))
    assert cell["title"].startswith("Drawn: ")
    assert cell["primary_metric"] in ("hot.mean", "memory.mean", "pages.mean")


def test_forty_cells_take_an_hour_and_a_half_at_most_where_half_of_the_rounds_tell() -> None:
    halves = [scenario(name, cell) for name, cell in list(CELLS.items())[:40]]
    assert matrix.minutes(msgspec.structs.replace(one, pairs=4) for one in halves) < 90


def test_half_of_the_rounds_are_enough_only_where_nothing_is_lost() -> None:
    def rounds(recommended: float, other: float) -> dict[str, list[float]]:
        return {
            "stock": [1.0, 1.01, 0.99, 1.0],
            "recommended": [recommended, recommended * 1.01, recommended, recommended * 0.99],
            "threads": [other, other, other * 1.01, other],
        }

    assert scoring.is_clear(scoring.score_cell("even", rounds(1.0, 1.0), "higher"))
    assert scoring.is_clear(scoring.score_cell("better", rounds(3.0, 2.0), "higher"))
    assert not scoring.is_clear(scoring.score_cell("worse", rounds(0.7, 1.0), "higher"))
    assert not scoring.is_clear(scoring.score_cell("regret", rounds(1.0, 1.5), "higher"))


def _ran(rounds: int, values: dict[str, float]) -> ScenarioRun:
    """So many rounds of arms whose answers take so long."""
    blocks = [
        Measurement(
            block=number * len(values) + place,
            arm=arm,
            classes={
                "memory": ClassMeasurement(
                    requests=99, response_seconds=Latency(count=99, mean=mean)
                )
            },
        )
        for number in range(rounds)
        for place, (arm, mean) in enumerate(values.items())
    ]
    verdict = Verdict(outcome="better", primary_metric="x", environment=Environment())
    return ScenarioRun(name="a", prediction=Decisions(), verdict=verdict, measurements=blocks)


EVEN = {"baseline": 1.0, "candidate": 1.0}
LOSING = {"baseline": 1.0, "candidate": 1.5}


def test_two_runs_are_joined_with_their_rounds_one_after_the_other() -> None:
    both = run.joined(_ran(1, EVEN), _ran(1, EVEN))
    assert [block.block for block in both.measurements] == [0, 1, 2, 3]
    assert run.rounds_of(both) == 2


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


def test_a_result_with_fewer_rounds_goes_on_where_it_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cell = {"primary_metric": "memory.mean"}
    eight, sixteen = (
        msgspec.structs.replace(run._scenarios(["01-hdd-cold"], most, None)["01-hdd-cold"], **cell)
        for most in (8, 16)
    )
    file = tmp_path / "a.json"
    monkeypatch.setattr(run, "_measured", lambda part: _ran(part.pairs, LOSING))
    run._run_until_clear(eight, file)
    assert not run._is_settled(sixteen, file)
    run._run_until_clear(sixteen, file)
    kept = run._kept(file)
    assert kept is not None
    assert run.rounds_of(kept) == 16
    assert [block.block for block in kept.measurements] == list(range(32))


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
