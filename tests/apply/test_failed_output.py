"""What ``apply`` says: it decides nothing of a change, and takes no place that nginx reads."""

import os
import pty
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from apply_site import Site
from change_files import snapshot
from command_line import RunCli
from started import until

pytestmark = pytest.mark.needs("root", "nginx")
Make = Callable[..., Site]
PROGRAM = [sys.executable, "-m", "nginx_tune"]


def _apply(site: Site, *more: str, text: str = "") -> list[str]:
    return [*PROGRAM, *site.overlay(*more, main=text)]


def _shell(command: list[str], ending: str) -> subprocess.CompletedProcess[str]:
    line = f"{shlex.join(command)} {ending}"
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    "ending",
    [
        ">/dev/full",
        *(
            pytest.param(one, marks=pytest.mark.thorough)
            for one in (">/dev/full 2>&1", "2>/dev/full")
        ),
    ],
)
def test_a_change_ends_as_it_would_though_nothing_can_be_written(
    make_site: Make, ending: str
) -> None:
    site = make_site()
    before = snapshot(site.tree)
    state = ["--state-dir", str(site.state.path)]
    failing = _apply(site, text=site.text("working_directory /nowhere;"))
    assert _shell(failing, ending).returncode == 1
    assert snapshot(site.tree) == before
    waiting = _shell(_apply(site, "--confirm", "60s"), ending)
    assert (waiting.returncode, site.ask()) == (0, "new\n")
    assert _shell([*PROGRAM, "confirm", *state], ending).returncode == 0
    assert site.state.all()[-1].read().phase == "kept"
    back = _shell([*PROGRAM, "rollback", *state], ending)
    assert (back.returncode, site.ask()) == (0, "old\n")
    if ending == ">/dev/full":
        said = "the changes are made, but the result could not be written"
        assert said in waiting.stderr
        assert said in back.stderr


def test_a_reader_that_has_gone_is_no_end_of_the_change(make_site: Make) -> None:
    site = make_site()
    with subprocess.Popen(_apply(site), stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as one:
        assert one.stdout is not None
        one.stdout.close()
        assert one.wait(60) == 0
    assert (site.state.all()[-1].read().phase, site.ask()) == ("kept", "new\n")


@pytest.mark.parametrize(
    "number", [signal.SIGHUP, pytest.param(signal.SIGINT, marks=pytest.mark.thorough)]
)
def test_a_closed_terminal_takes_it_back(make_site: Make, number: signal.Signals) -> None:
    site = make_site()
    before = snapshot(site.tree)
    ours, theirs = pty.openpty()
    command = _apply(site, "--watch", "60s")
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, start_new_session=True) as one:
        os.close(theirs)
        until(lambda: site.ask() == "new\n")
        os.close(ours)
        one.send_signal(number)
        one.send_signal(number)  # of the shell and of the terminal
        assert one.wait(60) == 130
    assert site.state.all()[-1].read().phase == "undone"
    assert site.ask() == "old\n"
    assert snapshot(site.tree) == before


def test_ctrl_c_twice_says_that_it_was_taken_back(make_site: Make, tmp_path: Path) -> None:
    site = make_site()
    said = tmp_path / "said"
    with (
        said.open("w") as file,
        subprocess.Popen(_apply(site, "--watch", "60s"), stderr=file) as one,
    ):
        until(lambda: "seen to answer" in said.read_text())
        one.send_signal(signal.SIGINT)
        until(lambda: "taking it back" in said.read_text())
        one.send_signal(signal.SIGINT)
        assert one.wait(60) == 130
    assert "every file is as it was; nginx was reloaded" in said.read_text()


def test_a_result_that_nginx_would_read_is_refused_before(make_site: Make, run_cli: RunCli) -> None:
    site = make_site()
    before = snapshot(site.tree)
    for result in (
        f"-o {site.tree}/conf.d/site.conf",
        f"-o {site.root}/new.conf",
        f"-f json={site.tree}/conf.d/zz.conf",
        f"-o {site.tree}/nginx.conf",
    ):
        run = run_cli(*site.overlay(*result.split()))
        assert run.returncode == 2, (result, run.stderr)
        assert "would overwrite it" in run.stderr or "nginx would read the result" in run.stderr
        assert (snapshot(site.tree), site.ask()) == (before, "old\n")
        assert (site.root / "new.conf").read_text().startswith("server")


def test_a_result_beside_the_tree_is_written(make_site: Make, run_cli: RunCli) -> None:
    site = make_site()
    run = run_cli(*site.overlay("-f", f"json={site.tree}/result.json"))
    assert (run.returncode, site.ask()) == (0, "new\n"), run.stderr
    assert '"kept"' in (site.tree / "result.json").read_text()


def test_no_result_takes_the_place_of_a_file_that_was_changed(
    make_site: Make, run_cli: RunCli
) -> None:
    """``rollback -o nginx.conf`` would put the file back, and then write over it."""
    site = make_site()
    text = site.server('return 200 "new\\n";')
    assert site.apply({"conf.d/site.conf": text}).outcome == "kept"
    changed = site.tree / "conf.d" / "site.conf"
    state = site.root / "state"
    for command in ("rollback", "confirm", "history"):
        for file, said in ((changed, "would overwrite it"), (state / "x", "of the journals")):
            run = run_cli(command, "--state-dir", state, "-f", f"json={file}")
            assert (run.returncode, said in run.stderr) == (2, True), run.stderr
    assert (changed.read_text(), site.ask()) == (text, "new\n")
    assert not (state / "x").exists()
    assert run_cli("history", "--state-dir", state, "-o", site.root / "h").returncode == 0
    for file in (site.conf, changed):
        run = run_cli("observe", "--pid", str(site.pid), "--duration", "1s", "-o", file)
        assert (run.returncode, "would overwrite it" in run.stderr) == (2, True), run.stderr
    assert changed.read_text() == text
