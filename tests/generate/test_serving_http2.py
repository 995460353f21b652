"""HTTP/2 that was planned or generated, on a real nginx: what clients have of it."""

import socket
import struct
from pathlib import Path

import free_ports
import pytest
from generated_sites import generated
from http2_frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    connection,
    frame,
    frames,
)
from made_decisions import decide
from rows import each_row
from situations import host, load, nginx
from started import serving
from test_plan_changes import contents, write

from nginx_tune.change.generate.changes import plan_changes
from nginx_tune.change.plan.changing import as_changes
from nginx_tune.change.plan.solver import site_in
from nginx_tune.decide.defaults import complete_site
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.site import Site
from nginx_tune.nginx.lab.network import make_certificate

FACTS = host(nginx=nginx("1.22.1", ["--with-http_v2_module", "--with-threads"]))
CONF = """\
daemon off; pid {folder}/pid; error_log {folder}/error.log; user root;
events {{}}
http {{
    access_log off; ssl_certificate {folder}/{certificate}; ssl_certificate_key {folder}/{key};
    server {{
        listen 127.0.0.1:{port} ssl;
        client_max_body_size 0;
        location / {{ {location} }}
    }}
}}
"""
INITIAL_WINDOW_SIZE = 4
WITHOUT_END = 2**31 - 1
NAMES = (b"\x87\x21\xea\xa8\xa4\x49\x8f\x57", b"\x85\xb6\xb9\xac\x1c\x85")
"""connection and upgrade as nginx writes them, which no table has: RFC 7541, appendix B."""


def window_of_an_upload(port: int) -> int:
    """How much of a body a client may send before the upstream has taken any of it."""
    length = b"10000000"
    # RFC 7541, appendix A: POST, https, /, and content-length (28) as a literal.
    fields = b"\x83\x87\x84\x41\x01a\x0f\x0d" + bytes([len(length)]) + length
    sent = frame(SETTINGS, 0, 0, b"") + frame(HEADERS, END_HEADERS, 1, fields)
    with connection(port, "h2") as client:
        client.sendall(PREFACE + sent + frame(PING, 0, 0, b"that-all"))
        window = 0
        for kind, flags, stream, payload in frames(client):
            assert kind not in (RST_STREAM, GOAWAY), payload
            if kind == SETTINGS and not flags & ACK:
                settings = dict(struct.iter_unpack(">HI", payload))
                window += settings[INITIAL_WINDOW_SIZE]
            elif kind == WINDOW_UPDATE and stream == 1:
                window += struct.unpack(">I", payload)[0]
            elif kind == PING:
                break
    return window


def planned(folder: Path, port: int, location: str) -> tuple[str, Decision]:
    """What ``plan`` makes of a configuration, with HTTP/2 alone of what it decides."""
    made = make_certificate(folder, names=["localhost"])
    text = CONF.format(
        folder=folder,
        port=port,
        location=location,
        certificate=Path(made.certificate).name,
        key=Path(made.key).name,
    )
    tree = write(folder, {"nginx.conf": text})
    decisions = decide(FACTS, load(), site=complete_site(site_in(tree, Site()), FACTS, "static"))
    few = type(decisions)(
        kind=decisions.kind, decisions=[one for one in decisions.decisions if one.id == "http2"]
    )
    held = as_changes(few, tree)
    changed = contents(plan_changes(held, tree, lambda _: set(), annotates=False))
    return changed[tree.path].decode() if changed else text, held.decisions[0]


@pytest.mark.needs("nginx", "root")
@each_row(
    ("lines", "is_planned", "window"),
    [
        ("", True, WITHOUT_END),
        ("proxy_request_buffering off;", False, 64 << 10),
        ("proxy_request_buffering off; client_body_buffer_size 512k;", True, 512 << 10),
        ("proxy_request_buffering off; client_body_buffer_size 1m;", True, 1 << 20),
        ("proxy_request_buffering off; proxy_pass_request_body off;", True, WITHOUT_END),
        ("proxy_request_buffering off; proxy_set_body a;", True, WITHOUT_END),
    ],
)
def test_uploads_get_http2_where_it_lets_as_much_of_them_come(
    tmp_path: Path, free_port: int, lines: str, window: int, *, is_planned: bool
) -> None:
    """What stands in the plan is what nginx does: had it been written, this is the window."""
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        passed_on = f"proxy_pass http://127.0.0.1:{upstream.getsockname()[1]}; {lines}"
        text, decision = planned(tmp_path, free_port, passed_on)
        assert (" ssl http2;" in text) is is_planned, decision.summary
        conf = tmp_path / "nginx.conf"
        conf.write_text(text.replace(" ssl;", " ssl http2;"), encoding="utf-8")
        with serving(["nginx", "-c", str(conf)], free_port):
            assert window_of_an_upload(free_port) == window


@pytest.mark.needs("nginx", "root")
@each_row(
    ("line", "is_planned"),
    [
        ("add_header Connection keep-alive;", False),
        ("add_header Upgrade h2 always;", False),
        ('add_header Connection "";', True),
        ("add_header Upgrade $http_upgrade;", True),
        ("add_header Vary Upgrade;", True),
    ],
)
def test_no_answer_of_a_planned_http2_has_a_header_of_a_connection(
    tmp_path: Path, free_port: int, line: str, *, is_planned: bool
) -> None:
    text, decision = planned(tmp_path, free_port, f"return 200 ok; {line}")
    assert (" ssl http2;" in text) is is_planned, decision.summary
    conf = tmp_path / "nginx.conf"
    conf.write_text(text.replace(" ssl;", " ssl http2;"), encoding="utf-8")
    asked = frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x82\x87\x84\x41\x01a")
    with serving(["nginx", "-c", str(conf)], free_port), connection(free_port, "h2") as client:
        client.sendall(PREFACE + frame(SETTINGS, 0, 0, b"") + asked)
        block = next(payload for kind, _, _, payload in frames(client) if kind == HEADERS)
    assert any(name in block for name in NAMES) is not is_planned


@pytest.mark.needs("nginx", "root")
@each_row("is_said", [True, False])
def test_a_port_of_http_answers_http_beside_one_of_tls(
    tmp_path: Path, free_port: int, *, is_said: bool
) -> None:
    """Under ``ssl`` it would say 400; where no address says which is for TLS, all are."""
    port = free_ports.free_port()
    (tmp_path / "page").write_text("a page", encoding="utf-8")
    plain, secure = f"127.0.0.1:{free_port}", f"127.0.0.1:{port}"
    text = generated(tmp_path, FACTS, plain, f"{secure} ssl" if is_said else secure)
    conf = tmp_path / "nginx.conf"
    conf.write_text(text, encoding="utf-8")
    with serving(["nginx", "-c", str(conf)], free_port):
        for version in ("1.0", "1.1"):
            asked = f"GET /page HTTP/{version}\r\nHost: a\r\nConnection: close\r\n\r\n"
            with socket.create_connection(("127.0.0.1", free_port), 10) as client:
                client.sendall(asked.encode())
                answer = client.makefile("rb").read()
            assert answer.split()[1] == (b"200" if is_said else b"400")
        with connection(port, "h2") as client:
            assert client.selected_alpn_protocol() == "h2"
