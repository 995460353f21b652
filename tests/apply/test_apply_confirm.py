"""A change that waits to be confirmed, from the command line, and what dies meanwhile."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable

import pytest
from apply_site import Site
from change_files import snapshot
from command_line import RunCli
from started import is_alive, until

from nginx_tune.change.apply.journal import Journal
from nginx_tune.change.apply.undo import recover_all
from nginx_tune.host.live import LiveHost

pytestmark = pytest.mark.needs("root", "nginx")
Make = Callable[..., Site]


def _apply(site: Site, run_cli: RunCli, *more: str) -> dict[str, object]:
    said = run_cli(*site.overlay("-f", "json", *more))
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)["changes"][0]  # type: ignore[no-any-return]


def _guardian(site: Site, change: dict[str, object]) -> int:
    return int((site.state.journals / str(change["id"]) / "guardian").read_text())


def test_without_confirm_it_is_the_old_tree(
    make_site: Make, run_cli: RunCli, start_cli: RunCli
) -> None:
    """The process that began it has ended long before."""
    site = make_site()
    before = snapshot(site.tree)
    change = _apply(site, start_cli, "--confirm", "6s")
    assert (change["state"], site.ask()) == ("awaiting", "new\n")
    journal = Journal(site.state.journals / str(change["id"]))
    until(lambda: journal.read().phase == "undone")
    assert site.ask() == "old\n"
    assert snapshot(site.tree) == before
    late = run_cli("confirm", "--state-dir", site.state.path)
    assert late.returncode == 2
    assert "not confirmed in time" in late.stderr


def test_confirmed_it_stays_and_nothing_is_left_running(make_site: Make, run_cli: RunCli) -> None:
    site = make_site()
    change = _apply(site, run_cli, "--confirm", "60s")
    guardian = _guardian(site, change)
    assert os.getsid(guardian) == guardian
    again = run_cli(
        "apply", "--overlay", f"{site.conf}={site.root}/new.conf", "-c", site.conf,
        "--state-dir", site.state.path,
    )  # fmt: skip
    assert again.returncode == 2
    assert "waits to be confirmed" in again.stderr
    for _ in range(2):
        said = run_cli("confirm", change["id"], "--state-dir", site.state.path)
        assert said.returncode == 0, said.stderr
    until(lambda: not is_alive(guardian))
    assert site.ask() == "new\n"
    assert not list(site.tree.rglob(".*"))


def test_a_dead_guardian_or_another_start_of_the_machine_is_finished_by_the_next_one(
    make_site: Make, run_cli: RunCli
) -> None:
    site = make_site()
    before = snapshot(site.tree)
    change = _apply(site, run_cli, "--confirm", "60s")
    assert recover_all(LiveHost(), site.state) == []
    os.kill(_guardian(site, change), signal.SIGKILL)
    until(lambda: not is_alive(_guardian(site, change)))
    said = run_cli("rollback", "--recover", "--state-dir", site.state.path)
    assert said.returncode == 0, said.stderr
    assert "rolled back" in said.stdout
    assert site.ask() == "old\n"
    assert snapshot(site.tree) == before
    assert run_cli("rollback", "--recover", "--state-dir", site.state.path).stdout == (
        "no change was left unfinished\n"
    )


@pytest.mark.parametrize("runs", [True, False])
def test_told_to_end_the_guardian_takes_the_change_back(
    make_site: Make, run_cli: RunCli, runs: bool
) -> None:
    """As when the machine shuts down: nginx may have ended already."""
    site = make_site()
    before = snapshot(site.tree)
    change = _apply(site, run_cli, "--confirm", "300s")
    guardian = _guardian(site, change)
    if not runs:
        site.stop(site.pid)
    os.kill(guardian, signal.SIGTERM)
    os.kill(guardian, signal.SIGTERM)
    until(lambda: not is_alive(guardian))
    story = Journal(site.state.journals / str(change["id"])).read()
    assert (story.phase, "had to end" in story.reason) == ("undone", True)
    assert snapshot(site.tree) == before
    if runs:
        assert site.ask() == "old\n"


def test_what_ends_a_session_does_not_end_the_guardian(make_site: Make, run_cli: RunCli) -> None:
    site = make_site()
    change = _apply(site, run_cli, "--confirm", "60s")
    guardian = _guardian(site, change)
    for number in (signal.SIGHUP, signal.SIGINT):
        os.kill(guardian, number)
    time.sleep(0.6)
    assert is_alive(guardian)
    assert run_cli("confirm", "--state-dir", site.state.path).returncode == 0
    with contextlib.suppress(ProcessLookupError):  # it comes to its end by itself
        os.kill(guardian, signal.SIGTERM)
    until(lambda: not is_alive(guardian))
    assert site.ask() == "new\n"


def test_what_was_taken_back_is_no_success(make_site: Make, run_cli: RunCli) -> None:
    site = make_site()
    said = run_cli(*site.overlay("-f", "json", main=site.text("working_directory /nowhere;")))
    assert said.returncode == 1
    (change,) = json.loads(said.stdout)["changes"]
    assert (change["state"], change["server"]) == ("rolled_back", "reloaded")
