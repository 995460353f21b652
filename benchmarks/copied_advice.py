"""The effect of tuning advice that is copied from text to text, by ``validate`` in four labs.

    sudo python benchmarks/copied_advice.py -o DIR [--only NAME]... [--write]
    python benchmarks/copied_advice.py -o DIR --no-runs --write
    python benchmarks/copied_advice.py --configurations

The advice is in examples/copied-advice/advice.toml, with a pair of configurations for each beside
it (``--configurations`` writes them again). Each cell is one command. Its verdict is kept as
DIR/NAME.LAB.json, and a cell with a verdict is not run again. ``--write`` makes
docs/copied-advice.md from them, with the date of the oldest. All cells take some 75 minutes on two
CPUs without other work.
"""

import argparse
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from advising.book import Book, files, read
from advising.page import Cell, page, summary

from nginx_tune.documents.base import decode
from nginx_tune.documents.verdict import Verdict

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path("examples/copied-advice")
PAGE = ROOT / "docs" / "copied-advice.md"
LOAD = ("--pairs", "7", "--max-time", "60s", "--duration", "1500ms", "--warmup", "500ms")
_BOUND_SECONDS = 300


def cells_of(book: Book) -> list[Cell]:
    """All cells to measure, with the labs of an advice next to each other."""
    return [
        Cell(
            advice,
            lab,
            [
                "nginx-tune", "validate", f"{FOLDER}/{advice.name}.with.conf",
                "--against", f"{FOLDER}/{advice.name}.without.conf",
                "--lab", f"{FOLDER}/{lab.file}", "--primary", lab.primary,
                *(("--workload", f"{FOLDER}/{lab.workload}") if lab.workload else ()), *LOAD,
            ],
        )
        for advice in book.advice
        for lab in book.labs
    ]  # fmt: skip


def measure(cell: Cell, file: Path) -> str:
    """Run a cell; returns the reason why there is no verdict, or an empty string."""
    partial = file.with_suffix(".part")
    command = [sys.executable, "-m", "nginx_tune", "-q", *cell.command[1:]]
    try:
        done = subprocess.run(
            [*command, "--no-store", "-f", "json", "-o", str(partial)],
            cwd=ROOT, capture_output=True, text=True, check=False, timeout=_BOUND_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"not done after {_BOUND_SECONDS} s"
    if not partial.exists() or not partial.stat().st_size:
        return (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
    partial.rename(file)
    return ""


def kept(cell: Cell, file: Path) -> Cell:
    """The cell with its verdict, if it has one."""
    if not file.exists():
        return cell
    when = datetime.fromtimestamp(file.stat().st_mtime, timezone.utc)
    return replace(cell, verdict=decode(Verdict, file.read_bytes()), measured=when)


def main() -> int:
    """Run the requested cells; the exit status is 1 if a cell has no verdict."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, help="where verdicts are kept")
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--no-runs", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--configurations", action="store_true")
    options = parser.parse_args()
    book = read(ROOT / FOLDER)
    if options.configurations:
        for name, text in files(book).items():
            (ROOT / FOLDER / name).write_text(text)
        return 0
    if options.output is None:
        parser.error("-o DIR is missing")
    options.output.mkdir(parents=True, exist_ok=True)
    measured, missing = [], 0
    for cell in cells_of(book):
        file = options.output / f"{cell.advice.name}.{cell.lab.name}.json"
        wanted = not options.only or cell.advice.name in options.only
        if wanted and not options.no_runs and not file.exists():
            why = measure(cell, file)
            if why:
                print(f"{cell.advice.name}, {cell.lab.name}: {why}", file=sys.stderr)
                missing += 1
        measured.append(kept(cell, file))
        if wanted:
            print(f"{cell.advice.name:22} {cell.lab.name:6} {summary(measured[-1])}", flush=True)
    if options.write:
        PAGE.write_text(page(book, measured))
    return 1 if missing else 0


if __name__ == "__main__":
    raise SystemExit(main())
