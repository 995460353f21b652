"""The cost of thousands of hosts: the views in DuckDB, and the report of fleet-audit.yml.

    python benchmarks/fleet.py [--hosts N] [--report]

Prints a Markdown table. The hosts are generated from a seed: three kinds on two days. They differ
only in volatile fields, apart from one sysctl on one host and one kernel on another, which must be
the only outlier and drift. With --report also the last play runs, on documents that all exist.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/examples")]

from made_up_fleet import DAYS, change, write_fleet  # noqa: E402

VIEWS = ("groups", "outliers", "drift", "findings_by_rule", "plans", "metrics")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--report", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        fleet = Path(folder) / "fleet"
        fleet.mkdir()
        names = write_fleet(fleet, given.hosts)
        sysctl = ("kernel", "sysctls", "net.core.somaxconn")
        change(fleet, names[0], "facts", *sysctl, to="128", days=2)
        change(fleet, names[1], "facts", "kernel", "release", to="9.9.9")
        size = sum(one.stat().st_size for one in fleet.glob("*/*/*.json"))
        print(f"{given.hosts:,} hosts, {3 * 2 * given.hosts:,} documents, {size / 1e6:.0f} MB\n")
        print("| what | s | CPU s |\n|---|--:|--:|")
        os.chdir(folder)
        query(names)
        if given.report:
            report(fleet, names)


def query(names: list[str]) -> None:
    import duckdb  # noqa: PLC0415  # of make test-all; the gate starts this file without it

    database = duckdb.connect()
    script = (ROOT / "examples/fleet/views.sql").read_text()
    with timed("documents read"):
        database.execute(script)
    found = {}
    for view in VIEWS:
        with timed(view):
            found[view] = database.sql(f"FROM {view}").fetchall()
    outliers = sorted(one[-1] for one in found["outliers"])
    drift = [one[-1] for one in found["drift"]]
    if (outliers, drift) != (sorted(names[:2]), [names[1:2]]):
        raise SystemExit(f"not what was planted: {outliers}, {drift}")


def report(fleet: Path, names: list[str]) -> None:
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    hosts = {"nginx": {"hosts": {name: {} for name in names}}}
    Path("hosts.json").write_text(json.dumps({"all": {"vars": local, "children": hosts}}))
    given = {
        "fleet": str(fleet),
        "day": DAYS[1],
        "fail_on": "never",
        "report": f"{fleet}/report.md",
    }
    with timed("report by Ansible", resource.RUSAGE_CHILDREN):
        subprocess.run(
            [Path(sys.executable).parent / "ansible-playbook", "-i", Path("hosts.json").resolve(),
             "fleet-audit.yml", "-e", json.dumps(given)],
            cwd=ROOT / "examples/ansible", check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
    print(f"\nThe report has {len((fleet / 'report.md').read_text().splitlines())} lines.")


@contextmanager
def timed(name: str, of: int = resource.RUSAGE_SELF) -> Iterator[None]:
    """Print the time and CPU time of the code inside the context."""

    def cpu() -> float:
        return sum(resource.getrusage(of)[:2])

    started, used = time.monotonic(), cpu()
    yield
    print(f"| {name} | {time.monotonic() - started:.1f} | {cpu() - used:.1f} |", flush=True)


if __name__ == "__main__":
    main()
