"""The cost of adding the partial results of a month, and the size of the sum.

    python benchmarks/merge_month.py [--lines N] [--parts N]

Prints a Markdown table. No log is read: the tallies, one for each part of thirty days, are drawn
from a seed in the reader's format. They have samples of a hundred million objects, whose popularity
follows a Zipf law of 0.9, samples of lines, and a row for every second. CPU seconds and memory are
those of the command and its children.
"""

import argparse
import random
import sys
import tempfile
from array import array
from collections.abc import Sequence
from operator import sub
from pathlib import Path
from typing import Any

import msgspec
from learn_speed import run

from nginx_tune import __version__
from nginx_tune.decide.workload.log_format import COMBINED, parse_log_format
from nginx_tune.documents.learning import LearnPlan, Partial, RequestSample
from nginx_tune.observe.log_partials import pack_partial

DAYS = 30
OBJECTS = 100_000_000
EXPONENT = 0.9
START = 1_788_220_800
NOTHING = RequestSample(level=0, requests=[])
PLAN = LearnPlan(format=parse_log_format(COMBINED), key="")


class Month:
    """Draws the tally of each part of the month."""

    def __init__(self, lines: int, parts: int) -> None:
        self._rng = random.Random(46)  # noqa: S311  # a draw, not a secret
        self._lines = lines // parts
        self._seconds = DAYS * 86_400 // parts
        self._level = level_for(min(OBJECTS, self._lines), PLAN.most_objects)
        ranks = self._rng.sample(range(1, OBJECTS), OBJECTS >> self._level)
        self._hashes = hashes(self._rng, len(ranks), self._level)
        shares = sum(rank**-EXPONENT for rank in range(1, 1 << 20))
        shares += ((OBJECTS**0.1) - (1 << 20) ** 0.1) / 0.1
        self._requests = [self._lines * rank**-EXPONENT / shares for rank in ranks]
        self._sizes = [int(2 ** self._rng.uniform(10, 20)) for _ in ranks]

    def part(self, number: int) -> Partial:
        """The partial result of one part."""
        tally = {
            "counts": self._counts(),
            "seconds": self._rows(START + number * self._seconds),
            "connections": {"level": 0, "gaps": []},
            "objects": self._objects(),
            "data_lines": self._data_lines(),
            "manifest": NOTHING,
        }
        return Partial(
            version=__version__,
            plan=PLAN,
            key_fingerprint="0" * 16,
            logs=[f"{number:032x}"],
            tally=msgspec.Raw(msgspec.json.encode(tally)),
            places=NOTHING,
        )

    def _counts(self) -> dict[str, Any]:
        lines = self._lines
        return {
            "lines": lines, "refused": {}, "requests": lines, "unreadable_requests": 0,
            "methods": {"GET": lines}, "statuses": {"200": lines}, "protocols": {"2": lines},
            "tls": {}, "cache_statuses": {}, "upstream_requests": 0, "sent_bytes": lines << 15,
            "data_requests": lines, "data_bytes": lines << 15, "partial_requests": 0,
            "timed_requests": lines, "busy_milliseconds": 200 * lines, "numbered_requests": 0,
            "nth_requests": [], "later_requests": 0, "round_trips": {},
        }  # fmt: skip

    def _rows(self, first: int) -> dict[str, Any]:
        rate = self._lines / self._seconds
        noise = [self._rng.gauss(0, rate**0.5) for _ in range(3 * self._seconds)]
        columns = noise[::3], noise[1::3], noise[2::3]
        return {
            "level": 0,
            "gaps": [first, *[1] * (self._seconds - 1)],
            "requests": [max(0, round(rate + more)) for more in columns[0]],
            "changes": [round(more / 4) for more in columns[1]],
            "partials": [max(0, round(200 * (rate + more))) for more in columns[2]],
        }

    def _objects(self) -> dict[str, Any]:
        draw = self._rng.random
        drawn = zip(self._hashes, self._requests, self._sizes, strict=True)
        seen = [(key, max(1, round(mean)), size) for key, mean, size in drawn
                if mean > 1 or draw() < mean]  # fmt: skip
        keys, requests, sizes = map(list, zip(*seen, strict=True))
        return {"level": self._level, "gaps": gaps(keys), "requests": requests, "sizes": sizes}

    def _data_lines(self) -> dict[str, Any]:
        level = level_for(self._lines, PLAN.most_lines)
        count = self._lines >> level
        asked = self._rng.choices(range(len(self._hashes)), self._requests, k=count)
        return {
            "level": level,
            "gaps": gaps(hashes(self._rng, count, level)),
            "times": [1] * count,
            "objects": [self._hashes[at] for at in asked],
            "sizes": [self._sizes[at] for at in asked],
        }


def level_for(count: int, most: int) -> int:
    """The lowest level at which a sample with this many hashes fits."""
    return next(level for level in range(64) if count >> level <= 0.99 * most)


def hashes(rng: random.Random, count: int, level: int) -> list[int]:
    """Distinct hashes of a sample's level, sorted."""
    drawn = array("Q", rng.randbytes(8 * count))
    return sorted({key >> level for key in drawn})


def gaps(keys: Sequence[int]) -> list[int]:
    return [*keys[:1], *map(sub, keys[1:], keys)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lines", type=int, default=10_000_000_000)
    parser.add_argument("--parts", type=int, default=DAYS)
    asked = parser.parse_args()
    month = Month(asked.lines, asked.parts)
    with tempfile.TemporaryDirectory() as folder:
        parts = [Path(folder) / f"{number}.partial" for number in range(asked.parts)]
        for number, path in enumerate(parts):
            path.write_bytes(pack_partial(month.part(number)))
        whole = Path(folder) / "whole"
        merge = [sys.executable, "-m", "nginx_tune", "merge", *map(str, parts)]
        cost = run([*merge, "--partial", str(whole), "-f", "json"], folder)
        sizes = [path.stat().st_size / 1e6 for path in parts]
        print("| lines | partial results | of MB each | sum MB | s | CPU s | memory MB |")
        print("|--:|--:|--:|--:|--:|--:|--:|")
        print(f"| {asked.lines:,} | {asked.parts} | {sum(sizes) / len(sizes):.1f} "
              f"| {whole.stat().st_size / 1e6:.1f} | {cost.seconds:.1f} | {cost.cpu_seconds:.1f} "
              f"| {cost.memory_bytes / 1e6:.0f} |")  # fmt: skip


if __name__ == "__main__":
    main()
