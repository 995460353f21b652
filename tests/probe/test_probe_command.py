"""``nginx-tune probe`` as a user calls it."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from command_line import RunCli
from probe_loads import Nginx, load_class, load_plan
from started import children

from nginx_tune.documents.base import decode
from nginx_tune.documents.measurement import Measurement

pytestmark = pytest.mark.needs("nginx", "probe")

SHORT = ("--duration", "500ms", "--warmup", "0")


def test_a_url_is_measured_in_a_closed_or_an_open_loop(nginx: Nginx, run_cli: RunCli) -> None:
    url = nginx.url("/1k")
    closed = run_cli("probe", url, "--allow-live", "--connections", "3", *SHORT, "-f", "json")
    assert closed.returncode == 0, closed.stderr
    result = decode(Measurement, closed.stdout.encode()).classes["url"]
    assert result.requests > 10
    assert result.errors == {}
    opened = run_cli("probe", url, "--allow-live", "--rate", "200", *SHORT, "-f", "json")
    result = decode(Measurement, opened.stdout.encode()).classes["url"]
    # Five standard deviations of a Poisson count of 100.
    assert abs(result.requests - 100) <= 50
    assert result.requests == result.intended


def test_the_table_tells_what_was_not_measured(nginx: Nginx, run_cli: RunCli) -> None:
    run = run_cli("probe", nginx.url("/1k"), "--allow-live", "--rate", "100", *SHORT)
    assert run.returncode == 0, run.stderr
    assert ": fewer than 10 samples beyond the quantile" in run.stdout
    assert "last byte, from the send" in run.stdout
    assert run.stderr == ""


def test_a_load_plan_is_run_but_does_not_permit_its_own_target(
    nginx: Nginx, run_cli: RunCli, tmp_path: Path
) -> None:
    plan = load_plan(nginx, load_class("/1k"), load_class("/4m", name="large"))
    file = tmp_path / "plan.json"
    file.write_bytes(msgspec.json.encode(plan))
    refused = run_cli("probe", file)
    assert refused.returncode == 2
    assert "is not a server that nginx-tune started" in refused.stderr
    assert refused.stderr.count("\n") == 1
    run = run_cli("probe", "-", "--allow-live", "-f", "json", stdin=file.read_bytes())
    assert run.returncode == 0, run.stderr
    assert decode(Measurement, run.stdout.encode()).classes["large"].requests == 100


def test_no_good_response_is_not_a_pass(nginx: Nginx, run_cli: RunCli) -> None:
    run = run_cli("probe", nginx.url("/none"), "--allow-live", "--rate", "50", *SHORT)
    assert run.returncode == 4
    assert "of another status" in run.stdout
    assert run.stderr == "nginx-tune: no good response: url (give --status 404 if that is right)\n"
    right = run_cli("probe", nginx.url("/none"), "--allow-live", "--status", "404", *SHORT)
    assert right.returncode == 0, right.stderr


def test_what_cannot_be_run_is_one_line(run_cli: RunCli) -> None:
    for arguments, words in (
        (["http://127.0.0.1:1/"], "not a server that nginx-tune started"),
        (["http://192.0.2.1/", "--allow-live"], "--allow-target 192.0.2.1"),
        (["http://192.0.2.1/", "--allow-target", "192.0.2.2"], "--allow-target 192.0.2.1"),
        (["https://127.0.0.1/"], "not a server that nginx-tune started"),
        (["https://127.0.0.1/", "--allow-live", "--cacert", "/none"], "certificates in /none"),
        (["ftp://127.0.0.1/"], "supports http and https, not ftp"),
        (["http:///x"], "no host"),
        (["http://u:secret@127.0.0.1/"], "are not sent"),
        (["http://127.0.0.1:99999/"], "is not a URL"),
        (["http://no-such-host.invalid/"], "no-such-host.invalid"),
        (["http://127.0.0.1/", "--duration", "2h", "--allow-live"], "above the cap of 600 s"),
        (["http://127.0.0.1/", "--connections", "9000", "--allow-live"], "--cap NAME=VALUE"),
        (["127.0.0.1:9301/1k", "--allow-live"], "write http://127.0.0.1:9301/1k"),
        (["localhost/1k"], "write http://localhost/1k"),
        (["http://127.0.0.1/", "--rate", "1e9", "--allow-live"], "above the cap of 200000"),
        (["/no/such/plan.json"], "cannot read"),
        (["/dev/null"], "not JSON"),
        (["/dev/null", "--rate", "5"], "--rate needs a URL"),
        (["/dev/null", "-k"], "--insecure needs a URL"),
    ):
        run = run_cli("probe", *arguments)
        assert run.returncode == 2, (arguments, run.stdout)
        assert words in run.stderr, arguments
        assert run.stderr.count("\n") == 1, arguments
        assert "secret" not in run.stderr, arguments
        assert run.stdout == "", arguments


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, signal.SIGHUP, pytest.param(signal.SIGTERM, marks=pytest.mark.thorough)],
)
def test_a_signal_prints_what_was_measured(nginx: Nginx, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "nginx_tune", "-v", "probe", nginx.url("/1k")]
    process = subprocess.Popen(
        [*command, "--allow-live", "--duration", "60s", "--warmup", "0", "-f", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    assert b"url" in process.stderr.readline()  # a second of progress: it is under way
    [probe] = children(process.pid)
    process.send_signal(number)
    stdout, _ = process.communicate(timeout=20)
    assert process.returncode == 130
    measurement = json.loads(stdout)
    assert measurement["flags"][0] == "interrupted"
    assert measurement["classes"]["url"]["requests"] > 0
    assert not Path(f"/proc/{probe}").exists()


def test_an_interrupted_search_keeps_its_steps(nginx: Nginx) -> None:
    command = [sys.executable, "-m", "nginx_tune", "-v", "probe", nginx.url("/1k"), "--allow-live"]
    process = subprocess.Popen(
        [*command, "--objective", "mean <= 1s", "--duration", "500ms", "-f", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    # It tells of the first run while that is under way, not only at its end.
    assert process.stderr.readline().startswith(b"run 1 at 100/s, warm-up, 1 of 1 s: ")
    while b"holds" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate(timeout=20)
    assert process.returncode == 130
    capacity = json.loads(stdout)
    assert capacity["steps"][0]["met"]
    assert (capacity["limited_by"], capacity["capacity_per_second"]) == ("interrupted", None)
    assert capacity["at_least_per_second"] >= 100


TERMINAL = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}


def test_progress_is_off_the_terminal_before_the_report(nginx: Nginx) -> None:
    """Both on one terminal: what replaces itself is cleared, then the report begins."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "nginx_tune", "probe", nginx.url("/1k"), "--allow-live"]
    with subprocess.Popen(
        [*command, "--duration", "1500ms"], stdout=slave, stderr=slave, env=TERMINAL
    ) as process:
        os.close(slave)
        written = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while data := os.read(master, 4096):
                written += data
    os.close(master)
    assert process.returncode == 0
    before, said, _ = written.partition(b" good responses/s")
    assert said
    assert b"warm-up, 1 of 1 s" in before
    assert b" of 2.5 s, " in before, "warm-up and duration are one work"
    erased = b"\r\x1b[1A\x1b[2K"
    begun = before.rpartition(erased)[2]
    assert begun, "the report's own first line stands where it was"
    assert b"\n" not in begun
    assert b"\x1b[?25h" in before, "the cursor is back"
