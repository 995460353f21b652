"""A mark is a claim: whom bodies go to is ours only where the kernel says so too."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from upload_loads import MARK, MARKED, SERVER, UNMARKED, listening, upload_class, upload_plan

from nginx_tune.documents.base import encode
from nginx_tune.documents.loadplan import Target
from nginx_tune.host.lab_mark import ENVIRONMENT_MARK
from nginx_tune.measure.load.probe import find_probe

pytestmark = pytest.mark.needs("probe")

REFUSED = "is not a server that nginx-tune started: they are sent to no other, whatever is allowed"
NOBODY = 65534
OF_NOBODY = f"""
import os, socket, time
above = os.getppid()
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
s = socket.create_server(('127.0.0.1', 0))
print(s.getsockname()[1], flush=True)
while os.getppid() == above: time.sleep(0.1)
"""
USER, PID, STARTED, NUMBER = MARK.split("-")


def asked(target: Target, mark: str | None = MARK) -> subprocess.CompletedProcess[bytes]:
    item = upload_class("/plain", timeout_seconds=1.0)
    plan = encode(upload_plan(target, item, drain_seconds=1.0))
    env = UNMARKED if mark is None else {**UNMARKED, ENVIRONMENT_MARK: mark}
    return subprocess.run([find_probe()], input=plan, capture_output=True, check=False, env=env)


def is_refused(target: Target, mark: str | None = MARK) -> bool:
    said = asked(target, mark)
    if said.returncode == 0:
        return False
    assert (said.returncode, said.stdout) == (2, b"")
    assert said.stderr.count(b"\n") == 1
    assert REFUSED in said.stderr.decode()
    return True


def here(port: int) -> Target:
    return Target(address="127.0.0.1", port=port)


@contextlib.contextmanager
def started(argv: list[str], mark: str = MARK) -> Iterator[Target]:
    """A server that says its port, with a mark."""
    env = {**UNMARKED, ENVIRONMENT_MARK: mark}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=env) as process:
        try:
            assert process.stdout is not None
            yield here(int(process.stdout.readline()))
        finally:
            process.kill()


def serving(mark: str = MARK) -> contextlib.AbstractContextManager[Target]:
    return started([sys.executable, str(SERVER)], mark)


def test_our_own_server_is_known() -> None:
    with serving() as target:
        assert not is_refused(target)
    with listening(is_ours=False) as (port, _):
        assert is_refused(here(port))


@pytest.mark.needs("root")
def test_another_users_server_with_an_invented_mark_gets_nothing() -> None:
    invented = f"{NOBODY}-{PID}-{STARTED}-{NUMBER}"
    for mark in (MARK, invented):
        with started([sys.executable, "-c", OF_NOBODY], mark) as target:
            assert is_refused(target)
            assert is_refused(target, mark)
            assert is_refused(target, None)
    # Below a process of root's that has the mark: only whose socket it is tells.
    with started(["sh", "-c", '"$@"; true', "sh", sys.executable, "-c", OF_NOBODY]) as target:
        assert is_refused(target)


@pytest.mark.needs("root")
def test_a_worker_of_another_user_may_hold_a_socket_of_ours() -> None:
    # As of nginx: root's master made the socket.
    both = (
        "import os, socket, time\n"
        "s = socket.create_server(('127.0.0.1', 0))\n"
        "if os.fork() == 0:\n"
        f"    above = os.getppid(); os.setuid({NOBODY})\n"
        "    while os.getppid() == above: time.sleep(0.1)\n"
        "    os._exit(0)\n"
        "print(s.getsockname()[1], flush=True); time.sleep(60)\n"
    )
    with started([sys.executable, "-c", both]) as target:
        assert REFUSED not in asked(target).stderr.decode()


def test_a_server_that_has_our_mark_and_was_started_by_somebody_else_is_not_ours() -> None:
    # It is nobody's child any more: the command has not started it, as far as the kernel knows.
    away = f'setsid "{sys.executable}" "{SERVER}" & echo $! >&2; exit 0'
    with subprocess.Popen(
        ["sh", "-c", away], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=MARKED, text=True
    ) as left:
        assert left.stdout is not None
        assert left.stderr is not None
        pid = int(left.stderr.readline())
        try:
            assert is_refused(here(int(left.stdout.readline())))
        finally:
            os.kill(pid, 9)


def test_a_mark_that_the_kernel_does_not_confirm_makes_nothing_ours() -> None:
    for why, mark in {
        "its number was given anew": f"{USER}-{PID}-{int(STARTED) + 1}-{NUMBER}",
        "the command has ended": f"{USER}-{2**22 - 1}-{STARTED}-{NUMBER}",
        "another user's": f"{int(USER) + 1}-{PID}-{STARTED}-{NUMBER}",
        "no start": f"{PID}-{NUMBER}",
        "a word": "test",
        "nothing": "",
    }.items():
        with serving(mark=mark) as target:
            assert is_refused(target, mark), why


def test_a_mark_of_another_lab_is_not_ours() -> None:
    with serving(mark=f"{USER}-{PID}-{STARTED}-0") as target:
        assert is_refused(target)


def test_a_command_that_does_not_run_above_the_probe_makes_nothing_its_own() -> None:
    # A mark that names a process which runs, and of the same user.
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            stat = Path(f"/proc/{other.pid}/stat").read_text()
            mark = f"{USER}-{other.pid}-{stat.rpartition(')')[2].split()[19]}-0"
            with serving(mark=mark) as target:
                assert is_refused(target, mark)
        finally:
            other.kill()


def test_another_server_at_the_path_of_our_own_gets_nothing(tmp_path: Path) -> None:
    path, other = tmp_path / "own.sock", tmp_path / "other.sock"
    with listening(str(path)), listening(str(other), is_ours=False):
        target = Target(unix=str(path))
        assert not is_refused(target)
        # The kernel's table still has our own at that path.
        path.rename(tmp_path / "moved.sock")
        other.rename(path)
        assert is_refused(target)
        assert not is_refused(Target(unix=str(tmp_path / "moved.sock")))


IN_WALLS = """
import json, subprocess, sys, tempfile
env = json.loads(sys.argv[1])
pipe = subprocess.PIPE
server = subprocess.Popen([sys.executable, sys.argv[2]], stdout=pipe, env=env)
port = int(server.stdout.readline())
plan = json.load(sys.stdin)
plan["target"]["port"] = port
text = json.dumps(plan)
said = subprocess.run([sys.argv[3]], input=text, capture_output=True, text=True, env=env)
print(json.dumps([said.returncode, said.stderr]))
"""


@pytest.mark.needs("root")
@pytest.mark.parametrize("first_has_it", [True, False])
def test_inside_walls_the_first_process_vouches_for_the_command(*, first_has_it: bool) -> None:
    """There the command itself is not seen: as in a lab."""
    plan = encode(upload_plan(here(1), upload_class("/plain"))).decode()
    argv = ["unshare", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child"]
    argv += [sys.executable, "-c", IN_WALLS, json.dumps(MARKED), str(SERVER), str(find_probe())]
    said = subprocess.run(
        argv, input=plan, capture_output=True, text=True, check=True,
        env=MARKED if first_has_it else UNMARKED,
    )  # fmt: skip
    code, errors = json.loads(said.stdout)
    assert (code, REFUSED in errors) == ((0, False) if first_has_it else (2, True)), errors
