"""Nine measurements in ten lie in the range that is predicted for their cell."""

from functools import cache
from pathlib import Path

import kept
import matrix
import msgspec
import pytest
from measured_cells import MEASURED
from rows import each_row
from situations import decide_without_break_evens

from nginx_tune.documents.decisions import Decision, Predicted
from nginx_tune.documents.facts import Cpu, Dataset, Facts, Kernel, Memory, Nginx, SizeBucket, Sizes
from nginx_tune.documents.scenario import Scenario
from nginx_tune.documents.site import Site, SiteTls
from nginx_tune.experiment.scenario.workload import declare_workers, plan_workload
from nginx_tune.experiment.view import emulate
from nginx_tune.nginx.lab.building import contents_of

ROOT = Path(__file__).resolve().parents[2]
REGRET = ROOT / "benchmarks" / "regret"


CANDIDATES = matrix.read_candidates(msgspec.toml.decode((REGRET / "candidates.toml").read_bytes()))
MACHINE = Facts(
    kernel=Kernel(system="Linux", release="6.18.44"),
    cpu=Cpu(online=2, effective=2.0),
    memory=Memory(total_bytes=24 << 30, available_bytes=20 << 30),
    nginx=Nginx(
        product="nginx", version="1.22.1", nginx_version="1.22.1", flags=["--with-threads"]
    ),
)


def scenario_named(name: str) -> Scenario:
    if name.startswith("drawn-"):
        return kept.scenario_named(name)
    path = ROOT / "nginx_tune" / "scenarios" / f"{name}.toml"
    if path.exists():
        return msgspec.toml.decode(path.read_bytes(), type=Scenario)
    cell = msgspec.toml.decode((REGRET / "cells" / f"{name}.toml").read_bytes())
    return matrix.scenario_of(name, cell, CANDIDATES, rounds=8)


def dataset(path: str, sizes: list[int], directories: int) -> Dataset:
    """What a scan of these files finds."""
    ordered = sorted(sizes)
    counted: dict[int, list[int]] = {}
    for size in sizes:
        counted.setdefault(1 << (size - 1).bit_length(), []).append(size)
    return Dataset(
        path=path,
        files=len(sizes),
        bytes=sum(sizes),
        directories=directories,
        sizes=Sizes(
            mean_bytes=sum(sizes) / len(sizes),
            p50_bytes=ordered[len(sizes) // 2],
            p90_bytes=ordered[len(sizes) * 9 // 10],
            p99_bytes=ordered[len(sizes) * 99 // 100],
            max_bytes=ordered[-1],
            buckets=[
                SizeBucket(le_bytes=le, files=len(found), bytes=sum(found))
                for le, found in sorted(counted.items())
            ],
        ),
    )


@cache
def pools_for(name: str) -> Decision:
    """What is decided on thread pools before the scenario runs."""
    scenario = scenario_named(name)
    lab = scenario.lab
    facts = emulate(MACHINE, lab, cpus=1)
    datasets = [
        dataset(disk.mount, sizes, contents_of(lab, disk).directories)
        for disk in lab.disks
        if (
            sizes := [
                size
                for data in lab.data
                if data.disk == disk.name
                for size in (list(data.sizes.values()) or [data.file_bytes] * data.files)
            ]
        )
    ]
    facts = declare_workers(msgspec.structs.replace(facts, datasets=datasets), lab.worker_processes)
    site = Site(
        roots=[disk.mount for disk in lab.disks],
        hot_locations=scenario.hot_locations,
        tls=SiteTls(certificate="/c", certificate_key="/k") if lab.tls else None,
    )
    workload = plan_workload(scenario, facts)
    return decide_without_break_evens(facts, workload, site=site).decisions[0]


def predicted(name: str, metric: str) -> Predicted:
    return next(p for p in pools_for(name).predicted if p.metric == metric)


def told(name: str, metric: str) -> Predicted | None:
    """What is predicted, where something is: a range wider than a factor of ten is not told."""
    return next((p for p in pools_for(name).predicted if p.metric == metric), None)


@pytest.mark.long
def test_nine_measurements_in_ten_lie_in_their_range() -> None:
    outside, untold = [], []
    for name, metric, value in MEASURED:
        p = told(name, metric)
        if p is None:
            untold.append((name, metric, value))
            continue
        assert p.high <= 10 * p.low or p.high - p.low <= 0.05, "a range says something"
        if not p.low <= value <= p.high:
            outside.append((name, metric, value, p.low, p.expected, p.high))
    assert len(outside) <= (len(MEASURED) - len(untold)) // 10, outside
    assert len(untold) <= len(MEASURED) // 10, untold


@each_row("name", ["11-large-files-over-tls", "12-slow-disk-nothing-in-memory"])
def test_cells_that_lost_without_pools_have_them(name: str) -> None:
    assert pools_for(name).verdict == "enable"


def test_pools_stay_off_where_handing_over_takes_longer_than_waiting() -> None:
    """Its loops stood in reads 0.7 % of the time; hot answers took 0.57 ms, 0.97 with pools."""
    assert pools_for("drawn-4201-009").verdict == "disable"


def test_no_text_says_that_others_gain_nothing_where_cold_transfers_do() -> None:
    """drawn-4201-012: one pool for four disks, which had read for one loop at a time."""
    said = pools_for("12-slow-disk-nothing-in-memory").summary
    assert predicted("12-slow-disk-nothing-in-memory", "ratio(cold.bytes_per_second)").low > 1
    assert "more concurrent disk reads" in said
    assert "only requests that read no file gain" not in said
