"""Randomly drawn boundaries of ``size``, predicted and measured in the lab (needs root).

    python benchmarks/size_boundaries.py --seed S --count 8 --results DIR
    python benchmarks/size_boundaries.py --seed S --count 8               # predictions alone

Each boundary is a host as large as the lab, with an objective that it just meets: a disk, its
files, their popularity, a rate and a memory are drawn, and the objective is the 99th percentile
that the model expects there. The memory at which the answer flips has a predicted range. The
prediction holds if the objective is missed with the least memory of the range, and met with the
most.

A boundary takes two experiments of two runs, about four minutes. Each experiment is kept as
DIR/NAME.json and is not repeated when the tool is started again. Prints a table in Markdown; the
exit status is 1 while a run is missing or fewer than seven in eight boundaries hold.
"""

import argparse
import math
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from nginx_tune.change.generate.nginx_conf import write_variant
from nginx_tune.decide.model.answers import AnswerGoal, best_server
from nginx_tune.decide.size import HostSizes, SizeRequest, size_hosts
from nginx_tune.documents.base import decode, encode
from nginx_tune.documents.facts import Cpu, Dataset, Facts, Kernel, Nginx
from nginx_tune.documents.facts_storage import Sizes
from nginx_tune.documents.scenario import Scenario, ScenarioRun
from nginx_tune.documents.sizing import SizeRange
from nginx_tune.errors import NginxTuneError
from nginx_tune.experiment.scenario.run import run_scenario
from nginx_tune.experiment.scenario.workload import declare_workers, declared_site, plan_workload
from nginx_tune.experiment.session import place_site
from nginx_tune.experiment.view import emulate
from nginx_tune.host.live import LiveHost
from nginx_tune.nginx.binary import read_nginx
from nginx_tune.nginx.lab.operation import LOOPBACK, Placement

MIB = 1 << 20
LEAST_MEMORY = 100 * MIB
_DATA = (320 * MIB, 700 * MIB)
_MOST_FILES = 20_000
_ANSWERS = 2000
"""The answers of a run, of which twenty are beyond the 99th percentile."""
_SECONDS = (12.0, 45.0)
_ENOUGH = 7 / 8


class Boundary(NamedTuple):
    """A host with the memory at which its answer flips."""

    name: str
    tables: dict[str, Any]
    """The tables of a scenario, without its memory."""
    seconds: float
    """The objective: the largest 99th percentile in seconds."""
    memory_bytes: SizeRange

    def scenario(self, memory_bytes: float) -> Scenario:
        """The host with that memory."""
        return scenario_of(self.tables, memory_bytes)


def scenario_of(tables: dict[str, Any], memory_bytes: float) -> Scenario:
    """The scenario of these tables with that memory."""
    lab = {**tables["lab"], "memory_bytes": round(memory_bytes)}
    return msgspec.convert({**tables, "lab": lab}, Scenario)


def draw_boundaries(seed: int, count: int) -> Iterator[Boundary]:
    """The drawn boundaries whose range a lab can have."""
    for number in range(count):
        rng = random.Random(f"{seed}/{number}")  # noqa: S311
        while (found := _draw(rng, f"boundary-{seed}-{number:02d}")) is None:
            pass
        yield found


def _draw(rng: random.Random, name: str) -> Boundary | None:
    """A boundary; None if no lab can have it."""
    size = round(2 ** rng.uniform(14, 18.5))
    files = min(_MOST_FILES, round(rng.uniform(*_DATA) / size))
    memory = files * size * rng.uniform(0.3, 0.8)
    tables = _tables(rng, name, size, files)
    sizes = _sizes(tables, memory, None)
    server = sizes.server(sizes.columns[0], sizes.memory_bytes)
    rate = rng.uniform(0.35, 0.8) * server.bounds.get("disks", math.inf)
    if not 15 <= rate <= 1500 or rate * size > 50e6 or memory < LEAST_MEMORY:
        return None
    one = tables["classes"][0]
    one["arrivals"]["rate_per_second"] = round(rate, 2)
    tables["duration_seconds"] = round(min(_SECONDS[1], max(_SECONDS[0], _ANSWERS / rate)), 1)
    tables["warmup_seconds"] = round(min(40.0, max(4.0, 1.5 * memory / size / rate)), 1)
    sizes = _sizes(tables, memory, None)
    server = sizes.server(sizes.columns[0], sizes.memory_bytes)
    best, _ = best_server(server, None)
    answers = best.answers_at(rate)
    if answers is None:
        return None
    seconds = float(f"{answers.seconds('p99'):.3g}")
    sizes = _sizes(tables, memory, AnswerGoal("p99", seconds))
    found = sizes.boundary(0).memory_bytes
    if found is None or found.low < LEAST_MEMORY:
        return None
    return Boundary(name, tables, seconds, found)


def _tables(rng: random.Random, name: str, size: int, files: int) -> dict[str, Any]:
    channels = rng.choice([1, 1, 2, 4])
    model = {
        "read_seconds": round(rng.uniform(0.004, 0.012), 4),
        "spread_ratio": round(rng.uniform(0.2, 0.9), 2),
        "channels": channels,
        "bytes_per_second": round(rng.uniform(80e6, 200e6)),
    }
    exponent = rng.choice([0.0, round(rng.uniform(0.5, 1.0), 2)])
    disk = {"name": "disk1", "class_name": "hdd", "kind": "modelled", "mount": "/srv/disk1"}
    threads = [{"context": "location", "directive": "aio", "args": ["threads"]}]
    variant = {"decisions": "recommended", "settings": threads}
    return {
        "name": name,
        "title": f"{files} files of {size >> 10} KiB on one disk",
        "kind": "static",
        "primary_metric": "files.p99",
        "starts": "full",
        "pairs": 1,
        "warmup_seconds": 4.0,
        "duration_seconds": 12.0,
        "baseline": variant,
        "candidate": variant,
        "lab": {
            "name": name,
            "worker_processes": 2,
            "disks": [{**disk, "model": model}],
            "data": [{"disk": "disk1", "files": files, "file_bytes": size}],
        },
        "classes": [
            {
                "name": "files",
                "source": "random",
                **({"exponent": exponent} if exponent else {}),
                "connections": 256,
                "connection_use": "turns",
                "held_connections": 64,
                "arrivals": {"kind": "poisson", "rate_per_second": 50.0},
            }
        ],
    }


def _sizes(tables: dict[str, Any], memory_bytes: float, goal: AnswerGoal | None) -> HostSizes:
    """The lab as the model's input, as in the decisions for it."""
    scenario = scenario_of(tables, memory_bytes)
    lab = scenario.lab
    build = ["--with-threads"]
    nginx = Nginx(product="nginx", version="1.26.3", nginx_version="1.26.3", flags=build)
    bare = Facts(kernel=Kernel(system="Linux"), cpu=Cpu(online=2), nginx=nginx)
    (data,) = lab.data
    size = data.file_bytes
    scanned = Dataset(
        path="/srv/disk1",
        files=data.files,
        bytes=data.files * size,
        sizes=Sizes(
            mean_bytes=float(size), p50_bytes=size, p90_bytes=size, p99_bytes=size, max_bytes=size
        ),
    )
    facts = msgspec.structs.replace(emulate(bare, lab, cpus=2), datasets=[scanned])
    facts = declare_workers(facts, lab.worker_processes)
    site = place_site(declared_site(scenario), lab, Placement(address=LOOPBACK))
    workload = plan_workload(scenario, facts)
    return size_hosts(facts, workload, site=site, request=SizeRequest(goal, "p99"))


class Measured(NamedTuple):
    """The 99th percentile at both ends of a boundary's range, in seconds; None if not run yet."""

    at_low: float | None
    at_high: float | None


def inside(boundary: Boundary, measured: Measured) -> bool | None:
    """True if the answer flips inside the range; None while a run is missing."""
    if measured.at_low is None or measured.at_high is None:
        return None
    return measured.at_high <= boundary.seconds < measured.at_low


def _p99(path: Path) -> float | None:
    """The geometric mean over all runs of a kept experiment."""
    if not path.exists():
        return None
    run = decode(ScenarioRun, path.read_bytes(), source=str(path))
    found = [block.classes["files"].response_seconds.p99 for block in run.measurements]
    times = [seconds for seconds in found if seconds]
    return math.exp(sum(map(math.log, times)) / len(times)) if times else None


def _path(results: Path, boundary: Boundary, end: str) -> Path:
    return results / f"{boundary.name}-{end}.json"


def _run(boundary: Boundary, end: str, results: Path) -> None:
    path = _path(results, boundary, end)
    memory = boundary.memory_bytes.low if end == "low" else boundary.memory_bytes.high
    nginx, _ = read_nginx(LiveHost(), to_run=True)
    run = run_scenario(
        boundary.scenario(memory),
        nginx=nginx,
        write_variant=write_variant,
        progress=lambda line: _say(f"{time.strftime('%H:%M:%S')} {path.stem}: {line}"),
    )
    half = path.with_suffix(".part")
    half.write_bytes(encode(run))
    half.replace(path)


def table(boundaries: list[Boundary], measured: list[Measured]) -> str:
    """The boundaries in Markdown."""
    rows = [
        "| boundary | rate | objective | memory [range] | p99 with the least | the most | inside |",
        "|---|--:|--:|---|--:|--:|---|",
    ]
    words = {True: "yes", False: "**no**", None: "–"}
    for one, seen in zip(boundaries, measured, strict=True):
        rate = one.tables["classes"][0]["arrivals"]["rate_per_second"]
        low, expected, high = (
            f"{size / MIB:.0f}"
            for size in (one.memory_bytes.low, one.memory_bytes.expected, one.memory_bytes.high)
        )
        rows.append(
            f"| {one.name}: {one.tables['title']} | {rate:.0f}/s | {_ms(one.seconds)} | "
            f"{expected} MiB [{low} – {high}] | {_ms(seen.at_low)} | {_ms(seen.at_high)} | "
            f"{words[inside(one, seen)]} |"
        )
    return "\n".join(rows)


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{1000 * seconds:.1f} ms"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--results", type=Path, help="directory for the runs; without: none")
    parser.add_argument("--minutes", type=float, help="start no run after so long")
    asked = parser.parse_args()
    boundaries = list(draw_boundaries(asked.seed, asked.count))
    if asked.results is None:
        print(table(boundaries, [Measured(None, None)] * len(boundaries)))
        return 0
    asked.results.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    for one in boundaries:
        for end in ("low", "high"):
            if _path(asked.results, one, end).exists():
                continue
            if asked.minutes is not None and time.monotonic() - started > 60 * asked.minutes:
                continue
            try:
                _run(one, end, asked.results)
            except NginxTuneError as error:
                _say(f"{one.name}-{end}: {error.message}")
    measured = [
        Measured(*(_p99(_path(asked.results, one, end)) for end in ("low", "high")))
        for one in boundaries
    ]
    print(table(boundaries, measured))
    answers = [inside(one, seen) for one, seen in zip(boundaries, measured, strict=True)]
    print(f"\n{answers.count(True)} of {len(answers)} inside, {answers.count(None)} not run.")
    return 0 if None not in answers and answers.count(True) >= _ENOUGH * len(answers) else 1


if __name__ == "__main__":
    sys.exit(main())
