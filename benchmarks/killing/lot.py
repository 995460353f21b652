"""An nginx with a series of ``apply`` runs, and the conditions that each must meet."""

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from apply_site import Site
from change_files import sha256, snapshot

from nginx_tune.change.apply import guardian, history, run, undo  # noqa: F401  # before the forks
from nginx_tune.change.apply.journal import Journal
from nginx_tune.cli import apply as apply_command  # noqa: F401
from nginx_tune.cli import rollback as rollback_command  # noqa: F401
from nginx_tune.cli.main import main as nginx_tune

EXITS = {0: "new", 1: "old", 2: "old", 3: "old"}
"""The required state of the files by exit code; 5 stands for a mixture."""
_FIRST = "conf.d/site.conf"


class Outcome(NamedTuple):
    """The outcome of a run."""

    status: int
    """The exit code, or the negative number of the signal."""
    said: str
    phase: str
    """The journal's phase at the end of the run, before any repair or recovery."""
    tree: str
    """``old``, ``new`` or ``mixed``, at the same time."""
    end: str
    """``old`` or ``new``, after the recovery."""


class WrongError(Exception):
    """A condition that does not hold."""


class Lot:
    """An nginx with a series of runs."""

    def __init__(self, binary: str, folder: Path, draw: random.Random) -> None:
        self._draw = draw
        self.site = Site(folder, binary)
        self.said = folder / "said"
        self._number = 0
        self._new: dict[str, bytes] = {}
        path = self.site.tree / _FIRST
        path.write_text(self._text("0"))
        path.chmod(0o640)
        os.chown(path, 0, 2)
        with contextlib.suppress(OSError):
            os.setxattr(path, "user.of-others", b"kept")
        for one in (path, self.site.conf):
            os.utime(one, ns=(10**18, 10**18 + 7))
        self.site.start()
        self.master = self.site.pid
        self._word = "0"

    def _text(self, word: str) -> str:
        return self.site.server(f'return 200 "{word}";')

    def arguments(self) -> list[str]:
        """The arguments of an ``apply`` with new bytes for every file."""
        self._number += 1
        word = str(self._number)
        more = "\n".join(f"# {self._draw.random()}" for _ in range(self._draw.randrange(200)))
        (self.site.tree / "conf.d" / "more").unlink(missing_ok=True)
        self._new = {
            _FIRST: self._text(word).encode(),
            "nginx.conf": f"{self.site.text()}# {word}\n{more}\n".encode(),
            "conf.d/more": f"# {word}\n".encode(),
        }
        overlays = []
        for name, content in self._new.items():
            handed = self.site.root / f"new-{name.replace('/', '-')}"
            handed.write_bytes(content)
            overlays += ["--overlay", f"{self.site.tree / name}={handed}"]
        return [
            "-q",
            "apply",
            *overlays,
            "-c",
            str(self.site.conf),
            "--watch",
            "60ms",
            *self._state,
        ]

    @property
    def _state(self) -> list[str]:
        return ["--state-dir", str(self.site.state.path)]

    def fork(self, arguments: Sequence[str], before: Callable[[], None] | None = None) -> int:
        """Run the command in a forked process, which does not import everything again."""
        pid = os.fork()
        if pid:
            return pid
        status = 99
        try:
            os.setsid()
            said = os.open(self.said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(said, 1)
            os.dup2(said, 2)
            if before is not None:
                before()
            status = nginx_tune(arguments)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)

    def one(self, begin: Callable[[list[str]], int], mend: Callable[[], None]) -> Outcome:
        """A run and its recovery; ``begin`` returns the exit code, negative for a signal."""
        arguments = self.arguments()
        old = snapshot(self.site.tree)
        word = self._word
        status = begin(arguments)
        said = self.said.read_text() if self.said.exists() else ""
        found = self.site.state.all()
        last = found[-1].read() if found else None
        phase = "none" if last is None else last.phase
        tree = self._tree(old)
        mend()
        self._run("rollback", "--recover")
        end = self._tree(old)
        # A run that ended before its journal began is not in it; the tree must then be the old one.
        is_this = bool(found) and self._is_of_now(found[-1])
        after = found[-1].read().phase if is_this else "none"
        outcome = Outcome(status, said, phase if is_this else "none", tree, end)
        self._judge(outcome, after, word)
        if end == "new":
            self._word = str(self._number)
            if self._draw.random() < 0.5:
                self._run("rollback")
                if self._tree(old) != "old" or self._ask() != word:
                    raise WrongError(f"rolled back, but not the old one: {outcome}")
                self._word = word
        return outcome

    def _is_of_now(self, journal: Journal) -> bool:
        begin = journal.read().begin
        sums = {one.sha256_after for one in begin.entries} if begin else set()
        return sums == {sha256(content) for content in self._new.values()}

    def _run(self, *arguments: str) -> None:
        _, status = os.waitpid(self.fork(["-q", *arguments, *self._state]), 0)
        missing = not self.site.state.path.exists()
        if status and not missing:
            raise WrongError(f"{arguments}: exit {status >> 8}: {self.said.read_text()}")

    def _tree(self, old: dict[str, object]) -> str:
        """The state of the files, with all their attributes: ``old``, ``new`` or ``mixed``."""
        found = snapshot(self.site.tree)
        shown = {name: one for name, one in found.items() if "/." not in f"/{name}"}
        if shown == old:
            return "old"
        new = {name: one[0] for name, one in shown.items()}  # type: ignore[index]
        kept = all(
            shown[name][1:4] == old[name][1:4] and shown[name][5] == old[name][5]  # type: ignore[index]
            for name in (_FIRST, "nginx.conf")
        )
        return "new" if new == self._new and kept else "mixed"

    def _ask(self) -> str:
        said = {self.site.ask() for _ in range(3)}
        return said.pop() if len(said) == 1 else f"both of {said}"

    def _judge(self, one: Outcome, after: str, word: str) -> None:
        wrong = []
        if one.end not in ("old", "new"):
            wrong.append("a mixture")
        if (one.end == "new") != (after == "kept"):
            wrong.append(f"the journal says {after}")
        serves = self._ask()
        if serves != (str(self._number) if one.end == "new" else word):
            wrong.append(f"nginx serves {serves}")
        if self.site.pid != self.master:
            wrong.append("another master")
        if left := [str(path) for path in self.site.tree.rglob(".*")]:
            wrong.append(f"left behind: {left}")
        wrong += _faults_of_saying(one)
        if wrong:
            raise WrongError(f"{'; '.join(wrong)}: {one} {snapshot(self.site.tree)}")


def _faults_of_saying(one: Outcome) -> list[str]:
    """The faults of the exit code and of the printed line."""
    wrong = []
    if one.status in EXITS and EXITS[one.status] != one.tree:
        wrong.append(f"exit {one.status}")
    if one.status not in (*EXITS, 5, -signal.SIGKILL):
        wrong.append(f"exit {one.status}")
    if one.status in (1, 2, 3, 5) and len(re.findall("(?m)^nginx-tune: ", one.said)) > 1:
        wrong.append("more than one line")
    if "Traceback" in one.said or "Error(" in one.said:
        wrong.append("a traceback")
    return wrong


@contextlib.contextmanager
def lot_of(binary: str, draw: random.Random, *, mounts: bool = False) -> Iterator[Lot]:
    """An nginx in a directory of root's."""
    folder = Path(tempfile.mkdtemp(dir="/root", prefix="nt-kills-"))
    places = [folder / name for name in ("etc", "state")] if mounts else []
    lot = None
    try:
        for place in places:
            place.mkdir()
            command = ["mount", "-t", "tmpfs", "-o", "size=16m,mode=0700", "nt-kills", place]
            subprocess.run(command, check=True)
        lot = Lot(binary, folder, draw)
        yield lot
    finally:
        if lot is not None:
            lot.site.stop(lot.master)
        for place in places:
            subprocess.run(["umount", "-l", place], check=False)
        shutil.rmtree(folder, ignore_errors=True)
