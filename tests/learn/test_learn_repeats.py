"""``nginx-tune learn`` with the same log twice, and with logs that have lines in common."""

import bz2
import gzip
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from rows import each_row
from synthetic_logs import FULL, Truth, lines_of

pytestmark = pytest.mark.needs("probe")


@cache
def lines(seed: int = Truth().seed) -> list[str]:
    """The log of a host."""
    return [f"{line}\n" for line in lines_of(Truth(seed=seed, requests=12_000))]


CHECKS = [
    f'10.0.0.9 - - [28/Nov/2026:10:{n // 60 % 60:02}:{n % 60:02} +0000] "GET /health HTTP/1.1" '
    f'200 2 "-" "check" 1790000000.{n:03} 0.000 {n} 1 - -\n'
    for n in range(500)
]
"""What every host behind a balancer is asked, at the same moments."""


def text(some: Sequence[str]) -> bytes:
    return "".join(some).encode()


def learnt(run_cli: Any, folder: Path, files: dict[str, bytes]) -> Any:
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return run_cli("learn", *(folder / name for name in files), "--log-format", FULL, "-f", "json")


@cache
def repeated() -> dict[str, dict[str, bytes]]:
    own, other = lines(), lines(2)
    packed = gzip.compress(text(own))
    return {
        "packed": {"a.log": text(own), "a.log.gz": packed},
        "copied": {"a.log": text(own), "copy": text(own)},
        "packed twice": {"a.bz2": bz2.compress(text(own)), "a.gz": packed},
        "a host between": {"a.log": text(own), "host2": text(other), "a.gz": packed},
        "one line": {"one": text(own[:1]), "line": text(own[:1])},
    }


@cache
def apart() -> dict[str, dict[str, bytes]]:
    own, other = lines(), lines(2)
    return {
        "hosts": {"host1": text(own), "host2": text(other)},
        "hosts with checks": {"host1": text(CHECKS + own), "host2": text(CHECKS + other)},
        "hosts with checks alone": {
            "host1": text(CHECKS[:250] + own[:1] + CHECKS[250:]),
            "host2": text(CHECKS[100:]),
        },
        "rotated": {
            "a.log.2": text(own[:4000]),
            "a.log.1": text(own[4000:8000]),
            "a.log": text(own[8000:]),
        },
        "a line": {"a.log": text(own), "b.log": text(own[-1:] * 2 + other)},
        "empty": {"a.log": text(own), "empty": b"", "half": b"half a line"},
    }


@each_row("is_turned", [False, True])
@each_row(("name", "files"), lambda: repeated().items())
def test_a_log_and_its_copy_are_refused(
    run_cli: Any, tmp_path: Path, name: str, files: dict[str, bytes], *, is_turned: bool
) -> None:
    if is_turned:
        files = dict(reversed(files.items()))
    run = learnt(run_cli, tmp_path, files)
    assert run.returncode == 2, (name, run.stdout)
    assert "would count twice" in run.stderr
    assert "name each log once" in run.stderr
    assert run.stderr.count("\n") == 1
    assert run.stdout == ""


@each_row("is_turned", [False, True])
@each_row(("name", "files"), lambda: apart().items())
def test_logs_of_several_hosts_and_rotated_ones_count_all(
    run_cli: Any, tmp_path: Path, name: str, files: dict[str, bytes], *, is_turned: bool
) -> None:
    if is_turned:
        files = dict(reversed(files.items()))
    run = learnt(run_cli, tmp_path, files)
    assert run.returncode == 0, (name, run.stderr)
    told = sum(data.count(b"\n") for data in files.values())
    assert json.loads(run.stdout)["log"]["requests"] == told
