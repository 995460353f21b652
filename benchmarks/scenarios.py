"""All scenarios, one after the other, and tables of their results.

    sudo python benchmarks/scenarios.py -o DIR [--only NAME]... [--write]
    python benchmarks/scenarios.py -o DIR --no-runs --write

These are the built-in ones and the files of benchmarks/scenarios. Each runs as written (some 45
minutes in all on two CPUs), limited to three times the expected time. Its document goes to
DIR/NAME.json, and a scenario with a document is not run again. The table also shows scenarios whose
claims do not hold, and those whose run fails or takes too long. ``--write`` renews the report of
the demo in benchmarks/README.md; ``scenario_runs.py`` writes the tables there. Run it without other
work on the machine.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from nginx_tune.cli.inputs import read_toml
from nginx_tune.documents.base import decode
from nginx_tune.documents.scenario import ClaimResult, PredictionResult, Scenario, ScenarioRun
from nginx_tune.experiment.scenario.files import list_scenarios, load_scenario
from nginx_tune.report.quantities import measured_text, ratio_text
from nginx_tune.report.scenario import expected_text, scenario_screen
from nginx_tune.report.screen import plain_text
from nginx_tune.report.text import number_text

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "benchmarks" / "README.md"
SHOWN = "thread-pools"
"""The scenario whose report the page shows: it is the last step of the demo."""
_OVERHEAD_SECONDS = 4.0
"""The overhead of a run in seconds: the server's start, a cold cache, the last answers."""
_BOUND = 3.0
_SETUP_SECONDS = 120.0


def expected_seconds(scenario: Scenario) -> float:
    """The approximate duration of a scenario."""
    run = scenario.warmup_seconds + scenario.duration_seconds + _OVERHEAD_SECONDS
    return (2 + len(scenario.variants)) * scenario.pairs * run


def all_scenarios() -> dict[str, Scenario]:
    """The scenarios by their argument for ``scenario run``: a built-in name, or a file; sorted."""
    given = {one.name: one for one in list_scenarios()}
    files = (ROOT / "benchmarks" / "scenarios").glob("*.toml")
    given |= {str(file): load_scenario(str(file), read_toml) for file in files}
    return dict(sorted(given.items(), key=lambda pair: pair[1].name))


def run(given: str, scenario: Scenario, file: Path) -> str:
    """Run a scenario; returns the reason why there is no document, or an empty string."""
    partial = file.with_suffix(".part")
    command = [sys.executable, "-m", "nginx_tune", "-q", "scenario", "run", given]
    seconds = _SETUP_SECONDS + _BOUND * expected_seconds(scenario)
    try:
        done = subprocess.run(
            [*command, "--no-store", "-f", "json", "-o", str(partial)],
            cwd=ROOT, capture_output=True, text=True, check=False, timeout=seconds,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"not done after {seconds:.0f} s"
    if not partial.exists() or not partial.stat().st_size:
        return (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
    partial.replace(file)
    return ""


def predicted_of(claim: ClaimResult, run: ScenarioRun) -> PredictionResult | None:
    """The prediction of a claim's quantity."""
    quantity = re.split(r"\s*(?:<=|>=|==|!=|<|>)", claim.expected)[0]
    same = (
        one for one in run.predictions if one.metric == quantity and one.variant == claim.variant
    )
    return next(same, None)


def claim_row(claim: ClaimResult, run: ScenarioRun) -> list[str]:
    """A line of the table: the source's figure, the prediction, and the measurement."""
    predicted = predicted_of(claim, run)
    range_text = ""
    if predicted is not None:
        low, high = (ratio_text(value).rstrip("×") for value in (predicted.low, predicted.high))
        outside = "" if predicted.inside else ", **outside**"
        range_text = f"{ratio_text(predicted.expected)} ({low}–{high}){outside}"
    held = "held" if claim.held else "**not held**"
    if claim.left_out:
        held = "not tried"
    elif 0 < claim.rounds_held < claim.rounds:
        held += f", in {claim.rounds_held} of {claim.rounds} rounds"
    measured = measured_text(claim.expected, claim.measured)
    if claim.measured is None and claim.reason:
        measured = claim.reason
    return [
        run.name, claim.source_row, claim.name, f"`{expected_text(claim)}`", claim.source_figure,
        range_text, measured, held,
    ]  # fmt: skip


def prediction_range(one: PredictionResult) -> str:
    """``32.9 (20.9 to 44.7)``."""
    low, expected, high = map(number_text, (one.low, one.expected, one.high))
    return f"{expected} ({low} to {high})"


def prediction_row(run: ScenarioRun, one: PredictionResult) -> list[str]:
    """A line of the table of predictions."""
    return [
        run.name if one.variant == "candidate" else f"{run.name}, {one.variant}",
        one.metric,
        prediction_range(one),
        one.source_figure,
        number_text(one.measured or 0.0),
        "inside" if one.inside else "**outside**",
    ]


def table(rows: list[list[str]]) -> str:
    """Rows as Markdown; the first is the head."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]]) + "\n"


def tables(runs: list[ScenarioRun], failed: dict[str, str], where: str) -> str:
    """A line for each claim and each prediction, in Markdown."""
    head = ["scenario", "row", "claim", "expected", "source", "predicted", "measured", ""]
    rows = [head, *(claim_row(claim, one) for one in runs for claim in one.claims)]
    claims = [claim for one in runs for claim in one.claims if not claim.left_out]
    judged = [p for one in runs for p in one.predictions if p.inside is not None]
    said = (
        f"Seen {where}: {sum(claim.held for claim in claims)} of {len(claims)} claims hold; "
        f"{sum(not one.inside for one in judged)} of {len(judged)} predictions lie outside "
        "their range.\n"
    )
    text = f"{said}\n{table(rows)}"
    numbers = [
        prediction_row(one, p) for one in runs for p in one.predictions if p.inside is not None
    ]
    if numbers:
        head = ["scenario", "predicted", "expected (range)", "source", "measured", ""]
        text += f"\n{table([head, *numbers])}"
    for name, why in failed.items():
        text += f"\n{name} gave no result: {why}\n"
    return text


_SHOWN_CLAIMS = 7


def example(one: ScenarioRun, where: str) -> str:
    """The example on the page: the report without decisions, notes and circumstances."""
    sentence = plain_text(scenario_screen(one)).partition("\n\n")[0]
    first = msgspec.structs.replace(one, claims=one.claims[:_SHOWN_CLAIMS])
    parts = plain_text(scenario_screen(first)).partition("\n\n")[2].split("\n\n")
    claims = next((part for part in parts if part.startswith("claims\n")), "")
    predicted = next((part for part in parts if "\n  ratio(" in part and part != claims), "")
    predicted = predicted[predicted.find("  predicted  ") :] if predicted else ""
    metrics = next((part for part in parts if part.startswith("metric  ")), "").splitlines()
    metrics = [line for line in metrics if not line.startswith("  ")]
    more = len(one.claims) - len(first.claims)
    claims += f"\n  and {more} more" if more else ""
    shown = [claims, predicted, "\n".join([*metrics[:7], "…"])]
    quoted = [*_wrapped(sentence), ""]
    for part in shown:
        quoted += [*part.splitlines(), ""]
    text = "\n".join(f"    {line}".rstrip() for line in quoted).rstrip()
    return f"It ends like this ({where}):\n\n{text}\n"


def _wrapped(sentence: str) -> list[str]:
    words, lines = sentence.split(), [""]
    for word in words:
        if len(lines[-1]) + len(word) > 100:  # columns
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def put(file: Path, mark: str, text: str) -> None:
    """Put the text between the marks.

    Errors: SystemExit if the file has no such marks.
    """
    begin, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->\n"
    before, found, rest = file.read_text().partition(begin)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        sys.exit(f"{file}: no marks '{mark}'")
    file.write_text(f"{before}{begin}{text}{end}{after}")


def where_of(runs: list[ScenarioRun], files: list[Path]) -> str:
    """``on 2026-11-22, nginx 1.22.1, kernel 6.18.5, 2 CPUs``."""
    oldest = min(file.stat().st_mtime for file in files)
    day = datetime.fromtimestamp(oldest, timezone.utc).date()
    environment = runs[0].verdict.environment
    return (
        f"on {day}, nginx {environment.nginx_version}, kernel {environment.kernel_release}, "
        f"{os.cpu_count()} CPUs"
    )


def main() -> None:
    """Run, print, and write on request."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-o", dest="directory", metavar="DIR", type=Path, required=True)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--no-runs", action="store_true", help="only what DIR has")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    asked.directory.mkdir(parents=True, exist_ok=True)
    scenarios = {
        given: one
        for given, one in all_scenarios().items()
        if not asked.only or one.name in asked.only
    }
    failed: dict[str, str] = {}
    for given, scenario in scenarios.items():
        file = asked.directory / f"{scenario.name}.json"
        if file.exists() or asked.no_runs:
            continue
        started = time.monotonic()
        print(f"{scenario.name}: about {expected_seconds(scenario):.0f} s", file=sys.stderr)
        if why := run(given, scenario, file):
            failed[scenario.name] = why
        print(f"  {why or 'done'} after {time.monotonic() - started:.0f} s", file=sys.stderr)
    files = [asked.directory / f"{scenario.name}.json" for scenario in scenarios.values()]
    files = [file for file in files if file.exists()]
    if not files:
        sys.exit("no scenario gave a result: " + "; ".join(f"{k}: {v}" for k, v in failed.items()))
    runs = [decode(ScenarioRun, file.read_bytes()) for file in files]
    text = tables(runs, failed, where_of(runs, files))
    print(text)
    if asked.write:
        for one, file in zip(runs, files, strict=True):
            if one.name == SHOWN:
                shown = example(one, where_of([one], [file]).removeprefix("on "))
                put(PAGE, "thread-pools", shown)


if __name__ == "__main__":
    main()
