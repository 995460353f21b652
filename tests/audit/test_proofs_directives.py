"""What the tables of directives say against the real nginx: where ours speaks, nginx refuses."""

from pathlib import Path

import pytest
from rows import each_row
from scratch_nginx import config_test, write_conf

from nginx_tune.audit.engine import audit
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import linux
from nginx_tune.conf.tree import read_tree
from nginx_tune.host.live import LiveHost

pytestmark = pytest.mark.needs("nginx", "root")

RULES = [rule for rule in ALL if rule.id.startswith(("cf-directive-", "cf-parameter-long"))]
HOST = linux(version="1.22.1")


def _judge(tmp_path: Path, conf: str) -> tuple[set[str], str]:
    """The rules that fire, and nginx's own words."""
    path = write_conf(tmp_path, conf)
    found = audit(read_tree(str(path), LiveHost()), HOST, RULES)
    return {one.rule for one in found.findings}, config_test(path).stderr


UNKNOWN = ["http { sendfil on; }", "http { server { Root /x; } }"]
MISPLACED = [
    "http { worker_processes 4; }",
    "root /x; http {}",
    "http { upstream u { root /x; server a; } }",
    "http { server { if ($a) { root /x; } } }",
    "http { server { location / { limit_except GET { alias /x; } } } }",
    "http { location / {} }",
]
ARGUMENTS = [
    "http { sendfile on\ntcp_nopush on; }",
    "http { server { root; } }",
    "http { server { listen; } }",
    "http { sendfile {} }",
    "http { server; }",
    "http 1 {}",
]
VERSION = ["http { http2 on; }", "http { server { keepalive_min_timeout 1s; } }"]
ARGUMENTS_WORDS = ("invalid number of arguments", "not terminated", 'no opening "{"')


@each_row("conf", UNKNOWN)
def test_cf_directive_unknown_is_refused(tmp_path: Path, conf: str) -> None:
    fired, words = _judge(tmp_path, "events {} " + conf)
    assert fired == {"cf-directive-unknown"}
    assert "unknown directive" in words


NO_CONFIGURATION = [b"\xff\xfeevents {}\n", b"hello world;\n", b"text/html html;\n"]


@each_row("data", NO_CONFIGURATION)
def test_cf_directive_unknown_is_of_a_file_that_is_no_configuration(
    tmp_path: Path, data: bytes
) -> None:
    path = tmp_path / "nginx.conf"
    path.write_bytes(data)
    found = audit(read_tree(str(path), LiveHost()), None).findings
    assert [(one.rule, one.severity) for one in found] == [("cf-directive-unknown", "error")]
    assert "unknown directive" in config_test(path).stderr


@each_row("conf", MISPLACED)
def test_cf_directive_misplaced_is_refused(tmp_path: Path, conf: str) -> None:
    fired, words = _judge(tmp_path, "events {} " + conf)
    assert fired == {"cf-directive-misplaced"}
    assert "directive is not allowed here" in words


@each_row("conf", ARGUMENTS)
def test_cf_directive_arguments_is_refused(tmp_path: Path, conf: str) -> None:
    fired, words = _judge(tmp_path, "events {} " + conf)
    assert fired == {"cf-directive-arguments"}
    assert any(said in words for said in ARGUMENTS_WORDS)


@each_row(("length", "is_read"), [(4000, True), (4094, True), (4096, False), (9000, False)])
@each_row("quote", ["", '"'])
def test_cf_parameter_long_is_refused(
    tmp_path: Path, length: int, quote: str, *, is_read: bool
) -> None:
    word = f"{quote}{'x' * length}{quote}"
    fired, words = _judge(tmp_path, f"events {{}} http {{ server {{ return 200 {word}; }} }}")
    assert fired == (set() if is_read else {"cf-parameter-long"})
    assert ("too long parameter" in words) is not is_read


@each_row("conf", VERSION)
def test_cf_directive_version_is_refused(tmp_path: Path, conf: str) -> None:
    fired, words = _judge(tmp_path, "events {} " + conf)
    assert fired == {"cf-directive-version"}
    assert "unknown directive" in words


ACCEPTED = [
    "events { worker_connections 64; multi_accept on; } http { sendfile on; }",
    "events {} http { map $uri $a { x y; } server { set $b 1; } }",
    "events {} http { server { location / { if ($uri) { return 204; } } } }",
    "events {} http { server { location / { limit_except GET { deny all; } } } }",
    "events {} http { types { text/html html htm; } geo $g { default 0; 10.0.0.0/8 1; } }",
    "events {} http { upstream u { least_conn; server 127.0.0.1:1 weight=2; keepalive 4; } }",
    "env A; pcre_jit on; events {} http { charset_map koi8-r utf-8 { C0 D18E ; } }",
]


@each_row("conf", ACCEPTED)
def test_what_nginx_accepts_is_not_called_wrong(tmp_path: Path, conf: str) -> None:
    path = write_conf(tmp_path, conf)
    run = config_test(path)
    assert run.returncode == 0, run.stderr
    assert _judge(tmp_path, conf)[0] == set()
