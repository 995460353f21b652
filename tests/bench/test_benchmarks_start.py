"""Each benchmark finds what it imports, also of the tests' modules, which may move."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rows import each_row

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(
    str(file.relative_to(ROOT))
    for file in (ROOT / "benchmarks").rglob("*.py")
    if '__name__ == "__main__"' in file.read_text(encoding="utf-8")
)


@each_row("script", SCRIPTS)
def test_a_benchmark_finds_what_it_imports(script: str) -> None:
    text = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='imported')"
    started = subprocess.run(
        # As where it is run by its name: its own directory comes first.
        [sys.executable, "-c", f"import sys; sys.path[0] = sys.argv[2]; {text}",
         script, str((ROOT / script).parent)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert started.returncode == 0, started.stderr


def test_there_are_some() -> None:
    assert "benchmarks/modelled_disks.py" in SCRIPTS
