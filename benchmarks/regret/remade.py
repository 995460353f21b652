"""Predictions of kept runs by the current model, beside those that were made before the run.

    python benchmarks/regret/remade.py FILE...

Nothing is run: facts and scenario are those of the run. Only the prediction from before the run
tests the model; a new one, made with the result known, shows how a change of the model affects
measured cells. FILE is a scenario_run document of a drawn cell. Prints Markdown.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent))

import kept
import msgspec
from scenarios import table as markdown

from nginx_tune.decide.engine import decide
from nginx_tune.documents.base import decode
from nginx_tune.documents.decisions import Decisions
from nginx_tune.documents.scenario import PredictionResult, Scenario, ScenarioRun
from nginx_tune.experiment.scenario.workload import declared_site, plan_workload
from nginx_tune.experiment.session import place_site
from nginx_tune.nginx.lab.operation import LOOPBACK, Placement


class Remade(NamedTuple):
    """A cell with the predictions of then and now."""

    name: str
    before: list[kept.KeptNumber]
    today: list[kept.KeptNumber]
    verdicts: dict[str, tuple[str, str]]
    """Decisions whose verdict has changed: before, today."""


def remake(run: ScenarioRun, scenario: Scenario) -> Remade:
    """Both predictions for a run, each number beside its measurement."""
    lab = scenario.lab
    there = Placement(
        address=LOOPBACK,
        origin=f"{LOOPBACK}:1" if lab.topology == "proxy" else None,
        certificate="/certificate" if lab.tls else None,
        certificate_key="/key" if lab.tls else None,
    )
    site = place_site(declared_site(scenario), lab, there)
    made = decide(run.facts, plan_workload(scenario, run.facts), site=site)
    again = msgspec.structs.replace(
        run,
        prediction=made,
        predictions=[
            found for one in run.predictions if (found := _with_range(one, made)) is not None
        ],
    )
    before, today = ({d.id: d.verdict for d in one.decisions} for one in (run.prediction, made))
    return Remade(
        name=run.name,
        before=list(kept.numbers_of(run, scenario)),
        today=list(kept.numbers_of(again, scenario)),
        verdicts={
            name: (verdict, today[name])
            for name, verdict in before.items()
            if today.get(name, verdict) != verdict
        },
    )


def _with_range(one: PredictionResult, made: Decisions) -> PredictionResult | None:
    """A measurement with today's predicted range; None if it is no longer predicted."""
    for decision in made.decisions:
        for predicted in decision.predicted:
            if (decision.id, predicted.metric) == (one.decision, one.metric):
                return msgspec.structs.replace(
                    one, low=predicted.low, expected=predicted.expected, high=predicted.high
                )
    return None


def report(cells: Sequence[Remade]) -> str:
    """A line for each number, the verdicts that changed, and the counts."""
    rows = [["cell", "quantity", "measured", "before the run", "made again"]]
    for cell in cells:
        first, second = ({n.metric: n for n in numbers} for numbers in (cell.before, cell.today))
        rows += [
            [cell.name, metric, _measured(metric, first, second),
             _range(first.get(metric)), _range(second.get(metric))]
            for metric in dict.fromkeys([*first, *second])
        ]  # fmt: skip
    changed = [
        f"- {cell.name}: {name} was {before}, is {today}; measured is what the recommendation of "
        "before did, not what that of today would do"
        for cell in cells
        for name, (before, today) in cell.verdicts.items()
    ]
    counts = "; ".join(
        f"{said} {sum(n.inside for n in numbers)} of {len(numbers)} inside"
        for said, numbers in (
            ("before the runs", [n for cell in cells for n in cell.before]),
            ("made again", [n for cell in cells for n in cell.today]),
        )
    )
    return "\n".join([markdown(rows), *changed, *([""] if changed else []), f"{counts}."])


def _measured(metric: str, *predicted: dict[str, kept.KeptNumber]) -> str:
    return next(f"{one[metric].measured:.3g}" for one in predicted if metric in one)


def _range(one: kept.KeptNumber | None) -> str:
    if one is None:
        return "none"
    said = f"{one.expected:.3g} ({one.low:.3g} to {one.high:.3g})"
    return said if one.inside else f"**{said}**"


def main() -> None:
    """Print both predictions for the given cells."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", metavar="FILE", type=Path, nargs="+")
    cells = []
    for file in parser.parse_args().files:
        run = decode(ScenarioRun, file.read_bytes(), source=str(file))
        cells.append(remake(run, kept.scenario_named(run.name)))
    print(report(cells))


if __name__ == "__main__":
    main()
