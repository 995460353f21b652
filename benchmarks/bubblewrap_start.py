"""What a start costs in the package's sandbox and in bubblewrap's, in turns, in one run.

    python benchmarks/bubblewrap_start.py [--rounds N] [--nginx BIN]

Timed is `nginx -t` of a small configuration: alone, in the package's sandbox as a lab starts it
(the lab and its network namespace are open already), and by `bwrap` with the same view, the same
rights and the same filter of system calls. bwrap makes the network namespace anew each time, and as
an ordinary user that of users too: it does not start with the rights that a lab has in one. Every
round has each once, in random order. Prints a Markdown table. Run it as root and as a user.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from nginx_tune.measure.proof.statistics import hodges_lehmann, signed_rank_interval
from nginx_tune.nginx.lab.enclosure import program_paths, system_paths
from nginx_tune.nginx.lab.sandbox import unshare_command
from nginx_tune.sandbox.confinement import Confinement
from nginx_tune.sandbox.launch import prepare, run_inside
from nginx_tune.sandbox.plan_filter import call_numbers, plan_filter

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1] / "tests" / name) for name in ("sandbox", "")]
CONF = """pid OWN/pid;
error_log stderr;
events {}
http {
    access_log off;
    client_body_temp_path OWN/a; proxy_temp_path OWN/b; fastcgi_temp_path OWN/c;
    uwsgi_temp_path OWN/d; scgi_temp_path OWN/e;
    server { listen 127.0.0.1:18097; return 200 x; }
}
"""


def drive(nginx: str, conf: str) -> None:
    """In a lab's namespaces: one start for each line that comes in; says its seconds."""
    shown = [*system_paths(), *program_paths(nginx), str(Path(conf).parent)]
    prepared = prepare(Confinement(shown=shown))
    for _ in sys.stdin:
        began = time.perf_counter()
        done, _ = run_inside([nginx, "-t", "-c", conf], prepared, 30.0)
        seconds = time.perf_counter() - began
        print(seconds if not done.status else f"{done.stderr}", flush=True)


def run(argv: list[str], descriptor: int = -1) -> float:
    """Seconds of a whole process."""
    if descriptor >= 0:
        os.lseek(descriptor, 0, os.SEEK_SET)
    began = time.perf_counter()
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, cwd="/",
        pass_fds=[descriptor] if descriptor >= 0 else [],
    )  # fmt: skip
    seconds = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"{argv}: {done.stderr.decode()[-500:]}")
    return seconds


def compare(timed: dict[str, Callable[[], float]], rounds: int) -> str:
    """The table; the last ones are compared with the second."""
    seen: dict[str, list[float]] = {name: [] for name in timed}
    for number in range(rounds + 1):
        for name in random.sample(list(timed), len(timed)):
            seconds = timed[name]()
            if number:  # the first round warms the caches
                seen[name].append(seconds)
    ours = seen[list(timed)[1]]
    lines = ["| `nginx -t` | ms | ÷ the package's sandbox |", "|---|--:|--:|"]
    for name, found in seen.items():
        logs = [math.log(one / own) for one, own in zip(found, ours, strict=True)]
        bounds = signed_rank_interval(logs) if found is not ours else None
        ratio = f"{math.exp(hodges_lehmann(logs)):.2f}"
        if bounds is not None:
            ratio += f" [{math.exp(bounds.low):.2f}–{math.exp(bounds.high):.2f}]"
        lines.append(f"| {name} | {1e3 * statistics.median(found):.1f} | {ratio} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--nginx", default="/usr/sbin/nginx")
    parser.add_argument("--drive", metavar="CONF", help=argparse.SUPPRESS)
    options = parser.parse_args()
    nginx = options.nginx
    if options.drive:
        drive(nginx, options.drive)
        return
    from sandbox_bubblewrap import command  # noqa: PLC0415  # of the tests

    is_root = os.geteuid() == 0
    machine = os.uname().machine
    program = plan_filter(machine, call_numbers(machine), asks=False)
    descriptor = os.memfd_create("filter")
    os.write(descriptor, program)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        conf = Path(folder) / "nginx.conf"
        conf.write_text(CONF.replace("OWN", "/tmp"))  # noqa: S108  # each sandbox's own
        alone = Path(folder) / "alone.conf"
        alone.write_text(CONF.replace("OWN", folder))
        test = [nginx, "-t", "-c", str(conf)]
        without = command(is_root=is_root, shown=[nginx, folder])
        filtered = command(is_root=is_root, shown=[nginx, folder], filter_fd=descriptor)
        inner = [*unshare_command(root=is_root), sys.executable, str(HERE), "--drive", str(conf)]
        with subprocess.Popen(
            [*inner, "--nginx", nginx], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as lab:
            if lab.stdin is None or lab.stdout is None:
                raise SystemExit("no pipes")
            write, read = lab.stdin, lab.stdout

            def start_inside() -> float:
                write.write("start\n")
                write.flush()
                return float(read.readline())

            timed = {
                "alone": lambda: run([*test[:-1], str(alone)]),
                "in the package's sandbox": start_inside,
                "by bwrap": lambda: run([*without, *test]),
                "by bwrap, with the package's filter": lambda: run([*filtered, *test], descriptor),
            }
            print(f"{'root' if is_root else 'user'}, {options.rounds} rounds, interleaved\n")
            print(compare(timed, options.rounds))
            write.close()


if __name__ == "__main__":
    main()
