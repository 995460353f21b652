"""The share of claims and predictions of the scenarios that held, over all kept runs.

    sudo python benchmarks/scenarios.py -o DIR      a run of all of them
    python benchmarks/scenario_runs.py --add DIR    keep what it measured, renew the table
    python benchmarks/scenario_runs.py              renew the table alone

Kept runs are the lines of benchmarks/scenario_runs.jsonl, one for each scenario and run: its date,
its host, and each claim and prediction with its measurement. A run counts for a claim as long as
the claim is about the same quantity: if only its bound was changed, old measurements are judged by
the new bound, and any other change starts anew. A prediction is judged by the range that was stated
before its run, whatever the model predicts now.
"""

import argparse
import re
import sys
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path

import msgspec
from scenarios import all_scenarios, prediction_range, put, table

from nginx_tune.documents.base import decode
from nginx_tune.documents.scenario import Claim, Scenario, ScenarioRun
from nginx_tune.measure.proof.expression import COMPARE, parse_expression
from nginx_tune.report.quantities import measured_text
from nginx_tune.report.scenario import expected_text
from nginx_tune.report.text import number_text

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "benchmarks" / "scenario_runs.jsonl"
PAGE = ROOT / "benchmarks" / "README.md"
ASKED_RUNS = 10
_BOUND = re.compile(r"(?<=[<>=] )[0-9.]+[A-Za-z%/µ×]*$")


class KeptClaim(msgspec.Struct, frozen=True, omit_defaults=True):
    """A claim of a run, as it was shown."""

    expected: str
    held: bool
    measured: float | None = None


class KeptPrediction(msgspec.Struct, frozen=True):
    """A prediction of a run, of a variant against the baseline."""

    variant: str = msgspec.field(name="arm")
    metric: str
    expected: str
    """The prediction with its range, as shown."""
    inside: bool
    measured: float


class KeptRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """A whole run of a scenario."""

    scenario: str
    ended: str
    nginx: str
    kernel: str
    claims: dict[str, KeptClaim]
    predictions: list[KeptPrediction] = []


def kept(run: ScenarioRun, ended: datetime) -> KeptRun:
    """The parts of a run to keep, without claims that were not tested on that host."""
    environment = run.verdict.environment
    return KeptRun(
        scenario=run.name,
        ended=ended.isoformat(timespec="seconds"),
        nginx=environment.nginx_version or "",
        kernel=environment.kernel_release or "",
        claims={
            claim.name: KeptClaim(expected_text(claim), claim.held, claim.measured)
            for claim in run.claims
            if not claim.left_out
        },
        predictions=[
            KeptPrediction(one.variant, one.metric, prediction_range(one), one.inside, one.measured)
            for one in run.predictions
            if one.inside is not None and one.measured is not None
        ],
    )


def read(file: Path) -> list[KeptRun]:
    """All kept runs."""
    if not file.exists():
        return []
    return [msgspec.json.decode(line, type=KeptRun) for line in file.read_bytes().splitlines()]


def add(file: Path, found: Iterable[KeptRun]) -> int:
    """Append runs that are not there yet; returns their number."""
    there = read(file)
    known = {(one.scenario, one.ended) for one in there}
    new = [one for one in found if (one.scenario, one.ended) not in known]
    lines = [msgspec.json.encode(one) for one in (*there, *new)]
    file.write_bytes(b"".join(line + b"\n" for line in lines))
    return len(new)


def found_in(directory: Path) -> list[KeptRun]:
    """The runs with documents in a directory."""
    runs = []
    for file in sorted(directory.glob("*.json")):
        ended = datetime.fromtimestamp(file.stat().st_mtime, timezone.utc)
        runs.append(kept(decode(ScenarioRun, file.read_bytes()), ended))
    return runs


def told_of(scenario: Scenario, claim: Claim, runs: list[KeptRun]) -> list[KeptClaim]:
    """The results of the runs for a claim as it is now."""
    mine = (run.claims.get(claim.name) for run in runs if run.scenario == scenario.name)
    return [now for one in mine if one is not None and (now := judged_anew(claim, one))]


def judged_anew(claim: Claim, one: KeptClaim) -> KeptClaim | None:
    """A kept result judged by the claim's present bound; None if it was about something else."""
    text = expected_text(claim)
    if one.expected == text:
        return one
    if one.measured is None or claim.expect == "fails":
        return None
    if _BOUND.sub("", one.expected) != _BOUND.sub("", text):
        return None
    bound = parse_expression(claim.expression)
    return KeptClaim(text, COMPARE[bound.operator](one.measured, bound.limit), one.measured)


def row(scenario: Scenario, claim: Claim, told: list[KeptClaim]) -> list[str]:
    """A line of the table: the lowest and highest measurement, and the share that held."""
    measured = [one.measured for one in told if one.measured is not None]
    ends = (min(measured), max(measured)) if measured else ()
    texts = dict.fromkeys(measured_text(claim.expression, one) for one in ends)
    held = sum(one.held for one in told)
    share = f"{held} of {len(told)}"
    return [
        scenario.name, claim.source_row, claim.name, f"`{expected_text(claim)}`",
        claim.source_figure, " to ".join(texts) or "–",
        share if held == len(told) else f"**{share}**",
    ]  # fmt: skip


def summary(scenarios: list[Scenario], runs: list[KeptRun]) -> str:
    """The text for benchmarks/README.md.

    It has the claims with a figure of their source, and each that once did not hold.
    """
    if not runs:
        return "No run is kept.\n"
    every = [
        (scenario, claim, told)
        for scenario in scenarios
        for claim in scenario.claims
        if (told := told_of(scenario, claim, runs))
    ]
    least = min(len(told) for *_, told in every)
    always = sum(all(one.held for one in told) for *_, told in every)
    dates = sorted(run.ended[:10] for run in runs)
    kernels = ", ".join(sorted({run.kernel for run in runs}))
    said = (
        f"{len(every)} claims in {least} to {max(len(told) for *_, told in every)} runs each, "
        f"{dates[0]} to {dates[-1]} ({ASKED_RUNS} are wanted; kernel {kernels}): {always} held "
        "in all of theirs.\n"
    )
    shown = [one for one in every if one[1].source_figure or not all(kept.held for kept in one[2])]
    head = ["scenario", "row", "claim", "expected", "source's figure", "measured", "held"]
    text = f"{said}\n{table([head, *(row(*one) for one in shown)])}"
    return text + predictions(scenarios, runs)


def predictions(scenarios: list[Scenario], runs: list[KeptRun]) -> str:
    """The share of measurements within the range stated before the run; empty without any."""
    rows = []
    judged: list[KeptPrediction] = []
    for scenario in scenarios:
        told: dict[tuple[str, str], list[KeptPrediction]] = {}
        for run in sorted(runs, key=lambda run: run.ended):
            for one in run.predictions if run.scenario == scenario.name else []:
                told.setdefault((one.variant, one.metric), []).append(one)
        for (variant, metric), same in told.items():
            name = scenario.name if variant == "candidate" else f"{scenario.name}, {variant}"
            measured = [one.measured for one in same]
            texts = dict.fromkeys(map(number_text, (min(measured), max(measured))))
            inside = sum(one.inside for one in same)
            share = f"{inside} of {len(same)}"
            rows.append([
                name, metric, same[-1].expected, " to ".join(texts),
                share if inside == len(same) else f"**{share}**",
            ])  # fmt: skip
            judged += same
    if not rows:
        return ""
    inside = sum(one.inside for one in judged)
    head = ["scenario", "predicted", "expected (range), the last time", "measured", "inside"]
    said = f"{inside} of {len(judged)} predictions lay in the range stated before the run.\n"
    return f"\n{said}\n{table([head, *rows])}"


def main() -> None:
    """Keep the requested runs, and renew the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--add", metavar="DIR", type=Path)
    asked = parser.parse_args()
    if asked.add is not None:
        print(f"{add(KEPT, found_in(asked.add))} runs are new", file=sys.stderr)
    text = summary(list(all_scenarios().values()), read(KEPT))
    put(PAGE, "scenario runs", text)
    print(text)


if __name__ == "__main__":
    main()
