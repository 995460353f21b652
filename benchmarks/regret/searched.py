"""Kept cells searched: the strategy of ``validate --search`` on the recorded rounds.

    python benchmarks/regret/searched.py            # prints the tables, nothing is written
    python benchmarks/regret/searched.py --write    # and the part of benchmarks/README.md

Nothing is run. The search begins with today's decisions (``replayed.py``), from full knowledge and
from that of a host in the field, and its candidates are the measured variants. The code is the
command's own; only the measuring bench is another one.

The rounds of a cell are dealt at random into three parts, so that no figure is used twice: one for
the short runs, one for the proof, and half of all rounds only for the score. The parts are small: a
proof of seven rounds draws from one to four, with replacement. So it is more certain of itself than
a real one. Wrong claims are therefore counted separately, by simulation: equal candidates with
lognormal noise, 200 searches.

An exhaustive run is a ``validate`` of each candidate against the recommendation and against the
current configuration, and one of these two, with as many pairs as the proof took.
"""

import argparse
import math
import random
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent))

import kept
import replayed
import scoring
import table
from scenarios import put
from scenarios import table as markdown

from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.experiment.experiment import GoesOn
from nginx_tune.experiment.validate.search import Contest, answer_of, hold_contest, new_contest
from nginx_tune.measure.proof.search import MOST_CANDIDATES, RECOMMENDED, TODAY, Rung
from nginx_tune.measure.proof.statistics import hodges_lehmann

PAGE = Path(__file__).resolve().parents[1] / "README.md"
DEALS = 4
"""The number of times that the rounds of a cell are dealt."""
MOST_RUNS = 80
"""Bound on the runs of a search, in place of its ten minutes."""
SIMULATED = 200
NOISE = 0.15
"""Standard deviation of a run's log; that of the kept cells is 0.1 to 0.3."""
SEED = 44

Draw = Mapping[str, Sequence[float]]


class PlayedBench:
    """Measures by drawing rounds; all variants of a round get values of the same recorded round."""

    metric = "played.requests_per_second"

    def __init__(self, short: Draw, proof: Draw, dice: random.Random) -> None:
        self._short, self._proof, self._dice = short, proof, dice
        self.used_seconds = 0.0
        """The number of runs so far, which replaces the time."""

    def has(self, seconds: float, *, share: float = 1.0) -> bool:
        """True if this many runs are left."""
        return self.used_seconds + seconds <= share * MOST_RUNS

    def screen(self, rung: Rung, _step: int) -> list[Measurement]:
        return [
            one
            for number in range(rung.rounds)
            for one in self._round(self._short, rung.names, number)
        ]

    def confirm(self, names: Sequence[str], goes_on: GoesOn, into: list[Measurement]) -> None:
        number = 0
        while goes_on(into):
            into += self._round(self._proof, names, number)
            number += 1

    def _round(self, draw: Draw, names: Sequence[str], number: int) -> list[Measurement]:
        place = self._dice.randrange(len(draw[names[0]]))
        self.used_seconds += len(names)
        return [
            Measurement(
                variant=name,
                number=number * len(names) + index,
                classes={
                    "played": ClassMeasurement(requests_per_second=math.exp(draw[name][place]))
                },
            )
            for index, name in enumerate(names)
        ]


class Played(NamedTuple):
    """The end of a search."""

    chosen: str
    runs: int
    proof_rounds: int
    candidates: int

    @property
    def exhaustive(self) -> int:
        """The number of runs of a validation of each candidate against both, and of these two."""
        return 2 * self.proof_rounds * (2 * self.candidates + 1)


def play(short: Draw, proof: Draw, names: Sequence[str], dice: random.Random) -> Played:
    """A search; ``short`` and ``proof`` are logs of values, higher is better."""
    bench = PlayedBench(short, proof, dice)
    contest: Contest = new_contest(names)
    hold_contest(contest, bench, bench, first_pairs=6, progress=lambda _: None)
    answer = answer_of(contest, {match: contest.judge(match) for match in contest.lookings})
    chosen = {"candidate": contest.contender or TODAY, "recommendation": RECOMMENDED}
    return Played(
        chosen.get(answer, RECOMMENDED if contest.reference == RECOMMENDED else TODAY),
        int(bench.used_seconds),
        len(contest.runs) // len(contest.finalists),
        len(names) - (2 if RECOMMENDED in names else 1),
    )


class Score(NamedTuple):
    """The score of a cell before and after the search."""

    before: bool
    after: bool
    played: Played


def search_cell(one: replayed.Replayed, dice: random.Random) -> Score:
    """Deal the rounds of a cell, search, and score the choice on rounds that did not affect it."""
    rounds, better = one.cell.rounds, one.cell.better
    count = min(map(len, rounds.values()))
    sign = 1.0 if better == "higher" else -1.0
    gains = {
        variant: [sign * math.log(value) for value in values[:count]]
        for variant, values in rounds.items()
    }
    dealt = dice.sample(range(count), count)
    scored, rest = dealt[: count // 2], dealt[count // 2 :]
    half = len(rest) // 2
    # If the recommendation is stock itself, nothing is recommended.
    by_name = {TODAY: "stock"} | ({} if one.variant == "stock" else {RECOMMENDED: one.variant})
    by_name |= {variant: variant for variant in gains if variant not in by_name.values()}
    short, proof = (
        {name: [gains[variant][n] for n in part] for name, variant in by_name.items()}
        for part in (rest[:half], rest[half:])
    )
    played = play(short, proof, list(by_name), dice)
    times = table.is_answer_time(one.cell.metric)

    def near(variant: str) -> bool:
        return _is_near(variant, gains, rounds, scored, times=times)

    return Score(near(one.variant), near(by_name[played.chosen]), played)


def _is_near(
    variant: str, gains: Draw, rounds: Draw, scored: Sequence[int], *, times: bool
) -> bool:
    """True if tolerably near the best of the other half of these rounds (``scoring``)."""
    halves = scored[::2], scored[1::2]
    best = [max(gains, key=lambda name: sum(gains[name][n] for n in half)) for half in halves]
    ends = [(n, best[1 - side]) for side, half in enumerate(halves) for n in half]
    regret = math.expm1(-hodges_lehmann([gains[variant][n] - gains[other][n] for n, other in ends]))
    missed = hodges_lehmann([rounds[variant][n] - rounds[other][n] for n, other in ends])
    return regret <= scoring.TOLERATED or (times and missed <= scoring.FLOOR_SECONDS)


def cells_table(cells: Sequence[kept.KeptCell]) -> str:
    """A row for each knowledge: over all cells, and over those with at least eight rounds."""
    head = [
        "knowledge", "cells", "dealt", "recommendation alone", "after the search",
        "runs of a search", "of an exhaustive one", "share",
    ]  # fmt: skip
    rows = []
    for name, knowledge in replayed.KNOWLEDGE.items():
        found = replayed.replay(cells, knowledge)
        many = [one for one in found if min(map(len, one.cell.rounds.values())) >= 8]
        for said, some in ((name, found), (f"{name}, eight rounds or more", many)):
            scores = [
                search_cell(one, random.Random(f"{SEED} {one.cell.name} {deal}"))  # noqa: S311
                for one in some
                for deal in range(DEALS)
            ]
            runs = sum(one.played.runs for one in scores) / len(scores)
            whole = sum(one.played.exhaustive for one in scores) / len(scores)
            rows.append(
                [
                    said,
                    str(len(some)),
                    str(len(scores)),
                    f"{sum(one.before for one in scores) / len(scores):.1%}",
                    f"{sum(one.after for one in scores) / len(scores):.1%}",
                    f"{runs:.1f}",
                    f"{whole:.1f}",
                    f"{runs / whole:.0%}",
                ]
            )
    return markdown([head, *rows])


def equal_winners(searches: int = SIMULATED, *, noise: float = NOISE, seed: int = SEED) -> int:
    """The number of searches among eight candidates, all equal to both, that announce a winner."""
    names = [TODAY, RECOMMENDED, *(f"candidate-{n}" for n in range(MOST_CANDIDATES))]
    wrong = 0
    for search in range(searches):
        dice = random.Random(f"{seed} {search}")  # noqa: S311  # the same figure each time
        drawn = {name: [dice.gauss(0, noise) for _ in range(200)] for name in names}
        chosen = play(drawn, drawn, names, dice).chosen
        wrong += chosen not in (RECOMMENDED, TODAY)
    return wrong


def main() -> None:
    """Print both tables, and write them on request."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="renew the part of the README")
    asked = parser.parse_args()
    wrong = equal_winners()
    said = f"Of {SIMULATED} simulated searches of eight candidates that are all equal, {wrong} "
    text = f"{cells_table(kept.read(kept.KEPT))}\n{said}announced a winner.\n"
    day = datetime.now(timezone.utc).date().isoformat()
    text += f"\n`python benchmarks/regret/searched.py --write`, {day}: replays alone.\n"
    print(text)
    if asked.write:
        put(PAGE, "searched cells", text)


if __name__ == "__main__":
    main()
