"""A reload command that does not reload: the old workers serve the old configuration."""

import shlex
import subprocess
from collections.abc import Callable

import pytest
from apply_site import Site
from change_files import snapshot

from nginx_tune.change.apply import undo
from nginx_tune.change.apply.undo import is_to_reload
from nginx_tune.nginx.reload.workers import Process

pytestmark = pytest.mark.needs("root", "nginx")
Make = Callable[..., Site]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undo, "RELOAD_SECONDS", 1.0)


def test_one_that_reloads_nothing_is_taken_back(make_site: Make) -> None:
    site = make_site()
    before = snapshot(site.tree)
    edits = {"conf.d/site.conf": site.server('return 200 "new\\n";')}
    applied = site.apply(edits, reload_command=["true"], reload_seconds=1.0)
    assert applied.outcome == "rolled_back"
    assert applied.reason.startswith("true: succeeded, but did not reload nginx: the old workers")
    assert snapshot(site.tree) == before
    assert site.ask() == "old\n"
    assert site.apply(edits).outcome == "kept"


def test_a_master_that_is_still_to_reload_is_told_apart() -> None:
    """As nginx's does while it is busy: the signal is held, not lost."""
    text = "trap '' PIPE; exec python3 -c " + shlex.quote(
        "import signal as s, time; s.pthread_sigmask(s.SIG_BLOCK, [s.SIGHUP]); "
        "print(flush=True); time.sleep(10)"
    )
    with subprocess.Popen(["sh", "-c", text], stdout=subprocess.PIPE) as one:
        assert one.stdout is not None
        one.stdout.readline()
        process = Process(pid=one.pid, start_ticks=0)
        assert not is_to_reload(process)
        one.send_signal(1)
        assert is_to_reload(process)
        one.kill()


def test_an_empty_one_is_refused(
    make_site: Make, run_cli: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    site = make_site()
    for command in ("", "   "):
        said = run_cli(*site.overlay("--reload-command", command))
        assert (said.returncode, "empty" in said.stderr) == (2, True), said
        assert not site.state.path.exists()
