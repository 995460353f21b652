"""However a command ends, nothing of it is left on the machine.

The gate tries a sample, `make test-all` every ending.
"""

import os
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from endings import Run, Surroundings, Workspace, few, labs_seen, make_workspace, running, tell
from tiers import ALL, REPEAT, dice
from unprivileged import copy_package

pytestmark = [
    pytest.mark.needs("root", "nginx", "loop", "blkio", "fuse", "userns", "nobody"),
    pytest.mark.alone,  # compares what is on the machine
]

SAMPLE = 4


class Ending(NamedTuple):
    """How a command comes to its end."""

    command: str
    user: str
    name: str
    act: Callable[[Run], object]
    """Done at a random moment."""
    around: Surroundings = Surroundings()
    longest_seconds: float = 5.0
    """The latest moment."""
    waits: bool = False
    """Whether it ends by itself: the moment does not matter."""

    @property
    def label(self) -> str:
        return f"{self.name} of {self.command} by {self.user}"


def send(how: signal.Signals, run: Run) -> None:
    run.kill([run.process.pid], how)


def send_to_all(how: signal.Signals, run: Run) -> None:
    """As at the shutdown of a machine: to each process, the keeper among them, but it is last."""
    keepers = run.find("nginx_tune.nginx.lab.keeper")
    run.kill([pid for pid in run.processes() if pid not in keepers], how)


def send_to(word: str, run: Run) -> None:
    run.kill(run.find(word), signal.SIGKILL)


def keeper_and_all(run: Run) -> None:
    """The keeper too: only then the directory and the cgroups may stay, until the next run."""
    run.kill(run.find("nginx_tune.nginx.lab.keeper"), signal.SIGKILL)
    run.kill([run.process.pid], signal.SIGKILL)


def hang_up(run: Run) -> None:
    """Close the terminal."""
    assert run.terminal is not None
    os.close(run.terminal)
    run.terminal = None


def nothing(_run: Run) -> None:
    pass


def _without(mounts: str) -> tuple[str, ...]:
    """A command that runs with something mounted over what it needs."""
    return ("unshare", "--mount", "sh", "-c", f'{mounts}; exec "$@"', "sh")


NO_CONTROL = _without("mount --bind /dev/null /dev/loop-control")
NO_DEVICES = _without('for n in /dev/loop[0-9]*; do mount --bind /dev/null "$n"; done')

EVERYONE = (
    ("validate", "root"),
    ("validate", "nobody"),
    ("audit", "root"),
    ("audit", "nobody"),
    ("scenario", "root"),
    ("limited", "root"),
    ("modelled", "root"),
)
LONGEST_SECONDS = {"audit": 1.2, "limited": 9.0, "modelled": 9.0}


def _killed() -> Iterator[Ending]:
    """By a signal or by the end of the terminal, at any moment."""
    for command, user in EVERYONE:
        seconds = LONGEST_SECONDS.get(command, 5.0)
        end = partial(Ending, command, user, longest_seconds=seconds)
        for _ in range(2):
            yield end("SIGKILL", partial(send, signal.SIGKILL))
        yield end("SIGKILL of all but the keeper", partial(send_to_all, signal.SIGKILL))
        yield end("SIGKILL of the keeper too", keeper_and_all)
        for how in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            yield end(how.name, partial(send, how))
        yield end("SIGTERM to all but the keeper", partial(send_to_all, signal.SIGTERM))
        yield end("closed terminal", hang_up, around=Surroundings(terminal=True))


def _robbed() -> Iterator[Ending]:
    """One of its processes is killed."""
    words = {
        "the process inside": "nginx_tune.experiment.inside",
        "the namespaces": "unshare",
        "the keeper": "nginx_tune.nginx.lab.keeper",
        "nginx": "nginx: master",
        "the load probe": "nginx-tune-probe",
    }
    for user in ("root", "nobody"):
        for name, word in words.items():
            yield Ending("validate", user, f"SIGKILL of {name}", partial(send_to, word))


def _lacking() -> Iterator[Ending]:
    """Something of the machine is short: it ends by itself."""
    for user in ("root", "nobody"):
        end = partial(Ending, user=user, act=nothing, waits=True)
        for options in ("size=4k,nr_inodes=2", "size=4k", "size=16k", "size=64k,nr_inodes=3"):
            for command in ("validate", "audit"):
                yield end(command, name=f"TMPDIR {options}", around=Surroundings(tmpfs=options))
        for stream in ("stdout", "stderr"):
            yield end("validate", name=f"closed {stream}", around=Surroundings(closed=stream))
        for count in (12, 20, 32):
            around = Surroundings(few(resource.RLIMIT_NOFILE, count))
            yield end("validate", name=f"{count} descriptors", around=around)
        for size in (0, 700, 30_000):
            around = Surroundings(few(resource.RLIMIT_FSIZE, size))
            yield end("validate", name=f"files of {size} bytes", around=around)


def _lacking_of_labs() -> Iterator[Ending]:
    """Memory, room for images and loop devices."""
    end = partial(Ending, user="root", act=nothing, waits=True)
    for limit in (24, 40, 60):
        around = Surroundings(memory_bytes=limit << 20)
        for command, user in (("validate", "root"), ("validate", "nobody"), ("limited", "root")):
            yield end(command, name=f"{limit} MiB of memory", around=around)._replace(user=user)
    for options in ("size=1m", "size=20m"):
        yield end("limited", name=f"TMPDIR {options}", around=Surroundings(tmpfs=options))
    for name, wrapper in (("no loop control", NO_CONTROL), ("no loop devices", NO_DEVICES)):
        for command in ("limited", "modelled"):
            yield end(command, name=name, around=Surroundings(wrapper=wrapper))


ENDINGS = [*_killed(), *_robbed(), *_lacking(), *_lacking_of_labs()]


def _draw() -> list[Ending]:
    """Those of this run: of the sample each is of another kind."""
    if ALL:
        return ENDINGS
    draw = dice("endings")
    kinds: list[list[Ending]] = [[*_killed()], [*_robbed()], [*_lacking()], [*_lacking_of_labs()]]
    return [draw.choice(kinds[number % len(kinds)]) for number in range(SAMPLE)]


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A directory that every user may look into."""
    path = Path(tempfile.mkdtemp(prefix="endings-", dir="/var/tmp"))
    path.chmod(0o755)
    (path / "package").mkdir()
    copy_package(path / "package")
    yield path
    shutil.rmtree(path)


def test_there_are_sixty_of_them() -> None:
    assert len(ENDINGS) >= 60
    assert len({ending.label for ending in ENDINGS}) >= 60


def test_nothing_is_left(place: Path) -> None:
    faults = []
    for number, ending in enumerate(_draw()):
        fault = _try(ending, place / f"e{number}", place / "package")
        sys.stdout.write(f"{ending.label}: {fault or 'clean'}\n")
        faults += [f"{ending.label} ({REPEAT}): {fault}"] if fault else []
    assert not faults, "\n".join(faults)


def _try(ending: Ending, path: Path, package: Path) -> str:
    """What is wrong afterwards; empty for nothing."""
    where = make_workspace(path, ending.user, package)
    moment = dice(ending.label).uniform(0.0, ending.longest_seconds)
    with running(where, ending.command, ending.around) as run:
        if ending.waits or not run.wait(moment):
            ending.act(run)
        if not run.wait(90):
            return f"it goes on: {run.said.read_text(errors='replace')[-300:]}"
        said = run.said.read_text(errors="replace")
        # Short of memory the kernel may end the keeper too, though as root it is the last.
        if ending.act is keeper_and_all or ending.around.memory_bytes:
            fault = _check_swept(run, where)
        else:
            fault = "".join(f"{kind} {what}; " for kind, what in run.settle().items())
    if "internal error" in said or ("Traceback" in said and not _was_loading(said)):
        fault += f"it said {said[-600:]}"
    shutil.rmtree(path)
    return fault and f"after {moment:.2f} s: {fault}"


def _was_loading(said: str) -> bool:
    """Whether Ctrl-C came while Python still loaded the command: nothing of ours ran yet."""
    loads = '__main__.py", line ' in said and "in <module>\n    from nginx_tune" in said
    loads = loads or "nginx_tune/" not in said
    return loads and said.rstrip().endswith("KeyboardInterrupt")


def _check_swept(run: Run, where: Workspace) -> str:
    """Without a keeper: no process is left, and ``lab clean`` sees and removes the rest."""
    left = [kind for kind in run.settle() if kind not in {"files", "cgroups"}]
    if left:
        return f"left before any cleaning: {run.traces()}"
    seen = {lab["directory"] for lab in labs_seen(where)}
    unseen = {str(path) for path in where.scratch.iterdir()} - seen
    if unseen:
        return f"not seen by 'lab list': {unseen}"
    cleaned = tell(where, "clean")
    left = [kind for kind, what in run.traces().items() if what]
    return f"left by 'lab clean' ({cleaned.stderr}): {run.traces()}" if left else ""
