"""The kept results of randomly drawn cells, and their table.

    sudo python benchmarks/regret/draw.py --seed S --count N --results DIR   run cells
    python benchmarks/regret/kept.py --add DIR    keep them, renew their part of the page
    python benchmarks/regret/kept.py              renew the page alone

Both print a line for each cell too; benchmarks/README.md has the counts alone.

Kept cells are the lines of benchmarks/regret/drawn.jsonl: each candidate's value in every round,
the decisions and predictions before the first run, and the measurements. The cell itself is not
kept: its name has the seed that draws it, and a digest shows if the seed still draws the same cell.
"""

import argparse
import hashlib
import math
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent))

import draw
import matrix
import msgspec
import predicted
import run
import scoring
import table
from scenarios import put
from scenarios import table as markdown

from nginx_tune.documents.base import decode
from nginx_tune.documents.scenario import Scenario, ScenarioRun
from nginx_tune.measure.proof.metrics import find_metric

HERE = Path(__file__).parent
KEPT = HERE / "drawn.jsonl"
PAGE = HERE.parent / "README.md"
_CONTROL = "net.ipv4.tcp_congestion_control"


class KeptNumber(msgspec.Struct, frozen=True, omit_defaults=True):
    """A predicted quantity, its range, and what was measured."""

    metric: str
    expected: float
    low: float
    high: float
    measured: float

    @property
    def inside(self) -> bool:
        """True if the measured value is in the range."""
        return self.low <= self.measured <= self.high


class KeptCell(msgspec.Struct, frozen=True):
    """A drawn cell with its results."""

    name: str
    digest: str
    """The digest of the drawn cell; see ``digest_of``."""
    ended: str
    nginx: str
    kernel: str
    metric: str
    better: scoring.Better
    rounds: dict[str, list[float]]
    """Each candidate's value of the metric in every valid round."""
    decided: dict[str, str]
    """The verdict of each decision that sets or would set something."""
    numbers: list[KeptNumber]
    control: str = "bbr"
    """The congestion control of the run's network; earlier runs inherited the machine's."""


def digest_of(cell: dict[str, Any]) -> str:
    """Twelve hex digits that change if the name draws another cell."""
    return hashlib.sha256(msgspec.json.encode(cell, order="deterministic")).hexdigest()[:12]


def drawn(name: str) -> dict[str, Any]:
    """The cell with a name ``drawn-SEED-NUMBER``.

    Errors: ValueError for another name.
    """
    kind, seed, number = name.split("-")
    if kind != "drawn":
        raise ValueError(f"'{name}' is no drawn cell")
    return dict(draw.draw_cells(int(seed), int(number) + 1))[name]


def scenario_named(name: str) -> Scenario:
    """A drawn cell as the scenario that runs it."""
    tables = msgspec.toml.decode((HERE / "candidates.toml").read_bytes())
    candidates = matrix.read_candidates(tables)
    return matrix.scenario_of(name, drawn(name), candidates, rounds=run.ROUNDS)


def kept(measured: ScenarioRun, scenario: Scenario, ended: datetime) -> KeptCell:
    """The parts of a run to keep."""
    environment = measured.verdict.environment
    metric = scenario.primary_metric
    return KeptCell(
        name=measured.name,
        digest=digest_of(drawn(measured.name)),
        ended=ended.isoformat(timespec="seconds"),
        nginx=environment.nginx_version or "",
        kernel=environment.kernel_release or "",
        metric=metric,
        better="higher" if find_metric(metric).better_when == "higher" else "lower",
        rounds={
            variant: [_short(value) for value in values]
            for variant, values in table.rounds_of(measured.measurements, metric).items()
        },
        decided={
            one.id: one.verdict
            for one in measured.prediction.decisions
            if one.settings or one.proposed
        },
        numbers=list(numbers_of(measured, scenario)),
        control=environment.tcp.get(_CONTROL, ""),
    )


def numbers_of(measured: ScenarioRun, scenario: Scenario) -> Iterable[KeptNumber]:
    """Each quantity that was predicted and measured."""
    ratios = [one.metric for one in measured.predictions if one.metric.startswith("ratio(")]
    names = [predicted.HIT_RATIO, predicted.BLOCKED_RATIO, *ratios]
    for name, one in zip(names, predicted.compare_all(measured, scenario), strict=True):
        values = (one.predicted, one.low, one.high, one.measured)
        told = [_short(value) for value in values if value is not None]
        if len(told) == len(values):
            yield KeptNumber(name, *told)


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def read(file: Path) -> list[KeptCell]:
    """All kept cells."""
    if not file.exists():
        return []
    return [msgspec.json.decode(line, type=KeptCell) for line in file.read_bytes().splitlines()]


def add(file: Path, found: Iterable[KeptCell]) -> int:
    """Keep cells that are new or were run again; returns their number."""
    there = {one.name: one for one in read(file)}
    new = [one for one in found if there.get(one.name) != one]
    there.update({one.name: one for one in new})
    lines = [msgspec.json.encode(there[name]) for name in sorted(there)]
    file.write_bytes(b"".join(line + b"\n" for line in lines))
    return len(new)


def found_in(directory: Path) -> list[KeptCell]:
    """The drawn cells with documents in a directory."""
    cells = []
    for file in sorted(directory.glob("drawn-*.json")):
        ended = datetime.fromtimestamp(file.stat().st_mtime, timezone.utc)
        measured = decode(ScenarioRun, file.read_bytes(), source=str(file))
        cells.append(kept(measured, scenario_named(measured.name), ended))
    return cells


def score(cell: KeptCell, variant: str = "recommended") -> scoring.CellScore | None:
    """The score of the recommendation, or of another candidate in its place.

    None if too few rounds are valid, or the cell has no such candidate.
    """
    if min(len(cell.rounds.get(one, ())) for one in ("stock", variant)) < scoring.FEWEST_ROUNDS:
        return None
    times = table.is_answer_time(cell.metric)
    return scoring.score_cell(
        cell.name, cell.rounds, cell.better, recommended=variant, of_answers=times
    )


def summary(cells: Sequence[KeptCell]) -> str:
    """The text for benchmarks/README.md: a line a seed, and a line a candidate."""
    if not cells:
        return "No cell is kept.\n"
    head = [
        "seed",
        "control",
        "cells",
        "run",
        "scored",
        "worse than stock beyond noise",
        f"within {scoring.TOLERATED_TEXT} of the best",
        f"beyond {scoring.TOLERATED:.0%} by noise alone",
        "clearly further",
        "predictions inside",
    ]
    rows = [_seed_row(seed, found, judge(found)) for seed, found in by_seed(cells).items()]
    return "\n".join([markdown([head, *rows]), candidates_table(cells)])


def by_seed(cells: Sequence[KeptCell]) -> dict[str, list[KeptCell]]:
    """The cells of each seed."""
    found: dict[str, list[KeptCell]] = {}
    for cell in cells:
        found.setdefault(cell.name.split("-")[1], []).append(cell)
    return found


def judge(cells: Sequence[KeptCell]) -> list[scoring.Judged]:
    """The judgements of one seed's cells that have enough rounds."""
    return scoring.judge_cells([one for one in map(score, cells) if one is not None])


def cells_table(cells: Sequence[KeptCell]) -> str:
    """A line for each cell."""
    judged = {one.score.cell: one for found in by_seed(cells).values() for one in judge(found)}
    head = ["cell", "what", "over stock", "regret", "predictions inside", "outside"]
    return markdown([head, *(_row(cell, judged.get(cell.name)) for cell in cells)])


def candidates_table(cells: Sequence[KeptCell]) -> str:
    """Each candidate in place of the recommendation, over all cells with enough rounds.

    All have the same noise, so this shows the value of the recommendation better than "within 10 %
    of the best" alone does.
    """
    variants = sorted(
        {variant for cell in cells for variant in cell.rounds if variant != "stock-again"}
    )
    variants.sort(key=lambda variant: (variant != "recommended", variant == "stock"))
    rows = [_candidate(variant, cells) for variant in variants]
    near = f"within {scoring.TOLERATED_TEXT} of the best"
    near_alone = f"within {scoring.TOLERATED:.0%}"
    head = [
        "in all cells",
        "scored",
        near,
        near_alone,
        "worse than stock beyond noise",
        "mean regret",
    ]
    return markdown([head, *(row for row in rows if row)])


def _candidate(variant: str, cells: Sequence[KeptCell]) -> list[str]:
    scores = [one for cell in cells if (one := score(cell, variant)) is not None]
    if not scores:
        return []
    mean = math.expm1(math.fsum(math.log1p(one.regret) for one in scores) / len(scores))
    return [
        variant,
        str(len(scores)),
        str(sum(map(scoring.is_within, scores))),
        str(sum(one.regret <= scoring.TOLERATED for one in scores)),
        str(sum(one.stock_high < 1 for one in scores)),
        f"{mean:+.1%}",
    ]


def _seed_row(seed: str, cells: Sequence[KeptCell], judged: Sequence[scoring.Judged]) -> list[str]:
    scores = [one.score for one in judged]
    worse = sum(one.stock_high < 1 for one in scores)
    near = sum(map(scoring.is_within, scores))
    names = {one.cell for one in scores}
    chances = (scoring.chance_beyond(one.rounds, one.better) for one in cells if one.name in names)
    beyond = sum(one.outcome == "worse" for one in judged)
    numbers = [number for cell in cells for number in cell.numbers]
    inside = sum(number.inside for number in numbers)
    dates = sorted({cell.ended[:10] for cell in cells})
    return [
        seed, ", ".join(sorted({cell.control for cell in cells})), str(len(cells)),
        " to ".join(dict.fromkeys((dates[0], dates[-1]))), str(len(scores)),
        str(worse), str(near), f"{math.fsum(chances):.0f}", str(beyond),
        f"{inside} of {len(numbers)}",
    ]  # fmt: skip


def _row(cell: KeptCell, judged: scoring.Judged | None) -> list[str]:
    outside = [
        f"{one.metric} {one.measured:.3g} ({one.low:.3g} to {one.high:.3g})"
        for one in cell.numbers
        if not one.inside
    ]
    share = f"{sum(one.inside for one in cell.numbers)} of {len(cell.numbers)}"
    title = str(drawn(cell.name)["title"]).removeprefix("Drawn: ")
    if judged is None:
        return [cell.name, title, "–", "too few rounds", share, ", ".join(outside)]
    s = judged.score
    over = f"{s.against_stock:.2f}× ({s.stock_low:.2f} to {s.stock_high:.2f})"
    regret = f"{s.regret:+.1%} ({judged.outcome})"
    return [
        cell.name, title, f"**{over}**" if s.stock_high < 1 else over, regret, share,
        ", ".join(outside),
    ]  # fmt: skip


def main() -> None:
    """Keep the requested cells, renew the page, and print a line for each cell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--add", metavar="DIR", type=Path)
    asked = parser.parse_args()
    if asked.add is not None:
        print(f"{add(KEPT, found_in(asked.add))} cells are new", file=sys.stderr)
    cells = read(KEPT)
    text = summary(cells)
    put(PAGE, "drawn cells", text)
    print(f"{text}\n{cells_table(cells)}")


if __name__ == "__main__":
    main()
