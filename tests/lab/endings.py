"""Commands that are ended in the middle, and what they left on the machine.

Each runs with a directory of its own for all that it writes, and in a cgroup of its own that
none of its processes leaves: whoever else runs labs on this machine is not counted.
"""

import contextlib
import errno
import json
import os
import pty
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from own_name import own_name
from seen_groups import groups_named
from tiers import dice
from twins import twin
from unprivileged import AS_NOBODY, NOBODY, interpreter

_GROUPS = Path("/sys/fs/cgroup")
_PATIENCE_SECONDS = 30.0
FILES = 3
FILE_BYTES = 1 << 20

CONF = """events {{}}
http {{ access_log off; server {{ listen 127.0.0.1:18089; root {root};
location = /memory {{ return 200 x; }} }} }}
"""
LIMITED = f"""name = "ending"
memory_bytes = {96 << 20}
[[disks]]
name = "disk1"
kind = "limited"
bytes_per_second = {50 << 20}
reads_per_second = 400
[[data]]
disk = "disk1"
files = {FILES}
file_bytes = {FILE_BYTES}
"""
MODELLED = f"""name = "ending"
[[disks]]
name = "disk1"
kind = "modelled"
class_name = "ssd"
[[data]]
disk = "disk1"
files = {FILES}
file_bytes = {FILE_BYTES}
"""
_BLOCKS = ["--pairs", "2", "--duration", "0.6s", "--warmup", "0.2s", "--no-store"]


class Workspace(NamedTuple):
    """Where a command lives."""

    path: Path
    user: str
    package: Path
    """For an ordinary user, who may not see the checkout."""

    @property
    def scratch(self) -> Path:
        """Its TMPDIR."""
        return self.path / "tmp"

    @property
    def root(self) -> Path:
        """What nginx serves."""
        return self.path / "site"

    def argv(self, command: str) -> list[str]:
        """A command by its name."""
        conf, lab = str(self.path / "nginx.conf"), str(self.path / f"{command}.toml")
        words = {
            "validate": ["validate", conf, "--against", str(twin(conf)), *_BLOCKS],
            "limited": ["validate", conf, "--against", str(twin(conf)), "--lab", lab, *_BLOCKS],
            "modelled": ["validate", conf, "--against", str(twin(conf)), "--lab", lab, *_BLOCKS],
            "audit": ["audit", conf, "--test", "--facts", "none"],
            "scenario": ["scenario", "run", "accept-balance", "--pairs", "1",
                         "--duration", "0.5s", "--no-store"],
            "clean": ["lab", "clean"],
            "list": ["lab", "list", "-f", "json"],
        }[command]  # fmt: skip
        return [self.python, "-m", "nginx_tune", *words]

    @property
    def python(self) -> str:
        """The interpreter of the user."""
        return sys.executable if self.user == "root" else interpreter() or sys.executable

    def environment(self) -> dict[str, str]:
        """What the command is told."""
        environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.path),
            "TMPDIR": str(self.scratch),
            "XDG_CACHE_HOME": str(self.path / "cache"),
            "XDG_STATE_HOME": str(self.path / "state"),
            # Where files may not grow, Python (before 3.12.8 and 3.13.1) keeps the beginning of a
            # compiled module, and whoever imports it from then on fails.
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        return environment | ({} if self.user == "root" else {"PYTHONPATH": str(self.package)})

    def owner(self) -> dict[str, Any]:
        """For ``subprocess``: who runs it."""
        return {} if self.user == "root" else AS_NOBODY


def make_workspace(path: Path, user: str, package: Path) -> Workspace:
    """The files that the commands need."""
    made = Workspace(path, user, package)
    for directory in (path, made.scratch, made.root, path / "cache", path / "state"):
        directory.mkdir(exist_ok=True)
        directory.chmod(0o755)
        if user != "root":
            os.chown(directory, NOBODY, NOBODY)
    for number in range(FILES):
        (made.root / f"{number}.bin").write_bytes(dice(number).randbytes(FILE_BYTES))
    (path / "nginx.conf").write_text(CONF.format(root=made.root))
    (path / "limited.toml").write_text(LIMITED)
    (path / "modelled.toml").write_text(MODELLED)
    return made


class Surroundings(NamedTuple):
    """What is not plain about where a command runs."""

    before: Callable[[], object] = lambda: None
    """Called in its process before it runs."""
    wrapper: tuple[str, ...] = ()
    """What runs it."""
    tmpfs: str = ""
    """Options of a small file system that its TMPDIR is."""
    memory_bytes: int = 0
    """Limit of it and all that it starts."""
    terminal: bool = False
    closed: str = ""
    """``stdout`` or ``stderr``: a pipe whose reader has gone."""


class Run:
    """A command that runs."""

    def __init__(self, where: Workspace, command: str, around: Surroundings) -> None:
        self.where = where
        self.token = f"{where.path.name}-{own_name()}"
        self.said = where.path / "said"
        self.groups = list(_make_groups(self.token, around.memory_bytes))
        self.mounted = bool(around.tmpfs)
        if around.tmpfs:
            options = f"{around.tmpfs},mode=0777"
            _run("mount", "-t", "tmpfs", "-o", options, "ending", str(where.scratch))
        self.terminal: int | None = None
        self.process = self._start(command, around)

    def _start(self, command: str, around: Surroundings) -> subprocess.Popen[bytes]:
        joins = [os.open(group / "cgroup.procs", os.O_WRONLY) for group in self.groups]

        def prepare() -> None:
            for join in joins:
                os.write(join, b"0")
            around.before()

        with self.said.open("wb") as said, contextlib.ExitStack() as stack:
            streams: dict[str, IO[bytes] | int] = {"stdout": said, "stderr": said}
            if around.closed:
                reader, writer = os.pipe()
                os.close(reader)
                stack.callback(os.close, writer)
                streams[around.closed] = writer
            argv = [*around.wrapper, *self.where.argv(command)]
            if around.terminal:
                self.terminal, side = pty.openpty()
                stack.callback(os.close, side)
                streams = {"stdin": side, "stdout": side, "stderr": side}
                argv = ["setsid", "--ctty", "--wait", *argv]
            process = subprocess.Popen(
                argv,
                env=self.where.environment(),
                cwd="/",
                start_new_session=not around.terminal,
                preexec_fn=prepare,  # noqa: PLW1509  # no threads are running
                **({"stdin": subprocess.DEVNULL} | streams),
                **self.where.owner(),
            )
        for join in joins:
            os.close(join)
        return process

    def wait(self, seconds: float) -> bool:
        """Whether it ends within a time."""
        if self.terminal is not None:
            _drain(self.terminal)
        try:
            self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def processes(self) -> list[int]:
        """All that it started and that is there."""
        places = [Path(place) for place, _, _ in os.walk(self.groups[0])]
        return sorted({int(pid) for place in places for pid in _words(place / "cgroup.procs")})

    def find(self, word: str) -> list[int]:
        """Those of its processes whose command line has a word."""
        return [pid for pid in self.processes() if word in _command_line(pid)]

    def kill(self, pids: list[int], how: signal.Signals) -> None:
        """A signal to each that is there."""
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, how)

    def traces(self) -> dict[str, list[str]]:
        """What there is of it on the machine, by kind."""
        own = str(self.where.path)
        loops = _run("losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE")
        points = Path("/proc/mounts").read_text().splitlines()
        mounts = [line for line in points if own in line]
        if self.mounted:
            mounts.remove(next(line for line in mounts if line.startswith("ending ")))
        command = [f"nginx-tune-{pid}-" for pid in (self.process.pid, *self.known)]
        return {
            "processes": [f"{pid} {_command_line(pid)}" for pid in self.processes()],
            # A disk whose mount has gone has no directory in its name any more: whose it was is
            # not told, but another lab's that is there has its own.
            "loops": [
                line
                for line in loops.splitlines()
                if own in line or (".disk" in line and "nginx-tune-lab-" not in line)
            ],
            "mounts": mounts,
            "cgroups": [str(group) for group in groups_named(*command)],
            "sockets": [
                line for line in Path("/proc/net/unix").read_text().splitlines() if own in line
            ],
            "files": [
                *map(str, self.where.scratch.glob("*")),
                *(
                    os.path.join(place, name)  # noqa: PTH118  # os.walk: they go meanwhile
                    for place, _, names in os.walk(self.where.path)
                    for name in names
                    if name.endswith(".new")
                ),
            ],
        }

    known: tuple[int, ...] = ()
    """Further process ids that cgroups may be named by."""

    def settle(self) -> dict[str, list[str]]:
        """What is still there of it when there was time enough; empty kinds left out."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (found := self.traces()) and any(found.values()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return {kind: what for kind, what in found.items() if what}

    def close(self) -> None:
        """End what is left of it, so that the next begins afresh."""
        self.kill(self.processes(), signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        if self.terminal is not None:
            with contextlib.suppress(OSError):
                os.close(self.terminal)
        if self.mounted:
            _run("umount", "--lazy", str(self.where.scratch))
        for group in self.groups:
            _remove(group)


@contextlib.contextmanager
def running(where: Workspace, command: str, around: Surroundings) -> Iterator[Run]:
    """A command, and whatever is left of it ended."""
    run = Run(where, command, around)
    try:
        yield run
    finally:
        run.close()


def tell(where: Workspace, command: str) -> subprocess.CompletedProcess[str]:
    """A short command to its end."""
    return subprocess.run(
        where.argv(command),
        env=where.environment(),
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        **where.owner(),
    )


def labs_seen(where: Workspace) -> list[dict[str, Any]]:
    """The labs that ``lab list`` shows in the TMPDIR of a workspace."""
    said = tell(where, "list")
    assert said.returncode == 0, said.stderr
    runs: list[dict[str, Any]] = json.loads(said.stdout)["runs"]
    return [run for run in runs if str(where.scratch) in run["directory"]]


def few(what: int, limit: int) -> Callable[[], None]:
    """Have a process lack something."""
    return lambda: resource.setrlimit(what, (limit, limit))


def _make_groups(token: str, memory_bytes: int) -> Iterator[Path]:
    """A cgroup to know its processes by, and one that limits their memory."""
    legacy = (_GROUPS / "freezer").is_dir()
    known = (_GROUPS / "freezer" if legacy else _GROUPS) / f"ending-{token}"
    known.mkdir()
    yield known
    if memory_bytes:
        legacy = (_GROUPS / "memory").is_dir()
        limited = (_GROUPS / "memory" if legacy else _GROUPS) / f"ending-memory-{token}"
        limited.mkdir()
        file = "memory.limit_in_bytes" if legacy else "memory.max"
        (limited / file).write_text(str(memory_bytes))
        yield limited


def _remove(group: Path) -> None:
    for place, _, _ in os.walk(group, topdown=False):
        _remove_one(Path(place))


def _remove_one(group: Path) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY:
                return
            time.sleep(0.02)


def _command_line(pid: int) -> str:
    try:
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
    except OSError:
        return ""


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []


def _drain(terminal: int) -> None:
    """Let what was written to a terminal not hold its writer up."""
    os.set_blocking(terminal, False)
    with contextlib.suppress(OSError):
        while os.read(terminal, 1 << 16):
            pass


def _run(*argv: str) -> str:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    program = shutil.which(argv[0], path=path) or argv[0]
    return subprocess.run([program, *argv[1:]], capture_output=True, text=True, check=True).stdout
