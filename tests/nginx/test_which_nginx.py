"""Which nginx is meant and run, with others about that only call themselves so."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from started import number_in, running, until, workers_of
from twins import twin

from nginx_tune.errors import MissingToolError, UndecidedError
from nginx_tune.host import programs
from nginx_tune.host.live import LiveHost
from nginx_tune.host.recording import RecordedHost, RecordingHost
from nginx_tune.nginx import binary
from nginx_tune.nginx.binary import read_nginx, runnable_program
from nginx_tune.nginx.processes import find_host_masters, find_masters

pytestmark = pytest.mark.needs("root", "nginx", "gcc")
RUN_CLI = Callable[..., subprocess.CompletedProcess[str]]
NOBODY = 65534
TITLE = "nginx: master process /usr/sbin/nginx -c /tmp/no/such.conf"
OURS = "/usr/sbin/nginx"


class Stranger(NamedTuple):
    """A process that looks like an nginx master."""

    pid: int
    program: Path
    mark: Path

    def ran_as(self) -> list[int]:
        return [int(line) for line in self.mark.read_text().split()]


@pytest.fixture(scope="module")
def stranger() -> Iterator[Stranger]:
    """Nobody's program, started by nobody."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        directory = Path(name)
        program = _compile(directory)
        for path in (directory, program):
            os.chown(path, NOBODY, NOBODY)
        with _started(program, user=NOBODY) as pid:
            yield Stranger(pid, program, directory / "mark")


def _compile(directory: Path) -> Path:
    directory.chmod(0o755)
    program = directory / "nginx"
    source = Path(__file__).parent / "stranger.c"
    subprocess.run(["cc", "-o", program, source, f'-DMARK="{directory}/mark"'], check=True)
    return program


class _started:  # noqa: N801  # a context manager
    def __init__(self, program: Path, *, user: int) -> None:
        self.process = subprocess.Popen(
            [TITLE], executable=program, stdout=subprocess.PIPE, user=user, group=user,
            extra_groups=[],
        )  # fmt: skip

    def __enter__(self) -> int:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"up\n"
        return self.process.pid

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "one").write_text("x" * 5000)
    path = tmp_path / "nginx.conf"
    path.write_text(
        f"user root; events {{}} http {{ access_log off; server {{ listen 127.0.0.1:18341; "
        f"root {tmp_path}/files; }} }}\n"
    )
    return path


@pytest.mark.needs("probe")
def test_validate_does_not_run_it(stranger: Stranger, conf: Path, run_cli: RUN_CLI) -> None:
    said = run_cli(
        "validate", conf, "--against", twin(conf), "--pairs", "1", "--duration", "1s",
        "--warmup", "200ms", "--no-store", "--accept-inconclusive", "-f", "json",
    )  # fmt: skip
    assert set(stranger.ran_as()) == {NOBODY}
    assert said.returncode == 0, said.stderr
    environment = json.loads(said.stdout)["environment"]
    assert environment["nginx_binary"] == OURS
    assert environment["nginx_choice"].startswith(f"nginx is {OURS}")
    assert f"not used: {stranger.program} of process {stranger.pid}" in said.stderr


COMMANDS = {
    "audit --test": ("audit", "CONF", "--test"),
    "audit": ("audit",),
    "audit --facts live": ("audit", "CONF", "--facts", "live"),
    "inspect": ("inspect",),
    "inspect --pid": ("inspect", "--pid", "PID"),
    "inspect --nginx": ("inspect", "--nginx", "PROGRAM"),
    "observe": ("observe", "--duration", "1s"),
    "observe --pid": ("observe", "--duration", "1s", "--pid", "PID"),
    "doctor": ("doctor",),
    "recommend": ("recommend",),
    "generate": ("generate",),
    "generate --nginx": ("generate", "--nginx", "PROGRAM"),
    "validate --nginx": ("validate", "CONF", "--against", "CONF", "--nginx", "PROGRAM"),
    "scenario --nginx": ("scenario", "run", "page-cache-fits", "--nginx", "PROGRAM"),
    "audit --test --nginx": ("audit", "CONF", "--test", "--nginx", "PROGRAM"),
}


def test_no_command_runs_it(stranger: Stranger, conf: Path, run_cli: RUN_CLI) -> None:
    given = {"CONF": str(conf), "PID": str(stranger.pid), "PROGRAM": str(stranger.program)}
    for name, command in COMMANDS.items():
        said = run_cli(*(given.get(word, word) for word in command))
        assert set(stranger.ran_as()) == {NOBODY}, (name, said.stderr)
        assert "Traceback" not in said.stderr, name
        assert "1.99.1" not in said.stdout or "PID" in command, "never the nginx that is meant"
        if "PROGRAM" in command:
            assert said.returncode == 2, (name, said.stderr)
            assert "refusing to run" in said.stderr, name


def test_the_collector_does_not_run_it(stranger: Stranger, run_cli: RUN_CLI) -> None:
    program = run_cli("collector").stdout
    said = subprocess.run(
        ["/usr/bin/python3", "-"], input=program, capture_output=True, text=True, check=True
    )
    assert set(stranger.ran_as()) == {NOBODY}
    answers = json.loads(said.stdout)["answers"]
    assert "belongs to user" in answers[f"distrust /proc/{stranger.pid}/exe"]["value"]


def test_the_choice_stands_in_the_facts(stranger: Stranger, run_cli: RUN_CLI) -> None:
    nginx = json.loads(run_cli("inspect", "-f", "json").stdout)["nginx"]
    assert nginx["binary"] == OURS
    assert nginx["running"] is None or nginx["running"]["pid"] != stranger.pid
    theirs = next(one for one in nginx["candidates"] if one["pid"] == stranger.pid)
    assert not theirs["chosen"]
    assert theirs["reason"] == f"it runs as user {NOBODY}, who is neither root nor the caller"
    assert sum(one["chosen"] for one in nginx["candidates"]) == 1


def test_it_can_be_looked_at_by_its_pid(stranger: Stranger) -> None:
    """What its file says of itself is then said, and that it was only read."""
    nginx, _ = read_nginx(LiveHost(), pid=stranger.pid)
    assert nginx.version == "1.99.1"
    assert not nginx.may_run
    assert nginx.running is not None
    assert nginx.running.pid == stranger.pid
    with pytest.raises(UndecidedError, match="may not be run"):
        runnable_program(nginx)
    assert set(stranger.ran_as()) == {NOBODY}


def test_it_is_run_on_the_operators_word(stranger: Stranger, run_cli: RUN_CLI) -> None:
    before = len(stranger.ran_as())
    said = run_cli("inspect", "--nginx", stranger.program, "--trust", "-f", "json")
    assert json.loads(said.stdout)["nginx"]["version"] == "1.99.1"
    assert 0 in stranger.ran_as()[before:]
    lines = [line for line in stranger.mark.read_text().splitlines() if line != "0"]
    stranger.mark.write_text("\n".join(lines) + "\n")


def test_trust_is_about_a_named_program(run_cli: RUN_CLI) -> None:
    said = run_cli("inspect", "--trust")
    assert said.returncode == 2
    assert said.stderr.count("\n") == 1
    assert "--nginx" in said.stderr


def test_a_file_of_another_user_is_not_run_though_root_runs_it(stranger: Stranger) -> None:
    """Root was talked into starting it once; its owner can write another program into it."""
    with _started(stranger.program, user=0) as pid:
        lines = stranger.ran_as()
        nginx, _ = read_nginx(LiveHost())
        assert stranger.ran_as() == lines
    theirs = next(one for one in nginx.candidates if one.pid == pid)
    assert not theirs.chosen
    assert "belongs to user" in theirs.reason
    lines = [line for line in stranger.mark.read_text().splitlines() if line != "0"]
    stranger.mark.write_text("\n".join(lines) + "\n")


def test_roots_program_run_by_another_user_is_not_the_hosts() -> None:
    """A user's nginx is no service of the host, whoever's program it runs."""
    with tempfile.TemporaryDirectory(dir="/usr/local/lib") as name:
        program = _compile(Path(name))
        mark = Path(name) / "mark"
        mark.touch()
        mark.chmod(0o666)
        with _started(program, user=NOBODY) as pid:
            nginx, _ = read_nginx(LiveHost())
    assert nginx.running is None or nginx.running.pid != pid
    theirs = next(one for one in nginx.candidates if one.pid == pid)
    assert "neither root nor the caller" in theirs.reason


def test_behind_sudo_the_callers_own_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", str(NOBODY))
    with tempfile.TemporaryDirectory(dir="/usr/local/lib") as name:
        program = _compile(Path(name))
        mark = Path(name) / "mark"
        mark.touch()
        mark.chmod(0o666)
        with _started(program, user=NOBODY) as pid:
            nginx, _ = read_nginx(LiveHost(), binary=str(program))
            assert nginx.running is not None
            assert nginx.running.pid == pid


def see_only(monkeypatch: pytest.MonkeyPatch, *pids: int) -> None:
    """Whatever else runs on this machine."""
    monkeypatch.setattr(
        binary,
        "find_host_masters",
        lambda host, **_: [m for m in find_masters(host) if m.pid in pids],
    )


def test_without_a_trusted_one_nothing_is_run(
    stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    see_only(monkeypatch, stranger.pid)
    directory = str(stranger.program.parent)
    monkeypatch.setattr(programs, "DIRECTORIES", (directory,))
    monkeypatch.setattr(programs, "NGINX_DIRECTORIES", ())
    recording = RecordingHost(LiveHost())
    nginx, gaps = read_nginx(recording)
    assert nginx.binary is None
    assert "--nginx" in gaps["/binary"]
    (refused,) = [found for found in nginx.candidates if found.source == "installed"]
    assert refused.reason.endswith("can be written by everyone")
    assert read_nginx(RecordedHost(recording.answers))[0].candidates == nginx.candidates
    with pytest.raises(MissingToolError, match="no nginx found here may be run"):
        runnable_program(nginx)
    assert set(stranger.ran_as()) == {NOBODY}


def test_of_several_installed_the_first_is_taken_and_the_others_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tempfile.TemporaryDirectory(dir="/usr/local/lib") as name:
        directory = Path(name)
        directory.chmod(0o755)
        shutil.copy(OURS, directory / "nginx")
        (directory / "angie").symlink_to(OURS)
        shutil.copy(OURS, directory / "openresty")
        see_only(monkeypatch)
        monkeypatch.setattr(programs, "DIRECTORIES", (name,))
        monkeypatch.setattr(programs, "NGINX_DIRECTORIES", ())
        nginx, _ = read_nginx(LiveHost())
    installed = [one for one in nginx.candidates if one.source == "installed"]
    assert [Path(one.binary).name for one in installed] == ["nginx", "angie", "openresty"]
    assert [one.chosen for one in installed] == [True, False, False]
    assert nginx.binary == installed[0].binary
    assert nginx.choice == f"nginx is {nginx.binary}: it is installed"


@pytest.fixture
def two_masters(tmp_path: Path) -> Iterator[dict[str, int]]:
    """Two of root's, each with a configuration of its own, by the name of a rule."""
    masters = {}
    stack = contextlib.ExitStack()
    for number, (name, line) in enumerate(
        {"first": "server_tokens on;", "second": "keepalive_timeout 0;"}.items()
    ):
        conf = tmp_path / f"{name}.conf"
        conf.write_text(
            f"user root; pid {tmp_path}/{name}.pid; error_log {tmp_path}/{name}.log; events {{}}\n"
            f"http {{ access_log off; {line} server {{ listen 127.0.0.1:{18351 + number}; }} }}\n"
        )
        masters[name] = stack.enter_context(running([OURS, "-c", conf, "-g", "daemon off;"]))
    with stack:
        yield masters


def test_of_several_masters_the_audit_takes_the_named_one(
    two_masters: dict[str, int], run_cli: RUN_CLI
) -> None:
    for name, pid in two_masters.items():
        said = run_cli("audit", "--pid", str(pid), "-f", "json")
        document = json.loads(said.stdout)
        assert [Path(path).name for path in document["files_parsed"]] == [f"{name}.conf"]
        assert f"process {pid}" in document["nginx_choice"]
        others = [other for other in two_masters.values() if other != pid]
        for other in others:
            # Others may run on this host.
            assert re.search(
                rf"process(es)? .*\b{other}\b.*: another nginx was chosen", said.stderr
            )


def test_the_audit_says_that_several_run(two_masters: dict[str, int], run_cli: RUN_CLI) -> None:
    said = run_cli("audit", "--fail-on", "never")
    assert "nginx-tune: not used: " in said.stderr
    assert "another nginx was chosen" in said.stderr
    assert "nginx is /usr/sbin/nginx of process" in said.stdout


def test_a_title_chooses_no_file_that_root_reads(stranger: Stranger, run_cli: RUN_CLI) -> None:
    said = run_cli("audit", "--pid", str(stranger.pid))
    assert said.returncode == 4
    assert "cannot be found from its title" in said.stderr
    assert said.stdout == ""
    none = run_cli("audit", "--pid", "1")
    assert none.returncode == 2
    assert "not a visible nginx master" in none.stderr


@contextlib.contextmanager
def under(ancestor: list[str], tmp_path: Path, **environment: str) -> Iterator[int]:
    """Root's nginx below another process; its pid."""
    pid_file = tmp_path / "below.pid"
    conf = tmp_path / "below.conf"
    conf.write_text(
        f"user root; pid {pid_file}; error_log {tmp_path}/below.log; events {{}}\n"
        "http { access_log off; server { listen 127.0.0.1:18353; } }\n"
    )
    command = [*ancestor, OURS, "-c", str(conf), "-g", "daemon off;"]
    process = subprocess.Popen(command, env={**os.environ, **environment})
    pid = 0
    try:
        pid = number_in(pid_file)
        until(lambda: workers_of(pid))
        yield pid
    finally:
        if pid:
            os.kill(pid, signal.SIGTERM)
        process.wait(10)


SHELL = ["sh", "-c", '"$@"; true', "sh"]
BY_MODULE = [
    sys.executable, "-I", "-B", "-c", "import subprocess, sys; subprocess.run(sys.argv[2:])",
]  # fmt: skip


@pytest.mark.parametrize(
    ("ancestor", "environment", "is_ours"),
    [
        pytest.param(SHELL, {"NGINX_TUNE_LAB": "1-a"}, True, id="mark"),
        pytest.param([*BY_MODULE, "nginx_tune.nginx.lab.inside"], {}, True, id="command line"),
        pytest.param(SHELL, {"NGINX_TUNE_LABEL": "1"}, False, id="another variable"),
        pytest.param([*BY_MODULE, "other.module"], {}, False, id="another module"),
    ],
)
def test_a_labs_nginx_is_never_the_hosts(
    ancestor: list[str], environment: dict[str, str], is_ours: bool, tmp_path: Path
) -> None:
    host = RecordingHost(LiveHost())
    with under(ancestor, tmp_path, **environment) as pid:
        assert pid in [one.pid for one in find_masters(host)]
        nginx, _ = read_nginx(host)
        seen = {one.pid for one in nginx.instances} | {one.pid for one in nginx.candidates}
        assert (pid in seen) is not is_ours
        named, _ = read_nginx(host, pid=pid)
        assert named.running is not None
        assert named.running.pid == pid
        replayed = find_host_masters(RecordedHost(host.answers))
        assert (pid in [one.pid for one in replayed]) is not is_ours


def test_within_a_lab_its_own_nginx_is_the_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with under(SHELL, tmp_path, NGINX_TUNE_LAB="1-a") as pid:
        look = f"from nginx_tune.host.live import LiveHost; print(LiveHost().is_in_lab({pid}))"
        monkeypatch.setenv("NGINX_TUNE_LAB", "1-a")
        run = subprocess.run(
            [sys.executable, "-c", look], check=False, capture_output=True, text=True
        )
    assert run.stdout == "False\n", run.stderr
