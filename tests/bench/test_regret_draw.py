"""Cells drawn at random: that the lab takes each, and that they differ as the real world does."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

HERE = Path(__file__).resolve().parents[2] / "benchmarks" / "regret"
sys.path.insert(0, str(HERE))

import draw  # noqa: E402
import matrix  # noqa: E402
import run  # noqa: E402
import scoring  # noqa: E402

from nginx_tune.documents.decisions import Decisions  # noqa: E402
from nginx_tune.documents.measurement import Measurement  # noqa: E402
from nginx_tune.documents.scenario import Scenario, ScenarioRun  # noqa: E402
from nginx_tune.documents.verdict import Environment, Verdict  # noqa: E402
from nginx_tune.scenario.checks import check_scenario  # noqa: E402

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


@pytest.mark.parametrize(
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


def test_two_runs_are_joined_with_their_rounds_one_after_the_other() -> None:
    def one(name: str) -> ScenarioRun:
        blocks = [Measurement(block=n, arm=arm) for n, arm in enumerate(["baseline", "candidate"])]
        verdict = Verdict(outcome="better", primary_metric="x", environment=Environment())
        return ScenarioRun(name=name, prediction=Decisions(), verdict=verdict, measurements=blocks)

    both = run.joined(one("a"), one("a"))
    assert [block.block for block in both.measurements] == [0, 1, 2, 3]


def test_the_second_half_of_the_rounds_draws_what_the_first_has_not() -> None:
    scenario = run._scenarios(["01-hdd-cold"], 8, None)["01-hdd-cold"]
    rest = run._rest(scenario, 3)
    first = {scenario.seed + number for number in range(3)}
    second = {rest.seed + number for number in range(rest.pairs)}
    assert rest.pairs == 5
    assert not first & second
