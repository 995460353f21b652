"""Causes injected into a real nginx, and the causes that ``observe`` names.

    sudo python benchmarks/causes.py [--runs 3] [--seconds 6] [--only NAME]… [-o FILE] [--list]

Each injection is set up anew for each run, with nginx on the first CPU and everything else on the
others, and ``nginx-tune observe`` watches for ``--seconds``. An answer is *right* if the first
cause is the injected one, its text has the required words, and every other cause is a true
consequence. It is *not known* if observe itself says so. Everything else is *wrong*. Prints a
Markdown table; exit status 1 if anything was wrong. Three runs of six seconds take about eleven
minutes.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from causing.bench import OTHER_CPUS, Bench, open_disks
from causing.injections import INJECTIONS, Injection, Skipped

from nginx_tune.documents.base import decode
from nginx_tune.documents.observation import Observation
from nginx_tune.report.observation import observation_screen
from nginx_tune.report.screen import plain_text

ROOT = Path(__file__).resolve().parent.parent
OF_THE_MACHINE = "cpu-steal"
"""The cause that a hypervisor may add to any injection."""
NOT_KNOWN = ("cause-not-known", "not-enough-evidence")
SETTLE_SECONDS = 0.7


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--only", action="append", default=[], help="part of a name")
    parser.add_argument("-o", "--output", type=Path, help="the table, besides standard output")
    parser.add_argument("--show", action="store_true", help="each observation on standard error")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    chosen = [
        one
        for one in INJECTIONS
        if not options.only or any(word in one.name for word in options.only)
    ]
    if options.list:
        print("\n".join(f"{one.name}: {' or '.join(one.causes)}" for one in chosen))
        return 0
    if os.geteuid() != 0:
        parser.error("disks, limits and tracing need root")
    os.sched_setaffinity(0, OTHER_CPUS)
    started = time.monotonic()
    lines = ["| injected | right | wrong | not known | named (times) |", "|---|--:|--:|--:|---|"]
    wrong = 0
    with tempfile.TemporaryDirectory(dir="/var/tmp") as base, open_disks(Path(base)) as disks:
        for injection in chosen:
            outcomes: Counter[str] = Counter()
            named: Counter[str] = Counter()
            for _ in range(options.runs):
                with contextlib.ExitStack() as stack:
                    bench = Bench(Path(base), disks, stack, options.seconds)
                    outcome, causes = run(injection, bench, show=options.show)
                outcomes[outcome] += 1
                named[causes] += 1
                print(f"{injection.name}: {outcome}: {causes}", file=sys.stderr)
                if outcome == "skipped":
                    break
            wrong += outcomes["wrong"]
            lines.append(row(injection, outcomes, named))
    lines += [
        "",
        f"{time.monotonic() - started:.0f} s; {options.runs} runs of {options.seconds:g} s",
    ]
    table = "\n".join(lines) + "\n"
    print(table, end="")
    if options.output:
        options.output.write_text(table)
    return 1 if wrong else 0


def run(injection: Injection, bench: Bench, *, show: bool) -> tuple[str, str]:
    """The outcome of a run, and the named causes."""
    try:
        master = injection.act(bench)
    except Skipped as reason:
        return "skipped", str(reason)
    time.sleep(SETTLE_SECONDS)
    file = bench.directory / "seen.json"
    command = [
        sys.executable, "-m", "nginx_tune", "observe", "--pid", str(master), "--duration",
        f"{bench.seconds:g}s", *injection.options, "-f", f"json={file}",
    ]  # fmt: skip
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL, timeout=180)
    seen = decode(Observation, file.read_bytes())
    if show:
        print(plain_text(observation_screen(seen)), file=sys.stderr)
    return judge(injection, seen), ", ".join(cause.id for cause in seen.causes)


def judge(injection: Injection, seen: Observation) -> str:
    first, *others = seen.causes
    if first.id in NOT_KNOWN:
        return "not known"
    text = f"{first.summary} {' '.join(one.metric for one in first.evidence)}"
    told = not injection.words or any(word in text for word in injection.words)
    allowed = {*injection.causes, *injection.beside, OF_THE_MACHINE}
    if first.id in injection.causes and told and all(one.id in allowed for one in others):
        return "right"
    return "wrong"


def row(injection: Injection, outcomes: Counter[str], named: Counter[str]) -> str:
    said = "; ".join(f"{causes} ({times})" for causes, times in named.most_common())
    if outcomes["skipped"]:
        return f"| {injection.name} | – | – | – | not here: {next(iter(named))} |"
    counts = " | ".join(str(outcomes[one]) for one in ("right", "wrong", "not known"))
    return f"| {injection.name} | {counts} | {said} |"


if __name__ == "__main__":
    sys.exit(main())
