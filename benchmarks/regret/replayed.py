"""Kept cells decided again: with full knowledge, and with the knowledge of a host in the field.

    python benchmarks/regret/replayed.py            # tables of all kept cells, nothing is written
    python benchmarks/regret/replayed.py --write    # and the part of benchmarks/README.md

Nothing is run. A cell is drawn again by its name and decided by today's program. The decision is
then looked up among the measured variants:

- The same pools as in the old recommendation: that recommendation, or its neighbour with another
  chunk or an open file cache if today's has these.
- Pools where the old one had none: stock with ``aio threads``. None where it had some: stock.

Informed: disks' curves, rates, popularity and clients are declared exactly, as before the runs. In
the field, a log was learnt and no disk was probed. Disks are then typical for their class (which
may be wrong by ten times here). Clients' rates and pauses, earlier requests, and the rate of
requests without a file are not known. Closed-loop users are concurrent requests, as in a log with
``$request_time``.
"""

import argparse
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent))

import kept
import scoring
from msgspec.structs import replace
from scenarios import put
from scenarios import table as markdown

from nginx_tune.decide.engine import decide
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.facts import Cpu, Facts, Kernel, Nginx
from nginx_tune.documents.scenario import Scenario
from nginx_tune.documents.workload import Workload
from nginx_tune.experiment.scenario.workload import declare_workers, declared_site, plan_workload
from nginx_tune.experiment.session import place_site
from nginx_tune.experiment.view import emulate, lab_datasets
from nginx_tune.nginx.lab.operation import LOOPBACK, Placement

PAGE = Path(__file__).resolve().parents[1] / "README.md"
TWICE = 1.0
"""The regret of a variant that takes twice as long as the best."""
_FLAGS = [
    "--with-threads", "--with-file-aio", "--with-http_ssl_module", "--with-http_v2_module",
    "--with-http_stub_status_module",
]  # fmt: skip
"""The configure arguments of Debian's nginx, which ran all kept cells, as far as they matter."""
_CHUNK = "128k"
"""The neighbour's ``sendfile_max_chunk`` (candidates.toml)."""


def facts_of(cell: kept.KeptCell, scenario: Scenario) -> Facts:
    """The facts of the emulated host, as before the run."""
    nginx = Nginx(version=cell.nginx, nginx_version=cell.nginx, flags=_FLAGS)
    machine = Facts(kernel=Kernel(system="Linux", release=cell.kernel), cpu=Cpu(online=2))
    facts = emulate(replace(machine, nginx=nginx), scenario.lab, cpus=1)
    found = [] if scenario.lab.topology == "proxy" else list(lab_datasets(scenario.lab))
    return declare_workers(replace(facts, datasets=found), scenario.lab.worker_processes)


def informed(facts: Facts, scenario: Scenario) -> tuple[Facts, Workload]:
    """The full knowledge of a cell."""
    return facts, plan_workload(scenario, facts)


def in_the_field(facts: Facts, scenario: Scenario) -> tuple[Facts, Workload]:
    """The same without what neither a scan nor a log shows."""
    known = plan_workload(scenario, facts)
    disks = [replace(disk, curve=None) for disk in facts.storage.disks]
    storage = replace(facts.storage, disks=disks, shared_curves=[])
    workload = replace(
        known,
        popularity=replace(
            known.popularity,
            requests_seen=None,
            began_full=False,
            began_empty=False,
            once=False,
            provenance="learnt",
        ),
        sizes=replace(known.sizes, provenance="learnt"),
        rate=replace(known.rate, without_file_per_second=None, provenance="learnt"),
        concurrency=replace(
            known.concurrency,
            cold_peak=None,
            cold_by_popularity=False,
            client_bytes_per_second=None,
            clients_keep_pace=False,
            since_seconds=None,
            think_seconds=None,
            provenance="learnt" if known.concurrency.peak else "assumed",
        ),
        connection_reuse=replace(known.connection_reuse, provenance="learnt"),
        tls=replace(known.tls, provenance="learnt"),
        http_version=replace(known.http_version, provenance="learnt"),
    )
    return replace(facts, storage=storage), workload


Knowledge = Callable[[Facts, Scenario], tuple[Facts, Workload]]
KNOWLEDGE: dict[str, Knowledge] = {"informed": informed, "in the field": in_the_field}


def decided(cell: kept.KeptCell, scenario: Scenario, knowledge: Knowledge) -> list[Decision]:
    """Today's decisions for a cell."""
    lab = scenario.lab
    there = Placement(
        address=LOOPBACK,
        origin=f"{LOOPBACK}:1" if lab.topology == "proxy" else None,
        certificate="/certificate" if lab.tls else None,
        certificate_key="/key" if lab.tls else None,
    )
    facts, workload = knowledge(facts_of(cell, scenario), scenario)
    site = place_site(declared_site(scenario), lab, there)
    return decide(facts, workload, site=site).decisions


def variant_of(cell: kept.KeptCell, decisions: Sequence[Decision]) -> str:
    """The measured variant that is the decided configuration, or the nearest one to it."""
    lines = {(s.directive, s.args[0]) for one in decisions for s in one.settings if s.args}
    pools = any(name == "aio" and value.startswith("threads") for name, value in lines)
    had = any(cell.decided.get(name) == "enable" for name in ("thread-pools", "per-disk-pools"))
    if pools != had:
        return "threads" if pools else "stock"
    if ("sendfile_max_chunk", _CHUNK) in lines and cell.decided.get("sendfile-max-chunk") == "keep":
        return "near-chunk"
    names = {name for name, _ in lines}
    if "open_file_cache" in names and cell.decided.get("open-file-cache") != "enable":
        return "near-open-files"
    return "recommended"


class Replayed(NamedTuple):
    """A cell decided with one state of knowledge."""

    cell: kept.KeptCell
    variant: str
    score: scoring.CellScore


def replay(cells: Sequence[kept.KeptCell], knowledge: Knowledge) -> list[Replayed]:
    """Each cell with enough rounds that still draws the same."""
    found = []
    for cell in cells:
        scenario = kept.scenario_named(cell.name)
        if kept.digest_of(kept.drawn(cell.name)) != cell.digest or kept.score(cell) is None:
            continue
        variant = variant_of(cell, decided(cell, scenario, knowledge))
        if (score := kept.score(cell, variant)) is not None:
            found.append(Replayed(cell, variant, score))
    return found


def summary(by_knowledge: dict[str, list[Replayed]]) -> str:
    """A row for each knowledge: over all cells, and over those that read their own files."""
    head = [
        "knowledge", "cells", f"within {scoring.TOLERATED_TEXT} of the best",
        f"within {scoring.TOLERATED:.0%}", "two times as far or more",
        "worse than stock beyond noise", "mean regret", "median",
    ]  # fmt: skip
    rows = [_row(name, found) for name, found in by_knowledge.items()]
    return markdown([head, *rows])


def _row(name: str, found: Sequence[Replayed]) -> list[str]:
    scores = [one.score for one in found]
    near = sum(scoring.is_within(one) for one in scores)
    share = f"{near / len(scores):.0%}" if scores else "–"
    mean = math.expm1(math.fsum(math.log1p(one.regret) for one in scores) / max(1, len(scores)))
    return [
        name,
        str(len(scores)),
        f"{near} ({share})",
        str(sum(one.regret <= scoring.TOLERATED for one in scores)),
        str(sum(one.regret >= TWICE for one in scores)),
        str(sum(one.stock_high < 1 for one in scores)),
        f"{mean:+.1%}",
        f"{statistics.median(one.regret for one in scores):+.1%}" if scores else "–",
    ]


def main() -> None:
    """Print the figures of both, and the cells with the highest cost of missing knowledge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="renew the part of the README")
    asked = parser.parse_args()
    cells = kept.read(kept.KEPT)
    found = {name: replay(cells, knowledge) for name, knowledge in KNOWLEDGE.items()}
    text = summary(found)
    day = datetime.now(timezone.utc).date().isoformat()
    command = "python benchmarks/regret/replayed.py --write"
    text = f"{text}\n`{command}`, {day}: replays alone, nothing was measured anew.\n"
    print(text)
    far = sorted((one for one in found["in the field"]), key=lambda one: -one.score.regret)
    for one in far[:40]:
        if not scoring.is_within(one.score):
            missed = f"{1e3 * one.score.missed_seconds:+.2f} ms"
            print(f"- {one.cell.name}: {one.variant}, {one.score.regret:+.0%}, {missed}")
    if asked.write:
        put(PAGE, "replayed cells", text)


if __name__ == "__main__":
    main()
