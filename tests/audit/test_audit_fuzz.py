"""Whatever stands in a file: no crash, no hang, and a document that can be written and printed."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from nginx_tune.audit.engine import audit
from nginx_tune.audit.examples import linux
from nginx_tune.audit.registry import ALL
from nginx_tune.conf.tree import read_tree
from nginx_tune.documents.base import decode, encode
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.findings import Findings
from nginx_tune.host.door import HostReadError
from nginx_tune.report.findings import render_findings

CONF = Path(__file__).parent.parent / "conf" / "valid"
SEEDS = [rule.bad.conf.encode() for rule in ALL] + [p.read_bytes() for p in CONF.glob("*.conf")]
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
    found = audit(read_tree("nginx.conf", OneFile(data)), facts)
    assert decode(Findings, encode(found)) == found
    text = render_findings(found)
    text.encode()
    assert "\x1b" not in text
    assert "\r" not in text
    for one in found.findings:
        assert one.evidence
        assert one.line >= 1


@given(st.binary(max_size=400), st.sampled_from([None, HOST]))
@settings(max_examples=300, deadline=None)
def test_random_bytes(data: bytes, facts: Facts | None) -> None:
    _check(data, facts)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    data = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(data)))
        cut = draw(st.integers(0, 12))
        data = data[:at] + draw(st.sampled_from(WORDS)) + data[at + cut :]
    return data


@given(mutated(), st.sampled_from([None, HOST]))
@settings(max_examples=600, deadline=None)
def test_mutated_configurations(data: bytes, facts: Facts | None) -> None:
    _check(data, facts)
