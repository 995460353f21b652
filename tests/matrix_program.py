"""A version of nginx from the matrix as an executable of its own.

The matrix has scripts that start a loader: of such a process ``/proc/PID/exe`` is the loader, and
``apply`` asks that file, as the running program, for its version and its ``nginx -t``.
"""

import shlex
import shutil
import subprocess
from pathlib import Path

from nginx_versions import find_nginx


def own_executable(series: str, place: Path) -> Path:
    """A copy of what the script of a series runs, with its loader and libraries."""
    script = Path(find_nginx(series).program)
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
