"""The speed and memory of learning from logs, beside goaccess and awk.

    cd probes && cargo build --release --example access_log && cd ..
    python benchmarks/learn_speed.py [--lines N] [--rounds N]
    python benchmarks/learn_speed.py --stream 100000000

Prints a Markdown table. The log is generated from a seed, with a million objects and Zipf 0.8.
Every round runs each program once in a new random order. CPU seconds are those of the program and
its children; memory is the largest sum of theirs in samples taken every 20 ms. goaccess writes its
whole report; awk counts statuses, bytes and requests for each path, as an operator would by hand.

With --stream the log is never on disk: its generator writes into a pipe.
"""

import argparse
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

FORMAT = (
    '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent '
    '"$http_referer" "$http_user_agent" $msec $request_time $connection $connection_requests'
)
GOACCESS = '%h %^[%d:%t %^] "%r" %s %b "%R" "%u" %^'
AWK = (
    '{ status[$9]++; bytes += $10; split($7, target, "?"); path[target[1]]++ }'
    " END { for (p in path) distinct++; print NR, bytes, distinct }"
)
MAKER = Path(__file__).parent.parent / "probes/target/release/examples/access_log"


class Cost(NamedTuple):
    seconds: float
    cpu_seconds: float
    memory_bytes: int


def commands(log: str) -> dict[str, list[str]]:
    """The timed commands, by their names in the table."""
    learn = [sys.executable, "-m", "nginx_tune", "learn", log, "--log-format", FORMAT]
    found = {"nginx-tune learn": learn, "awk": ["awk", AWK, log]}
    if shutil.which("goaccess"):
        found["goaccess"] = [
            "goaccess", log, "--log-format", GOACCESS, "--date-format", "%d/%b/%Y",
            "--time-format", "%T", "--no-progress", "-o", "/dev/null.json",
        ]  # fmt: skip
    return found


def run(command: Sequence[str], folder: str, source: subprocess.Popen[bytes] | None = None) -> Cost:
    """The cost of a command; its input is the standard output of ``source``."""
    start = time.perf_counter()
    words = [word.replace("/dev/null.json", f"{folder}/report.json") for word in command]
    process = psutil.Popen(
        words,
        stdin=source.stdout if source else subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    memory, cpu = 0, {}
    while process.poll() is None:
        now = 0
        for one in family(process):
            try:
                now += one.memory_info().rss
                times = one.cpu_times()
                cpu[one.pid] = times.user + times.system
            except psutil.Error:
                continue
        memory = max(memory, now)
        time.sleep(0.02)
    seconds = time.perf_counter() - start
    if process.returncode:
        sys.exit(f"{command[0]}: exit {process.returncode}: {process.stderr.read().decode()}")
    return Cost(seconds, sum(cpu.values()), memory)


def family(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def measure(jobs: dict[str, list[str]], rounds: int, folder: str) -> dict[str, list[Cost]]:
    costs: dict[str, list[Cost]] = {name: [] for name in jobs}
    chance = random.Random(1)  # noqa: S311  # an order, not a secret
    for _ in range(rounds):
        for name in chance.sample(list(jobs), len(jobs)):
            costs[name].append(run(jobs[name], folder))
    return costs


def table(costs: dict[str, list[Cost]], lines: int) -> str:
    rows = [
        "| program | lines/s | lines per CPU second | CPU s | memory MB |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, all_costs in costs.items():
        seconds, cpu, memory = (
            statistics.median(values) for values in zip(*all_costs, strict=True)
        )
        rows.append(
            f"| {name} | {lines / seconds:,.0f} | {lines / cpu:,.0f} | {cpu:.2f} "
            f"| {memory / 1e6:.0f} |"
        )
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stream", type=int, metavar="LINES")
    asked = parser.parse_args()
    if not MAKER.exists():
        sys.exit("first: cd probes && cargo build --release --example access_log")
    with tempfile.TemporaryDirectory() as folder:
        if asked.stream:
            make = [str(MAKER), str(asked.stream), "10000000"]
            with subprocess.Popen(make, stdout=subprocess.PIPE) as maker:
                cost = run(commands("-")["nginx-tune learn"], folder, maker)
            print(table({"nginx-tune learn, from a pipe": [cost]}, asked.stream))
            return
        log = Path(folder) / "access.log"
        with log.open("wb") as file:
            subprocess.run([MAKER, str(asked.lines), str(asked.objects)], stdout=file, check=True)
        print(table(measure(commands(str(log)), asked.rounds, folder), asked.lines))


if __name__ == "__main__":
    main()
