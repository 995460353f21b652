"""Where results go: full disks, closed ends, links, rights of files."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_hosts import facts_file

Run = Callable[..., "subprocess.CompletedProcess[str]"]
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = f"{sys.executable} -m nginx_tune"
FACTS = facts_file("sata-ssd")
CONF = ROOT / "tests" / "conf" / "valid" / "one-line.conf"


def shell(command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60, cwd=cwd
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (f"{PROGRAM} schema facts >/dev/full", "No space left"),
        (f"{PROGRAM} --help >/dev/full", "No space left"),
        (f"{PROGRAM} scenario list >/dev/full", "No space left"),
        (f"{PROGRAM} schema facts -o /dev/full", "No space left"),
        (f"{PROGRAM} schema facts >&-", "standard output is closed"),
        (f"{PROGRAM} recommend --facts - <&-", "standard input is closed"),
        (f"{PROGRAM} audit - <&-", "standard input is closed"),
        (f"{PROGRAM} recommend --facts {FACTS} >&-", "standard output is closed"),
        (f"{PROGRAM} -q audit {CONF} >&-", "standard output is closed"),
        (f"{PROGRAM} -q audit {CONF} --fix-diff --no-test >&-", "standard output is closed"),
        (f"{PROGRAM} generate --facts {FACTS} -o ''", "'--output': empty: is a variable not set?"),
        (f"{PROGRAM} audit ''", "'[CONF]': empty: is a variable not set?"),
        (f"{PROGRAM} audit -c ''", "'-c': empty: is a variable not set?"),
        (f"{PROGRAM} validate {CONF} --against ''", "'--against': empty: is a variable not set?"),
        (f"{PROGRAM} generate --facts {FACTS} --root ''", "'--root': empty"),
        (f"{PROGRAM} -q audit {CONF} -f json=/dev/null -o x", "-o x: every format already has"),
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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-f", "jsn"], "unknown format 'jsn' (is json meant?"),
        (["-f", "json=run.json", "-o", "run.txt"], "every format already has a file"),
        (["-f", "json", "-f", "console"], "only one format can go to standard output"),
        (["-f", "json=no/such/run.json"], "no/such/run.json: cannot write: No such file"),
        (["-o", "no/such/run.txt"], "no/such/run.txt: cannot write: No such file"),
    ],
)
def test_where_a_result_goes_is_checked_before_it_is_measured(
    run_cli: Run, options: list[str], said: str
) -> None:
    """The probe's address has nobody: it would say so if it were asked first."""
    run = run_cli("probe", "http://127.0.0.1:1/", "--allow-live", *options)
    assert run.returncode == 2
    assert said in run.stderr


@pytest.mark.long
@pytest.mark.parametrize("command", ["schema facts", "--help", "audit --help", "--version"])
def test_a_reader_that_has_enough_is_no_failure(command: str) -> None:
    """The reader has gone before anything is written: a short text fits into the pipe else."""
    run = shell(f"(exec <&-; sleep 0.3; {PROGRAM} {command}) | true; echo ${{PIPESTATUS[0]}}")
    assert (run.stdout, run.stderr) == ("0\n", "")


@pytest.mark.needs("nginx")
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_programs_run_with_closed_descriptors_too(closed: str, tmp_path: Path) -> None:
    """What nginx -V prints had gone to a descriptor that took the number of the closed one."""
    shell(f"{PROGRAM} inspect -f json -o {tmp_path}/facts.json {closed}")
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert facts["nginx"]["version"]
    assert [one for one in facts["unknown"] if " -V: " in one["reason"]] == []


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


@pytest.mark.needs("root")
@pytest.mark.parametrize(
    "command", ["audit {}", "recommend -c {}", "learn {}", "--config {} schema facts"]
)
def test_a_place_that_is_closed_to_a_user_is_said_so(command: str, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    os.chown(closed, 65534, 65534)
    without = "setpriv --bounding-set -dac_override,-dac_read_search"
    run = shell(f"{without} {PROGRAM} {command.format(closed / 'x')}")
    assert run.returncode == 2, run.stderr
    assert "ermission denied" in run.stderr
    assert "internal error" not in run.stderr


def test_a_module_that_a_full_disk_cut_short_is_named(tmp_path: Path) -> None:
    """Python keeps the beginning of it; click takes the EOFError for Ctrl-C."""
    shutil.copytree(
        ROOT / "nginx_tune",
        tmp_path / "nginx_tune",
        ignore=shutil.ignore_patterns("_bin", "__pycache__"),
    )
    argv = [sys.executable, "-m", "nginx_tune", "runs", "--help"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""}
    env.pop("PYTHONPYCACHEPREFIX", None)
    assert subprocess.run(argv, env=env, cwd=tmp_path, check=False).returncode == 0
    (compiled,) = (tmp_path / "nginx_tune/cli/__pycache__").glob("runs.*.pyc")
    with compiled.open("r+b") as file:
        file.truncate(700)
    run = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (4, "")
    assert f"remove the directories __pycache__ below {tmp_path}" in run.stderr
    assert "interrupted" not in run.stderr
