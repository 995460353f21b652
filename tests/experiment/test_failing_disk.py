"""A disk that answers some reads with EIO, under a real nginx: counted, survived, no verdict."""

from pathlib import Path

import pytest
from command_line import RunCli

from nginx_tune.documents.base import decode
from nginx_tune.documents.scenario import ScenarioRun
from nginx_tune.errors import ExitStatus

FAILING = """
name = "failing-disk"
title = "A disk with bad regions"
kind = "media"
needs = ["--with-threads"]
primary_metric = "cold.bytes_per_second"
pairs = 1
warmup_seconds = 0.2
duration_seconds = 3.0
traces = false

[lab]
name = "failing ssd"
memory_bytes = 100663296

[[lab.disks]]
name = "disk1"
class_name = "ssd"
kind = "modelled"
mount = "/srv/disk1"
model = { read_seconds = 0.001, channels = 8, bytes_per_second = 400e6, error_ratio = 0.01 }

[[lab.data]]
disk = "disk1"
files = 192
file_bytes = 1048576

[baseline]

[candidate]
[[candidate.settings]]
context = "location"
directive = "aio"
args = ["threads"]

[[classes]]
name = "cold"
source = "random"
connections = 16
keepalive = false
arrivals = { kind = "closed", users = 16, think_seconds = 0.01 }
"""


@pytest.mark.needs("root", "nginx", "loop", "fuse", "probe")
def test_a_disk_that_fails_reads_decides_nothing(run_cli: RunCli, tmp_path: Path) -> None:
    file = tmp_path / "failing.toml"
    file.write_text(FAILING)
    for _ in range(3):  # a busy machine may ask for few files, and for none of the bad ones
        result = run_cli("-q", "scenario", "run", file, "-f", "json", timeout=240)
        assert "Traceback" not in result.stderr
        run = decode(ScenarioRun, result.stdout.encode())
        blocks = {block.variant: block for block in run.measurements}
        failed = {variant: block.classes["cold"].errors for variant, block in blocks.items()}
        if all(failed.values()):
            break
    for variant, block in blocks.items():
        part = block.classes["cold"]
        assert part.requests > 0, f"{variant}: nginx serves what can be read"
        assert set(part.errors) <= {"truncated", "empty", "reset", "length", "status"}, part.errors
        assert block.server.disk_read_errors["disk1"] > 0
        assert block.server.read_errors, block.server.error_lines
    assert result.returncode == ExitStatus.UNDECIDED
    assert run.verdict.outcome == "invalid"
    assert "disks failed reads (EIO)" in run.verdict.reason
    assert all(f"{variant}: " in run.verdict.reason for variant in blocks)
