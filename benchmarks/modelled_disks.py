"""Modelled disks against their model: fio's depth sweep, and the disk probe's knee.

    python benchmarks/modelled_disks.py [--seconds N] [--rounds N] [--only NAME]

Run it as root, with fio. Prints a Markdown table: at each depth, the median rate and mean latency
from fio, and those of the formulas. Then follow plateau, depth-1 latency and knee, each with its
ratio to the model. The exit status is 1 if a ratio is off by more than 15 %, or if the disk probe
finds another knee.
"""

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

# The devices are those of the tests.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from loop_disks import MIB, make_data, run_fio

from nginx_tune.documents.lab import DiskModel
from nginx_tune.nginx.lab.building import ModelledFile
from nginx_tune.nginx.lab.disk_models import (
    MODELS,
    predict_knee,
    predict_latency_seconds,
    predict_plateau,
    predict_reads_per_second,
)
from nginx_tune.nginx.lab.disks import Loop, run_tool
from nginx_tune.observe.inspect.disk_plan import curve_of, plan_disk
from nginx_tune.observe.inspect.disks import run_disk_probe

READ_BYTES = 4096
DEPTHS = (1, 2, 4, 8, 16, 32, 64)
MARGIN = 0.15
DISKS = {
    "hdd": MODELS["hdd"],
    "ssd, 1 ms, 8 channels": DiskModel(read_seconds=0.001, channels=8, bytes_per_second=500e6),
    "ssd": MODELS["ssd"],
    "ssd with a tail and stalls": DiskModel(
        read_seconds=0.001, channels=8, tail_ratio=0.01, tail_seconds=0.01,
        stall_every_seconds=0.5, stall_seconds=0.05,
    ),
}  # fmt: skip


@contextlib.contextmanager
def attached(image: Path, directory: Path, model: DiskModel) -> Iterator[str]:
    point = directory / "disk"
    file = ModelledFile(image, point, model, seed=1, writable=False)
    try:
        with Loop(str(point), writable=False) as loop:
            file.switch(on=True)
            yield loop.device
    finally:
        file.close()
        run_tool("umount", "--lazy", str(point))


def sweep(name: str, device: str, model: DiskModel, rounds: int, seconds: float) -> list[str]:
    """Print the rows of a sweep; returns the figures that are off by more than the margin."""
    rates = {}
    for depth in DEPTHS:
        runs = [
            run_fio(device, read_bytes=READ_BYTES, depth=depth, seconds=seconds).reads_per_second
            for _ in range(rounds)
        ]
        rates[depth] = statistics.median(runs)
        expected = predict_reads_per_second(model, READ_BYTES, depth)
        latency = predict_latency_seconds(model, READ_BYTES, depth)
        print(
            f"| {name} | {depth} | {rates[depth]:,.0f} | {expected:,.0f} | "
            f"{rates[depth] / expected:.2f} | {1e3 * depth / rates[depth]:.3g} | "
            f"{1e3 * latency:.3g} |",
            flush=True,
        )
    plateau = max(rates.values())
    seen = {
        "plateau": plateau / predict_plateau(model, READ_BYTES),
        "depth-1 latency": 1 / rates[1] / predict_latency_seconds(model, READ_BYTES, 1),
        "knee": plateau / rates[1] / predict_knee(model, READ_BYTES),
    }
    said = ", ".join(f"{what} {ratio:.2f}" for what, ratio in seen.items())
    print(f"\n{name}: of the model's {said}\n", flush=True)
    return [f"{name}: {what} {r:.2f}" for what, r in seen.items() if abs(r - 1) > MARGIN]


def probe_knee(name: str, device: str, model: DiskModel) -> list[str]:
    plan = plan_disk([device], read_bytes=READ_BYTES, depth=64, seconds=12)
    curve = curve_of(run_disk_probe(plan), read_bytes=READ_BYTES, filesystem="", target=device)
    if isinstance(curve, str):
        return [f"{name}: {curve}"]
    expected = round(predict_knee(model, READ_BYTES))
    plateau = curve.plateau_reads_per_second or 0
    print(f"disk probe on {name}: knee {curve.knee_depth}, plateau {plateau:,.0f}; "
          f"{curve.knee_reason}\n", flush=True)  # fmt: skip
    found = curve.knee_depth or 1  # none: a plateau from depth 1
    return (
        []
        if found == expected
        else [f"{name}: the disk probe's knee is {curve.knee_depth}, not {expected}"]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--only", default="", help="the disks whose name contains this")
    options = parser.parse_args()
    with contextlib.suppress(OSError):  # what is measured is the disk, not fio's turn on a CPU
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    off: list[str] = []
    print("| disk | depth | fio reads/s | model | ratio | fio mean ms | model |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        data = make_data(directory / "data.img", 256 * MIB)
        for disk, model in DISKS.items():
            if options.only in disk:
                with attached(data, directory, model) as device:
                    off += sweep(disk, device, model, options.rounds, options.seconds)
                    if model.stall_every_seconds is None:
                        off += probe_knee(disk, device, model)
    print("\n".join(off) or "all within 15 % of the model")
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main())
