"""The master ends while it is watched: nobody was seen to serve the old configuration."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from apply_site import Site, amid_watch
from change_files import snapshot
from started import is_alive, until

from nginx_tune.change.apply.model_journal import StuckError
from nginx_tune.change.apply.undo import recover_all, roll_back
from nginx_tune.host.live import LiveHost

pytestmark = pytest.mark.needs("root", "nginx")
Make = Callable[..., Site]


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
    with pytest.raises(StuckError, match=rf"process {master} has ended without its workers \("):
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
