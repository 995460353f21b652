"""Random reads of the same disks by the disk probe and by fio.

    python benchmarks/disk_probe_vs_fio.py [--rounds N] [--seconds N] [--only NAME]

Run it as root, with fio. The disks are the one under the temporary directory (a file on it), loop
devices with cgroup limits, and modelled disks of the lab. At each depth both run in turn, in an
order that alternates by round: psync threads, 4 KiB, O_DIRECT, the same warm-up and time. Prints a
Markdown table of medians, then the result of a whole sweep of the probe for each disk.
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

# The disks are those of the tests.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from loop_disks import MIB, FioReads, limited, loop_over, make_data, run_fio
from modelled_disks import attached

from nginx_tune.documents.inspection import DiskPlan, DiskStep
from nginx_tune.documents.lab import DiskModel
from nginx_tune.observe.inspect.disk_plan import curve_of, plan_disk
from nginx_tune.observe.inspect.disks import run_disk_probe

READ_BYTES = 4096
DEPTHS = (1, 4, 16, 64)
WARMUP_SECONDS = 0.3
SWEEP_SECONDS = 10.0


@contextlib.contextmanager
def limited_disk(data: Path, **limits: int) -> Iterator[str]:
    with loop_over(data) as device, limited(device, **limits):
        yield device


def disks(
    data: Path, directory: Path
) -> dict[str, Callable[[], contextlib.AbstractContextManager[str]]]:
    parallel = DiskModel(read_seconds=0.002, channels=4)
    one_head = DiskModel(read_seconds=0.008)
    return {
        "a file": lambda: contextlib.nullcontext(str(data)),
        "loop, no limit": lambda: loop_over(data),
        "loop, 500 reads/s": lambda: limited_disk(data, reads_per_second=500),
        "loop, 20 MB/s": lambda: limited_disk(data, bytes_per_second=20_000_000),
        "modelled, 2 ms, 4 channels": lambda: attached(data, directory, parallel),
        "modelled, 8 ms, one head": lambda: attached(data, directory, one_head),
    }


def run_ours(device: str, depth: int, seconds: float) -> FioReads:
    step = DiskStep(
        read_bytes=READ_BYTES, depth=depth, warmup_seconds=WARMUP_SECONDS, seconds=seconds
    )
    (done,) = run_disk_probe(DiskPlan(paths=[device], steps=[step])).steps
    latency = done.latency_seconds
    assert latency.p50 is not None  # noqa: S101
    assert latency.p99 is not None  # noqa: S101
    return FioReads(done.reads_per_second, latency.p50, latency.p99)


def run_theirs(device: str, depth: int, seconds: float) -> FioReads:
    return run_fio(
        device, read_bytes=READ_BYTES, depth=depth, seconds=seconds, warmup_seconds=WARMUP_SECONDS
    )


def compare(name: str, device: str, depth: int, rounds: int, seconds: float) -> str:
    ours, theirs = [], []
    for number in range(rounds):
        pair = [(run_ours, ours), (run_theirs, theirs)]
        for run, results in pair if number % 2 == 0 else reversed(pair):
            results.append(run(device, depth, seconds))
    rates = [statistics.median(r.reads_per_second for r in runs) for runs in (ours, theirs)]
    ratios = [a.reads_per_second / b.reads_per_second for a, b in zip(ours, theirs, strict=True)]
    p99 = [1e3 * statistics.median(r.p99_seconds for r in runs) for runs in (ours, theirs)]
    return (
        f"| {name} | {depth} | {rates[0]:,.0f} | {rates[1]:,.0f} | "
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f}) | "
        f"{p99[0]:.3g} | {p99[1]:.3g} |"
    )


def sweep(device: str) -> str:
    plan = plan_disk([device], read_bytes=READ_BYTES, depth=64, seconds=SWEEP_SECONDS)
    curve = curve_of(run_disk_probe(plan), read_bytes=READ_BYTES, filesystem="", target=device)
    if isinstance(curve, str):
        return curve
    plateau = curve.plateau_reads_per_second
    knee = f"knee {curve.knee_depth}: " if curve.knee_depth else ""
    return f"{knee}{curve.knee_reason}; plateau {plateau and round(plateau)} reads/s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--only", default="", help="the disks whose name contains this")
    options = parser.parse_args()
    sweeps = {}
    print("| disk | depth | probe reads/s | fio reads/s | ratio | probe p99 ms | fio p99 ms |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        data = make_data(directory / "data.img", 512 * MIB)
        wanted = {k: v for k, v in disks(data, directory).items() if options.only in k}
        for disk, make in wanted.items():
            with make() as device:
                for depth in DEPTHS:
                    print(compare(disk, device, depth, options.rounds, options.seconds), flush=True)
                sweeps[disk] = sweep(device)
    print()
    for disk, said in sweeps.items():
        print(f"- {disk}: {said}")


if __name__ == "__main__":
    main()
