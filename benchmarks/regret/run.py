"""Regret of the recommended configuration over ten cells, measured in the lab (needs root).

    python benchmarks/regret/run.py --results DIR [CELL]...

Each finished cell is kept as DIR/CELL.json (a scenario_run document) and is not run again. With
--score nothing is run, and the tables are made from the kept cells. They are Markdown.
"""

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

from nginx_tune.change.generate.nginx_conf import write_variant
from nginx_tune.documents.base import decode, encode
from nginx_tune.documents.scenario import Scenario, ScenarioRun
from nginx_tune.errors import NginxTuneError
from nginx_tune.experiment.scenario.run import run_scenario
from nginx_tune.host.live import LiveHost
from nginx_tune.nginx.binary import read_nginx

HERE = Path(__file__).parent
FIRST = 4
"""The first rounds of a cell, which continues while they leave a doubt."""
ROUNDS = 8
"""The fewest rounds with which a cell can be significant after Holm over ten: one-sided 1/256 each.
"""


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
    """Run the cells without results; prints the tables of all and returns the exit status.

    Each runs a few rounds, and then as many again while these leave a doubt, up to its own number.
    A cell with fewer rounds and a doubt continues where it ended.
    """
    candidates = _candidates()
    scenarios = {
        name: matrix.scenario_of(name, cell, candidates, rounds=rounds)
        for name, cell in cells.items()
    }
    results.mkdir(parents=True, exist_ok=True)
    _run_all(scenarios, results, minutes, run_one=_run_until_clear, is_done=_is_settled)
    status = _report(scenarios, results)
    print(f"\n{table.verdict_lines(_read(scenarios, results))}")
    return status


def _report(scenarios: Mapping[str, Scenario], results: Path) -> int:
    """Print the tables; returns 1 while a cell is missing."""
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
            name, msgspec.toml.decode(path.read_bytes()), candidates, rounds=rounds, seconds=seconds
        )
        for name, path in paths.items()
        if name in wanted
    }


def _run_all(
    scenarios: Mapping[str, Scenario],
    results: Path,
    minutes: float | None,
    run_one: Callable[[Scenario, Path], None] | None = None,
    is_done: Callable[[Scenario, Path], bool] | None = None,
) -> None:
    """Run the cells without results; a failing cell is reported and does not end the others."""
    done = is_done or (lambda _, path: path.exists())
    left = {name: one for name, one in scenarios.items() if not done(one, _path(results, name))}
    _say(f"{len(left)} cells, at most about {matrix.minutes(left.values()):.0f} minutes")
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
    """Run rounds until they suffice, at most the scenario's; start over if decisions changed."""
    while not _is_settled(scenario, path):
        run = _kept(path)
        there = 0 if run is None else rounds_of(run)
        more = _measured(_rest(scenario, there, min(scenario.pairs - there, max(FIRST, there))))
        if run is not None and _advice(run) != _advice(more):
            _say(f"{scenario.name}: what is recommended has changed; its rounds are run again")
            path.unlink()
            continue
        _keep(more if run is None else joined(run, more), path)


def _advice(run: ScenarioRun) -> list[tuple[str, ...]]:
    """The lines of the recommended configuration that decisions write."""
    settings = (one for decision in run.prediction.decisions for one in decision.settings)
    return sorted((one.context, one.block, one.directive, *one.args) for one in settings)


def _is_settled(scenario: Scenario, path: Path) -> bool:
    """True if the kept rounds suffice, or are all of the scenario's.

    A few remaining rounds are not worth a start.
    """
    run = _kept(path)
    if run is None:
        return False
    left = scenario.pairs - rounds_of(run)
    return left < scoring.FEWEST_ROUNDS or table.is_clear(table.Cell(run.name, scenario, run))


def rounds_of(run: ScenarioRun) -> int:
    """The number of rounds, including those that a flag discards."""
    variants = len({block.variant for block in run.measurements})
    return 1 + max((block.number for block in run.measurements), default=-1) // max(1, variants)


def _rest(scenario: Scenario, there: int, rounds: int) -> Scenario:
    """Further rounds, none of which repeats a draw of the kept ones.

    A round draws by the scenario's seed and its own number.
    """
    return msgspec.structs.replace(scenario, pairs=rounds, seed=scenario.seed + there)


def joined(first: ScenarioRun, second: ScenarioRun) -> ScenarioRun:
    """Two runs of a scenario as one with the rounds of both and the predictions of the first."""
    after = 1 + max((block.number for block in first.measurements), default=-1)
    later = [
        msgspec.structs.replace(block, number=block.number + after) for block in second.measurements
    ]
    return msgspec.structs.replace(first, measurements=[*first.measurements, *later])


def _measured(scenario: Scenario) -> ScenarioRun:
    nginx, _ = read_nginx(LiveHost(), to_run=True)
    return run_scenario(
        scenario,
        nginx=nginx,
        write_variant=write_variant,
        progress=lambda line: _say(f"{time.strftime('%H:%M:%S')} {scenario.name}: {line}"),
    )


def _keep(run: ScenarioRun, path: Path) -> None:
    half = path.with_suffix(".part")
    half.write_bytes(encode(run))
    half.replace(path)


def _kept(path: Path) -> ScenarioRun | None:
    return decode(ScenarioRun, path.read_bytes(), source=str(path)) if path.exists() else None


def _read(scenarios: Mapping[str, Scenario], results: Path) -> list[table.Cell]:
    return [
        table.Cell(name, scenario, run)
        for name, scenario in scenarios.items()
        if (run := _kept(_path(results, name))) is not None
    ]


def _path(results: Path, name: str) -> Path:
    return results / f"{name}.json"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
