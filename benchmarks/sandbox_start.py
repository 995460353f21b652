"""The cost of the sandbox at a start: this checkout beside another one, in turns, in one run.

    python benchmarks/sandbox_start.py --against CHECKOUT [--pairs N] [--nginx BIN]

CHECKOUT is another working tree with its own .venv (see CONTRIBUTING.md). The tool times: the start
of a run's nginx, until it listens and has its workers, and its end, in two labs that stay open, as
`validate` makes them; a process that does everything that `validate` does before its first run; and
a whole `audit --test` of a small tree. In every pair both run once, in random order; the ratio is
that of the pairs (Hodges-Lehmann of the log ratios, signed-rank interval). Prints a Markdown table.
Run it as root and as an ordinary user, whose sandboxes differ.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

from nginx_tune.measure.proof.statistics import hodges_lehmann, signed_rank_interval

HERE = Path(__file__).resolve()
OWN = HERE.parents[1]
MAIN = """worker_processes 1;
pid /run/sandbox-start.pid;
events {{ worker_connections 64; }}
http {{
    proxy_cache_path {directory}/cache keys_zone=small:1m;
    include {directory}/sites/*.conf;
}}
"""
SITE = """server {{
    listen 127.0.0.1:18097;
    access_log {directory}/logs/access.log;
    root {directory}/files;
    location = /memory {{ return 200 x; }}
    location /app/ {{ proxy_pass http://app.invalid:8080; proxy_cache small; }}
}}
"""
Timed = dict[str, float]
"""Seconds, by the timed step."""


def write_site(directory: Path) -> Path:
    """Write a small tree with files, logs, a cache and an upstream; returns its main file."""
    for name in ("sites", "files", "logs"):
        (directory / name).mkdir()
    (directory / "files" / "a.bin").write_bytes(b"x" * 4096)
    (directory / "sites" / "a.conf").write_text(SITE.format(directory=directory))
    main = directory / "nginx.conf"
    main.write_text(MAIN.format(directory=directory))
    for path in (directory, *directory.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return main


@contextmanager
def open_driver(checkout: Path, conf: Path, nginx: str) -> Iterator[Callable[[], Timed]]:
    """A lab of a checkout that stays open; each call starts and ends a run's nginx."""
    command = [checkout / ".venv" / "bin" / "python", HERE, "--drive", conf, "--nginx", nginx]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/"
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise SystemExit("no pipes")
        write, read = process.stdin, process.stdout

        def start_once() -> Timed:
            write.write("start\n")
            write.flush()
            line = read.readline()
            if not line:
                raise SystemExit(f"{checkout}: the lab ended")
            found: Timed = json.loads(line)
            return found

        yield start_once
        write.close()


def drive(conf: str, nginx: str) -> None:
    """Open a lab on the tree as ``validate`` does; make a start for each line of input."""
    from nginx_tune.cli.configurations import read_configuration  # noqa: PLC0415  # of the other checkout
    from nginx_tune.errors import NginxTuneError  # noqa: PLC0415
    from nginx_tune.experiment.validate.site import read_site  # noqa: PLC0415
    from nginx_tune.experiment.validate.site_load import default_load  # noqa: PLC0415
    from nginx_tune.experiment.validate.workbench import open_workbench  # noqa: PLC0415
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415
    from nginx_tune.nginx.binary import read_nginx  # noqa: PLC0415
    from nginx_tune.nginx.lab.sandbox import Sandbox  # noqa: PLC0415

    os.environ["PYTHONPATH"] = str(HERE.parent)  # older versions find the module inside by this
    host = LiveHost()
    found, _ = read_nginx(host, binary=nginx)
    tree = read_configuration(host, conf, found.prefix)
    # Older checkouts have only one build.
    knows_two = "builds" in signature(read_site).parameters
    builds: dict[str, Any] = {"builds": (found, found)} if knows_two else {"nginx": found}
    site = read_site(tree, tree, default_load(), **builds, primary_metric=None, requires=(),
                     objectives=())  # fmt: skip
    with Sandbox("sandbox_start_inside") as sandbox:
        if knows_two:
            workbench = open_workbench(sandbox, site, lab=None, prefixes=(None, None), scale=None)
        else:
            workbench = open_workbench(sandbox, site, nginx, lab=None, prefix=None, scale=None)
        make_run = _run_of(workbench)
        for _ in sys.stdin:
            try:
                make_run()
            except NginxTuneError as error:
                if not error.message.startswith("{"):
                    raise
                print(error.message, flush=True)


def _run_of(workbench: Any) -> Callable[[], object]:
    """A function that makes a run of the baseline, by the interface of either checkout."""
    if hasattr(workbench, "experiment"):
        experiment = workbench.experiment.for_seconds(warmup=0.0, duration=1.0)
        variant = experiment.variants[0]
        return partial(workbench.session.run, variant, 0, experiment.plans[variant.name])
    load = workbench.load._replace(duration_seconds=1.0)
    variant = workbench.variants[0]
    plan = load.plan(workbench.session, variant.name, seed=1, classes=load.classes)
    return partial(workbench.session.run, variant, 0, plan, prime=[])


def run_whole(name: str, checkout: Path, *words: str | Path) -> Timed:
    """The duration of a process in seconds; the first word is a program in ``.venv/bin``."""
    command = [checkout / ".venv" / "bin" / words[0], *words[1:]]
    began = time.perf_counter()
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, check=False, cwd="/"
    )
    seconds = time.perf_counter() - began
    if done.returncode not in {0, 1}:  # 1: audit found something
        raise SystemExit(f"{command}: exit {done.returncode}: {done.stderr.decode()[-500:]}")
    return {name: seconds}


def compare(jobs: list[tuple[Callable[[], Timed], Callable[[], Timed]]], pairs: int) -> str:
    """Both sides of each job once a pair, in random order; returns the table."""
    seen: dict[str, list[tuple[float, float]]] = {}
    chance = random.Random(1)  # noqa: S311  # an order, not a secret
    for number in range(pairs + 1):
        for ours, theirs in jobs:
            if chance.random() < 0.5:
                first, second = ours(), theirs()
            else:
                second, first = theirs(), ours()
            for name in first if number else ():  # the first round warms the caches
                seen.setdefault(name, []).append((first[name], second[name]))
    lines = ["| what | here ms | other ms | here ÷ other |", "|---|--:|--:|--:|"]
    for name, found in seen.items():
        logs = [math.log(ours / theirs) for ours, theirs in found]
        bounds = signed_rank_interval(logs)
        ratio = f"{math.exp(hodges_lehmann(logs)):.2f}"
        if bounds is not None:
            ratio += f" [{math.exp(bounds.low):.2f}–{math.exp(bounds.high):.2f}]"
        middles = [1e3 * statistics.median(side) for side in zip(*found, strict=True)]
        lines.append(f"| {name} | {middles[0]:.0f} | {middles[1]:.0f} | {ratio} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--nginx", default="/usr/sbin/nginx")
    parser.add_argument("--only", choices=["block", "whole"])
    parser.add_argument("--drive", metavar="CONF", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive:
        drive(options.drive, options.nginx)
        return
    if options.against is None:
        parser.error("--against: which checkout to compare with")
    other = options.against.resolve()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, ExitStack() as stack:
        conf = write_site(Path(folder))
        named = ["--nginx", options.nginx]
        whole = {
            "`validate` up to its first run": ["python", HERE, "--drive", conf, *named],
            "`audit --test`": ["nginx-tune", "audit", "--test", "--facts", "none", *named, conf],
        }
        jobs: list[tuple[Callable[[], Timed], Callable[[], Timed]]] = []
        if options.only != "whole":
            own, others = (
                stack.enter_context(open_driver(place, conf, options.nginx))
                for place in (OWN, other)
            )
            jobs.append((own, others))
        if options.only != "block":
            jobs += [
                (partial(run_whole, name, OWN, *words), partial(run_whole, name, other, *words))
                for name, words in whole.items()
            ]
        print(f"{'root' if os.geteuid() == 0 else 'user'}, {options.pairs} pairs, interleaved\n")
        print(compare(jobs, options.pairs))


if __name__ == "__main__":
    main()
