"""Time and peak memory of a dataset scan beside ``find -printf`` and ``du``, in one run.

    python benchmarks/dataset_scan.py [--files 1000000] [--rounds 3] [--directory DIR]

Two trees are made in a temporary directory, one with a tenth of the files, laid out like an nginx
cache (levels=1:2), and removed at the end. The files are sparse: the benchmark measures the walk,
not the disk. Every command runs once without measurement; then the rounds are interleaved, so that
all find the same inodes in memory. Peak memory is that of the whole process, including the
interpreter; the scan's part is the difference from a scan of an empty directory.
"""

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SCAN = (
    "import sys; from nginx_tune.host.dataset import scan_dataset; "
    "d = scan_dataset(sys.argv[1], budget_seconds=3600, sample_ratio=float(sys.argv[2])); "
    "print(d.files, d.bytes)"
)


def make_tree(root: Path, files: int) -> None:
    """Make an nginx cache of sparse files."""
    rng = random.Random(1)  # noqa: S311
    places = [root / f"{first:x}" / f"{second:02x}" for first in range(16) for second in range(256)]
    for place in places:
        place.mkdir(parents=True)
    for number in range(files):
        path = places[number % len(places)] / f"{number:032x}"
        with path.open("wb") as file:
            file.truncate(int(rng.paretovariate(1.2) * 4096) % (8 << 20))


def commands(tree: Path) -> dict[str, list[str]]:
    """The compared commands, by name."""
    return {
        "nginx-tune scan": [sys.executable, "-c", SCAN, str(tree), "1"],
        "nginx-tune scan, sample 0.1": [sys.executable, "-c", SCAN, str(tree), "0.1"],
        "find -type f -printf '%s\\n'": ["find", str(tree), "-type", "f", "-printf", "%s\\n"],
        "du --apparent-size": ["du", "-s", "--apparent-size", str(tree)],
    }


def measure(argv: list[str]) -> tuple[float, int]:
    """Seconds and peak KiB of a run, by time(1).

    A child of this process would inherit its peak.
    """
    said = subprocess.run(
        ["/usr/bin/time", "-f", "%e %M", *argv],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    seconds, peak = said.stderr.split()
    return float(seconds), int(peak)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", help="where the trees are made (default: TMPDIR)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.directory) as name:
        (Path(name) / "empty").mkdir()
        for files in (given.files // 10, given.files):
            tree = Path(name) / str(files)
            make_tree(tree, files)
            runs = commands(tree)
            for argv in runs.values():
                measure(argv)
            seen: dict[str, list[tuple[float, int]]] = {command: [] for command in runs}
            for _ in range(given.rounds):
                for command, argv in runs.items():
                    seen[command].append(measure(argv))
            print(f"| {files:,} files | s, median | s, range | peak MiB | over an empty scan |")
            print("|---|--:|--:|--:|--:|")
            empty = measure([sys.executable, "-c", SCAN, str(Path(name) / "empty"), "1"])[1]
            for command, rows in seen.items():
                seconds = [row[0] for row in rows]
                peak = max(row[1] for row in rows)
                over = f"{(peak - empty) / 1024:+.1f} MiB" if "nginx-tune" in command else ""
                print(
                    f"| `{command}` | {statistics.median(seconds):.2f} "
                    f"| {min(seconds):.2f}–{max(seconds):.2f} | {peak / 1024:.1f} | {over} |"
                )


if __name__ == "__main__":
    main()
