"""``rehearse`` on the real nginx: what a change takes, and what it loses."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import RunCli
from nginx_versions import present
from started import until

SHORT = ("--before", "400ms", "--after", "300ms", "--drain", "1s", "-f", "json")
SYSTEM_NGINX = "/usr/sbin/nginx"

pytestmark = pytest.mark.needs("root", "nginx", "probe")

SITE = """{top} user root; worker_processes 2; error_log {dir}/error.log; pid {dir}/pid;
events {{}}
http {{ access_log off; {http}
  server {{ {listen} root {dir}/root; location = /ping {{ {ping} return 204; }}
    location /ws {{ proxy_pass http://127.0.0.1:9; proxy_http_version 1.1;
      proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }} }} }}
"""


def rehearsed(run_cli: RunCli, *arguments: str | Path, status: int | None = 0) -> dict[str, Any]:
    run = run_cli("rehearse", *SHORT, *arguments)
    assert run.returncode == status or (status is None and run.returncode in {0, 1, 4}), run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def site(place: Path, name: str, **options: Any) -> Path:
    conf = place / f"{name}.conf"
    named = {"top": "", "http": "", "listen": "listen 18321;", "ping": ""} | options
    conf.write_text(SITE.format(dir=place, **named))
    return conf


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("rehearsed")
    (made / "root").mkdir()
    (made / "root" / "big.bin").write_bytes(bytes(4 << 20))
    for index in range(3):
        (made / "root" / f"{index}.html").write_bytes(bytes(5000))
    return made


@pytest.fixture(scope="module")
def private() -> Iterator[Path]:
    """Where root alone writes: what is in it is run."""
    made = Path(tempfile.mkdtemp(dir="/root", prefix="nt-rehearse-"))
    yield made
    shutil.rmtree(made)


NO_LOAD = ("--idle", "0", "--active", "0")
LISTEN = "listen 18321; server_name a.test;"


def beside(place: Path, body: str = "it is b") -> str:
    """Another server, with an answer of its own."""
    answer = f'location /api/ {{ return 200 "{body}"; }}'
    server = f"server {{ listen 18321; server_name b.test; {answer} }}"
    return f"access_log {place}/a.log; {server}"


def test_what_this_host_refuses_and_what_is_served_no_longer_fails_it(
    run_cli: RunCli, place: Path
) -> None:
    """What the sandbox takes and this host does not, and what the new one no longer serves."""
    old = site(place, "lost-old", listen=LISTEN, http=beside(place))
    log = f"access_log {place}/none/a.log;"
    new = site(place, "lost-new", listen=f"{LISTEN} return 503;", http=log)
    words = (*NO_LOAD, "--after", "2500ms", "--no-back")
    found = rehearsed(run_cli, old, new, *words, status=1)
    (refused,) = found["refused_here"]
    assert refused == (
        f"{place}/lost-new.conf:3: access_log {place}/none/a.log: nginx cannot open it "
        f"(2: No such file or directory); mkdir -p {place}/none"
    )
    (turn,) = found["turnovers"]
    assert turn["outcome"] == "taken", "in the sandbox, which makes the directory"
    before, _, after = turn["phases"]
    assert after["failed"] > before["failed"] == 0
    assert any(one.endswith("OLD answers 200, NEW 503") for one in found["worse_answers"])
    (dropped,) = found["dropped"]
    assert (
        dropped == "*:18321, b.test: no server has this name any more, and that of a.test answers"
    )


def test_what_is_sent_elsewhere_is_answered(run_cli: RunCli, place: Path) -> None:
    """By another redirect, or by one in the place of files."""
    moved = 'location = /old {{ return {} /new; }} location /api {{ return 200 "{}"; }}'
    old = site(place, "moved-old", listen=f"{LISTEN} {moved.format(301, 'it is')}")
    new = site(place, "moved-new", listen="listen 18321; server_name www.a.test;",
               http=f"server {{ {LISTEN} {moved.format(308, 'was')}"
                    " location / { return 301 http://www.a.test$request_uri; } }")  # fmt: skip
    found = rehearsed(run_cli, old, new, *NO_LOAD, "--after", "2500ms", "--no-back")
    assert "a.test = /old: OLD answers 301, NEW 308" in found["other_answers"]
    assert any("OLD answers 200, NEW 301" in one for one in found["other_answers"])
    (turn,) = found["turnovers"]
    assert (turn["outcome"], turn["failed"]) == ("taken", {})


def test_a_limit_for_each_client_is_told_and_fails_nothing_that_it_alone_refuses(
    run_cli: RunCli, place: Path
) -> None:
    """It is met by a load from one address; an error with its status is one."""
    each = "limit_req_zone $binary_remote_addr zone=each:1m rate=1r/s;"
    limited = f"{LISTEN} limit_req zone=each;"
    words = (*NO_LOAD, "--after", "2500ms", "--no-back")
    old = site(place, "limited-old", listen=LISTEN, http=each)
    new = site(place, "limited-new", listen=limited, http=each)
    found = rehearsed(run_cli, old, new, *words)
    (turn,) = found["turnovers"]
    assert (turn["outcome"], turn["failed"], found["worse_answers"]) == ("taken", {}, [])
    assert sum(turn["limited"].values()) > 10
    (said,) = found["limited"]
    assert "limit_req zone=each (1r/s for each $binary_remote_addr) of a.test" in said
    failing = site(place, "limited-lost", listen=f"{limited} location / {{ return 503; }}",
                   http=each)  # fmt: skip
    lost = rehearsed(run_cli, old, failing, *words, status=1)
    assert any("OLD answers 200, NEW 503" in one for one in lost["worse_answers"])


def program(home: Path, version: str) -> Path:
    """A version of the matrix by a name that it keeps.

    nginx runs its new program by its own first argument: with the script's name it is ours.
    """
    shutil.copytree(Path(present()[version]).parent / "usr", home / "usr", copy_function=_link)
    loader = next(home.glob("usr/lib/*/ld-linux*"))
    script = home / "nginx"
    script.write_text(
        f'#!/bin/sh\nexec {loader} --argv0 "$0" --library-path {loader.parent} '
        f'{home}/usr/sbin/nginx "$@"\n'
    )
    script.chmod(0o755)
    return script


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def test_a_key_that_cannot_change_is_refused_where_nginx_t_is_content(
    run_cli: RunCli, place: Path
) -> None:
    zone, burst = "limit_req_zone {} zone=z:1m rate=9000r/s;", "limit_req zone=z burst=900 nodelay;"
    old = site(place, "key-old", http=zone.format("$binary_remote_addr"), ping=burst)
    new = site(place, "key-new", http=zone.format("$server_name"), ping=burst)
    # The phases are whole seconds: one that is shorter may have none of its own.
    words = ("--idle", "3", "--active", "1", "--after", "2500ms")
    found = rehearsed(run_cli, old, new, *words, status=1)
    (turn,) = found["turnovers"]
    assert turn["outcome"] == "refused"
    assert 'uses the "$server_name" key' in turn["reason"]
    assert [one["effect"] for one in found["warnings"]] == ["refused"]
    # The old generation serves on: requests, and every connection.
    assert turn["phases"][2]["requests"] > 0
    assert not turn["failed"]
    held = {one["kind"]: one for one in turn["held"]}
    assert held.keys() == {"idle", "keepalive", "download", "websocket", "upload", "silent"}
    whole = (one["kept"] + one["finished"] == one["held"] > 0 for one in held.values())
    assert all(whole), held


def test_a_port_is_added_and_the_old_workers_stay_for_a_download_unless_their_time_is_limited(
    run_cli: RunCli, place: Path
) -> None:
    """The limit of the configuration that goes is what counts (ngx_set_shutdown_timer)."""
    limit, both = "worker_shutdown_timeout 300ms;", "listen 18321; listen 18322;"
    old, new = site(place, "port-old"), site(place, "port-new", listen=both, top=limit)
    gates = ("--require", "reload.lost == 0", "--require", "reload.drain <= 60s")
    found = rehearsed(run_cli, old, new, "--idle", "4", "--active", "1", *gates, status=4)
    there, back = found["turnovers"]
    assert (there["outcome"], back["outcome"], back["is_back"]) == ("taken", "taken", True)
    answers = [
        {one["listener"]: one["seconds"] for one in turn["first_answers"]} for turn in (there, back)
    ]
    assert answers[0].keys() == {"0.0.0.0:18321", "0.0.0.0:18322"}
    assert answers[1].keys() == {"0.0.0.0:18321"}
    assert all(0 < seconds < there["watched_seconds"] for seconds in answers[0].values())
    assert (there["drain_seconds"], there["workers_left"] > 0) == (None, True)
    held = {one["kind"]: one for one in there["held"]}
    assert held["idle"]["closed"] == 4
    assert held["websocket"]["kept"] == 1
    assert held["download"]["lost"] == 0
    assert there["memory_peak_bytes"] > there["memory_before_bytes"] > 0
    assert [one["passed"] for one in found["gates"]] == [True, False]
    # Back, the new configuration is the one that goes, with its limit.
    assert (back["workers_left"], back["drain_seconds"] > 0.25) == (0, True)
    lost = {one["kind"]: one["lost"] for one in back["held"]}
    assert (lost["websocket"], lost["download"], lost["upload"]) == (1, 1, 1)


@pytest.mark.thorough  # by chance: none may wait in that moment in all of its tries
def test_fewer_workers_with_reuseport_reset_connections_unless_the_kernel_moves_them(
    run_cli: RunCli, place: Path
) -> None:
    """Those that wait in a queue that is closed: here for their first bytes (``deferred``)."""
    few = (
        "events {} http { access_log off; server { listen 18324 reuseport deferred;"
        f" root {place}/root; }} }}"
    )
    old, new = place / "few-old.conf", place / "few-new.conf"
    for conf, workers in ((old, 4), (new, 1)):
        conf.write_text(f"user root; worker_processes {workers}; pid {place}/p; {few}")
    # The old ones end as soon as they have nothing to do, on a busy machine later than in a second.
    words = (*NO_LOAD, "--no-back", "--rate", "600", "--drain", "30s")
    moves = ("--sysctl", "net.ipv4.tcp_migrate_req=1")
    for _ in range(8):  # how many wait in that moment is chance, on a quiet machine none
        # Requests that are lost by the end are no matter here: on a busy machine some are.
        (reset,) = rehearsed(run_cli, old, new, *words, status=None)["turnovers"]
        (moved,) = rehearsed(run_cli, old, new, *words, *moves, status=None)["turnovers"]
        if (reset["outcome"], moved["outcome"]) != ("taken", "taken"):
            continue  # a busy machine did not let the new worker answer in time
        assert (reset["counters"]["TCPMigrateReqSuccess"], reset["workers_left"]) == (0, 0)
        resets = reset["failed"].get("reset", 0)
        if resets > moved["failed"].get("reset", 0) and moved["counters"]["TCPMigrateReqSuccess"]:
            break
    assert moved["failed"].get("reset", 0) < resets
    assert moved["counters"]["TCPMigrateReqSuccess"] > 0


@pytest.mark.needs("nginx-1.26", "nginx-1.30")
def test_a_program_is_exchanged_while_it_runs_without_a_loss_and_not_by_a_restart(
    run_cli: RunCli, place: Path, private: Path
) -> None:
    old = site(place, "program", top="worker_shutdown_timeout 200ms;")
    first, second = (program(private / version, version) for version in ("1.26", "1.30"))
    words = ("--idle", "2", "--active", "1", "--restart", "--no-back")
    found = rehearsed(run_cli, old, "--nginx", first, "--new-nginx", second, *words)
    upgrade, restart = found["turnovers"]
    assert [one["manner"] for one in (upgrade, restart)] == ["upgrade", "restart"]
    assert (upgrade["outcome"], restart["outcome"]) == ("taken", "taken")
    assert found["new_nginx_version"].startswith("1.30")
    assert not upgrade["failed"]
    assert upgrade["memory_peak_bytes"] > upgrade["memory_before_bytes"]
    assert restart["failed"]["refused"] > 0, "nobody listens between the two"


def test_a_change_that_was_taken_names_the_dry_run_of_apply(run_cli: RunCli, place: Path) -> None:
    old, new = site(place, "next-old"), site(place, "next-new", http="keepalive_timeout 33s;")
    for quiet, count in (((), 1), (("-q",), 0)):
        run = run_cli(*quiet, "rehearse", old, new, *SHORT, *NO_LOAD, "--no-back", "--no-store")
        assert run.returncode == 0, run.stderr
        said = f"next: nginx-tune apply --dry-run -c {old} --overlay {old}={new}\n"
        assert run.stderr.count(said) == count


def test_what_nginx_t_rejects_is_not_rehearsed(run_cli: RunCli, place: Path) -> None:
    old, new = site(place, "bad-old"), site(place, "bad-new", http="no_such_thing on;")
    run = run_cli("-q", "rehearse", old, new, *SHORT)
    assert run.returncode == 3
    said = f'nginx -t rejects it: unknown directive "no_such_thing" in {new}:3'
    assert re.search(rf"NEW {new}, run by nginx [0-9.]+ \(/\S+\): {said}$", run.stderr)
    assert run.stderr.count("\n") == 1


@pytest.mark.needs("nginx-1.26")
def test_of_two_programs_the_one_that_rejects_its_side_is_named(
    run_cli: RunCli, place: Path, private: Path
) -> None:
    (private / "newer").mkdir()
    newer = program(private / "newer", "1.26")
    plain, modern = site(place, "plain"), site(place, "modern", http="http2 on;")
    sides = ("-q", "rehearse", modern, *SHORT, "--nginx")
    down = run_cli(*sides, newer, "--new-nginx", SYSTEM_NGINX)
    old = run_cli(*sides, SYSTEM_NGINX, plain, "--new-nginx", newer)
    for run, side in ((down, "NEW"), (old, "OLD")):
        assert run.returncode == 3
        said = rf'{side} {modern}, run by nginx [0-9.]+ \({SYSTEM_NGINX}\): nginx .* "http2" in'
        assert re.search(said, run.stderr), run.stderr


@pytest.mark.thorough
@pytest.mark.needs("loop")
def test_it_is_rehearsed_on_an_emulated_host_and_kept(run_cli: RunCli, place: Path) -> None:
    old, new = site(place, "lab-old"), site(place, "lab-new", listen="listen 18321; listen 18325;")
    lab = place / "lab.toml"
    lab.write_text(
        'name = "small"\n[[disks]]\nname = "d"\nclass_name = "ssd"\n'
        f'mount = "{place}/root"\n[[data]]\ndisk = "d"\nfiles = 20\nfile_bytes = 16384\n'
    )
    run = run_cli("rehearse", old, new, "--lab", lab, "--no-back", "--active", "1", *SHORT)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert (found["lab"], found["turnovers"][0]["outcome"]) == ("small", "taken")
    (said,) = re.findall(r"stored as run ([0-9a-f]+)", run.stderr)
    listed = json.loads(run_cli("runs", "list", "-f", "json").stdout)["runs"]
    assert [(one["id"], one["kind"], one["lab"]) for one in listed[:1]] == [
        (said, "rehearse", "small")
    ]
    unkept = run_cli("rehearse", old, new, "--no-store", "--no-back", "--active", "1", *SHORT)
    assert "stored as" not in unkept.stderr


def test_interrupted_it_leaves_nothing(place: Path) -> None:
    (place / "ended").mkdir()
    old = site(place, "ended/old")
    new = site(place, "ended/new", listen="listen 18323;")
    before = {path: path.read_bytes() for path in old.parent.iterdir()}
    command = [sys.executable, "-m", "nginx_tune", "-v", "rehearse", old, new, "--drain", "30s"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stderr is not None
        assert any(b"load on the old configuration" in line for line in run.stderr)
        time.sleep(1.5)
        run.send_signal(signal.SIGINT)
        _, said = run.communicate(timeout=60)
    assert run.returncode == 130
    assert b"Traceback" not in said
    assert {path: path.read_bytes() for path in old.parent.iterdir()} == before
    until(lambda: not _processes_with(str(old.parent)))


def _processes_with(word: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in text:
            found.append(text)
    return found


@pytest.mark.parametrize("more", [(), pytest.param(("--restart",), marks=pytest.mark.thorough)])
def test_an_alert_that_was_there_before_does_not_fail_a_change(
    run_cli: RunCli, place: Path, more: tuple[str, ...]
) -> None:
    """Above fs.nr_open the limit may not be raised: nginx logs an alert and serves on."""
    limit = "worker_rlimit_nofile 2000000000;"
    old = site(place, "limited", top=limit)
    new = site(place, "limited-too", top=limit, http="keepalive_timeout 33s;")
    for turn in rehearsed(run_cli, old, new, *NO_LOAD, *more, "--no-back")["turnovers"]:
        assert turn["faults"] == []
        assert ["setrlimit" in one for one in turn["faults_before"]] == [True]
    plain = site(place, "unlimited")
    found = rehearsed(run_cli, plain, new, *NO_LOAD, *more, "--no-back", status=1)
    for turn in found["turnovers"]:
        assert "setrlimit(RLIMIT_NOFILE, 2000000000) failed" in turn["faults"][0]
        assert turn["faults_before"] == []
