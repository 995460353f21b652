"""An attack from a test: in an arena of its own, on a copy of the package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from sandbox_arena import ENTER
from tiers import dice

HERE = Path(__file__).parent
SYSTEM_NGINX = "/usr/sbin/nginx"
USERS = ("root", "nobody")
TURNS = 6
"""So many are all: each directive in each kind of place."""
TURN = dice("turn of the sandbox").randrange(TURNS)
"""Which place each directive is tried in."""


def attack(package: Path, **request: Any) -> dict[str, Any]:
    """What an attack in an arena of its own told and changed."""
    base = Path(tempfile.mkdtemp(prefix="nginx-tune-parts-", dir="/srv"))
    try:
        run = subprocess.run(
            [*ENTER, sys.executable, HERE / "sandbox_run.py", package, json.dumps([request])],
            env={**os.environ, "SANDBOX_ARENA": str(base), "PYTHONPATH": f"{HERE.parent}:{HERE}"},
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
    finally:
        shutil.rmtree(base, ignore_errors=True)
    assert run.returncode == 0, run.stderr[-3000:]
    answer: dict[str, Any] = json.loads(run.stdout)[0]
    return answer
