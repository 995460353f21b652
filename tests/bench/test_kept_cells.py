"""Kept runs of drawn cells: what of a run is kept, and what the table says of it."""

from pathlib import Path

import kept
import msgspec
import pytest
import remade
import replayed
import scoring
from kept import KeptCell, KeptNumber, add, candidates_table, cells_table, read, summary
from predicted import BLOCKED_RATIO

from nginx_tune.documents.decisions import Decision, Decisions, Predicted, Setting
from nginx_tune.documents.facts import Dataset, Facts, Kernel, Nginx
from nginx_tune.documents.measured_server import ServerMeasurement, ServerSecond, WorkerUse
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.scenario import ScenarioRun
from nginx_tune.documents.verdict import Environment, Verdict
from nginx_tune.experiment.view import emulate

ROOT = Path(__file__).resolve().parents[2]


EVEN = [1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 1.01]


def cell(name: str, times: float, *numbers: KeptNumber, rounds: int = 8) -> KeptCell:
    """One whose recommendation takes so many times as long as stock and as the best."""
    return KeptCell(
        name=name,
        digest=kept.digest_of(kept.drawn(name)),
        ended="2026-11-25T08:00:00+00:00",
        nginx="1.22.1",
        kernel="6.18",
        metric="memory.mean",
        better="lower",
        rounds={
            "stock": EVEN[:rounds],
            "recommended": [value * times for value in EVEN[:rounds]],
            "threads": [value * 1.3 for value in EVEN[:rounds]],
        },
        decided={},
        numbers=list(numbers),
    )


def test_a_cell_that_lost_is_told_from_one_that_did_not() -> None:
    lost, even = cell("drawn-5-000", 2.0), cell("drawn-5-001", 1.0)
    assert "| 5 | bbr | 2 | 2026-11-25 | 2 | 1 | 1 |" in summary([lost, even])
    text = cells_table([lost, even])
    assert "| drawn-5-000 |" in text
    assert "**0.50× (" in text
    assert text.count("**") == 2


def test_each_candidate_stands_in_the_place_of_the_recommendation() -> None:
    lines = candidates_table([cell("drawn-5-000", 1.0), cell("drawn-5-001", 0.5)]).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| recommended", "| threads", "| stock"]
    assert lines[2].endswith("| 2 | 2 | 2 | 0 | +0.0% |")
    # Three tenths further than stock, and 2.6 times as far as the recommendation.
    assert lines[3].endswith("| 2 | 0 | 0 | 2 | +83.8% |")
    assert lines[4].endswith("| 2 | 1 | 1 | 0 | +41.4% |")


def test_a_cell_that_ran_again_takes_its_own_place(tmp_path: Path) -> None:
    file = tmp_path / "drawn.jsonl"
    assert add(file, [cell("drawn-5-001", 2.0), cell("drawn-5-000", 1.0)]) == 2
    assert add(file, [cell("drawn-5-001", 1.0)]) == 1
    assert add(file, [cell("drawn-5-001", 1.0)]) == 0
    assert [one.name for one in read(file)] == ["drawn-5-000", "drawn-5-001"]
    assert summary([]) == "No cell is kept.\n"


def test_the_seed_still_draws_what_was_run() -> None:
    cells = read(kept.KEPT)
    others = [one.name for one in cells if kept.digest_of(kept.drawn(one.name)) != one.digest]
    assert cells
    assert others == []


@pytest.mark.long
def test_the_table_in_benchmarks_is_of_the_kept_cells() -> None:
    text = (ROOT / "benchmarks" / "README.md").read_text()
    begin, end = "<!-- drawn cells -->\n", "<!-- end of drawn cells -->\n"
    assert text.partition(begin)[2].partition(end)[0] == summary(read(kept.KEPT))


def test_a_prediction_is_made_again_from_the_facts_of_the_run_alone() -> None:
    scenario = kept.scenario_named("drawn-4201-000")
    facts = emulate(Facts(kernel=Kernel(system="Linux")), scenario.lab, cpus=1)
    nginx = Nginx(version="1.22.1", flags=["--with-threads", "--with-http_ssl_module"])
    data = Dataset(path="/srv/disk1", files=26, bytes=137_539_265, complete=True)
    facts = msgspec.structs.replace(facts, nginx=nginx, datasets=[data])
    verdict = Verdict(outcome="better", primary_metric="x", environment=Environment())
    old = Decision(
        id="thread-pools",
        verdict="enable",
        summary="",
        predicted=[Predicted(metric=BLOCKED_RATIO, low=0.5, expected=0.6, high=0.7)],
    )
    block = Measurement(
        number=0,
        variant="baseline",
        duration_seconds=1.0,
        server=ServerMeasurement(
            series=[ServerSecond(second=0, block_io_delay_seconds=0.01)], workers=[WorkerUse(pid=1)]
        ),
    )
    run = ScenarioRun(
        name=scenario.name,
        facts=facts,
        prediction=Decisions(decisions=[old]),
        verdict=verdict,
        measurements=[block],
    )
    found = remade.remake(run, scenario)
    (before,) = found.before
    (today,) = found.today
    assert (before.low, before.high, before.inside) == (0.5, 0.7, False)
    assert before.measured == today.measured == 0.01
    assert today.high < 0.5
    assert found.verdicts["thread-pools"][0] == "enable"


def test_what_is_decided_is_looked_up_among_the_variants_that_were_measured() -> None:
    one = cell("drawn-4201-000", 1.0)
    had = msgspec.structs.replace(one, decided={"thread-pools": "enable"})
    aio = Setting(context="location", directive="aio", args=["threads"])
    pools = [Decision(id="thread-pools", verdict="enable", summary="", settings=[aio])]
    assert replayed.variant_of(one, []) == replayed.variant_of(had, pools) == "recommended"
    assert replayed.variant_of(had, []) == "stock"
    assert replayed.variant_of(one, pools) == "threads"


@pytest.mark.thorough
@pytest.mark.long
def test_knowledge_that_the_field_lacks_costs_few_of_the_cells() -> None:
    """One kept cell in ten; the shares of all stand in benchmarks/README.md."""
    cells = read(kept.KEPT)[::10]
    shares = {}
    for name, knowledge in replayed.KNOWLEDGE.items():
        found = replayed.replay(cells, knowledge)
        assert len(found) > len(cells) / 2
        shares[name] = sum(scoring.is_within(one.score) for one in found) / len(found)
    assert shares["informed"] >= 0.9
    assert shares["in the field"] >= 0.75
