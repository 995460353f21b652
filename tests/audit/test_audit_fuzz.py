"""Whatever stands in a file: no crash, no hang, and a document that can be written and printed."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from fuzzing import fuzzed
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rows import each_row
from tiers import draws

from nginx_tune.audit.engine import audit
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import linux
from nginx_tune.audit.suppression import NOTICES
from nginx_tune.conf.dumps import parse_dump
from nginx_tune.conf.known_directives import read_table
from nginx_tune.conf.tree import read_tree
from nginx_tune.documents.base import decode, encode
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.findings import Findings
from nginx_tune.errors import UsageError
from nginx_tune.host.door import HostReadError
from nginx_tune.report.findings import render_findings, render_findings_markdown
from nginx_tune.report.findings_ci import (
    render_checkstyle,
    render_github,
    render_gitlab,
    render_junit,
)
from nginx_tune.report.sarif import render_sarif

RENDERERS = (render_sarif, render_junit, render_checkstyle, render_gitlab, render_github,
             render_findings_markdown)  # fmt: skip

CONF = Path(__file__).parent.parent / "conf"
SEEDS = [rule.bad.conf.encode() for rule in ALL] + [
    path.read_bytes() for path in [*CONF.glob("valid/*.conf"), *CONF.parent.glob("sites/**/*.conf")]
]
HOST = linux(
    version="1.18.0",
    datasets={"/srv/media": (256, 0.1), "/srv/www": (3, 1.0)},
    disks={"/disk1": ("sda", "hdd"), "/disk2": ("sdb", "ssd")},
)
WORDS = [
    b"{", b"}", b";", b'"', b"'", b"\\", b"#", b"$", b"${", b"\n", b"\r\n", b"\x00", b"\x1b[31m",
    b"\xff", b"\xef\xbb\xbf", b"include nginx.conf;", b"include *;", b"aio threads=$disk;",
    b"map $disk $disk { default $disk; }", b"server {", b"location / {", b"set $disk $disk$disk;",
    b"split_clients $a $disk { 1% \xff; * x; }", b"thread_pool", b"listen [;", b"root $disk;",
    b"# nginx-tune: ignore[io-pool-literal-unknown] x until=2026-01-01\n",
    b"#nginx-tune:ignore-file[*", b"upstream x { keepalive 1;", b"proxy_pass http://$disk;",
    b"listen 443 ssl quic reuseport;", b"proxy_cache_path /c keys_zone=a:1m;", b"ssl_session_cache",
    b"limit_conn_zone $x zone=a:1;", b"access_log /x/$host;", b"gzip on;", b"sendfile off;",
    b"content_by_lua_block {", b"99999999999999999999999%", b"alias",
]  # fmt: skip


class OneFile:
    """Every name is the same file."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read_bytes(self, path: str) -> bytes:
        if "\0" in path:
            raise HostReadError(f"read {path}", "embedded null byte")
        return self.data

    def list_dir(self, path: str) -> list[str]:
        return ["nginx.conf", "other", ".hidden", "\udcff"]


def _check(data: bytes, facts: Facts | None) -> None:
    tree = read_tree("nginx.conf", OneFile(data))
    found = audit(tree, facts, (*ALL, *NOTICES), today="2026-11-20")
    assert decode(Findings, encode(found)) == found
    for file in tree.parsed:
        assert file.source.data == data, "every byte comes back"
    assert len({one.fingerprint for one in found.findings}) == len(found.findings)
    for render in RENDERERS:
        assert b"\x1b" not in render(found)
    ET.fromstring(render_junit(found))  # noqa: S314  # our own
    ET.fromstring(render_checkstyle(found))  # noqa: S314  # our own
    json.loads(render_gitlab(found))
    json.loads(render_sarif(found))
    text = render_findings(found)
    text.encode()
    assert "\x1b" not in text
    assert "\r" not in text
    for one in found.findings:
        assert one.evidence
        assert one.line >= 1


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    data = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(data)))
        cut = draw(st.integers(0, 12))
        data = data[:at] + draw(st.sampled_from(WORDS)) + data[at + cut :]
    return data


@pytest.mark.long
@fuzzed
@settings(max_examples=draws(80, 300))
@given(mutated(), st.sampled_from([None, HOST]))
@example(b"include *;http { server { listen 8080; } }", None)  # a name that is not UTF-8, in a fix
def test_mutated_configurations(data: bytes, facts: Facts | None) -> None:
    _check(data, facts)


@each_row("form", ["%s;", "%s {}", '%s "";', "%s $v;", "%s 1;", "%s 1 2 3;", "%s { x; }"])
def test_every_directive_with_too_few_or_wrong_arguments(form: str) -> None:
    names = {line.split("\t")[0] for line in read_table("directives.tsv").splitlines()}
    lines = "\n".join(form % name for name in sorted(names - {"include"}))
    text = (
        "%(lines)s\nevents { }\nhttp {\n%(lines)s\nupstream u {\nserver a;\n%(lines)s\n}\n"
        "map $a $b {\n%(lines)s\n}\nserver {\nlocation / {\nproxy_pass http://a.example;\n}\n"
        "location {\nproxy_pass http://a.example/x;\n}\n}\nserver {\nlisten 80;\n%(lines)s\n"
        "location / {\nproxy_pass http://u;\n%(lines)s\n}\n}\n}\n"
        "stream {\n%(lines)s\nserver {\nlisten 81;\n%(lines)s\n}\n}\n"
    )
    _check((text % {"lines": lines}).encode(), HOST)


@fuzzed
@settings(max_examples=draws(30, 600))
@given(st.lists(st.sampled_from([*WORDS, *SEEDS[:5], b"# configuration file /a:\n",
                                 b"\n# configuration file /b/../c:\r\n"]), max_size=6))  # fmt: skip
def test_dumps(parts: list[bytes]) -> None:
    try:
        dump = parse_dump(b"".join(parts))
    except UsageError:
        return
    found = audit(read_tree(dump.main, dump), None)
    assert decode(Findings, encode(found)) == found
