"""Regret of the recommended configuration over ten cells, measured in the lab (needs root).

    python benchmarks/regret/run.py --rounds 8 --seconds 6 --results DIR [CELL]...

Each cell is kept as DIR/CELL.json (a scenario_run document) once it has run and is not run again;
with --score nothing is run and the table is made from what is there. The table is Markdown.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parent))

import matrix
import scoring

from nginx_tune.documents.base import decode, encode
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.scenario import Scenario, ScenarioRun
from nginx_tune.emit.arms import write_arm
from nginx_tune.host.live import LiveHost
from nginx_tune.measure.scenario import run_scenario
from nginx_tune.nginx.binary import read_nginx
from nginx_tune.prove.blocks import pair_blocks
from nginx_tune.prove.metrics import find_metric
from nginx_tune.prove.rounds import select_pairs

HERE = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cells", nargs="*", help="names of cells; default: all")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--score", action="store_true", help="only make the table")
    asked = parser.parse_args()
    scenarios = _scenarios(asked.cells, asked.rounds, asked.seconds)
    asked.results.mkdir(parents=True, exist_ok=True)
    if not asked.score:
        print(f"about {matrix.minutes(scenarios.values()):.0f} minutes", file=sys.stderr)
        for name, scenario in scenarios.items():
            _run(scenario, asked.results / f"{name}.json")
    print(_table(scenarios, asked.results))
    return 0


def _scenarios(names: Iterable[str], rounds: int, seconds: float) -> dict[str, Scenario]:
    tables = msgspec.toml.decode((HERE / "candidates.toml").read_bytes())
    candidates = matrix.read_candidates(tables)
    wanted = set(names)
    return {
        path.stem: matrix.scenario_of(
            path.stem,
            msgspec.toml.decode(path.read_bytes()),
            candidates,
            rounds=rounds,
            seconds=seconds,
        )
        for path in sorted((HERE / "cells").glob("*.toml"))
        if not wanted or path.stem in wanted
    }


def _run(scenario: Scenario, path: Path) -> None:
    if path.exists():
        return
    nginx, _ = read_nginx(LiveHost())
    run = run_scenario(
        scenario,
        nginx=nginx,
        write_arm=write_arm,
        progress=lambda line: print(f"{scenario.name}: {line}", file=sys.stderr),
    )
    half = path.with_suffix(".part")
    half.write_bytes(encode(run))
    half.replace(path)


def _table(scenarios: dict[str, Scenario], results: Path) -> str:
    lines, scores, cells = [], [], []
    for name, scenario in scenarios.items():
        path = results / f"{name}.json"
        if not path.exists():
            lines.append(f"- {name}: not measured")
            continue
        run = decode(ScenarioRun, path.read_bytes(), source=str(path))
        metric = find_metric(scenario.primary_metric)
        better: scoring.Better = "higher" if metric.better_when == "higher" else "lower"
        rounds = rounds_of(run.measurements, scenario.primary_metric)
        if len(rounds["stock"]) < scoring.FEWEST_ROUNDS:
            lines.append(f"- {name}: too few valid rounds: {len(rounds['stock'])}")
            continue
        scores.append(scoring.score_cell(name, rounds, better))
        cells.append((rounds, better))
        lines.append(_medians(name, scenario, rounds))
    judged = [_judged(one) for one in scoring.judge_cells(scores)]
    head = "| cell | regret | interval | verdict | best of each half | over stock | noise |"
    beaten = [
        f"Geometric mean over {other}: "
        f"{scoring.geometric_mean_over(cells, 'recommended', other):.2f}x"
        for other in ("stock", "always-on", "form")
        if cells
    ]
    return "\n".join([head, "|---|---|---|---|---|---|---|", *judged, "", *beaten, "", *lines])


def rounds_of(measurements: list[Measurement], metric: str) -> dict[str, list[float]]:
    """Each candidate's values, of rounds in which no arm has a flag that discards it."""
    found = find_metric(metric)
    arms = sorted({block.arm for block in measurements})
    valid = _valid_rounds(measurements, arms)
    by_round: dict[int, dict[str, float]] = {}
    for block in measurements:
        value, number = found.read([block]).value, block.block // len(arms)
        if value is not None and value > 0 and number in valid:
            by_round.setdefault(number, {})[block.arm] = value
    whole = [values for _, values in sorted(by_round.items()) if len(values) == len(arms)]
    return {matrix.name_of_arm(arm): [values[arm] for values in whole] for arm in arms}


def _valid_rounds(measurements: list[Measurement], arms: list[str]) -> set[int]:
    first, *others = arms
    pairs = [
        pair_blocks(select_pairs(measurements, len(arms), against=first, arm=arm)).pairs
        for arm in others
    ]
    return set.intersection(*({pair.index for pair in of_arm} for of_arm in pairs))


def _medians(name: str, scenario: Scenario, rounds: dict[str, list[float]]) -> str:
    shown = ", ".join(
        f"{arm} {sorted(values)[len(values) // 2]:.4g}" for arm, values in rounds.items() if values
    )
    return f"- {name}, {scenario.title}: {scenario.primary_metric}: {shown}"


def _judged(one: scoring.Judged) -> str:
    s = one.score
    return (
        f"| {s.cell} | {s.regret:+.1%} | {s.low:+.1%} to {s.high:+.1%} | {one.outcome} "
        f"(p {one.p_adjusted:.3g}) | {', '.join(dict.fromkeys(s.opponents))} "
        f"| {s.against_stock:.2f} ({s.stock_low:.2f} to {s.stock_high:.2f}) "
        f"| {s.noise_floor:.1%} |"
    )


if __name__ == "__main__":
    sys.exit(main())
