"""--nginx-version and --upgrade-to, and the defaults that they speak of on both sides."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import RunCli
from nginx_versions import Nginx, since
from rows import each_row
from scratch_nginx import Server

from nginx_tune.audit.engine import audit
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import linux
from nginx_tune.audit.upgrade import CHANGED, CHANGES, ChangedDefault
from nginx_tune.conf.tree import parse_text

Serve = Callable[[str], Server]

CONF = """events {}
http {
  upstream app { server 10.0.0.1; }
  sendfile on;
  server { listen 443 ssl http2; ssl on; location / { proxy_pass http://app; } }
}
"""


BARE = """events {}
stream { server { listen 1 ssl; proxy_pass a:1; proxy_ssl on; } }
mail { server { listen 993 ssl; protocol imap; } }
http {
  charset utf-8;
  types { text/html html; }
  sendfile on;
  proxy_cache_path /var/cache/nginx keys_zone=c:1m max_size=1g;
  upstream app { server 10.0.0.1; server 10.0.0.2; }
  upstream kept { server 10.0.0.1; keepalive 8; }
  server {
    listen a.example:443 ssl;
    root /srv;
    location /app { proxy_pass http://app; proxy_cache c; }
    location /kept { proxy_pass https://kept; }
  }
}
"""


def _moves_again(change: ChangedDefault) -> bool:
    later = [one for one in CHANGES if one.since > change.since]
    return any(one.directive == change.directive for one in later)


@each_row(
    ("name", "since", "gone"),
    [("limit_zone", "1.4.0", "1.7.6"), ("worker_shutdown_timeout", "1.11.11", ""),
     ("add_header_inherit", "1.29.3", ""), ("spdy_chunk_size", "1.5.9", "1.19.7")],
)  # fmt: skip
def test_directives_come_and_go_with_the_releases_of_the_source(
    name: str, since: str, gone: str
) -> None:
    where = "events {} %s 1;" if name.startswith("worker") else "events {} http { %s 1; }"

    def fires(version: str) -> bool:
        found = audit(parse_text(where % name), linux(version=version), ALL)
        return any(one.rule == "cf-directive-version" for one in found.findings)

    first = tuple(map(int, since.split(".")))
    if first > (1, 4, 0):
        assert fires(".".join(map(str, (*first[:2], first[2] - 1))))
    assert not fires(since)
    assert fires("1.31.4") is bool(gone)
    if gone:
        assert fires(gone)


def _moved(conf: str, since: str, until: str) -> set[str]:
    found = audit(parse_text(conf), linux(version=until), ALL, upgrade_from=since)
    return {one.message.split(" is not set")[0] for one in found.findings if one.rule == CHANGED.id}


def test_only_defaults_between_the_two_versions_move() -> None:
    assert _moved(CONF, "1.18.0", "1.18.0") == set()
    assert _moved(CONF, "1.18.0", "1.19.9") == set()
    assert _moved(CONF, "1.18.0", "1.19.10") == {"keepalive_requests", "keepalive_time"}
    assert _moved(CONF, "1.22.1", "1.26.3") == {"ssl_protocols"}
    assert _moved(CONF, "1.26.3", "1.30.6") == {
        "ssl_protocols", "proxy_http_version", "keepalive of an upstream",
        "ssl_certificate_compression", "max_headers",
    }  # fmt: skip
    assert {change.directive for change in CHANGES} == _moved(BARE, "1.4.0", "1.31.4")
    for change in CHANGES:
        before = ".".join(map(str, (*change.since[:2], change.since[2] - 1)))
        now = ".".join(map(str, change.since))
        assert change.directive in _moved(BARE, before, now)
        assert change.directive not in _moved(BARE, now, "1.31.4") or _moves_again(change)


OTHERS = """
events {}
stream {
  %s
  server { listen 1 ssl; proxy_pass a:1; proxy_ssl on; }
}
mail { %s server { listen 993; protocol imap; %s } }
"""


@each_row(
    ("lines", "moved"),
    [
        (("", "", "ssl on;"), {"ssl_protocols of stream", "ssl_protocols of mail",
                               "proxy_ssl_protocols of stream"}),
        (("ssl_protocols TLSv1.2;", "starttls on;", ""),
         {"ssl_protocols of mail", "proxy_ssl_protocols of stream"}),
        (("proxy_ssl_protocols TLSv1.2;", "ssl_protocols TLSv1.2;", "starttls only;"),
         {"ssl_protocols of stream"}),
        (("proxy_ssl_protocols TLSv1.2; ssl_protocols TLSv1.2;", "", ""), set()),
    ],
)  # fmt: skip
def test_protocols_of_stream_and_mail_move_where_they_speak_tls(
    lines: tuple[str, str, str], moved: set[str]
) -> None:
    for old, new in (("1.9.0", "1.9.1"), ("1.22.1", "1.26.3"), ("1.26.3", "1.30.6")):
        assert _moved(OTHERS % lines, old, new) == moved
    assert _moved(OTHERS % lines, "1.27.3", "1.31.4") == set()


def test_what_is_written_does_not_move() -> None:
    written = (
        "events { accept_mutex off; } http { keepalive_requests 100; sendfile on; "
        "keepalive_time 1h; max_headers 100; ssl_ecdh_curve auto; ssl_dhparam dh.pem; "
        "ssl_certificate_compression off; variables_hash_max_size 1024; connection_pool_size 512; "
        "sendfile_max_chunk 1m; ssl_protocols TLSv1.2; proxy_http_version 1.1; "
        "upstream app { server 10.0.0.1; keepalive 0; } "
        "server { listen 443 ssl; location / { proxy_pass http://app; } } }"
    )
    assert _moved(written, "1.10.0", "1.30.6") == set()


def test_a_part_that_was_not_read_withholds_defaults(tmp_path: Path, run_cli: RunCli) -> None:
    conf = tmp_path / "nginx.conf"
    conf.write_text(CONF.replace("sendfile on;", "include gone.conf;"))
    run = run_cli("-v", "audit", conf, "--map", f"/etc={tmp_path}", "--nginx-version", "1.18.0",
                  "--upgrade-to", "1.30.6")  # fmt: skip
    assert "is not set, and its default" not in run.stdout
    assert "not checked for lack of facts" in run.stdout
    assert CHANGED.id in run.stdout


def test_a_version_by_hand_and_what_an_upgrade_brings(tmp_path: Path, run_cli: RunCli) -> None:
    conf = tmp_path / "nginx.conf"
    conf.write_text(CONF)
    old = json.loads(run_cli("audit", conf, "--nginx-version", "1.22.1", "-f", "json").stdout)
    rules = {one["rule"] for one in old["findings"]}
    assert "up-keepalive-missing" in rules
    assert not {"ls-http2-param", "cf-directive-version", CHANGED.id} & rules
    run = run_cli(
        "audit", conf, "--nginx-version", "1.22.1", "--upgrade-to", "1.26.3", "-f", "json"
    )
    new = json.loads(run.stdout)
    rules = {one["rule"] for one in new["findings"]}
    assert {"ls-http2-param", "cf-directive-version", CHANGED.id} <= rules
    assert "up-keepalive-missing" not in rules, "it is as it was"
    assert any(one["rule"] == "up-keepalive-missing" for one in new["suppressed"])
    assert run.returncode == 1


def test_the_version_decides_what_is_recommended(tmp_path: Path, run_cli: RunCli) -> None:
    facts = tmp_path / "facts.json"
    from nginx_tune.documents.base import encode  # noqa: PLC0415

    facts.write_bytes(encode(linux(version="1.22.1", cpus=8)))
    for command in ("recommend", "generate"):
        run = run_cli(command, "--facts", facts, "--nginx-version", "1.30.6", "--kind", "proxy")
        assert run.returncode == 0, run.stderr
        assert command == "generate" or "1.30.6" in run.stdout
        assert "1.22.1" not in run.stdout


@each_row("value", ["new", "1", "1.2.3.4", "v1.26", "1.26;x"])
def test_what_is_no_version_is_refused(tmp_path: Path, run_cli: RunCli, value: str) -> None:
    conf = tmp_path / "nginx.conf"
    conf.write_text(CONF)
    for option in ("--nginx-version", "--upgrade-to"):
        run = run_cli("audit", conf, option, value)
        assert run.returncode == 2
        assert "give a version" in run.stderr


def test_an_upgrade_from_nowhere_is_not_decided(tmp_path: Path, run_cli: RunCli) -> None:
    conf = tmp_path / "nginx.conf"
    conf.write_text(CONF)
    run = run_cli("audit", conf, "--facts", "none", "--upgrade-to", "1.30.6")
    assert run.returncode == 4
    assert "--nginx-version" in run.stderr


@pytest.mark.needs("nginx", "root")
@since("1.22")
def test_a_connection_takes_more_than_a_hundred_requests(serve: Serve, nginx: Nginx) -> None:
    server = serve(
        "worker_processes 1; events {} http { server { listen 127.0.0.1:PORT; return 204; } }"
    )
    answered = 0
    with server.connect() as peer:
        for _ in range(150):
            peer.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            data = b""
            while b"\r\n\r\n" not in data and (part := peer.recv(4096)):
                data += part
            answered += bool(data)
            if b"Connection: close" in data or not data:
                break
    assert answered == 150


def test_a_finding_is_shown_in_its_line(tmp_path: Path, run_cli: RunCli) -> None:
    conf = tmp_path / "nginx.conf"
    conf.write_text(
        "events {}\nhttp {\n\tserver { listen 80; sendfile  yes; }\n"
        '\tserver { listen 81; set $token "s3cr3t"; client_body_timeout 5x; # s3cr3t\n}}\n'
    )
    lines = run_cli("audit", conf, "--facts", "none").stdout.splitlines()
    first = next(n for n, line in enumerate(lines) if ":3: error" in line)
    assert lines[first + 1] == "    3 |  server { listen 80; sendfile  yes; }"
    assert lines[first + 2] == "      |                      ^^^^^^^^^^^^^^"
    second = next(n for n, line in enumerate(lines) if ":4: error" in line)
    at = lines[second + 1].index("client_body_timeout")
    assert lines[second + 2].index("^") == at
    assert lines[second + 2].count("^") == len("client_body_timeout")
    assert "s3cr3t" not in "\n".join(lines)
