"""Regret of the recommended configuration over ten cells, measured in the lab (needs root).

    python benchmarks/regret/run.py --results DIR [CELL]...

Each cell is kept as DIR/CELL.json (a scenario_run document) once it has run and is not run again;
with --score nothing is run and the tables are made from what is there. They are Markdown.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).parent))

import matrix
import scoring
import table

from nginx_tune.documents.base import decode, encode
from nginx_tune.documents.scenario import Scenario, ScenarioRun
from nginx_tune.emit.arms import write_arm
from nginx_tune.errors import NginxTuneError
from nginx_tune.host.live import LiveHost
from nginx_tune.nginx.binary import read_nginx
from nginx_tune.scenario.run import run_scenario

HERE = Path(__file__).parent
ROUNDS = 8
"""The fewest by which a cell can be significant after Holm over ten: one-sided 1/256 each."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cells", nargs="*", help="names of cells; default: all")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, help="of load in a block; default: the cell's own")
    parser.add_argument("--minutes", type=float, help="start no cell that would end later")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--score", action="store_true", help="only make the tables")
    asked = parser.parse_args()
    scenarios = _scenarios(asked.cells, asked.rounds, asked.seconds)
    asked.results.mkdir(parents=True, exist_ok=True)
    if not asked.score:
        _run_all(scenarios, asked.results, asked.minutes)
    return _report(scenarios, asked.results)


def run_cells(
    cells: Mapping[str, Mapping[str, Any]],
    results: Path,
    *,
    rounds: int,
    minutes: float | None = None,
) -> int:
    """Run cells that no file holds, where there is no result yet; the tables of all of them.

    Each runs half of its rounds, and the others only where the first half leaves a doubt.
    """
    candidates = _candidates()
    scenarios = {
        name: matrix.scenario_of(name, cell, candidates, rounds=rounds)
        for name, cell in cells.items()
    }
    results.mkdir(parents=True, exist_ok=True)
    _run_all(scenarios, results, minutes, run_one=_run_until_clear)
    status = _report(scenarios, results)
    print(f"\n{table.verdict_lines(_read(scenarios, results))}")
    return status


def _report(scenarios: Mapping[str, Scenario], results: Path) -> int:
    """Print the tables; 1 while a cell is missing."""
    cells = _read(scenarios, results)
    missing = [name for name in scenarios if name not in {cell.name for cell in cells}]
    print(table.render(cells, missing))
    return 1 if missing else 0


def _candidates() -> dict[str, matrix.Candidate]:
    tables = msgspec.toml.decode((HERE / "candidates.toml").read_bytes())
    return matrix.read_candidates(tables)


def _scenarios(names: Iterable[str], rounds: int, seconds: float | None) -> dict[str, Scenario]:
    candidates = _candidates()
    paths = {path.stem: path for path in sorted((HERE / "cells").glob("*.toml"))}
    wanted = set(names) or set(paths)
    if unknown := sorted(wanted - set(paths)):
        sys.exit(f"no cell '{unknown[0]}'; there are {', '.join(paths)}")
    return {
        name: matrix.scenario_of(
            name,
            msgspec.toml.decode(path.read_bytes()),
            candidates,
            rounds=rounds,
            seconds=seconds,
        )
        for name, path in paths.items()
        if name in wanted
    }


def _run_all(
    scenarios: Mapping[str, Scenario],
    results: Path,
    minutes: float | None,
    run_one: Callable[[Scenario, Path], None] | None = None,
) -> None:
    """Run what is not there yet; a cell that fails is said and does not end the others."""
    left = {name: one for name, one in scenarios.items() if not _path(results, name).exists()}
    _say(f"{len(left)} cells, about {matrix.minutes(left.values()):.0f} minutes")
    started = time.monotonic()
    for name, scenario in left.items():
        gone = (time.monotonic() - started) / 60
        if minutes is not None and gone + matrix.minutes([scenario]) > minutes:
            _say(f"{name}: left for later, {gone:.0f} minutes have gone")
            continue
        try:
            (run_one or _run)(scenario, _path(results, name))
        except NginxTuneError as error:
            _say(f"{name}: {error.message}")


def _run(scenario: Scenario, path: Path) -> None:
    _keep(_measured(scenario), path)


def _run_until_clear(scenario: Scenario, path: Path) -> None:
    """Half of the rounds, and the rest where they do not tell enough."""
    few = max(scoring.FEWEST_ROUNDS, scenario.pairs // 2)
    run = _measured(msgspec.structs.replace(scenario, pairs=few))
    if few < scenario.pairs and not table.is_clear(table.Cell(scenario.name, scenario, run)):
        run = joined(run, _measured(_rest(scenario, few)))
    _keep(run, path)


def _rest(scenario: Scenario, rounds: int) -> Scenario:
    """The rounds after the first ones, none of which draws what one of these has drawn.

    A round draws by the scenario's seed and its own number.
    """
    left = scenario.pairs - rounds
    return msgspec.structs.replace(scenario, pairs=left, seed=scenario.seed + rounds)


def joined(first: ScenarioRun, second: ScenarioRun) -> ScenarioRun:
    """Two runs of one scenario as one with the rounds of both, predicted before the first."""
    after = 1 + max((block.block for block in first.measurements), default=-1)
    later = [
        msgspec.structs.replace(block, block=block.block + after) for block in second.measurements
    ]
    return msgspec.structs.replace(first, measurements=[*first.measurements, *later])


def _measured(scenario: Scenario) -> ScenarioRun:
    nginx, _ = read_nginx(LiveHost(), to_run=True)
    return run_scenario(
        scenario,
        nginx=nginx,
        write_arm=write_arm,
        progress=lambda line: _say(f"{time.strftime('%H:%M:%S')} {scenario.name}: {line}"),
    )


def _keep(run: ScenarioRun, path: Path) -> None:
    half = path.with_suffix(".part")
    half.write_bytes(encode(run))
    half.replace(path)


def _read(scenarios: Mapping[str, Scenario], results: Path) -> list[table.Cell]:
    return [
        table.Cell(name, scenario, decode(ScenarioRun, path.read_bytes(), source=str(path)))
        for name, scenario in scenarios.items()
        if (path := _path(results, name)).exists()
    ]


def _path(results: Path, name: str) -> Path:
    return results / f"{name}.json"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
