"""``tools/behaviour-suite``: what it puts into tests, how it reads them, and what it covers."""

from __future__ import annotations

import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nginx_tune.conf.directive import Block
from nginx_tune.conf.tree import parse_text

TOOL = Path(__file__).resolve().parents[2] / "tools" / "behaviour-suite"
GOLDEN = Path(__file__).with_name("golden")

NO_SWITCH = {
    # The site's own shape, which every configuration has.
    "http", "server", "location", "upstream", "events", "listen", "server_name", "root", "types",
    "default_type", "try_files", "return", "internal", "allow", "deny", "stub_status", "user",
    "include", "split_clients", "map", "proxy_pass", "proxy_cache", "proxy_cache_path",
    "ssl_certificate", "ssl_certificate_key", "add_header", "http2",
    # Where it writes.
    "access_log", "error_log", "log_format", "pid",
    # Capacity: nothing that a single request could tell. The time is of idle connections.
    "worker_connections", "zone", "keepalive", "keepalive_timeout",
    # How long nginx waits for a server, and for how many: the suite's tests set their own.
    "proxy_connect_timeout", "proxy_next_upstream_tries", "proxy_next_upstream_timeout",
    # A cache's identity: the suite's caches have keys of their own.
    "proxy_cache_key",
    # Whom an answer is for: no request of the suite that is cached has a name and password.
    "proxy_cache_bypass", "proxy_no_cache",
}  # fmt: skip


@pytest.fixture(scope="module")
def tool() -> dict[str, Any]:
    return runpy.run_path(str(TOOL), run_name="behaviour_suite")


def _names(block: Block) -> Iterator[str]:
    for directive in block:
        yield directive.name
        if directive.block is not None and directive.name not in {"types", "split_clients", "map"}:
            yield from _names(directive.block)


def test_every_switch_that_is_written_has_its_settings(tool: dict[str, Any]) -> None:
    written = set()
    for file in GOLDEN.glob("*.conf"):
        written |= set(_names(parse_text(file.read_text()).main))
    tried = set()
    for one in tool["read_settings"](TOOL.with_name("behaviour-settings.toml")):
        tried |= set(_names(parse_text(f"{one.main} {one.events} {one.http}").main))
    assert "aio" in written
    assert sorted(written - tried - NO_SWITCH) == []


def test_listeners_get_the_parameter_once_an_address(tool: dict[str, Any]) -> None:
    text = (
        "# Tests for listen port ranges\nuse strict;\n"
        "events {\n}\nlisten 127.0.0.1:8080; listen 127.0.0.1:8080; listen 127.0.0.1:8081 ssl;"
        " listen unix:/x; listen 127.0.0.1:8082 quic;\nevents {\n}\nlisten 127.0.0.1:8080;"
    )
    given = tool["Settings"]("one", listen="reuseport", events="accept_mutex off;")
    assert tool["rewrite"](text, given) == (
        "# Tests for listen port ranges\nuse strict;\n"
        "events { accept_mutex off;\n}\nlisten 127.0.0.1:8080 reuseport; listen 127.0.0.1:8080;"
        " listen 127.0.0.1:8081 ssl reuseport; listen unix:/x; listen 127.0.0.1:8082 quic;\n"
        "events { accept_mutex off;\n}\nlisten 127.0.0.1:8080 reuseport;"
    )
    assert tool["rewrite"](text, tool["PLAIN"]) == text


def test_cases_are_read_by_what_they_prove(tool: dict[str, Any]) -> None:
    passed, failed = tool["parse_tap"](
        "1..5\nok 1 - first\nnot ok 2 - second\n#   Failed test\nok 3 # skip no such module\n"
        "not ok 4 - later # TODO not yet\nok 5\n"
    )
    assert passed == {"1 first", "5"}
    assert failed == {"2 second"}


SUITE = {
    "same.t": 'print "1..1\\nok 1 - the same\\n";',
    "differs.t": "my $bad = $ENV{TEST_NGINX_GLOBALS_HTTP} =~ /aio threads/;"
    ' print "1..2\\nok 1 - start\\n", $bad ? "not " : "", "ok 2 - whole body\\n"; exit $bad;',
    "stops.t": 'print "1..2\\nok 1 - start\\n"; sleep 60 if $ENV{TEST_NGINX_GLOBALS_HTTP} =~ /aio/;'
    ' print "ok 2 - end\\n";',
    "own.t": 'if ($ENV{TEST_NGINX_GLOBALS_HTTP} =~ /aio/) { my $d = "$ENV{TMPDIR}/nginx-test-x";'
    ' mkdir $d; open my $f, ">", "$d/error.log"; print $f "2026 [emerg] 1#1: \\"aio\\" directive'
    ' is duplicate\\n"; close $f; die "Cannot start" } print "1..1\\nok 1 - own\\n";',
    "broken.t": 'print "1..3\\nok 1 - no alerts\\n"; die "nginx did not start";',
}


def test_a_difference_is_what_fails_each_time(tmp_path: Path) -> None:
    library = tmp_path / "lib" / "Test"
    library.mkdir(parents=True)
    (library / "Nginx.pm").write_text("1;")
    for name, text in SUITE.items():
        (tmp_path / name).write_text(f"use strict;\n{text}\n")
    table = tmp_path / "table.md"
    ran = subprocess.run(
        [sys.executable, str(TOOL), str(tmp_path), "--nginx", "true", "--settings", "aio-threads",
         "--settings", "backlog", "--seconds", "3", "-o", str(table)],
        capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "4 of 5 test files run here, 6 cases pass, 0 fail as it is." in ran.stdout
    assert "| aio-threads | 1 | 2 | 1 | differs.t (1); stops.t (2: not ended after 3 s) |" in (
        table.read_text()
    )
    assert "| backlog | 4 | 0 | 0 | – |" in ran.stdout


def test_no_test_outlives_a_run_that_is_stopped(tmp_path: Path) -> None:
    library = tmp_path / "lib" / "Test"
    library.mkdir(parents=True)
    (library / "Nginx.pm").write_text("1;")
    (tmp_path / "long.t").write_text("sleep 60;")
    tool = subprocess.Popen([sys.executable, str(TOOL), str(tmp_path), "--nginx", "true"])
    deadline = time.monotonic() + 30

    def children() -> list[str]:
        lists = Path(f"/proc/{tool.pid}/task").glob("*/children")
        return [pid for one in lists for pid in one.read_text().split()]

    while not (found := children()) and time.monotonic() < deadline:
        time.sleep(0.05)
    (pid,) = found
    tool.terminate()
    assert tool.wait(30) == 128 + signal.SIGTERM
    while Path(f"/proc/{pid}/cmdline").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes()


def test_what_is_no_suite_is_said(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(TOOL), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert "that is no checkout of nginx-tests" in ran.stderr
