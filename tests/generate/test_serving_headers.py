"""Request headers that HTTP/1.1 takes, sent over an HTTP/2 that was planned or generated."""

import re
from pathlib import Path
from random import Random

import pytest
import tiers
from generated_sites import generated
from http2_frames import (
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    connection,
    frame,
    frames,
)
from made_decisions import decide
from nginx_versions import Nginx, find_nginx, versions
from rows import each_row
from situations import host, load
from situations import nginx as program
from started import serving
from test_plan_changes import contents, write

from nginx_tune.change.generate.changes import plan_changes
from nginx_tune.change.plan.changing import as_changes
from nginx_tune.change.plan.solver import site_in
from nginx_tune.conf.http2 import ONE_LIMIT_SINCE
from nginx_tune.decide.defaults import complete_site
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.site import Site
from nginx_tune.nginx.lab.network import make_certificate

pytestmark = pytest.mark.needs("nginx", "root")
CONTINUATION, FRAME_BYTES = 9, 16384
CONF = """\
daemon off; pid {folder}/pid; error_log {folder}/error.log; user root;
events {{}}
http {{
    access_log off; ssl_certificate {folder}/{certificate}; ssl_certificate_key {folder}/{key};
    {http}
    server {{
        listen 127.0.0.1:{port} ssl;
        {server}
        location / {{ return 200 ok; }}
    }}
}}
"""


@pytest.fixture
def nginx(request: pytest.FixtureRequest) -> Nginx:
    return find_nginx(request.param)


def over_http1(port: int, headers: list[tuple[str, str]]) -> bool:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    asked = f"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lines}\r\n"
    with connection(port, "http/1.1") as client:
        try:
            client.sendall(asked.encode())
            return client.makefile("rb").read(12).endswith(b" 200")
        except ConnectionError:
            return False


def number(value: int, bits: int, first: int = 0) -> bytes:
    """An integer of HPACK (RFC 7541, 5.1)."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([first | value])
    found, value = [first | most], value - most
    while value >= 128:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def over_http2(port: int, headers: list[tuple[str, str]]) -> bool:
    """Whether the request is answered by 200; its strings are sent as they are."""
    block = b"\x82\x87\x84\x41\x01a"
    for each in headers:
        block += b"\x00" + b"".join(number(len(one), 7) + one.encode() for one in each)
    parts = [block[at : at + FRAME_BYTES] for at in range(0, len(block), FRAME_BYTES)]
    sent = frame(SETTINGS, 0, 0, b"")
    for index, part in enumerate(parts):
        flags = (0 if index else END_STREAM) | (END_HEADERS if part is parts[-1] else 0)
        sent += frame(CONTINUATION if index else HEADERS, flags, 1, part)
    with connection(port, "h2") as client:
        assert client.selected_alpn_protocol() == "h2"
        try:
            client.sendall(PREFACE + sent)
            kinds = (one for one in frames(client) if one[0] in (HEADERS, RST_STREAM, GOAWAY))
            kind, _, _, payload = next(kinds, (GOAWAY, 0, 0, b""))
        except ConnectionError:
            return False
    return kind == HEADERS and payload[:1] == b"\x88"  # 200: RFC 7541, appendix A


def facts_of(nginx: Nginx) -> Facts:
    return host(nginx=program(nginx.version, re.findall(r"--\S+", nginx.build)))


def planned(
    nginx: Nginx, folder: Path, port: int, http: str = "", server: str = ""
) -> tuple[str, Decision]:
    """What ``plan`` makes of a configuration, with HTTP/2 alone of what it decides."""
    made = make_certificate(folder, names=["localhost"])
    names = {"certificate": Path(made.certificate).name, "key": Path(made.key).name}
    text = CONF.format(folder=folder, port=port, http=http, server=server, **names)
    tree = write(folder, {"nginx.conf": text})
    facts = facts_of(nginx)
    decisions = decide(facts, load(), site=complete_site(site_in(tree, Site()), facts, "static"))
    few = type(decisions)(
        kind=decisions.kind, decisions=[one for one in decisions.decisions if one.id == "http2"]
    )
    held = as_changes(few, tree)
    changed = contents(plan_changes(held, tree, lambda _: set(), annotates=False))
    return changed[tree.path].decode() if changed else text, held.decisions[0]


def drawn_headers(dice: Random, most: int) -> list[tuple[str, str]]:
    """Headers about as large as HTTP/1.1 takes: one, or several, near a limit on either side."""
    total = int(most * dice.choice([0.2, 0.5, 0.9, 0.97, 1.0, 1.1]))
    count = dice.choice([1, 2, 4, 5, 9, 40])
    return [(f"x-{index}", "Z" * max(1, total // count - 7)) for index in range(count)]


def size_of(headers: list[tuple[str, str]]) -> int:
    """As HTTP/2 counts them, with what a request has besides."""
    return 34 + sum(len(name) + len(value) for name, value in headers)


@pytest.mark.thorough
@versions("1.18", "1.22")
def test_what_passes_over_http1_passes_over_a_planned_http2(
    nginx: Nginx, tmp_path: Path, free_port: int
) -> None:
    dice = tiers.dice("headers")
    passed = 0
    for turn in range(tiers.draws(6, 40)):
        folder = tmp_path / str(turn)
        folder.mkdir()
        first = dice.choice([1, 1, 4, 32])
        count, each = dice.choice([(4, 8), (2, 8), (4, 16), (8, 64), (1, 32)])
        lines = f"large_client_header_buffers {count} {each}k; client_header_buffer_size {first}k;"
        if turn == 0:
            (first, count, each), lines = (1, 4, 8), ""
        http, server = dice.choice([(lines, ""), ("", lines)])
        text, decision = planned(nginx, folder, free_port, http, server)
        if nginx.number >= ONE_LIMIT_SINCE and not decision.settings:
            continue  # a first buffer beyond the large ones is of HTTP/1.1 alone
        assert " ssl http2;" in text, (tiers.REPEAT, decision.summary)
        conf = folder / "nginx.conf"
        conf.write_text(text, encoding="utf-8")
        most = (first + count * each) << 10
        with serving([nginx.program, "-c", str(conf)], free_port):
            for _ in range(12):
                headers = drawn_headers(dice, most)
                if nginx.number >= ONE_LIMIT_SINCE and size_of(headers) > (count * each) << 10:
                    continue  # what the first buffer holds besides is of HTTP/1.1 alone
                if over_http1(free_port, headers):
                    said = (tiers.REPEAT, lines, [len(value) for _, value in headers])
                    assert over_http2(free_port, headers), said
                    passed += 1
    assert passed > 10


@versions("1.18", "1.22", "1.30")
@each_row(
    ("lines", "is_planned"),
    [
        ("", True),
        ("client_header_buffer_size 16k; large_client_header_buffers 4 16k;", True),
        ("client_header_buffer_size 64k;", None),
        ("http2_max_field_size 16k; http2_max_header_size 256k;", True),
        ("http2_max_field_size 6k;", None),
    ],
)
def test_it_stays_off_where_it_would_refuse_headers(
    nginx: Nginx, tmp_path: Path, free_port: int, lines: str, is_planned: bool | None
) -> None:
    """What stands in the plan is what nginx does: had it been written, the longest is refused.

    A line of HTTP/2's own limits counts before 1.19.7, one of the first buffer since.
    """
    if is_planned is None:
        is_planned = (nginx.number < ONE_LIMIT_SINCE) is not lines.startswith("http2")
    text, decision = planned(nginx, tmp_path, free_port, http=lines)
    assert bool(decision.settings) is is_planned, decision.summary
    assert bool(decision.blocked_by) is not is_planned
    conf = tmp_path / "nginx.conf"
    conf.write_text(text.replace(" ssl;", " ssl http2;"), encoding="utf-8")
    longest = [("x-a", "Z" * (60_000 if "64k" in lines else 8_000))]
    with serving([nginx.program, "-c", str(conf)], free_port):
        assert over_http1(free_port, longest)
        assert over_http2(free_port, longest) is is_planned


@versions("1.18", "1.22")
def test_headers_pass_over_a_generated_http2(nginx: Nginx, tmp_path: Path, free_port: int) -> None:
    (tmp_path / "index.html").write_text("a page", encoding="utf-8")
    text = generated(tmp_path, facts_of(nginx), f"127.0.0.1:{free_port} ssl")
    assert ("http2_max_field_size 8k;" in text) is (nginx.number < ONE_LIMIT_SINCE)
    conf = tmp_path / "nginx.conf"
    conf.write_text(text, encoding="utf-8")
    with serving([nginx.program, "-c", str(conf)], free_port):
        for headers in ([("x-a", "Z" * 8_000)], [(f"x-{n}", "Z" * 3900) for n in range(8)]):
            assert over_http1(free_port, headers)
            assert over_http2(free_port, headers)
