"""What a program in the sandbox sees of the host and what it can do to it: tried by a program."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from needs import lacks
from unprivileged import let_all_see

from nginx_tune.sandbox.confinement import can_limit_numbers

PYTHON = "/usr/bin/python3"
ATTACK = Path(__file__).with_name("attack.py")
SOFTWARE = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", PYTHON, "/etc/ld.so.cache"]

RUN = """
import json, sys
from nginx_tune.sandbox.launch import prepare, run_inside
from nginx_tune.sandbox.confinement import Confinement
import msgspec
wanted = msgspec.json.decode(sys.argv[1], type=Confinement)
said, refused = run_inside(json.loads(sys.argv[2]), prepare(wanted), 30)
sys.stderr.write(said.stderr + " refused: ".join(["", *refused]))
sys.stdout.write(said.stdout)
sys.exit(said.status)
"""

pytestmark = pytest.mark.needs("root", "userns")
needs_python = pytest.mark.needs("system-python")


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A directory of the host with what could be reached in it; everybody may do all with it."""
    place = tmp_path / "victim"
    place.mkdir()
    (place / "file").write_text("whole")
    (place / "file").chmod(0o666)
    os.mkfifo(place / "pipe")
    reader = os.open(place / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with (
        socket.socket(socket.AF_UNIX) as stream,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
    ):
        stream.bind(str(place / "socket"))
        stream.listen()
        datagrams.bind(str(place / "datagrams"))
        for entry in place.iterdir():
            entry.chmod(0o777)
        place.chmod(0o777)
        let_all_see(place.parent)
        yield place
        stream.setblocking(False)
        with pytest.raises(BlockingIOError):
            stream.accept()
        datagrams.setblocking(False)
        with pytest.raises(BlockingIOError):
            datagrams.recv(1)
    assert os.read(reader, 1) == b""
    os.close(reader)
    assert (place / "file").read_text() == "whole"


def run(
    argv: list[str], *, as_user: bool, before: str = "", **wanted: Any
) -> subprocess.CompletedProcess[str]:
    """What a program does in a sandbox made by root or in a user namespace.

    ``before`` is run first where the sandbox is made.
    """
    wanted["shown"] = [*SOFTWARE, *wanted.get("shown", [])]
    code = textwrap.dedent(before) + textwrap.dedent(RUN)
    inner = [sys.executable, "-c", code, json.dumps(wanted), json.dumps(argv)]
    sandbox = ["unshare", "--mount", "--net", "--ipc", "--pid", "--fork", "--mount-proc"]
    sandbox += ["--user", "--map-user=1000", "--map-group=1000", "--keep-caps"] if as_user else []
    return subprocess.run(
        [*sandbox, *inner], capture_output=True, text=True, check=False, timeout=60
    )


@needs_python
@pytest.mark.parametrize("as_user", [False, True], ids=["root", "user"])
@pytest.mark.parametrize("sockets", [False, True], ids=["plain", "overlays"])
def test_nothing_of_the_host_is_reached(victim: Path, as_user: bool, sockets: bool) -> None:
    said = run(
        [PYTHON, "-I", str(ATTACK), str(victim)],
        as_user=as_user,
        shown=[str(victim), str(ATTACK)],
        uses_unix_sockets=sockets,
    )
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert found["got out by"] == []
    assert found["processes"] == [1, 2]
    assert found["proc"] == []
    usual = {"dev", "etc", "lib", "lib64", "proc", "root", "run", "sys", "tmp", "usr", "var"}
    assert set(found["root"]) <= usual | {ATTACK.parts[1], victim.parts[1]}
    assert found["devices"] == ["fd", "full", "null", "random", "shm", "stderr", "stdin",
                                "stdout", "urandom", "zero"]  # fmt: skip
    assert found["uid"] == (1000 if as_user else 0)
    kept = {10} if as_user else {0, 1, 5, 6, 7, 10}
    assert int(found["capabilities"], 16) == sum(1 << number for number in kept)


@needs_python
@pytest.mark.parametrize("as_user", [False, True], ids=["root", "user"])
def test_links_lead_where_they_did(tmp_path: Path, as_user: bool) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("seen")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "beside").write_text("not")
    let_all_see(tmp_path)
    script = "import os,sys; print(open(sys.argv[1]).read(), sorted(os.listdir(sys.argv[2])))"
    said = run(
        [PYTHON, "-I", "-c", script, f"{tmp_path}/link/file", str(tmp_path)],
        as_user=as_user,
        shown=[f"{tmp_path}/link/file"],
    )
    assert said.stdout == "seen ['link', 'real']\n", said.stderr


@needs_python
def test_a_sandbox_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    said = run([PYTHON, "-I", "-c", "1"], as_user=False, covers={"/srv": f"{tmp_path}/none"})
    assert f"the sandbox cannot be made: {tmp_path}/none: No such file" in said.stderr


@needs_python
@pytest.mark.parametrize("as_user", [False, True], ids=["root", "user"])
def test_a_socket_of_ours_is_seen_in_the_place_of_the_hosts(tmp_path: Path, as_user: bool) -> None:
    let_all_see(tmp_path)
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    with socket.socket(socket.AF_UNIX) as host, socket.socket(socket.AF_UNIX) as stub:
        for one, path in ((host, theirs), (stub, ours)):
            one.bind(str(path))
            path.chmod(0o777)
            one.listen()
            one.setblocking(False)
        script = "import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
        said = run(
            [PYTHON, "-I", "-c", script, str(theirs)],
            as_user=as_user,
            uses_unix_sockets=True,
            laid={str(theirs): str(ours)},
        )
        assert said.returncode == 0, said.stderr
        stub.accept()[0].close()
        with pytest.raises(BlockingIOError):
            host.accept()


FORKS = """
import os, signal, sys
signal.signal(signal.SIGALRM, lambda *_: os._exit(3)); signal.alarm(50)
count = 0
try:
    while count < 1000:
        if os.fork() == 0:
            signal.pause()
        count += 1
except OSError as error:
    print(count, error.errno, flush=True)
    os.kill(-1, signal.SIGKILL)
"""
THREADS = """
import threading
over, count = threading.Event(), 0
try:
    while count < 1000:
        threading.Thread(target=over.wait, daemon=True).start()
        count += 1
except RuntimeError:
    print(count, 11)
over.set()
"""


@needs_python
@pytest.mark.parametrize("as_user", [False, True], ids=["root", "user"])
def test_processes_are_bounded_by_the_workers_that_there_may_be(as_user: bool) -> None:
    said = run([PYTHON, "-I", "-c", FORKS], as_user=as_user, workers=2)
    assert said.stdout, said.stderr
    # 32 beside four for each worker: the first process and the one that forks are among them.
    assert said.stdout == f"{32 + 4 * 2 - 2} {errno.EAGAIN}\n"
    assert "refused: clone" in said.stderr


@needs_python
@pytest.mark.parametrize("as_user", [False, True], ids=["root", "user"])
def test_threads_are_bounded_without_a_cgroup(as_user: bool) -> None:
    if not as_user and not can_limit_numbers(400):
        lacks("process-limit", "before Linux 6.14 root's are bounded by cgroups alone")
    before = Path("/proc/sys/kernel/pid_max").read_text()
    limits = {"processes": 400}
    said = run([PYTHON, "-I", "-c", THREADS], as_user=as_user, limits=limits, threads=400)
    assert said.stdout, said.stderr
    assert 90 < int(said.stdout.split()[0]) <= 400
    assert Path("/proc/sys/kernel/pid_max").read_text() == before, "the host's is its own"


NO_FILTER = """
import errno
from nginx_tune.sandbox import kernel_calls
def refuse(program, listens):
    raise OSError(errno.EINVAL, "Invalid argument")
kernel_calls.install_filter = refuse
"""
NO_ARCHITECTURE = """
from nginx_tune.sandbox import kernel_calls
kernel_calls.architecture = lambda: "riscv64"
"""
NO_OVERLAY = """
import errno
from nginx_tune.sandbox import kernel_calls
mount = kernel_calls.mount
def refuse(source, target, kind="", flags=0, data=""):
    if kind == "overlay":
        raise OSError(errno.ENODEV, "No such device")
    mount(source, target, kind, flags, data)
kernel_calls.mount = refuse
"""


MISSING = {
    "filter": (NO_FILTER, "seccomp", "the kernel refuses a filter of system calls"),
    "architecture": (NO_ARCHITECTURE, "seccomp",
                     "for riscv64: only the call numbers of x86_64 and"),
    "overlay": (NO_OVERLAY, "sockets", "sockets in it cannot be hidden from nginx: No such device"),
}  # fmt: skip


@needs_python
@pytest.mark.parametrize(
    ("name", "as_user"),
    [
        ("filter", False),
        ("overlay", False),
        ("architecture", True),
        *(
            pytest.param(name, as_user, marks=pytest.mark.thorough)
            for name, as_user in (("filter", True), ("overlay", True), ("architecture", False))
        ),
    ],
)
def test_a_part_that_cannot_be_had_is_refused_or_given_up(
    tmp_path: Path, name: str, as_user: bool
) -> None:
    before, part, says = MISSING[name]
    let_all_see(tmp_path)
    (tmp_path / "file").write_text("seen")
    argv = [PYTHON, "-I", "-c", f"print(open('{tmp_path}/file').read())"]
    wanted = {"shown": [str(tmp_path)], "uses_unix_sockets": True}
    said = run(argv, as_user=as_user, before=before, **wanted)
    assert said.returncode != 0
    assert said.stdout == ""
    assert says in said.stderr
    others = [one for one in ("memory", "processes", "seccomp", "sockets") if one != part]
    said = run(argv, as_user=as_user, before=before, weaker=others, **wanted)
    assert said.stdout == "", "the word for another part does not count"
    said = run(argv, as_user=as_user, before=before, weaker=[part], **wanted)
    assert said.stdout == "seen\n", said.stderr


@needs_python
def test_a_part_that_can_be_had_stands_though_it_was_given_up(victim: Path) -> None:
    said = run(
        [PYTHON, "-I", str(ATTACK), str(victim)],
        as_user=False,
        shown=[str(victim), str(ATTACK)],
        uses_unix_sockets=True,
        weaker=["memory", "processes", "seccomp", "sockets"],
    )
    assert json.loads(said.stdout)["got out by"] == []


@needs_python
@pytest.mark.parametrize(
    ("as_user", "threads", "said"),
    [(False, 300, "started\n"), (True, 300, "started\n"), (True, 0, "refused\n")],
)
def test_stacks_of_threads_are_no_memory_that_is_used_up(
    as_user: bool, threads: int, said: str
) -> None:
    """RLIMIT_DATA counts stacks: 256 threads of 8 MiB were all of it, and no worker started."""
    script = """
        import resource, threading
        resource.setrlimit(resource.RLIMIT_STACK, (8 << 20, resource.RLIM_INFINITY))
        threading.stack_size(8 << 20)
        over = threading.Event()
        try:
            for _ in range(270):
                threading.Thread(target=over.wait, daemon=True).start()
            print("started")
        except RuntimeError:
            print("refused")
        over.set()
    """
    found = run([PYTHON, "-I", "-c", textwrap.dedent(script)], as_user=as_user, threads=threads)
    assert found.stdout == said, found.stderr


ITS_OWN = """
import json, os, resource
def error_of(act, *given):
    try:
        act(*given)
    except (OSError, ValueError) as error:
        return getattr(error, "errno", None) or 0
    return None
scores = ["/proc/self/oom_score_adj", "/proc/1/oom_score_adj"]
print(json.dumps({
    "scores": [open(path).read().strip() for path in scores],
    "saved": [error_of(lambda: open(path, "w").write("-1000")) for path in scores],
    "stdin": error_of(os.fchmod, 0, 0o600),
    "core": resource.getrlimit(resource.RLIMIT_CORE),
    "dumps": error_of(resource.setrlimit, resource.RLIMIT_CORE, (0, 0)),
}))
"""


@needs_python
@pytest.mark.parametrize("as_user", [False, True], ids=["root", "user"])
def test_what_it_was_started_with_stays(as_user: bool) -> None:
    before = Path("/dev/null").stat().st_mode
    said = run([PYTHON, "-I", "-c", ITS_OWN], as_user=as_user)
    found = json.loads(said.stdout or "{}")
    assert found["scores"] == ["1000", "1000"], "ended first when memory is short"
    assert None not in found["saved"], found
    # Standard input was a device of the host, on a mount that takes writes.
    assert found["stdin"] in {errno.EROFS, errno.EPERM}
    assert Path("/dev/null").stat().st_mode == before
    # With a limit of 0 a program in kernel.core_pattern would be run all the same, outside.
    assert found["core"] == [1, 1]
    assert found["dumps"] is not None


@needs_python
def test_whoever_has_a_workers_user_outside_does_not_see_its_root() -> None:
    """A process that changed its user is not dumpable, and nginx asks for it in vain."""
    script = """
import ctypes, os
prctl = ctypes.CDLL(None).prctl
os.setgid(65534)
os.setuid(65534)
print(prctl(4, 1, 0, 0, 0), prctl(3, 0, 0, 0, 0))
"""
    said = run([PYTHON, "-I", "-c", script], as_user=False)
    assert said.stdout in {"0 0\n", "0 2\n"}, said.stderr
