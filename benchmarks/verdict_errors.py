"""The shares of wrong and of missed verdicts, on runs of a real nginx.

    python benchmarks/verdict_errors.py [--experiments 4000] [--metric NAME]

The recorded runs are all of one configuration (``record_equal_runs.py``). They are dealt out to two
variants thousands of times and judged as ``validate`` does: any winner is an error. Then the same
is done with one variant's values multiplied by 1.2, a true difference of 20 %: the tool prints the
fewest pairs with which 80 % of these are found. The exit status is 1 if a metric has winners in
more than 5 % (plus three standard deviations of such a count), or if the difference is not found
with the number of pairs that the documentation states.
"""

import argparse
import math
import random
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

# The tests deal the same way.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "proof"))

from dealing import RECORDED, deal, deal_neighbours, outcome, read_recorded, values_of

from nginx_tune.documents.measurement import Measurement

Deal = Callable[..., list[Measurement]]
STATED_PAIRS = {
    "hot.requests_per_second": 6,
    "cold.requests_per_second": 6,
    "server.cpu_seconds_per_request": 10,
}
"""The documented numbers of pairs, for a host with the noise of the recorded one."""
PAIRS = (6, 7, 8, 9, 10, 12, 14, 16, 20, 24)
TRUE_RATIO = 1.2
MOST_WINNERS = 0.05
POWER = 0.8


def main() -> int:
    """Print the table; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experiments", type=int, default=4000)
    parser.add_argument("--metric", action="append", help="only these; may repeat")
    parser.add_argument("--runs", type=Path, default=RECORDED)
    given = parser.parse_args()
    recorded = read_recorded(given.runs)
    runs = recorded["blocks"]
    flags = sum(bool(run["flags"]) for run in runs)
    print(
        f"{len(runs)} runs of {recorded['duration_seconds']:g} s of nginx {recorded['nginx']} "
        f"on {recorded['host']}, {flags} of them with a flag; {given.experiments} "
        "pseudo-experiments a cell.\n"
    )
    print("| metric | spread | winners at 6 / 12 pairs | in pairs as they ran | 20 % found |")
    print("|---|---|---|---|---|")
    good = True
    for metric in given.metric or runs[0]["values"]:
        values = values_of(recorded, metric)
        if not values:
            continue
        chance = random.Random(metric)  # noqa: S311  # dealing
        false = [winners(deal, values, n, given.experiments, chance) for n in (6, 12)]
        ran = winners(deal_neighbours, values, 8, given.experiments, chance)
        needed = pairs_for_power(values, given.experiments)
        stated = STATED_PAIRS.get(metric)
        good &= max(*false, ran) <= MOST_WINNERS + chance_error(given.experiments)
        good &= stated is None or (needed is not None and needed <= stated)
        spread = statistics.stdev(values) / statistics.mean(values)
        found = f"{needed} pairs" if needed else f"more than {PAIRS[-1]} pairs"
        if stated:
            found += f" (stated: {stated})"
        print(
            f"| {metric} | {spread:.1%} | {false[0]:.1%} / {false[1]:.1%} | {ran:.1%} | {found} |"
        )
    print(f"\n{'all within bounds' if good else 'OUT OF BOUNDS'}")
    return 0 if good else 1


def chance_error(experiments: int) -> float:
    """The margin above a share of 5 % in so many experiments: three standard deviations."""
    return 3 * math.sqrt(MOST_WINNERS * (1 - MOST_WINNERS) / experiments)


def winners(
    how: Deal, values: list[float], pairs: int, experiments: int, chance: random.Random
) -> float:
    """The share of experiments without any effect in which one variant wins."""
    seen = [outcome(how(values, chance, pairs=pairs)) for _ in range(experiments)]
    return sum(one in ("better", "worse") for one in seen) / experiments


def pairs_for_power(values: list[float], experiments: int) -> int | None:
    """The fewest pairs with which the true difference is found often enough; None for none."""
    for pairs in PAIRS:
        chance = random.Random(f"power {pairs}")  # noqa: S311  # dealing
        tries = max(experiments // 10, 200)
        seen = [outcome(deal(values, chance, pairs=pairs, ratio=TRUE_RATIO)) for _ in range(tries)]
        if seen.count("better") >= POWER * tries:
            return pairs
    return None


if __name__ == "__main__":
    sys.exit(main())
