"""A few runs of ``benchmarks/apply_kills.py``: killed, and on a disk that fails amid them."""

import subprocess
import sys
from pathlib import Path

import pytest
from tiers import REPEAT, dice, draws

TOOL = Path(__file__).resolve().parents[2] / "benchmarks" / "apply_kills.py"


@pytest.mark.needs("root", "nginx")
def test_whole_runs_end_old_or_new_whatever_befalls_them() -> None:
    seed = dice("whole runs").randrange(1 << 32)
    step = str(draws(30, 5))
    asked = ["--behind", "kill", "read-only-tree", "--step", step, "--seed", str(seed)]
    ended = subprocess.run(
        [sys.executable, TOOL, *asked], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, f"{REPEAT}: {ended.stdout}{ended.stderr}"
    assert "kill behind each call" in ended.stdout
    assert "read-only-tree behind each call" in ended.stdout
