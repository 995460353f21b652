"""All benchmarks in turn: each is named, its ratios are read, and a slip is told from noise."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from rows import each_row

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def run_all() -> dict[str, Any]:
    return runpy.run_path(str(BENCHMARKS / "run-all"))


def test_every_benchmark_is_run_or_left_out_with_a_reason(run_all: dict[str, Any]) -> None:
    named = {*run_all["COMMANDS"], *run_all["LEFT_OUT"]}
    assert {path.stem for path in BENCHMARKS.glob("*.py")} <= named
    assert [name for name in named if not (BENCHMARKS / f"{name}.py").is_file()] == []


@each_row(
    ("text", "expected"),
    [
        ("| command | ms | ratio |\n|---|--:|--:|\n| `a` | 34 | 1.00 |\n| `b` | 44 | 1.29 |\n",
         {"`a`: ratio": 1.0, "`b`: ratio": 1.29}),
        ("| lock | median s |\n|---|---|\n| off | 0.500 |\n| on | 1.500 |\n",
         {"on: median s": 3.0}),
        ("| body | × wrk |\n|---|--:|\n| 1 KB | 0.86 [0.84–0.90] |\n| 4 MB | 1,200 |\n",
         {"1 KB: × wrk": 0.86, "4 MB: × wrk": 1200.0}),
        ("  1.62 times the CPU time of nginx -t\n", {"# times the CPU time of nginx -t (1)": 1.62}),
        ("5 runs in 3 s\n| # | asked | held |\n|---|---|---|\n| 1 | 10 ms | yes |\n", {}),
    ],
)  # fmt: skip
def test_the_ratios_of_an_output(
    run_all: dict[str, Any], text: str, expected: dict[str, float]
) -> None:
    assert run_all["figures"](text) == pytest.approx(expected)


def test_what_slipped_is_more_than_the_noise(run_all: dict[str, Any]) -> None:
    compare = run_all["compare"]
    kept = [{"quiet": 1.0, "other": 2.0}, {"quiet": 1.01, "other": 2.0}]
    noise, slipped = compare([{"quiet": 2.2, "other": 2.02}, {"quiet": 2.2, "other": 2.0}], kept)
    assert noise == pytest.approx(1.01)
    assert slipped == {"quiet": pytest.approx(2.19, abs=0.01)}
    noisy = [{"quiet": 1.0, "other": 2.0}, {"quiet": 2.0, "other": 2.0}]
    assert compare([{"quiet": 2.2, "other": 2.0}] * 2, noisy) == (pytest.approx(2.0), {})
    assert compare(kept, [])[1] == {}
