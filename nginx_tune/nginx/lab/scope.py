"""A delegated scope of systemd: the part of the cgroup v2 tree that a lab may arrange.

Where systemd runs it is the one writer of the tree (systemd's "Control Group APIs and
Delegation"); who wants groups of its own asks for a unit with ``Delegate=yes``. The scope holds
one idle process, moved into a group of its own, since a group that holds processes cannot hand
controllers to its children. When that process ends and the lab's group is gone, systemd removes
the scope.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from nginx_tune.errors import MissingPermissionError, UndecidedError
from nginx_tune.host.programs import ProgramError, find_program, start_text_program
from nginx_tune.nginx.lab.lifetime import die_with_parent

_RUNS_SYSTEMD = Path("/run/systemd/system")
"""There when systemd is the init that runs: sd_booted(3)."""
_HOLDER = "holder"
_PATIENCE_SECONDS = 10.0


def has_systemd() -> bool:
    """Whether systemd runs this machine and can be asked for a scope."""
    if not _RUNS_SYSTEMD.is_dir():
        return False
    try:
        find_program("systemd-run")
    except ProgramError:
        return False
    return True


class DelegatedScope:
    """A delegated scope, held by a process; ``close`` ends it.

    ``note_process`` is told of that process, so that whoever cleans up ends it.
    Errors: UndecidedError with what systemd said, MissingPermissionError when the directory may
            not be arranged.
    """

    def __init__(self, mark: str, unified: Path, note_process: Callable[[int], None]) -> None:
        unit = f"nginx-tune-{mark}.scope"
        self._holder = start_text_program(
            ["systemd-run", "--scope", "--quiet", "--collect",
             f"--unit={unit}", "--property=Delegate=yes", "--", "sleep", "infinity"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=die_with_parent,  # one prctl; no threads are running
        )  # fmt: skip
        note_process(self._holder.pid)
        try:
            self.directory = _await_scope(self._holder, unit, unified)
            (self.directory / _HOLDER).mkdir()
            (self.directory / _HOLDER / "cgroup.procs").write_text(str(self._holder.pid))
        except OSError as error:
            self.close()
            raise MissingPermissionError(
                f"{unit}: {error.strerror}", hint="run as root, so that the scope may be arranged"
            ) from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the process that holds the scope."""
        self._holder.kill()
        self._holder.communicate()


def _await_scope(holder: subprocess.Popen[str], unit: str, unified: Path) -> Path:
    """The scope's directory, once systemd has moved the process there."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if holder.poll() is not None:
            said = "" if holder.stderr is None else holder.stderr.read().strip()
            raise UndecidedError(f"systemd gives no scope: {said or holder.returncode}")
        groups = Path(f"/proc/{holder.pid}/cgroup").read_text()
        for line in groups.splitlines():
            path = line.partition("::")[2]
            if line.startswith("0::") and path.endswith(unit):
                return unified / path.lstrip("/")
        time.sleep(0.02)
    raise UndecidedError(f"systemd did not start {unit} within {_PATIENCE_SECONDS:.0f} s")
