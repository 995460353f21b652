"""Where results go: full disks, closed ends, links, rights of files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
PROGRAM = f"{sys.executable} -m nginx_tune"


def shell(command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60, cwd=cwd
    )


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (f"{PROGRAM} schema facts >/dev/full", "No space left"),
        (f"{PROGRAM} --help >/dev/full", "No space left"),
        (f"{PROGRAM} scenario list >/dev/full", "No space left"),
        (f"{PROGRAM} schema facts -o /dev/full", "No space left"),
        (f"{PROGRAM} schema facts >&-", "standard output is closed"),
        (f"{PROGRAM} recommend --facts - <&-", "standard input is closed"),
    ],
)
def test_a_full_or_closed_end_is_one_line(command: str, said: str) -> None:
    run = shell(command)
    assert run.returncode == 2
    assert said in run.stderr
    assert len(run.stderr.splitlines()) == 1


@pytest.mark.parametrize("locale", ["", "env -i ", "LC_ALL=C.UTF-8 "])
def test_the_status_holds_when_nothing_can_be_said(locale: str) -> None:
    assert shell(f"{locale}{PROGRAM} schema nosuch 2>/dev/full").returncode == 2


def test_a_reader_that_has_enough_is_no_failure() -> None:
    run = shell(f"{PROGRAM} schema facts | head -1 >/dev/null; echo ${{PIPESTATUS[0]}}")
    assert (run.stdout, run.stderr) == ("0\n", "")


def test_a_working_directory_that_is_gone(tmp_path: Path) -> None:
    run = shell(f"mkdir gone && cd gone && rmdir ../gone && {PROGRAM} schema facts", tmp_path)
    assert run.returncode == 0, run.stderr


def test_a_link_stays_and_leads_to_the_new_text(run_cli: Run, tmp_path: Path) -> None:
    link, target = tmp_path / "link", tmp_path / "target"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to("target")
    assert run_cli("schema", "facts", "-o", link).returncode == 0
    assert link.is_symlink()
    assert "nginx-tune/facts/1" in target.read_text()
    assert target.stat().st_mode & 0o777 == 0o600


@pytest.mark.needs("root")
def test_a_full_disk_keeps_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    run = shell(
        "unshare --mount sh -c 'mount -t tmpfs -o size=8k tmpfs . && cd . && echo old >x;"
        f" {PROGRAM} schema facts -o {tmp_path}/x; echo $?; ls -A {tmp_path}; cat {tmp_path}/x'",
        tmp_path,
    )
    assert run.stdout == "2\nx\nold\n", run.stderr
    assert "No space left" in run.stderr
