"""``rehearse`` on the real nginx: what a change takes, and what it loses."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from nginx_versions import present

RunCli = Callable[..., subprocess.CompletedProcess[str]]
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


class Runs:
    """Rehearsals that run at once: each waits most of its time, in a network of its own."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *arguments: str | Path) -> None:
        command = [sys.executable, "-m", "nginx_tune", "rehearse", *SHORT, *arguments]
        with (
            (self.place / f"{name}.out").open("wb") as out,
            (self.place / f"{name}.err").open("wb") as err,
        ):
            self._started[name] = subprocess.Popen(command, stdout=out, stderr=err)

    def result(self, name: str, *, status: int = 0) -> dict[str, Any]:
        said = self._started[name].wait(timeout=100)
        assert said == status, (self.place / f"{name}.err").read_text()
        found: dict[str, Any] = json.loads((self.place / f"{name}.out").read_bytes())
        return found

    def end(self) -> None:
        for one in self._started.values():
            one.send_signal(signal.SIGINT)
            one.wait(timeout=30)


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


@pytest.fixture(scope="module")
def runs(place: Path, private: Path) -> Iterator[Runs]:
    started = Runs(place)
    zone, burst = "limit_req_zone {} zone=z:1m rate=9000r/s;", "limit_req zone=z burst=900 nodelay;"
    old = site(place, "key-old", http=zone.format("$binary_remote_addr"), ping=burst)
    new = site(place, "key-new", http=zone.format("$server_name"), ping=burst)
    # The phases are whole seconds: one that is shorter may have none of its own.
    started.start("key", old, new, "--idle", "3", "--active", "1", "--after", "1200ms")

    limit, both = "worker_shutdown_timeout 300ms;", "listen 18321; listen 18322;"
    old, new = site(place, "port-old"), site(place, "port-new", listen=both, top=limit)
    gates = ("--require", "reload.lost == 0", "--require", "reload.drain <= 60s")
    started.start("port", old, new, "--idle", "4", "--active", "1", *gates)

    few = (
        "events {} http { access_log off; server { listen 18324 reuseport deferred;"
        f" root {place}/root; }} }}"
    )
    (place / "few-old.conf").write_text(f"user root; worker_processes 4; pid {place}/p; {few}")
    (place / "few-new.conf").write_text(f"user root; worker_processes 1; pid {place}/p; {few}")
    start_few(started, place)

    if {"1.26", "1.30"} <= set(present()):
        old = site(place, "program", top="worker_shutdown_timeout 200ms;")
        first, second = (program(private / version, version) for version in ("1.26", "1.30"))
        started.start(
            "program", old, "--nginx", first, "--new-nginx", second, "--idle", "2",
            "--active", "1", "--restart", "--no-back",
        )  # fmt: skip
    # What the sandbox takes and this host does not, and what the new one no longer serves.
    away = "access_log {}/none/a.log; server {{ listen 18321; server_name b.test; {} }}"
    answer = 'location /api/ {{ return 200 "{}"; }}'
    listen = "listen 18321; server_name a.test;"
    there = away.format(place, answer.format("it is b")).replace("/none/", "/")
    old = site(place, "lost-old", listen=listen, http=there)
    log = f"access_log {place}/none/a.log;"
    new = site(place, "lost-new", listen=f"{listen} return 503;", http=log)
    started.start("lost", old, new, "--idle", "0", "--active", "0", "--after", "2500ms",
                  "--no-back")  # fmt: skip
    new = site(place, "said", listen=listen, http=there.replace("it is b", "ERROR"))
    started.start("said", old, new, "--idle", "0", "--active", "0", "--no-back")
    # A limit for each client is met by a load from one address; an error with its status is one.
    each = "limit_req_zone $binary_remote_addr zone=each:1m rate=1r/s;"
    limited = f"{listen} limit_req zone=each;"
    few = ("--idle", "0", "--active", "0", "--after", "2500ms", "--no-back")
    started.start("limited", site(place, "limited-old", listen=listen, http=each),
                  site(place, "limited-new", listen=limited, http=each), *few)  # fmt: skip
    failing = site(place, "limited-lost", listen=f"{limited} location / {{ return 503; }}",
                   http=each)  # fmt: skip
    started.start("failing", place / "limited-old.conf", failing, *few)
    # Each request is answered, by another redirect or by one in the place of files.
    moved = 'location = /old {{ return {} /new; }} location /api {{ return 200 "{}"; }}'
    old = site(place, "moved-old", listen=f"{listen} {moved.format(301, 'it is')}")
    new = site(place, "moved-new", listen="listen 18321; server_name www.a.test;",
               http=f"server {{ {listen} {moved.format(308, 'was')}"
                    " location / { return 301 http://www.a.test$request_uri; } }")  # fmt: skip
    started.start("moved", old, new, "--idle", "0", "--active", "0", "--after", "2500ms",
                  "--no-back")  # fmt: skip
    yield started
    started.end()


def test_what_this_host_refuses_and_what_is_served_no_longer_fails_it(
    runs: Runs, place: Path
) -> None:
    found = runs.result("lost", status=1)
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
    assert dropped == "*:18321, b.test: no server names it any more, and that of a.test answers"


def test_another_answer_is_told_and_fails_nothing(runs: Runs) -> None:
    found = runs.result("said")
    assert found["other_answers"] == ["b.test /api/: 7 bytes from OLD, 5 from NEW"]
    assert (found["worse_answers"], found["dropped"], found["refused_here"]) == ([], [], [])


def test_what_is_sent_elsewhere_is_answered(runs: Runs) -> None:
    found = runs.result("moved")
    assert "a.test = /old: OLD answers 301, NEW 308" in found["other_answers"]
    assert any("OLD answers 200, NEW 301" in one for one in found["other_answers"])
    (turn,) = found["turnovers"]
    assert (turn["outcome"], turn["failed"]) == ("taken", {})


def test_a_limit_for_each_client_is_told_and_fails_nothing_that_it_alone_refuses(
    runs: Runs,
) -> None:
    found = runs.result("limited")
    (turn,) = found["turnovers"]
    assert (turn["outcome"], turn["failed"], found["worse_answers"]) == ("taken", {}, [])
    assert sum(turn["limited"].values()) > 10
    (said,) = found["limited"]
    assert "limit_req zone=each (1r/s for each $binary_remote_addr) of a.test" in said
    lost = runs.result("failing", status=1)
    assert any("OLD answers 200, NEW 503" in one for one in lost["worse_answers"])


def start_few(runs: Runs, place: Path, again: str = "") -> None:
    """Fewer workers than before: connections are reset, or the kernel moves them.

    The old ones end as soon as they have nothing to do, on a busy machine later than in a second.
    """
    load = (place / "few-old.conf", place / "few-new.conf", "--rate", "600", "--idle", "0",
            "--active", "0", "--no-back", "--drain", "30s")  # fmt: skip
    runs.start(f"few{again}", *load)
    runs.start(f"few-moved{again}", *load, "--sysctl", "net.ipv4.tcp_migrate_req=1")


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


def test_a_key_that_cannot_change_is_refused_where_nginx_t_is_content(runs: Runs) -> None:
    found = runs.result("key", status=1)
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
    runs: Runs,
) -> None:
    """The limit of the configuration that goes is what counts (ngx_set_shutdown_timer)."""
    found = runs.result("port", status=4)
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


def test_fewer_workers_with_reuseport_reset_connections_unless_the_kernel_moves_them(
    runs: Runs, place: Path
) -> None:
    """Those that wait in a queue that is closed: here for their first bytes (``deferred``)."""
    for again in ("", "-2", "-3", "-4"):
        if again:  # how many wait in that moment is chance, on a quiet machine none
            start_few(runs, place, again)
        (reset,) = runs.result(f"few{again}")["turnovers"]
        (moved,) = runs.result(f"few-moved{again}")["turnovers"]
        assert (reset["outcome"], moved["outcome"]) == ("taken", "taken")
        assert (reset["counters"]["TCPMigrateReqSuccess"], reset["workers_left"]) == (0, 0)
        resets = reset["failed"].get("reset", 0)
        if resets > 0 and moved["counters"]["TCPMigrateReqSuccess"] > 0:
            break
    assert resets > 0
    assert moved["failed"].get("reset", 0) < resets
    assert moved["counters"]["TCPMigrateReqSuccess"] > 0


@pytest.mark.needs("nginx-1.26", "nginx-1.30")
def test_a_program_is_exchanged_while_it_runs_without_a_loss_and_not_by_a_restart(
    runs: Runs,
) -> None:
    found = runs.result("program")
    upgrade, restart = found["turnovers"]
    assert [one["manner"] for one in (upgrade, restart)] == ["upgrade", "restart"]
    assert (upgrade["outcome"], restart["outcome"]) == ("taken", "taken")
    assert found["new_nginx_version"].startswith("1.30")
    assert not upgrade["failed"]
    assert upgrade["memory_peak_bytes"] > upgrade["memory_before_bytes"]
    assert restart["failed"]["refused"] > 0, "nobody listens between the two"


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
        assert any(b"the load on the old configuration" in line for line in run.stderr)
        time.sleep(1.5)
        run.send_signal(signal.SIGINT)
        _, said = run.communicate(timeout=20)
    assert run.returncode == 130
    assert b"Traceback" not in said
    assert {path: path.read_bytes() for path in old.parent.iterdir()} == before
    until = time.monotonic() + 5
    while left := _processes_with(str(old.parent)):
        assert time.monotonic() < until, left
        time.sleep(0.05)


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
