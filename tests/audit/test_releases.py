"""What changed from release to release: held against the versions that are at hand."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from nginx_versions import Nginx, every_version
from rows import each_row
from scratch_nginx import config_test

from nginx_tune.audit.engine import audit
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import linux
from nginx_tune.conf.known_directives import read_table, rows_of, seen_versions
from nginx_tune.conf.tree import parse_text
from nginx_tune.conf.values import judge, words_of

HTTP = "events {} http { %s }"
SERVER = HTTP % "server { listen 127.0.0.1:1; %s }"
PLACES = {
    ("listen", "server"): HTTP % "server { listen 127.0.0.1:1 %s; }",
    ("server", "upstream"): HTTP
    % "resolver 127.0.0.1; upstream u { zone u 64k; server a.example %s; server 127.0.0.1; }",
    ("proxy_cache_path", "http"): HTTP % "proxy_cache_path DIR/c keys_zone=a:1m %s;",
    ("limit_req", "server"): HTTP
    % "limit_req_zone $uri zone=z:1m rate=1r/s; server { limit_req zone=z %s; }",
    ("access_log", "server"): SERVER % "access_log DIR/a combined buffer=1m %s;",
    ("open_file_cache", "server"): SERVER % "open_file_cache max=9 %s;",
    ("proxy_next_upstream", "server"): SERVER % "proxy_next_upstream error %s;",
    ("proxy_cache_use_stale", "server"): SERVER % "proxy_cache_use_stale error %s;",
    ("resolver", "http"): HTTP % "resolver 127.0.0.1 %s;",
    ("proxy_bind", "server"): SERVER % "proxy_bind 127.0.0.1 %s;",
    ("add_header", "server"): SERVER % "add_header a b %s;",
    ("hash", "upstream"): HTTP % "upstream u { hash $uri %s; server 127.0.0.1; }",
    ("keepalive", "upstream"): HTTP % "upstream u { server 127.0.0.1; keepalive 2 %s; }",
}
VALUES = {
    "accept_filter=": "", "backlog=": "9", "fastopen=": "9", "ipv6only=": "on", "rcvbuf=": "8k",
    "setfib=": "", "sndbuf=": "8k", "so_keepalive=": "on", "route=": "a", "service=": "b",
    "fail_timeout=": "1s", "levels=": "1:2", "inactive=": "9s", "max_size=": "9m",
    "min_free=": "9m", "use_temp_path=": "off", "keys_zone=": "b:1m", "burst=": "2",
    "delay=": "1", "zone=": "z", "buffer=": "1m", "flush=": "1s", "if=": "$uri", "valid=": "9s",
    "ipv4=": "off", "ipv6=": "off", "loader_sleep=": "9ms", "manager_sleep=": "9ms",
    "loader_threshold=": "9ms", "manager_threshold=": "9ms",
}  # fmt: skip
_OF_ANOTHER_PLACE = {
    "accept_filter=", "setfib=", "ipv6only=", "syslog:", "off", "http2", "quic", "spdy",
    "keys_zone=", "zone=", "transparent", "ssl", "fastopen=", "route=", "drain", "service=",
}  # fmt: skip
"""Words of FreeBSD, of other arguments than these, or that want more than a word."""
REFUSED = re.compile(r"invalid parameter|invalid value|host not found in resolver|invalid number")


def _words() -> Iterator[tuple[str, str, str]]:
    for name, context in PLACES:
        for words in words_of(name, context):
            yield from ((name, context, word) for word in words.spans)


@pytest.mark.needs("root")
@every_version
def test_each_word_is_taken_by_the_releases_of_the_table(nginx: Nginx, tmp_path: Path) -> None:
    tried = 0
    for name, context, word in _words():
        if word in _OF_ANOTHER_PLACE:
            continue
        argument = word + VALUES.get(word, "1" if word.endswith("=") else "")
        path = tmp_path / "nginx.conf"
        conf = f"pid DIR/pid; error_log DIR/log; {PLACES[name, context] % argument}"
        path.write_text(conf.replace("DIR", str(tmp_path)))
        run = config_test(path, nginx.program, under=("unshare", "--net"))
        (words,) = words_of(name, context)
        refused = judge(name, words, argument, nginx.number) is not None
        assert bool(REFUSED.search(run.stderr)) is refused, (conf, run.stderr)
        tried += 1
    assert tried > 60


def test_the_tables_of_releases_and_of_programs_agree() -> None:
    names = {line.split("\t")[0] for line in read_table("directive-forms.tsv").splitlines()[2:]}
    compared = 0
    for name in names:
        for version in seen_versions():
            number = tuple(map(int, version.split(".")))
            seen = [row for row in rows_of(name) if row.first <= number <= row.last]
            for row in seen:
                if row.is_own and row.first == row.last:  # of this very version
                    assert row.as_in(number) == row, (name, version)
                    compared += 1
                elif row.is_own:
                    assert row.as_in(number).contexts <= row.contexts
    assert compared > 0


@each_row(
    ("conf", "version", "said"),
    [
        (HTTP % "server { listen 80 reuseport; }", "1.8.1", "was added in nginx 1.9.1"),
        (HTTP % "server { listen 80 fastopen=9; }", "1.4.7", "was added in nginx 1.5.8"),
        (HTTP % "server { listen 80 spdy; }", "1.30.6", "was removed in nginx 1.19.7"),
        (HTTP % "upstream u { server a max_conns=3; }", "1.10.3", "was added in nginx 1.11.5"),
        (SERVER % "limit_req zone=a delay=3;", "1.14.2", "was added in nginx 1.15.7"),
        (SERVER % "proxy_next_upstream http_429;", "1.10.3", "was added in nginx 1.11.13"),
        (SERVER % "ssl_protocols TLSv1.2 TLSv1.3;", "1.12.2", "was added in nginx 1.13.0"),
        (SERVER % "access_log a combined buffer=1k if=$uri;", "1.6.3", "was added in nginx 1.7.0"),
        ("events {} stream { server { listen 1 fastopen=9; } }", "1.18.0",
         "was added in nginx 1.21.0"),
        ("events {} stream { server { listen 1 udp http2; } }", "1.18.0", "is not a parameter"),
        ("events {} mail { server { listen 1 proxy_protocol; } }", "1.18.0",
         "was added in nginx 1.19.8"),
        (SERVER % "add_header a b always;", "1.6.3", "takes 2 arguments"),
        (SERVER % "proxy_bind 127.0.0.1 transparent;", "1.10.3", "takes 1 argument"),
        (SERVER % "server_tokens build;", "1.10.3", "was added in nginx 1.11.10"),
        (SERVER % "log_format a b;", "1.8.1", "is not allowed in server"),
        (SERVER % "location /s { stub_status; }", "1.6.3", "takes on or off argument"),
    ],
)  # fmt: skip
def test_what_a_release_had_not_yet_or_no_more_is_named(conf: str, version: str, said: str) -> None:
    found = audit(parse_text(conf), linux(version=version), ALL)
    errors = [one.message for one in found.findings if one.severity == "error"]
    assert any(said in message for message in errors), errors


@each_row(
    ("conf", "version"),
    [
        (SERVER % "log_format a b;", "1.6.3"),
        (HTTP % "server { listen 80 spdy; }", "1.8.1"),
        (HTTP % "server { listen 80 default deferred bind so_keepalive=on; }", "1.4.7"),
        (SERVER % "proxy_next_upstream ERROR Timeout;", "1.10.3"),
        (SERVER % "proxy_bind $remote_addr transparent;", "1.11.0"),
        (SERVER % "access_log a combined gzip=3 flush=1s;", "1.4.7"),
        (SERVER % "server_tokens build;", "1.31.9"),
        (HTTP % "max_headers 100;", "1.22.1"),  # Debian's
    ],
)
def test_what_a_release_takes_is_no_fault(conf: str, version: str) -> None:
    found = audit(parse_text(conf), linux(version=version), ALL)
    assert [one.message for one in found.findings if one.rule.startswith("cf-")] == []


_PARAMETERS = [
    ("server { listen 80 fastopen=9; }", "1.5.7", "1.5.8"),
    ("server { listen 80 proxy_protocol; }", "1.5.11", "1.5.12"),
    ("proxy_cache_path /c keys_zone=a:1m use_temp_path=off;", "1.7.9", "1.7.10"),
    ("server { listen 80 reuseport; }", "1.9.0", "1.9.1"),
    ("server { listen 80 http2; }", "1.9.4", "1.9.5"),
    ("upstream u { server 10.0.0.1 max_conns=9; }", "1.11.4", "1.11.5"),
    ("proxy_cache_path /c keys_zone=a:1m manager_files=9;", "1.11.4", "1.11.5"),
    ("proxy_cache_path /c keys_zone=a:1m min_free=1g;", "1.19.0", "1.19.1"),
]


@each_row(("text", "without", "first"), _PARAMETERS)
def test_a_parameter_is_refused_to_the_last_release_without_it(
    text: str, without: str, first: str
) -> None:
    """Older than any nginx that the proofs run on."""

    def refused(version: str) -> bool:
        found = audit(parse_text(HTTP % text), linux(version=version), ALL).findings
        return any(one.rule == "cf-parameter-unknown" for one in found)

    assert [refused(without), refused(first)] == [True, False]
