"""What is told of a change that has not ended can be typed as it stands, and ends it."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from apply_site import Site
from change_files import snapshot
from command_line import RunCli
from started import is_alive, until

from nginx_tune.change.apply.model_journal import StuckError
from nginx_tune.change.apply.undo import roll_back
from nginx_tune.host.live import LiveHost

pytestmark = pytest.mark.needs("root", "nginx")
Make = Callable[..., Site]


def _told(text: str, verb: str) -> list[str]:
    found = re.search(rf"nginx-tune ({verb}[^,;)\n]*)", text)
    assert found, text
    return shlex.split(found[1])


def test_a_reload_command_that_fails_is_taken_back(make_site: Make, run_cli: RunCli) -> None:
    site = make_site()
    before = snapshot(site.tree)
    said = run_cli(*site.overlay("--reload-command", "false"))
    assert said.returncode == 1, said.stderr
    assert "because: false: status 1" in said.stdout
    assert snapshot(site.tree) == before
    assert run_cli(*site.overlay()).returncode == 0
    assert site.ask() == "new\n"


def test_what_is_stuck_names_the_way_out(make_site: Make, run_cli: RunCli) -> None:
    site = make_site()
    command = [
        "sh",
        "-c",
        f"test ! -e {site.root}/broken && kill -HUP $(cat {site.root}/nginx.pid)",
    ]
    assert site.apply(
        {"conf.d/site.conf": site.server("return 204;")}, reload_command=command
    ).outcome == "kept"  # fmt: skip
    (site.root / "broken").touch()
    with pytest.raises(StuckError) as stuck:
        roll_back(LiveHost(), site.state, None)
    assert "--leave" in stuck.value.hint
    history = run_cli("history", "--state-dir", site.state.path).stdout
    assert "STUCK" in history
    leave = history[history.index("as they are: ") :]
    assert run_cli(*_told(leave, "rollback")).returncode == 0
    # The old files are back, and nginx has not read them yet: a reload would bring them in.
    assert "reload nginx first" in run_cli(*site.overlay()).stderr
    os.kill(site.pid, signal.SIGHUP)
    until(lambda: site.ask() == "old\n")
    time.sleep(0.3)
    assert run_cli(*site.overlay()).returncode == 0


def test_the_printed_confirm_confirms(make_site: Make, run_cli: RunCli) -> None:
    site = make_site()
    said = run_cli(*site.overlay("--confirm", "60s"))
    assert re.search(
        r"; or take it back: nginx-tune rollback \S.*; otherwise put back at [\d:]{8} UTC\n",
        said.stdout,
    )
    assert run_cli(*_told(said.stdout, "confirm")).returncode == 0
    assert site.state.all()[-1].read().phase == "kept"


def test_killed_it_is_unfinished_and_the_next_step_ends_it(
    make_site: Make, run_cli: RunCli
) -> None:
    site = make_site()
    command = [sys.executable, "-m", "nginx_tune", *site.overlay("--watch", "60s")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as one:
        until(lambda: site.ask() == "new\n")
        one.kill()
    late = run_cli("confirm", "--state-dir", site.state.path)
    assert late.returncode == 2
    assert "is unfinished: its process has died" in late.stderr
    history = run_cli("history", "--state-dir", site.state.path).stdout
    assert _told(history, "rollback") == _told(late.stderr, "rollback")
    assert run_cli(*_told(history, "rollback")).returncode == 0
    assert site.ask() == "old\n"


def test_one_that_waits_for_nobody_is_told_as_that(make_site: Make, run_cli: RunCli) -> None:
    site = make_site()
    said = run_cli(*site.overlay("--confirm", "2s", "-f", "json"))
    change = json.loads(said.stdout)["changes"][0]
    journal = site.state.all()[-1]
    guardian = int((journal.directory / "guardian").read_text())
    os.kill(guardian, signal.SIGKILL)
    until(lambda: not is_alive(guardian))

    def history_so_far() -> str:
        return run_cli("history", "--state-dir", site.state.path).stdout

    until(lambda: "UNFINISHED" in history_so_far())  # once the time to confirm it is over
    history = history_so_far()
    assert f"not confirmed before {change['confirm_until']}" in history
    assert Path(site.state.path).is_dir()
    assert run_cli(*_told(history, "rollback")).returncode == 0
    assert site.ask() == "old\n"


AS_ANOTHER = """
import os, sys
from nginx_tune.cli.main import main
main(["--help"])
from nginx_tune.cli import confirm, history, rollback
import nginx_tune.change.apply.guardian, nginx_tune.change.apply.history
import nginx_tune.change.apply.journal, nginx_tune.change.apply.undo, nginx_tune.host.live
os.setuid(65534)
for command in ("history", "confirm", "rollback"):
    if main([command, "--state-dir", sys.argv[1]]) != 2:
        sys.exit(command)
"""


def test_to_another_user_the_history_is_roots() -> None:
    state = tempfile.mkdtemp(prefix="nt-state-", dir="/var/tmp")  # others must get there
    try:
        said = subprocess.run(
            [sys.executable, "-c", AS_ANOTHER, state],
            capture_output=True, text=True, check=False, cwd="/",
        )  # fmt: skip
    finally:
        Path(state).rmdir()
    assert said.returncode == 0, said.stderr
    assert (
        said.stderr.count(f"{state}: the history of changes here belongs to root (use sudo)") == 3
    )
