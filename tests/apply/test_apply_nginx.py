"""Changes of a running nginx: kept when a new generation answers, else every byte put back."""

import gzip
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from apply_site import Site
from change_files import snapshot
from free_ports import free_port
from recorded_hosts import facts_file

from nginx_tune.change.apply import undo
from nginx_tune.change.apply.examine import Permissions
from nginx_tune.change.apply.model_journal import (
    Answered,
    ForeignError,
    RefusedError,
    RejectedError,
    StuckError,
)
from nginx_tune.change.apply.undo import leave, roll_back
from nginx_tune.errors import UsageError
from nginx_tune.host.live import LiveHost
from nginx_tune.nginx.lab.network import make_certificate
from nginx_tune.nginx.reload.host_refusals import Looked

pytestmark = pytest.mark.needs("root", "nginx")
Make = Callable[..., Site]
FACTS = facts_file("raid10-4hdd")


def test_a_change_is_kept_and_taken_back_later(make_site: Make) -> None:
    site = make_site()
    before = snapshot(site.tree)
    pid = site.pid
    applied = site.apply(
        {
            "conf.d/site.conf": site.server('return 200 "new\\n";'),
            "conf.d/other.conf": site.server(
                'return 200 "other\\n";', f"127.0.0.1:{(port := free_port())}"
            ),
        }
    )
    assert (applied.outcome, applied.reason, applied.notes) == ("kept", "", [])
    assert (site.ask(), site.ask(port)) == ("new\n", "other\n")
    assert site.pid == pid
    assert not list(site.tree.rglob(".*"))
    journal, server = roll_back(LiveHost(), site.state, None)
    assert (journal.id, server) == (applied.journal.id, "reloaded")
    assert site.ask() == "old\n"
    assert snapshot(site.tree) == before
    assert roll_back(LiveHost(), site.state, applied.journal.id)[1] == ""


ZONE = "limit_req_zone ${} zone=one:1m rate=100r/s;"


def _listening(port: int) -> socket.socket:
    held = socket.socket()
    held.bind(("127.0.0.1", port))
    held.listen()
    return held


def test_a_changed_zone_key_is_taken_back_though_reload_was_content(make_site: Make) -> None:
    site = make_site(http=ZONE.format("binary_remote_addr"))
    before = snapshot(site.tree)
    applied = site.apply({"nginx.conf": site.text(http=ZONE.format("remote_addr"))})
    assert applied.outcome == "rolled_back"
    assert 'limit_req "one" uses the "$remote_addr" key while previously' in applied.reason
    assert snapshot(site.tree) == before
    assert site.ask() == "old\n"


def test_a_port_that_somebody_took_meanwhile_is_taken_back_and_the_pid_file_stays(
    make_site: Make, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nginx_tune.change.apply.hindrances.taken_here", lambda *_: Looked([], []))
    site = make_site()
    pid, before = site.pid, snapshot(site.tree)
    held = _listening(port := free_port())
    with held:
        applied = site.apply(
            {
                "nginx.conf": site.text(f"pid {root}/other.pid;"),
                "conf.d/a.conf": site.server(listen=f"unix:{root}/a.sock"),
                "conf.d/b.conf": site.server(listen=f"127.0.0.1:{port}"),
            }
        )
    assert applied.outcome == "rolled_back"
    assert "failed (98" in applied.reason
    assert snapshot(site.tree) == before
    assert site.pid == pid
    assert not (root / "other.pid").exists()
    assert not (root / "a.sock").exists()


def test_workers_that_die_at_once_are_taken_back(make_site: Make, root: Path) -> None:
    site = make_site()
    before = snapshot(site.tree)
    for log in ("", f"error_log {root}/new.log; "):
        applied = site.apply({"nginx.conf": site.text(f"{log}working_directory {root}/none;")})
        assert applied.outcome == "rolled_back"
        assert "exited with fatal code 2" in applied.reason
        assert snapshot(site.tree) == before
        assert site.ask() == "old\n"


def test_what_nginx_rejects_is_refused_and_put_back(make_site: Make) -> None:
    site = make_site()
    before = snapshot(site.tree)
    with pytest.raises(RejectedError, match="unknown directive"):
        site.apply({"conf.d/site.conf": site.server("no_such_thing on;")})
    assert snapshot(site.tree) == before
    site.conf.with_name("conf.d").joinpath("broken").write_text("junk")
    os.utime(site.tree / "conf.d" / "broken", (1, 1))
    with pytest.raises(RejectedError, match="as they are"):
        site.apply({"conf.d/site.conf": site.server("return 204;")})


def test_a_change_after_which_nobody_listens_is_put_back(make_site: Make) -> None:
    """nginx -t and the reload are content with it."""
    site = make_site()
    before = snapshot(site.tree)
    for text in ("", "# all servers are gone\n", f"server {{ listen {free_port()}; }}"):
        with pytest.raises(RefusedError, match=f"no longer listen at 127.0.0.1:{site.port}$"):
            site.apply({"conf.d/site.conf": text})
        assert snapshot(site.tree) == before
        assert site.ask() == "old\n"
    kept = site.apply({"conf.d/site.conf": "# none"}, permissions=Permissions(loses=True))
    assert kept.outcome == "kept"


def test_a_rollback_done_again_takes_no_earlier_change_back(make_site: Make) -> None:
    site = make_site()
    first = site.apply({"conf.d/site.conf": site.server('return 200 "1\n";')})
    second = site.apply({"conf.d/site.conf": site.server('return 200 "2\n";')})
    for server in ("reloaded", "", ""):
        journal, told = roll_back(LiveHost(), site.state, None)
        assert (journal.id, told) == (second.journal.id, server)
        assert site.ask() == "1\n"
    assert roll_back(LiveHost(), site.state, first.journal.id)[1] == "reloaded"
    assert site.ask() == "old\n"


def test_a_later_change_of_the_same_file_is_to_be_taken_back_first(make_site: Make) -> None:
    site = make_site()
    first, second, third = (
        site.apply({"conf.d/site.conf": site.server(f'return 200 "{number}\n";')}).journal
        for number in range(3)
    )
    other = site.apply({"conf.d/other.conf": "# nothing\n"}).journal
    assert roll_back(LiveHost(), site.state, third.id)[1] == "reloaded"
    before = snapshot(site.tree)
    for _ in range(2):
        with pytest.raises(RefusedError, match=f"changed again by change {second.id}$") as refused:
            roll_back(LiveHost(), site.state, first.id)
        assert second.command("rollback") in refused.value.hint
    assert (first.read().phase, snapshot(site.tree)) == ("kept", before)
    assert roll_back(LiveHost(), site.state, other.id)[1] == "reloaded"
    assert roll_back(LiveHost(), site.state, second.id)[1] == "reloaded"
    assert roll_back(LiveHost(), site.state, first.id)[1] == "reloaded"
    assert site.ask() == "old\n"


def test_an_edit_by_hand_behind_a_later_change_is_somebody_elses(make_site: Make) -> None:
    site = make_site()
    path = site.tree / "conf.d" / "site.conf"
    first, _ = (
        site.apply({"conf.d/site.conf": site.server(f'return 200 "{number}\n";')}).journal
        for number in range(2)
    )
    path.write_text(site.server('return 200 "theirs\n";'))
    with pytest.raises(ForeignError, match="somebody else wrote to it"):
        roll_back(LiveHost(), site.state, first.id)


def test_a_plan_is_applied_put_back_and_out_of_date(
    make_site: Make, run_cli: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    site = make_site()
    before = snapshot(site.tree)
    plan = site.root / "plan.json"
    asked = ("--facts", FACTS, "--only", "connections", "-f", "json", "-o", plan)
    made = run_cli("plan", site.conf, *asked)
    assert made.returncode == 0, made.stderr
    state = ("--state-dir", site.state.path)
    kept = run_cli("apply", plan, *state, "--watch", "200ms")
    assert kept.returncode == 0, kept.stderr
    assert "worker_connections 64;" not in site.conf.read_text()
    assert site.ask() == "old\n"
    again = run_cli("apply", plan, *state)
    assert again.returncode == 2
    assert "already applied: every file holds the new bytes" in again.stderr
    assert run_cli("rollback", *state).returncode == 0
    assert snapshot(site.tree) == before


def test_a_file_that_nothing_includes_is_refused(make_site: Make) -> None:
    site = make_site()
    (site.tree / "idle.conf").write_text("# nothing\n")
    before = snapshot(site.tree)
    for edits in ({"idle.conf": "x"}, {"new.conf": "x"}):
        with pytest.raises(RefusedError, match="include"):
            site.apply(edits)
        assert snapshot(site.tree) == before


def test_fewer_reuseport_workers_are_all_seen(make_site: Make) -> None:
    site = make_site()
    listen = f"127.0.0.1:{site.port} reuseport"
    more = site.text(workers=4)
    assert site.apply({"nginx.conf": more, "conf.d/site.conf": site.server(listen=listen)}).outcome
    assert site.apply({"nginx.conf": site.text(workers=2)}).outcome == "kept"
    story = site.state.all()[-1].read()
    answered = [one for one in story.records if isinstance(one, Answered)]
    assert [(len(one.workers), one.seen) for one in answered] == [(2, 2)]


def test_a_canary_that_fails_takes_the_change_back(make_site: Make) -> None:
    site = make_site()
    url = f"http://127.0.0.1:{site.port}/"
    applied = site.apply(
        {"conf.d/site.conf": site.server("return 502;")}, canaries=[url], watch_seconds=5.0
    )
    assert (applied.outcome, applied.reason) == ("rolled_back", f"{url} answers 502")
    with pytest.raises(UsageError, match="before the change"):
        site.apply(
            {"conf.d/site.conf": site.server("return 204;")},
            canaries=[f"http://127.0.0.1:{free_port()}/"],
        )
    edits = {"conf.d/site.conf": site.server("return 404;")}
    lost = site.apply(edits, canaries=[url], watch_seconds=5.0)
    assert (lost.outcome, lost.reason) == ("rolled_back", f"{url} answers 404")
    assert site.apply(edits).outcome == "kept"
    with pytest.raises(UsageError, match="answers 404 before the change"):
        site.apply({"conf.d/site.conf": site.server("return 204;")}, canaries=[url])


def test_an_edit_of_somebody_else_since_is_not_overwritten(make_site: Make) -> None:
    site = make_site()
    edits = {
        "conf.d/site.conf": site.server("return 204;"),
        "nginx.conf": site.text("worker_rlimit_nofile 512;"),
    }
    assert site.apply(edits).outcome == "kept"
    (site.tree / "conf.d" / "site.conf").write_text(site.server("return 404;"))
    after = snapshot(site.tree)
    with pytest.raises(ForeignError, match=r"site\.conf: somebody else wrote to it"):
        roll_back(LiveHost(), site.state, None)
    assert snapshot(site.tree) == after
    with pytest.raises(RefusedError, match="neither be kept nor taken back"):
        site.apply({"nginx.conf": site.text()})
    assert leave(site.state, None).read().is_finished
    assert snapshot(site.tree) == after


def test_an_old_configuration_that_does_not_serve_either_is_said(
    make_site: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_site()
    monkeypatch.setattr(undo, "RELOAD_SECONDS", 1.0)
    assert site.apply({"conf.d/site.conf": site.server("return 204;")}).outcome == "kept"
    (site.tree / "conf.d" / "theirs.conf").write_text("junk")
    with pytest.raises(StuckError, match="nginx does not serve them"):
        roll_back(LiveHost(), site.state, None)
    (site.tree / "conf.d" / "theirs.conf").unlink()
    monkeypatch.undo()
    assert roll_back(LiveHost(), site.state, None)[1] == "reloaded"
    assert site.ask() == "old\n"


def _certificate(root: Path) -> str:
    made = make_certificate(root, names=["h"])
    return f"ssl_certificate {made.certificate}; ssl_certificate_key {made.key}; return 200;"


@pytest.mark.needs("openssl")
def test_every_kind_of_listener_is_asked(make_site: Make, root: Path) -> None:
    site = make_site()
    body = _certificate(root)
    ports = [free_port() for _ in range(3)]
    text = (
        site.server(listen=f"127.0.0.1:{site.port} deferred")
        + site.server(body, f"127.0.0.1:{ports[0]} ssl")
        + site.server(listen=f"127.0.0.1:{ports[1]} proxy_protocol")
        + site.server(listen=f"*:{ports[2]}")
        + site.server(listen=f"unix:{root}/a.sock")
    )
    applied = site.apply({"conf.d/site.conf": text})
    assert (applied.outcome, applied.reason, applied.notes) == ("kept", "", [])
    answered = [one for one in site.state.all()[-1].read().records if isinstance(one, Answered)]
    assert [one.listeners for one in answered] == [5]


@pytest.mark.needs("openssl")
def test_a_certificate_that_workers_cannot_load_is_taken_back(make_site: Make, root: Path) -> None:
    """By a variable it is the worker that loads it, at each handshake: nginx -t is content."""
    site = make_site()
    before = snapshot(site.tree)
    body = _certificate(root).replace(f"{root}/certificate.pem;", f"{root}/$server_port;")
    listen = f"127.0.0.1:{free_port()} ssl"
    applied = site.apply({"conf.d/tls.conf": site.server(body, listen)})
    assert applied.outcome == "rolled_back"
    assert "TLS fails" in applied.reason
    assert snapshot(site.tree) == before


LIMIT = "worker_rlimit_nofile {};"
"""Above fs.nr_open nobody may raise it, root neither: nginx logs an alert and serves on."""


def test_an_alert_that_was_there_before_is_not_the_change_s(make_site: Make) -> None:
    limit = LIMIT.format(2_000_000_000)
    site = make_site(top=limit)
    applied = site.apply({"nginx.conf": site.text(limit, http="keepalive_timeout 33s;")})
    assert applied.outcome == "kept", applied.reason
    (said,) = applied.notes
    assert "logged before the change too: [alert] setrlimit(RLIMIT_NOFILE, 2000000000)" in said
    # Also where its log was rotated since, and it is another limit that may not be raised either.
    log = site.root / "error.log"
    (site.root / "error.log.3.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.write_text("")
    applied = site.apply({"nginx.conf": site.text(LIMIT.format(2_000_000_001))})
    assert applied.outcome == "kept", applied.reason


def test_an_alert_that_is_new_takes_the_change_back_each_time(make_site: Make) -> None:
    """Also the second time: that of the workers that were taken back is not how things are."""
    site = make_site()
    for _ in range(2):
        applied = site.apply({"nginx.conf": site.text(LIMIT.format(2_000_000_000))})
        assert applied.outcome == "rolled_back"
        assert "[alert] setrlimit(RLIMIT_NOFILE, 2000000000) failed" in applied.reason


def test_a_change_leaves_few_requests_in_the_access_log_and_all_by_its_name(
    make_site: Make,
) -> None:
    """Each listener is asked before and after it; more workers are seen to accept in silence."""
    site = make_site()
    server = site.server(f'access_log {site.root}/access.log; return 200 "%s";')
    site.apply({"nginx.conf": site.text(workers=8), "conf.d/site.conf": server % "a"})
    (site.root / "access.log").write_text("")
    applied = site.apply({"conf.d/site.conf": server % "b"})
    assert applied.outcome == "kept"
    roll_back(LiveHost(), site.state, applied.journal.id)
    lines = (site.root / "access.log").read_text().splitlines()
    assert 0 < len(lines) <= 6, lines
    assert all(line.endswith('"nginx-tune"') for line in lines)
