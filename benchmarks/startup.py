"""The start-up time of the commands: whole processes, interleaved, beside importing click.

    python benchmarks/startup.py [--rounds N] [--conf /etc/nginx/nginx.conf]

Prints a Markdown table. Every round runs each command once in a new random order, so that other
work on the machine affects all of them. The table has the median of the rounds with the quartiles.
"""

import argparse
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

BASELINE = "python -c 'import click'"


def commands(conf: str) -> dict[str, list[str]]:
    """The timed commands by their names in the table; the baseline first."""
    tool = str(Path(sys.executable).with_name("nginx-tune"))
    return {
        BASELINE: [sys.executable, "-c", "import click"],
        "nginx-tune --help": [tool, "--help"],
        "nginx-tune schema facts": [tool, "schema", "facts"],
        "nginx-tune inspect -f json": [tool, "inspect", "-f", "json"],
        f"nginx-tune audit {conf} -f json": [tool, "audit", conf, "-f", "json"],
    }


def run(command: list[str]) -> float:
    """Seconds from start to exit."""
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, check=False)
    seconds = time.perf_counter() - start
    if done.returncode not in (0, 1):  # 1: audit found something
        sys.exit(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.decode().strip()}")
    return seconds


def measure(jobs: dict[str, list[str]], rounds: int) -> dict[str, list[float]]:
    """The times of each command, one per round, after one round that warms the caches."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    chance = random.Random(1)  # noqa: S311  # an order, not a secret
    for number in range(rounds + 1):
        for name in chance.sample(list(jobs), len(jobs)):
            seconds = run(jobs[name])
            if number:
                times[name].append(seconds)
    return times


def table(times: dict[str, list[float]]) -> str:
    """Medians with quartiles, and the ratio of each median to the baseline's."""
    base = statistics.median(times[BASELINE])
    lines = ["| command | median ms | quartiles ms | ratio |", "|---|--:|--:|--:|"]
    for name, values in times.items():
        low, middle, high = (1e3 * value for value in statistics.quantiles(values, n=4))
        lines.append(
            f"| `{name}` | {middle:.0f} | {low:.0f}–{high:.0f} | {middle / base / 1e3:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--conf", default="/etc/nginx/nginx.conf")
    options = parser.parse_args()
    times = measure(commands(options.conf), max(options.rounds, 10))
    print(f"Python {sys.version.split()[0]}, {max(options.rounds, 10)} rounds, interleaved\n")
    print(table(times))


if __name__ == "__main__":
    main()
