"""``apply --dry-run`` and ``--diff``: what would be done, by the same checks, nothing written."""

import fcntl
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from apply_site import Site
from change_files import begin, snapshot
from command_line import RunCli
from planned_files import planned_file

from nginx_tune.change.apply import calls
from nginx_tune.change.apply.model_journal import RefusedError, RejectedError, Swapping
from nginx_tune.change.apply.run import Ahead, ApplyOptions, look_at_change
from nginx_tune.documents.base import encode
from nginx_tune.documents.plan import Plan
from nginx_tune.errors import NginxTuneError, UndecidedError
from nginx_tune.host.live import LiveHost
from nginx_tune.nginx.reload.workers import Process

pytestmark = pytest.mark.needs("root", "nginx")

EDIT = 'return 200 "new\\n";'


def look(site: Site, edits: dict[str, str], **wish: Any) -> Ahead:
    options = ApplyOptions(conf_path=str(site.conf), **wish)
    return look_at_change(LiveHost(), site.state, site.propose(edits), {}, options)


def workers(site: Site) -> str:
    return Path(f"/proc/{site.pid}/task/{site.pid}/children").read_text()


def test_nothing_is_written_and_nginx_is_told_nothing(
    make_site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_site()
    before, old = snapshot(site.tree), workers(site)
    told: list[object] = []
    monkeypatch.setattr(calls, "after_call", told.append)
    edits = {"conf.d/site.conf": site.server(EDIT), "conf.d/new.conf": "# nothing\n"}
    ahead = look(site, edits, watch_seconds=7, confirm_seconds=9)
    assert [one.kind for one in ahead.entries] == ["edit", "create"]
    assert f"nginx process {site.pid} would be reloaded (SIGHUP)" in ahead.steps
    assert "it would be watched for 7 s" in ahead.steps
    assert "it would be taken back 9 s later unless confirmed" in ahead.steps
    assert (told, snapshot(site.tree), workers(site)) == ([], before, old)
    assert not site.state.path.exists()
    assert site.ask() == "old\n"
    # What was looked at can be done, and looked at no more.
    assert site.apply(edits).outcome == "kept"
    assert site.ask() == "new\n"
    told.clear()
    with pytest.raises(RefusedError, match="the plan does not change it"):
        look(site, edits)
    assert told == []


def _edited(site: Site) -> None:
    time.sleep(0.3)  # starts are told in hundredths of a second
    (site.tree / "conf.d" / "site.conf").write_text(site.server('return 200 "theirs";'))


def _broken(site: Site) -> None:
    site.conf.write_text(site.conf.read_text() + "}\n")


def _at_work(site: Site) -> None:
    site.state.prepare()
    held = os.open(site.state.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX)


def _unfinished(site: Site) -> None:
    change = begin(site.state, {site.tree / "conf.d" / "site.conf": b"# theirs\n"})
    change.journal.append(Swapping())
    story = change.journal.read()
    assert story.begin is not None


REFUSED: dict[str, tuple[Callable[[Site], None], type[NginxTuneError], int]] = {
    "edited since it was read": (_edited, RefusedError, 2),
    "rejected as it is": (_broken, RejectedError, 3),
    "another one is at work": (_at_work, RefusedError, 2),
}


@pytest.mark.parametrize("why", REFUSED)
def test_it_refuses_what_apply_refuses(make_site: Callable[..., Site], why: str) -> None:
    site = make_site()
    happens, error, status = REFUSED[why]
    edits = {"conf.d/site.conf": site.server(EDIT)}
    happens(site)
    before = snapshot(site.tree)
    found = []
    for asked in (lambda: look(site, edits), lambda: site.apply(edits)):
        with pytest.raises(error) as caught:
            asked()
        found.append((re.sub(r"[0-9:]+ \[|\d+#\d+", "", caught.value.message), caught.value.status))
    assert found[0] == found[1]
    assert found[0][1] == status
    assert snapshot(site.tree) == before


def test_a_canary_that_answers_badly_is_seen_before(make_site: Callable[..., Site]) -> None:
    site = make_site()
    edits = {"conf.d/site.conf": site.server(EDIT)}
    site.ask()
    with pytest.raises(NginxTuneError, match="before the change"):
        look(site, edits, canaries=[f"http://127.0.0.1:{site.port + 1}/"])


def test_what_a_dead_process_left_comes_first(
    make_site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_site()
    monkeypatch.setattr("change_files.this_process", lambda: Process(pid=1 << 22, start_ticks=1))
    _unfinished(site)
    kept = snapshot(site.root)
    with pytest.raises(UndecidedError, match="is unfinished") as caught:
        look(site, {"conf.d/site.conf": site.server(EDIT)})
    assert (int(caught.value.status), "rollback --recover" in caught.value.hint) == (4, True)
    assert snapshot(site.root) == kept


def _plan(site: Site, new: bytes, root: Path) -> Path:
    path = site.tree / "conf.d" / "site.conf"
    file = planned_file(path, path.read_bytes(), new)
    (root / "plan.json").write_bytes(encode(Plan(conf_path=str(site.conf), files=[file])))
    return root / "plan.json"


def test_the_command_says_it_as_text_as_json_and_as_a_diff(
    make_site: Callable[..., Site], root: Path, run_cli: RunCli
) -> None:
    site = make_site()
    path = site.tree / "conf.d" / "site.conf"
    new = path.read_text().replace("old", "new\x1b[2J").replace("\n", "\r\n")
    plan = _plan(site, new.encode(), root)
    state = ("--state-dir", root / "state")
    said = run_cli("apply", plan, "--dry-run", "--diff", *state)
    assert said.returncode == 0, said.stderr
    assert f"--- a{path}\n+++ b{path}\n@@ -1 +1 @@\n-server" in said.stdout
    assert 'new\\x1b[2J\\n"; }\\x0d\n' in said.stdout
    assert (
        f"\nDRY RUN: nothing is changed  {site.conf}\n  edit {path}\n  note: nginx" in said.stdout
    )
    found = json.loads(run_cli("apply", plan, "--dry-run", "-f", "json", *state).stdout)
    [change] = found["changes"]
    assert (change["state"], change["id"]) == ("dry_run", "")
    assert [one["path"] for one in change["files"]] == [str(path)]
    both = run_cli("apply", plan, "--diff", "-f", "json", *state)
    assert (both.returncode, len(both.stderr.splitlines())) == (2, 1)
    assert "would share standard output (name a file: -f json=FILE)" in both.stderr
    assert site.ask() == "old\n"
    # Not only looked at, it is shown first too.
    done = run_cli("apply", plan, "--diff", "--watch", "0.2s", *state)
    assert done.returncode == 0, done.stderr
    assert done.stdout.index("+++ b") < done.stdout.index("  kept")


def test_what_a_reload_does_is_worked_out_here_and_not_read(
    make_site: Callable[..., Site], root: Path, run_cli: RunCli
) -> None:
    """A plan that leaves it out is refused all the same."""
    zone = "limit_req_zone {} zone=z:1m rate=1r/s;\n"
    site = make_site(server="")
    site.conf.write_text(site.text(http=zone.format("$uri")))
    site.stop(site.pid)
    site.start()
    old = site.conf.read_bytes()
    file = planned_file(site.conf, old, old.replace(b"$uri", b"$host"))
    plan = root / "plan.json"
    plan.write_bytes(encode(Plan(conf_path=str(site.conf), files=[file])))
    for more in ([], ["--dry-run"]):
        said = run_cli("apply", plan, *more, "--state-dir", root / "state")
        assert said.returncode == 2, said.stderr
        assert "the zone z has a different key, path or levels than the running one" in said.stderr
    assert site.conf.read_bytes() == old
