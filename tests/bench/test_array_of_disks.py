"""What benchmarks/array_of_disks.py compares, and what it prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from rows import each_row

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import array_of_disks


def test_the_arms_differ_by_their_pools(tmp_path: Path) -> None:
    roots = [tmp_path / name for name in "abc"]
    array, one, each = (
        array_of_disks.conf_text(arm, roots, tmp_path) for arm in array_of_disks.ARMS
    )
    assert array == one
    assert one.count("aio threads;") == 3
    for number, root in enumerate(roots):
        assert f"thread_pool pool_{number} threads=16;" in each
        at = f"location /{number}/ {{ root {root}; directio 4k; aio threads=pool_{number}; }}"
        assert at in each


@pytest.mark.needs("nginx")
@each_row("arm", array_of_disks.ARMS)
def test_nginx_takes_them(tmp_path: Path, arm: array_of_disks.Arm) -> None:
    conf = tmp_path / "nginx.conf"
    conf.write_text(array_of_disks.conf_text(arm, [tmp_path] * 3, tmp_path))
    run = subprocess.run(
        [array_of_disks.NGINX, "-t", "-c", conf, "-e", "stderr"], capture_output=True, check=False
    )
    assert run.returncode == 0, run.stderr


def test_the_slow_disk_stands_apart_from_the_others() -> None:
    took = [[3.0] * 10, [0.002] * 10, [0.004] * 10]
    rows = array_of_disks.rows_of("a pool each", took)
    assert [(row.disk, row.answers, row.median) for row in rows] == [
        ("slow", 10, 3.0), ("the others", 20, 0.004),
    ]  # fmt: skip
    assert array_of_disks.table(rows).splitlines()[2:] == [
        "| a pool each | slow | 10 | 3,000.0 ms | 3,000 ms |",
        "| a pool each | the others | 20 | 4.0 ms | 4 ms |",
    ]
