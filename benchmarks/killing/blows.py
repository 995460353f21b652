"""The faults of a run: a kill before or after a call, or a fault of the disk."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from killing.lot import Lot
from nginx_tune.change.apply import calls


class Fault(NamedTuple):
    """A fault of the disk, and its repair."""

    strike: Callable[[], None]
    mend: Callable[[], None]


def traced(lot: Lot, *options: str) -> Callable[[list[str]], int]:
    """A runner of commands in a new interpreter under strace, which follows no child."""

    def begin(arguments: list[str]) -> int:
        command = ["strace", "-qq", "-o", lot.site.root / "strace", *options, sys.executable, "-m",
                   "nginx_tune", *arguments]  # fmt: skip
        ended = subprocess.run(command, check=False, capture_output=True, text=True)
        lot.said.write_text(ended.stderr)
        return ended.returncode

    return begin


def struck_at(lot: Lot, call: int, fault: Fault) -> Callable[[list[str]], int]:
    """A runner in which the disk fails after the call with this number."""
    left = [call]

    def count(_name: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            fault.strike()

    def listen() -> None:
        calls.after_call = count

    def begin(arguments: list[str]) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(lot.fork(arguments, listen), 0)[1])

    return begin


def fault_of(kind: str, folder: Path) -> Fault:
    """A fault of the file system of the tree or of the journal; each is a separate tmpfs."""
    if kind == "kill":
        return Fault(lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: None)
    where = folder / ("state" if kind.endswith("journal") else "etc")
    if kind == "immutable":

        def chattr(flag: str) -> None:
            paths = [path for path in where.rglob("*") if not path.name.startswith(".")]
            subprocess.run(["chattr", flag, *paths], check=True)

        return Fault(lambda: chattr("+i"), lambda: chattr("-i"))
    if kind.startswith("full"):
        ballast = where / "ballast" if kind.endswith("journal") else where / ".ballast"

        def fill() -> None:
            with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))

        return Fault(fill, lambda: ballast.unlink(missing_ok=True))

    def remount(how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", where], check=False, capture_output=True)

    return Fault(lambda: remount("ro"), lambda: remount("rw"))
