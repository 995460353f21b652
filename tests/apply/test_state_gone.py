"""The state directory or the master goes amid a change: the old files come back, or are named."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from apply_site import Site, amid_watch
from change_files import snapshot
from command_line import RunCli
from started import is_alive, until

from nginx_tune.change.apply.model_journal import StuckError
from nginx_tune.change.apply.undo import recover_all, roll_back
from nginx_tune.host.live import LiveHost

pytestmark = pytest.mark.needs("root", "nginx")
Make = Callable[..., Site]


def _empty(state: Path) -> None:
    for path in state.glob("changes/*/journal"):
        path.write_bytes(b"")


LOST: dict[str, Callable[[Path], object]] = {
    "removed": shutil.rmtree,
    "renamed": lambda state: state.rename(state.with_name("elsewhere")),
    "emptied": _empty,
}


@pytest.mark.parametrize("how", LOST)
def test_a_change_whose_journal_is_gone_is_taken_back(
    make_site: Make, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    site = make_site()
    before = snapshot(site.tree)
    amid_watch(monkeypatch, lambda: LOST[how](site.state.path))
    said: list[str] = []
    applied = site.apply({"conf.d/site.conf": site.server('return 200 "new\\n";')}, say=said.append)
    assert applied.outcome == "rolled_back"
    assert "the journal cannot be written" in applied.reason
    assert said[-1] == "every file is as it was; nginx was reloaded"
    assert site.ask() == "old\n"
    assert snapshot(site.tree) == before
    elsewhere = site.state.path.with_name("elsewhere")
    if elsewhere.exists():
        (journal,) = type(site.state)(elsewhere).all()
        assert journal.read().phase == "undone"


def test_where_the_old_file_is_gone_too_the_new_one_is_named(
    make_site: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_site()

    def lose() -> None:
        shutil.rmtree(site.state.path)
        for path in (site.tree / "conf.d").glob(".*"):
            path.unlink()

    amid_watch(monkeypatch, lose)
    with pytest.raises(StuckError, match=rf"still the new files: {site.tree}/conf\.d/site\.conf$"):
        site.apply({"conf.d/site.conf": site.server('return 200 "new\\n";')})


def test_what_else_lies_in_the_state_directory_may_go(
    make_site: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_site()
    amid_watch(monkeypatch, (site.state.path / "lock").unlink)
    applied = site.apply({"conf.d/site.conf": site.server('return 200 "new\\n";')})
    assert (applied.outcome, site.ask()) == ("kept", "new\n")


@pytest.mark.parametrize("is_confirmed", [False, True])
def test_one_that_waits_is_taken_back_unless_it_was_confirmed_before(
    make_site: Make, run_cli: RunCli, is_confirmed: bool
) -> None:
    site = make_site()
    before = snapshot(site.tree)
    said = run_cli(*site.overlay("--confirm", "60s" if is_confirmed else "2s"))
    assert said.returncode == 0, said.stderr
    guardian = int(next(site.state.journals.glob("*/guardian")).read_text())
    if is_confirmed:
        assert run_cli("confirm", "--state-dir", site.state.path).returncode == 0
    shutil.rmtree(site.state.path)
    until(lambda: not is_alive(guardian))
    assert site.ask() == ("new\n" if is_confirmed else "old\n")
    if not is_confirmed:
        assert snapshot(site.tree) == before


def _session(leader: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.getsid(int(path.name)) == leader and is_alive(int(path.name)):
                found.append(int(path.name))
    return found


def test_workers_without_a_master_are_no_old_configuration(
    make_site: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_site()
    master, before = site.pid, snapshot(site.tree)

    def kill() -> None:
        os.kill(master, signal.SIGKILL)
        until(lambda: not is_alive(master))

    amid_watch(monkeypatch, kill)
    with pytest.raises(
        StuckError, match=rf"process {master} has exited and left workers running \("
    ):
        site.apply({"conf.d/site.conf": site.server('return 200 "new\\n";')})
    assert snapshot(site.tree) == before
    assert site.ask() == "new\n"
    (journal,) = site.state.all()
    assert journal.read().phase == "stuck"
    for pid in _session(master):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not _session(master))
    monkeypatch.setattr("nginx_tune.change.apply.undo.is_abandoned", lambda _: True)
    assert [one.server for one in recover_all(LiveHost(), site.state)] == ["not running"]


def test_a_master_that_was_stopped_serves_nobody(
    make_site: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_site()
    before = snapshot(site.tree)
    amid_watch(monkeypatch, lambda: site.stop(site.pid))
    with pytest.raises(StuckError, match=r"every file is as it was, but nginx is not running$"):
        site.apply({"conf.d/site.conf": site.server('return 200 "new\\n";')})
    assert snapshot(site.tree) == before
    (journal,) = site.state.all()
    assert journal.read().phase == "undone"


def test_a_rollback_needs_no_running_nginx_and_minds_no_other_ones_workers(
    make_site: Make, root: Path
) -> None:
    site = make_site()
    second = Site(root / "second", site.binary)
    second.start()
    other = second.pid
    before = snapshot(site.tree)
    assert site.apply({"conf.d/site.conf": site.server("return 204;")}).outcome == "kept"
    os.kill(other, signal.SIGKILL)
    until(lambda: not is_alive(other))
    subprocess.run([site.binary, "-c", site.conf, "-s", "stop"], check=True, capture_output=True)
    until(lambda: not (site.root / "nginx.pid").exists())
    assert second.ask() == "old\n"
    assert roll_back(LiveHost(), site.state, None)[1] == "not running"
    assert snapshot(site.tree) == before
