"""``nginx-tune learn`` with logs that hold one another's lines."""

from __future__ import annotations

import bz2
import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rows import each_row
from synthetic_logs import FULL, Truth, lines_of

pytestmark = pytest.mark.needs("probe")

LINES = [f"{line}\n" for line in lines_of(Truth(requests=12_000))]
OTHER_HOST = [f"{line}\n" for line in lines_of(Truth(seed=2, requests=12_000))]
CHECKS = [
    f'10.0.0.9 - - [28/Nov/2026:10:{n // 60 % 60:02}:{n % 60:02} +0000] "GET /health HTTP/1.1" '
    f'200 2 "-" "check" 1790000000.{n:03} 0.000 {n} 1 - -\n'
    for n in range(500)
]
"""What every host behind a balancer is asked, at the same moments."""


def text(lines: Sequence[str]) -> bytes:
    return "".join(lines).encode()


def learnt(run_cli: Any, folder: Path, files: dict[str, bytes]) -> Any:
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return run_cli("learn", *(folder / name for name in files), "--log-format", FULL, "-f", "json")


@each_row("is_turned", [False, True])
@each_row(
    "files",
    [
        {"a.log": text(LINES), "a.log.gz": gzip.compress(text(LINES))},
        {"a.log": text(LINES), "copy": text(LINES)},
        {"a.bz2": bz2.compress(text(LINES)), "a.gz": gzip.compress(text(LINES))},
        {"a.log": text(LINES), "earlier.log": text(LINES[:3000])},
        {"a.log": text(LINES), "half a line": text(LINES)[:100_123]},
        {"a.log": text(LINES), "inside.gz": gzip.compress(text(LINES[4000:7000]))},
        {"a.log": text(LINES[:8000]), "b.log": text(LINES[6000:])},
        {"a.log": text(LINES[:8000]), "b.log": text(LINES[7990:])},
        {"a.log": text(LINES), "host2": text(OTHER_HOST), "a.gz": gzip.compress(text(LINES))},
        {"a.log": text(LINES), "broken.gz": gzip.compress(text(LINES))[:-3000]},
        {"one": text(LINES[:1]), "line": text(LINES[:1])},
    ],
    ids=[
        "packed",
        "copied",
        "packed twice",
        "grown",
        "cut",
        "within",
        "overlapping",
        "ten lines",
        "a host between",
        "broken",
        "one line",
    ],
)
def test_lines_that_stand_in_two_logs_are_refused(
    run_cli: Any, tmp_path: Path, files: dict[str, bytes], *, is_turned: bool
) -> None:
    if is_turned:
        files = dict(reversed(files.items()))
    run = learnt(run_cli, tmp_path, files)
    assert run.returncode == 2, run.stdout
    assert "would count twice" in run.stderr
    assert "name each log once" in run.stderr
    assert run.stderr.count("\n") == 1
    assert run.stdout == ""


@each_row(
    "files",
    [
        {"host1": text(LINES), "host2": text(OTHER_HOST)},
        {"host1": text(CHECKS + LINES), "host2": text(CHECKS + OTHER_HOST)},
        {"host1": text(CHECKS[:250] + LINES[:1] + CHECKS[250:]), "host2": text(CHECKS[100:])},
        {"a.log.2": text(LINES[:4000]), "a.log.1": text(LINES[4000:8000]),
         "a.log": text(LINES[8000:])},
        {"a.log": text(LINES), "b.log": text(LINES[-1:] * 2 + OTHER_HOST)},
        {"a.log": text(LINES), "empty": b"", "half": b"half a line"},
    ],
    ids=["hosts", "hosts with checks", "hosts with checks alone", "rotated", "a line", "empty"],
)  # fmt: skip
@each_row("is_turned", [False, True])
def test_logs_of_several_hosts_and_rotated_ones_count_all(
    run_cli: Any, tmp_path: Path, files: dict[str, bytes], *, is_turned: bool
) -> None:
    if is_turned:
        files = dict(reversed(files.items()))
    run = learnt(run_cli, tmp_path, files)
    assert run.returncode == 0, run.stderr
    lines = sum(data.count(b"\n") for data in files.values())
    assert json.loads(run.stdout)["log"]["requests"] == lines


def test_a_copy_is_found_wherever_a_block_ends(run_cli: Any, tmp_path: Path) -> None:
    """Blocks of 64 KiB come out of gzip, of 1 MiB out of a file."""
    rng = random.Random(3)
    for _ in range(6):
        start = rng.randrange(100, 11_000)
        data = gzip.compress(text(LINES[:-5]), compresslevel=rng.randint(1, 9))
        run = learnt(run_cli, tmp_path, {"a.gz": data, "b.log": text(LINES[start:])})
        assert run.returncode == 2, start
