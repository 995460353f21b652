"""Kept runs of drawn cells: what of a run is kept, and what the table says of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "regret"))

import kept  # noqa: E402
from kept import KeptCell, KeptNumber, add, read, score, summary  # noqa: E402

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
    text = summary([lost, even])
    assert "2 with rounds enough to score: 1 worse than stock beyond noise, 1 within 10%" in text
    assert "| drawn-5-000 |" in text
    assert "**0.50× (" in text
    assert text.count("**") == 2


def test_predictions_are_counted_and_those_outside_are_shown() -> None:
    inside = KeptNumber("page_cache.hit_ratio", 0.5, 0.4, 0.6, 0.55)
    outside = KeptNumber("ratio(hot.mean)", 0.5, 0.4, 0.6, 0.9)
    text = summary([cell("drawn-5-000", 1.0, inside, outside)])
    assert "1 of 2 predictions inside their range" in text
    assert "| 1 of 2 | ratio(hot.mean) 0.9 (0.4 to 0.6) |" in text


def test_too_few_rounds_are_not_scored() -> None:
    few = cell("drawn-5-000", 2.0, rounds=3)
    assert score(few) is None
    assert "too few rounds" in summary([few])


def test_a_cell_that_ran_again_takes_its_own_place(tmp_path: Path) -> None:
    file = tmp_path / "drawn.jsonl"
    assert add(file, [cell("drawn-5-001", 2.0), cell("drawn-5-000", 1.0)]) == 2
    assert add(file, [cell("drawn-5-001", 1.0)]) == 1
    assert add(file, [cell("drawn-5-001", 1.0)]) == 0
    assert [one.name for one in read(file)] == ["drawn-5-000", "drawn-5-001"]
    assert summary([]) == "No cell is kept.\n"


def test_a_name_that_is_not_drawn_is_refused() -> None:
    with pytest.raises(ValueError, match="no drawn cell"):
        kept.drawn("copied-5-000")


@pytest.mark.parametrize("one", read(kept.KEPT), ids=lambda one: one.name)
def test_the_seed_still_draws_what_was_run(one: KeptCell) -> None:
    assert kept.digest_of(kept.drawn(one.name)) == one.digest


def test_the_table_in_benchmarks_is_of_the_kept_cells() -> None:
    text = (ROOT / "benchmarks" / "README.md").read_text()
    begin, end = "<!-- drawn cells -->\n", "<!-- end of drawn cells -->\n"
    assert text.partition(begin)[2].partition(end)[0] == summary(read(kept.KEPT))
