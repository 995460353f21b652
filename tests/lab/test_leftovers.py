"""Whose a directory is can be told whenever there is one, and a killed keeper is stood in for."""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import RunCli

from nginx_tune.errors import UndecidedError
from nginx_tune.nginx.lab import keeper
from nginx_tune.nginx.lab.keeper import Keeper, find_labs, make_directory, start_time, write_mark

CONF = "events {}\nhttp { server { listen 127.0.0.1:18090; return 200; } }\n"
SIZES = ["size=4k,nr_inodes=2", "size=4k,nr_inodes=4", "size=4k"]
"""No inode is free; one for the directory; one for its mark too, but no block for what it says."""


@pytest.fixture(params=SIZES)
def full(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system without a free block."""
    place = tmp_path / "full"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", request.param, "full", place], check=True)
    try:
        (place / "other").write_bytes(b"x" * 4096)
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


@pytest.mark.needs("root", "nginx")
def test_a_full_disk_is_named_and_keeps_nothing(
    run_cli: RunCli, full: Path, tmp_path: Path
) -> None:
    conf = tmp_path / "nginx.conf"
    conf.write_text(CONF)
    said = run_cli("audit", conf, "--test", "--facts", "none", env={"TMPDIR": str(full)})
    assert said.returncode == 4, said.stderr
    assert f"{full}/nginx-tune-lab-" in said.stderr, "the place is named"
    assert "No space left on device" in said.stderr
    assert "TMPDIR" in said.stderr, "what to do"
    assert [path.name for path in full.iterdir()] == ["other"]


@pytest.mark.needs("root")
def test_without_a_keeper_a_lab_on_a_full_disk_is_still_known(
    run_cli: RunCli, full: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(full))
    with pytest.raises(UndecidedError):
        make_directory(str(full), "1-abcd", before_making=lambda _: None)
    made = [path for path in full.iterdir() if path.is_dir()]
    assert [
        (lab.directory, lab.pid, lab.running) for lab in find_labs() if lab.directory in made
    ] == [(path, os.getpid(), True) for path in made]
    for path in made:  # as if this process had ended
        path.rename(path.with_name(path.name.replace(f"-{start_time(os.getpid())}-", "-1-")))
    said = run_cli("lab", "clean", env={"TMPDIR": str(full)})
    assert said.returncode == 0, said.stderr
    assert [path.name for path in full.iterdir()] == ["other"]


def test_what_has_no_mark_yet_is_left_to_its_own_process_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the making of a directory and its mark only the name says whose it is."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(keeper, "write_mark", lambda *_: None)
    here = make_directory(str(tmp_path), "1-abcd", before_making=lambda _: None)
    monkeypatch.setattr(keeper, "_process_namespace", lambda: "pid:[123]")
    there = make_directory(str(tmp_path), "1-abcd", before_making=lambda _: None)
    monkeypatch.setattr(keeper, "is_running", lambda *_: False)
    said = {one.directory: one.running for one in find_labs()}
    assert (said[here], said[there]) == (True, False)


def test_a_name_that_tells_nothing_is_nobodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    names = [
        "nginx-tune-lab-1-2",
        "nginx-tune-lab-1-2-xyz",
        "nginx-tune-lab--2-ab",
        "nginx-tune-lab-1-2-ab.d",
    ]
    for name in names:
        (tmp_path / name).mkdir()
    link = tmp_path / "nginx-tune-lab-1-2-ab"
    link.symlink_to(tmp_path)
    assert [lab for lab in find_labs() if lab.directory.parent == tmp_path] == []


def test_a_record_that_cannot_be_written_whole_leaves_the_old_one(tmp_path: Path) -> None:
    write_mark(tmp_path, "1-abcd")
    before = (tmp_path / "mark.json").read_text()
    (tmp_path / "mark.new").mkdir()  # the new one has no place
    with pytest.raises(OSError, match=r"mark\.new"):
        write_mark(tmp_path, "1-abcd", cgroup=Path("/sys/fs/cgroup/nginx-tune-1-abcd"))
    assert (tmp_path / "mark.json").read_text() == before
    assert json.loads(before)["pid"] == os.getpid()


def test_what_a_killed_keeper_left_to_do_is_done_without_it(tmp_path: Path) -> None:
    keeper = Keeper()
    kept = tmp_path / "kept"
    kept.mkdir()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        keeper.note("directory", str(kept))
        keeper.note("process", process.pid)
        os.kill(keeper.pid, signal.SIGKILL)
        keeper.finish()
        assert process.wait(timeout=10) == -signal.SIGKILL
    assert not kept.exists()


def test_nothing_is_begun_that_a_killed_keeper_does_not_know_of(tmp_path: Path) -> None:
    keeper = Keeper()
    os.kill(keeper.pid, signal.SIGKILL)
    os.waitid(os.P_PID, keeper.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(UndecidedError, match="cleans up after the lab has died"):
        make_directory(
            str(tmp_path), "1-abcd", before_making=lambda path: keeper.note("directory", path)
        )
    keeper.finish()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "hint"),
    [(errno.EROFS, "in a systemd unit with ProtectSystem=strict"), (errno.ENOSPC, "make room")],
)
def test_a_place_that_takes_no_directory_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, hint: str
) -> None:
    def refuse(path: Path, **_: object) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(UndecidedError, match="cannot be written") as raised:
        make_directory(str(tmp_path), "1-abcd", before_making=lambda _: None)
    assert hint in raised.value.hint


@pytest.mark.needs("nginx", "userns")
def test_too_few_descriptors_are_said_as_such(run_cli: RunCli, tmp_path: Path) -> None:
    conf = tmp_path / "nginx.conf"
    conf.write_text(CONF)
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8));"
        "from nginx_tune.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    arguments = [sys.executable, "-c", program, "audit", str(conf), "--test", "--facts", "none"]
    said = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=60)
    assert said.returncode == 4, said.stderr
    assert "Too many open files" in said.stderr
    assert "ulimit -n" in said.stderr


@pytest.mark.needs("root", "userns")
def test_a_lab_of_another_process_namespace_is_left_alone(tmp_path: Path) -> None:
    """A container that shares /var/tmp sees the mark of a running lab, and not its process."""
    directory = tmp_path / "nginx-tune-lab-x"
    directory.mkdir()
    write_mark(directory, "x")
    sweep = (
        "from nginx_tune.nginx.lab.keeper import find_labs, sweep\nsweep(); print(find_labs()[0])"
    )
    run = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", sweep],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert directory.is_dir(), "it runs"
    assert "running=True" in run.stdout, run.stderr


@pytest.mark.needs("root")
def test_a_link_to_a_directory_of_ours_is_no_lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user could exchange one for the other between two looks at it."""
    ours = tmp_path / "ours"
    ours.mkdir(0o700)
    record = {"mark": "x", "pid": 999_999, "started": "1", "cgroups": []}
    (ours / "mark.json").write_text(json.dumps(record))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    name = tmp_path / "nginx-tune-lab-1-1-bb"
    name.symlink_to(ours)
    assert str(name) not in {str(one.directory) for one in find_labs()}
    name.unlink()
    ours.rename(name)
    assert str(name) in {str(one.directory) for one in find_labs()}
    name.chmod(0o777)
    assert str(name) not in {str(one.directory) for one in find_labs()}, "anybody's"
