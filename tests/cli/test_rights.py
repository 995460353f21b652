"""Each command with the least rights that ``docs/rights.md`` names, and with each of them less."""

import contextlib
import ctypes
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from free_ports import free_port
from started import number_in, until, workers_of
from unprivileged import NOBODY, copy_package, interpreter

from nginx_tune.host.parse_proc import CAPABILITIES
from nginx_tune.sandbox import kernel_calls

ROOT = Path(__file__).resolve().parents[2]
_PR_SET_KEEPCAPS = 8
STATE = "--state-dir {place}/home/state"
APPLY = (
    "apply -c {place}/nginx.conf --overlay {place}/nginx.conf={place}/new.conf --pid {pid} "
    f"--watch 1s {STATE}"
)

pytestmark = pytest.mark.needs("root", "nginx", "nobody")


class Served(NamedTuple):
    """An nginx of root whose configuration and log are root's alone."""

    place: Path
    package: Path
    pid: int

    @property
    def conf(self) -> Path:
        return self.place / "nginx.conf"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with tempfile.TemporaryDirectory() as name:  # pytest's own are private
        place = Path(name)
        place.chmod(0o755)
        with serving(place) as pid:
            yield Served(place, copy_package(place / "package"), pid)


@contextlib.contextmanager
def serving(place: Path) -> Iterator[int]:
    """The process id of the nginx that serves a directory, and a change of its configuration."""
    conf, pid = place / "nginx.conf", place / "nginx.pid"
    (place / "mime.types").write_text("types { text/html html; }\n")
    conf.write_text(
        f"user nobody nogroup;\nworker_processes 1;\npid {pid};\n"
        f"error_log {place}/error.log warn;\n"
        "events { worker_connections 64; }\n"
        f"http {{ include mime.types; access_log {place}/access.log; gzip off;\n"
        f"server {{ listen 127.0.0.1:{free_port()}; }} }}\n"
    )
    conf.chmod(0o600)
    log = place / "access.log"
    log.write_text('::1 - - [29/Nov/2026:00:00:00 +0000] "GET / HTTP/1.1" 200 612 "-" "x"\n')
    log.chmod(0o600)
    new = place / "new.conf"
    new.write_text(conf.read_text().replace("64", "65"))
    os.chown(new, NOBODY, NOBODY)
    subprocess.run(["nginx", "-c", conf], check=True)
    until(lambda: workers_of(number_in(pid)))
    try:
        yield number_in(pid)
    finally:
        subprocess.run(["nginx", "-c", conf, "-s", "stop"], check=False)


def with_rights(served: Served, rights: set[str], *words: object) -> tuple[int, str]:
    """Exit status and all output of a command by nobody, who holds these capabilities alone."""
    numbers = [CAPABILITIES.index(one.removeprefix("CAP_").lower()) for one in rights]
    mask = sum(1 << number for number in numbers)

    def hold() -> None:
        ctypes.CDLL(None).prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        kernel_calls.set_capabilities(mask, inheritable=mask)
        for number in numbers:
            kernel_calls.raise_ambient(number)

    home = served.place / "home"
    home.mkdir(exist_ok=True)
    os.chown(home, NOBODY, NOBODY)
    run = subprocess.run(
        [interpreter() or "", "-m", "nginx_tune", *map(str, words)],
        preexec_fn=hold,  # the only way to keep capabilities past setuid
        capture_output=True,
        text=True,
        check=False,
        cwd=home,
        env={"PYTHONPATH": str(served.package), "HOME": str(home), "PATH": "/usr/sbin:/usr/bin"},
    )
    return run.returncode, run.stdout + run.stderr


def least(command: str) -> set[str]:
    """The capabilities that the page's line of a command names."""
    page = (ROOT / "docs" / "rights.md").read_text()
    (line,) = (line for line in page.splitlines() if re.match(rf"\|[^|]*`{command}`", line))
    return set(re.findall(r"CAP_[A-Z_]+", line.split("|")[2]))


@pytest.mark.parametrize(
    ("command", "words", "lacks"),
    [
        pytest.param(
            "inspect", "inspect --pid {pid} -f json",
            {"CAP_DAC_READ_SEARCH": "of its configuration, which was not read",
             "CAP_SYS_PTRACE": r"link /proc/{pid}/exe: Permission denied"},
        ),
        pytest.param(
            "learn", "learn {place}/access.log",
            {"CAP_DAC_READ_SEARCH": "access.log: cannot read: Permission denied"},
        ),
        pytest.param(
            "audit", "audit {place}/nginx.conf --facts none",
            {"CAP_DAC_READ_SEARCH": "nginx.conf: cannot read: Permission denied"},
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            "plan", "plan {place}/nginx.conf --cpus 4 --memory 8G --disk nvme --data 10G",
            {"CAP_DAC_READ_SEARCH": "nginx.conf: cannot read: Permission denied"},
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            "observe", "observe --pid {pid} --duration 1s -f json",
            {"CAP_DAC_OVERRIDE": "nginx.conf: cannot read: Permission denied",
             "CAP_SYS_ADMIN": "tracefs is not mounted and cannot be|no permission to read tracefs",
             "CAP_SYS_PTRACE": "sock_diag: Permission denied"},
            marks=[pytest.mark.thorough, pytest.mark.needs("tracefs")],
        ),
        pytest.param(
            "apply", APPLY,
            {"CAP_CHOWN": "cannot write beside it", "CAP_FOWNER": "cannot write beside it",
             "CAP_DAC_OVERRIDE": "nginx.conf: cannot read: Permission denied",
             "CAP_KILL": "process {pid}: this user may not signal it",
             "CAP_SYS_PTRACE": "process {pid}: its files cannot be seen"},
            marks=pytest.mark.thorough,
        ),
    ],
)  # fmt: skip
def test_a_command_works_with_these_rights_and_says_which_one_it_lacks(
    served: Served, command: str, words: str, lacks: dict[str, str]
) -> None:
    typed = words.format(pid=served.pid, place=served.place).split()
    assert least(command) == set(lacks), "docs/rights.md"
    for right, said in lacks.items():
        before = served.conf.read_bytes()
        status, output = with_rights(served, set(lacks) - {right}, *typed)
        assert re.search(said.format(pid=served.pid), output), (right, status, output)
        assert served.conf.read_bytes() == before, right
    status, output = with_rights(served, set(lacks), *typed)
    assert status == 0, output
    for said in lacks.values():
        assert not re.search(said.format(pid=served.pid), output), output


@pytest.mark.thorough
def test_a_rollback_that_lacks_a_right_is_loud_and_can_be_ended_with_it() -> None:
    needed = least("apply")
    lacks = dict.fromkeys(needed, "taking it back failed: (Operation not permitted|Permission den)")
    lacks["CAP_KILL"] = "the old files are back, but process [0-9]+: Operation not permitted"
    lacks["CAP_DAC_OVERRIDE"] = "not put back, .*nginx.conf: Permission denied"
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)
        with serving(place) as pid:
            own = Served(place, copy_package(place / "package"), pid)
            apply = APPLY.format(pid=pid, place=place).split()
            rollback = f"rollback {STATE}".format(place=place).split()
            before = own.conf.read_bytes()
            for right, said in lacks.items():
                status, output = with_rights(own, needed, *apply)
                assert status == 0, output
                status, output = with_rights(own, needed - {right}, *rollback)
                assert status == 5, (right, output)
                assert re.search(said, output), (right, output)
                status, output = with_rights(own, needed, *rollback)
                assert status == 0, output
                assert own.conf.read_bytes() == before, right


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param("audit {new} --test --facts none", "nginx -t accepts it", id="audit"),
        pytest.param("rehearse {old} {new} {short}", "outcome", id="rehearse"),
        pytest.param("rehearse {old} {new} {short} --lab nvme", None, id="lab"),
    ],
)
def test_root_needs_these_rights_alone_for_the_sandbox(
    served: Served, words: str, said: str | None
) -> None:
    needed = least("validate")
    old, new, site = (served.place / name for name in ("old.conf", "open.conf", "site"))
    site.mkdir(exist_ok=True)
    (site / "index.html").write_text("x" * 1000)
    for conf, seconds in ((old, 75), (new, 70)):
        server = f"listen 127.0.0.1:8099; root {site}; keepalive_timeout {seconds};"
        conf.write_text(f"events {{}}\nhttp {{ server {{ {server} }} }}\n")
    short = "--before 1s --after 1s --drain 5s --rate 20 --no-store"
    typed = words.format(old=old, new=new, short=short).split()
    for lacking in ["", *sorted(needed)]:
        if not (lacking or said):
            continue  # a lab that runs is the question of tests/rehearse and tests/lab
        kept = ",".join(f"+{one.removeprefix('CAP_').lower()}" for one in needed - {lacking})
        run = subprocess.run(
            ["setpriv", f"--bounding-set=-all,{kept}", "--inh-caps=-all", interpreter() or "", "-m",
             "nginx_tune", *typed],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(served.package)},
        )  # fmt: skip
        if lacking:
            assert run.returncode == 4, (lacking, run.stderr)
            assert f"root without the capability {lacking} cannot make" in run.stderr
        else:  # a busy host leaves a rehearsal without a verdict
            assert str(said) in run.stdout, run.stderr
