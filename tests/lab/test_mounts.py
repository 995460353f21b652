"""Mounts of the operator that are in odd places."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SEAL = """
import sys
from pathlib import Path
from nginx_tune.lab.mounts import seal_all
seal_all(keep=Path(sys.argv[1]) / "keep")
"""


@pytest.mark.needs("root")
def test_a_mount_that_lies_under_another_keeps_nothing_from_being_sealed(tmp_path: Path) -> None:
    script = f"""
        set -e
        mount --make-rprivate /
        mkdir {tmp_path}/a
        mount -t tmpfs under {tmp_path}/a
        mkdir {tmp_path}/a/hidden
        mount -t tmpfs hidden {tmp_path}/a/hidden
        mount -t tmpfs over {tmp_path}/a
        {sys.executable} -c '{SEAL}' {tmp_path}
        ! touch {tmp_path}/a/file 2>/dev/null
        ! touch {tmp_path}/file 2>/dev/null
    """
    run = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


COVER = """
import sys
from pathlib import Path
from nginx_tune.lab.mounts import cover_all
logs = Path(sys.argv[1])
cover_all([str(logs)], [str(logs), f"{logs}/site/deep", f"{logs}/none", str(logs.parent)])
(logs / "site" / "deep" / "access.log").write_text("x")
found = sorted(str(path.relative_to(logs)) for path in logs.rglob("*"))
sys.stdout.write(" ".join(found))
"""


@pytest.mark.needs("root")
def test_directories_that_are_named_inside_a_covered_one_stay(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    (logs / "site" / "deep").mkdir(parents=True)
    (logs / "error.log").write_text("whole")
    run = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", COVER, logs],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout == "site site/deep site/deep/access.log", run.stderr
    assert [path.name for path in logs.rglob("*") if path.is_file()] == ["error.log"]
