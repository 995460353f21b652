"""A version of nginx from the matrix as an executable of its own.

The matrix has scripts that start a loader: of such a process ``/proc/PID/exe`` is the loader, and
``apply`` asks that file, as the running program, for its version and its ``nginx -t``.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path

from needs import lacks

TOOL = Path(__file__).resolve().parents[2] / "tools" / "nginx-matrix"


def own_executable(series: str, place: Path) -> Path:
    """A copy of what the script of a series runs, with its loader and libraries."""
    script = _present().get(series)
    if script is None:
        lacks("matrix", f"no nginx {series} here (tools/nginx-matrix gets it)")
    if script.read_bytes()[:2] != b"#!":
        return script  # this machine's own
    # The last line is: exec LOADER --library-path PATHS PROGRAM "$@"
    _, loader, _, libraries, program, _ = shlex.split(script.read_text().splitlines()[-1])
    made = place / "nginx"
    shutil.copy(program, made)
    # The older form of a run path, which libraries of the libraries are looked for in as well.
    command = ["patchelf", "--force-rpath", "--set-interpreter", loader, "--set-rpath", libraries]
    subprocess.run([*command, made], check=True, capture_output=True)
    return made


@cache
def _present() -> dict[str, Path]:
    said = subprocess.run([TOOL, "--list"], capture_output=True, text=True, check=True)
    return {line.split()[0]: Path(line.split()[1]) for line in said.stdout.splitlines()}
