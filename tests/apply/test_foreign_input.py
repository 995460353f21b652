"""What others could have written is neither believed nor loaded: plans, journals, modules."""

import itertools
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from change_files import begin
from command_line import RunCli
from planned_files import planned_file
from unprivileged import NOBODY

from nginx_tune.change.apply.guardian import confirm
from nginx_tune.change.apply.history import read_history
from nginx_tune.change.apply.journal import State, boot_seconds
from nginx_tune.change.apply.model_journal import Awaiting, Kept, RefusedError
from nginx_tune.change.apply.undo import roll_back
from nginx_tune.documents.base import encode
from nginx_tune.documents.plan import Plan
from nginx_tune.host.live import LiveHost
from nginx_tune.nginx.reload.workers import Process

pytestmark = pytest.mark.needs("root", "nginx")

NGINX = Path("/usr/sbin/nginx")


@pytest.fixture
def conf(root: Path) -> Path:
    root.chmod(0o755)
    path = root / "nginx.conf"
    path.write_text("events {}\n")
    return path


@pytest.fixture
def mark(root: Path) -> Path:
    """Made by a program or module of somebody else that was run."""
    return root / "ran"


@pytest.fixture
def module(root: Path, mark: Path) -> Iterator[Path]:
    """A module whose constructor leaves the mark; another user's."""
    source = root / "m.c"
    source.write_text(
        "#include <fcntl.h>\n"
        f'__attribute__((constructor)) static void run(void) {{ open("{mark}", O_CREAT, 384); }}\n'
    )
    made = root / "m.so"
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", made], check=True)
    os.chown(made, NOBODY, NOBODY)
    yield made
    assert not mark.exists()


def _plan(conf: Path, content: bytes, **more: object) -> bytes:
    file = planned_file(conf, conf.read_bytes(), content)
    return encode(Plan(conf_path=str(conf), files=[file], **more))  # type: ignore[arg-type]


def _apply(run_cli: RunCli, root: Path, *words: str | Path, **more: object) -> str:
    said = run_cli("apply", "--no-reload", "--state-dir", root / "state", *words, **more)
    assert said.returncode == 2, said
    return said.stderr


@pytest.mark.parametrize("how", ["plan", "link", "overlay"])
def test_what_another_user_wrote_is_not_put_in_force(
    root: Path, conf: Path, run_cli: RunCli, how: str
) -> None:
    new = b"events {}\n# theirs\n"
    handed = root / "handed"
    handed.write_bytes(new if how == "overlay" else _plan(conf, new))
    os.chown(handed, NOBODY, NOBODY)
    if how == "link":
        (root / "link").symlink_to(handed)
        handed = root / "link"
    words = ("-c", conf, "--overlay", f"{conf}={handed}") if how == "overlay" else (handed,)
    assert f"belongs to user {NOBODY}" in _apply(run_cli, root, *words)
    assert conf.read_text() == "events {}\n"
    # Who typed sudo is root by now, and so is what he hands over; and the word counts.
    more = {"env": {"SUDO_UID": str(NOBODY)}} if how == "plan" else {}
    trust = () if how == "plan" else ("--trust",)
    said = run_cli("apply", "--no-reload", "--state-dir", root / "state", *words, *trust, **more)
    assert said.returncode == 0, said.stderr
    assert conf.read_bytes() == new


@pytest.mark.needs("gcc")
def test_the_target_is_not_even_tested_with_what_others_could_have_written(
    root: Path, conf: Path, module: Path, run_cli: RunCli
) -> None:
    for way in ("module", "include", "directory"):
        theirs = root / f"theirs-{way}"
        theirs.mkdir()
        (theirs / "x.conf").write_text(f"load_module {module};\n")
        conf.write_text(f"include {theirs}/*.conf;\nevents {{}}\n")
        if way == "module":
            conf.write_text(f"load_module {module};\nevents {{}}\n")
        elif way == "include":
            os.chown(theirs / "x.conf", NOBODY, NOBODY)
        else:
            (theirs / "x.conf").unlink()
            theirs.chmod(0o777)
        new = root / "new"
        new.write_text("events {}\n# new\n")
        told = _apply(run_cli, root, "-c", conf, "--overlay", f"{conf}={new}")
        assert "refusing to run" in told, way
        # Nor with the new files in place.
        kept = conf.read_text()
        new.write_text(kept + "\n")
        conf.write_text("events {}\n")
        told = _apply(run_cli, root, "-c", conf, "--overlay", f"{conf}={new}")
        assert "refusing to run" in told, way
        assert conf.read_text() == "events {}\n"


ASKED: dict[str, Callable[[State], object]] = {
    "confirm": lambda state: confirm(state, None),
    "rollback": lambda state: roll_back(LiveHost(), state, None),
    "history": read_history,
}


WHOSE = ("state", "changes", "change", "journal", "link")


def test_a_journal_of_somebody_else_is_not_believed(root: Path) -> None:
    believed = []
    for whose, command in itertools.product(WHOSE, ASKED):
        place = root / f"{whose}-{command}"
        place.mkdir()
        if _is_believed(place, whose, command):
            believed.append((whose, command))
        assert (place / "victim").read_bytes() == b"mine\n", (whose, command)
    assert believed == []


def _is_believed(root: Path, whose: str, command: str) -> bool:
    victim = root / "victim"
    victim.write_bytes(b"theirs\n")
    state = State(root / "state")
    change = begin(state, {victim: b"mine\n"})
    victim.write_bytes(b"mine\n")
    guardian = Process(pid=1, start_ticks=0)
    late = Awaiting(guardian=guardian, until="", until_boot_seconds=boot_seconds() - 1)
    change.journal.append(late if command == "confirm" else Kept())
    places = {"state": state.path, "changes": state.journals,
              "change": change.journal.directory,
              "journal": change.journal.directory / "journal"}  # fmt: skip
    if whose == "link":
        state.journals.rename(root / "elsewhere")
        state.journals.symlink_to(root / "elsewhere")
    else:
        os.chown(places[whose], NOBODY, NOBODY)
    try:
        ASKED[command](state)
    except RefusedError as refused:
        return "not trusted" not in refused.message
    return True


def test_a_journal_that_is_no_file_is_told(root: Path, run_cli: RunCli) -> None:
    state = State(root / "state")
    state.prepare()
    change = state.new()
    os.mkfifo(change.directory / "journal")
    for command in ("history", "rollback", "confirm"):
        said = run_cli(command, "--state-dir", state.path, timeout=20)
        assert (said.returncode, "not a regular file" in said.stderr) == (2, True), said
    (change.directory / "journal").unlink()
    change.directory.rmdir()
    change.directory.write_text("")
    assert "Not a directory" in run_cli("history", "--state-dir", state.path).stderr
    assert "is not a directory" in run_cli("history", "--state-dir", "/etc/passwd").stderr
    assert State(Path("/etc/passwd/state")).all() == []


def test_a_plan_with_zero_bytes_in_its_names_is_refused(
    root: Path, conf: Path, run_cli: RunCli
) -> None:
    plain = json.loads(_plan(conf, b"x"))
    for name, words in (("conf_path", ["apply"]), ("prefix", ["audit", "--plan"])):
        (root / "plan").write_text(json.dumps(plain | {name: "/a\0b"}))
        said = run_cli(*words, root / "plan")
        assert (said.returncode, "zero byte" in said.stderr) == (2, True), said
