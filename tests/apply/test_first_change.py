"""docs/first-change.md: its blocks are run as they stand, in a place of the test's own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from free_ports import free_port

PAGE = Path(__file__).resolve().parents[2] / "docs" / "first-change.md"
QUICKER = {
    "validate --plan plan.json --max-time 5min": "validate --plan plan.json --dry-run",
    "rehearse --plan plan.json": "rehearse --plan plan.json --help",
    "--watch 5s": "--watch 200ms",
    "nginx-tune confirm": "nginx-tune confirm --state-dir $PWD/state",
    "nginx-tune history": "nginx-tune history --state-dir $PWD/state",
    "nginx-tune rollback": "cp nginx.conf applied; nginx-tune rollback --state-dir $PWD/state",
    "--confirm 60s": "--confirm 60s --state-dir $PWD/state",
    "cd / && rm -r /opt/first": "true",
}
"""What the test changes: proofs in the sandbox have tests of their own."""


@pytest.mark.needs("root", "nginx", "probe")
def test_the_first_change_can_be_followed_literally(root: Path) -> None:
    top = root / "first"
    script = "\n".join(re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL))
    for old, new in QUICKER.items():
        assert script.count(old) == 1, old
        script = script.replace(old, new)
    script = script.replace("/opt/first", str(top)).replace("8080", str(free_port()))
    (root / "nginx-tune").write_text(f'#!/bin/sh\nexec {sys.executable} -m nginx_tune "$@"\n')
    (root / "nginx-tune").chmod(0o755)
    path = {"PATH": f"{root}:{os.environ['PATH']}:/usr/sbin", "TMPDIR": str(root)}
    run = subprocess.run(
        ["bash", "-euc", f"trap 'kill $(cat {top}/nginx.pid)' ERR\n{script}"],
        env={**os.environ, **path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    before = script.partition("<<'END'\n")[2].partition("END\n")[0]
    assert (top / "applied").read_text() != before
    assert (top / "nginx.conf").read_text() == before
    assert "every file is as it was; nginx: reloaded" in run.stdout
    # As the page shows it.
    for said in ("nginx-tune: 1 file changed", "2 new workers, 2 seen to answer on 1 listener\n"):
        assert said in run.stderr
        assert said.strip() in PAGE.read_text()
