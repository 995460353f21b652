"""What nginx refuses of a configuration as a whole: where ours speaks, every version refuses."""

from pathlib import Path

import pytest
from nginx_versions import Nginx, every_version
from proving import fires
from rows import each_row
from scratch_nginx import Serve, config_test

pytestmark = pytest.mark.needs("nginx", "root")


@every_version
@each_row(
    ("conf", "is_whole"),
    [
        ("", False),
        (" \n# a comment\n", False),
        ("http { server { listen 127.0.0.1:1; } }", False),
        ("events {}", True),
        ("http { } events { }", True),
    ],
)
def test_cf_events_missing_is_refused(
    tmp_path: Path, nginx: Nginx, conf: str, is_whole: bool
) -> None:
    path = tmp_path / "nginx.conf"
    path.write_text(conf)
    said = config_test(path, nginx.program, under=("unshare", "--net"))
    assert ('no "events" section' not in said.stderr) is is_whole
    assert fires("cf-events-missing", path) is not is_whole


@every_version
@each_row("is_included", [False, True])
@each_row("text", ["events {}", "# a comment\nevents {}"])
@each_row("mark", ["", "\ufeff"])
def test_cf_byte_order_mark_is_refused(
    tmp_path: Path, nginx: Nginx, mark: str, text: str, is_included: bool
) -> None:
    path, part = tmp_path / "nginx.conf", tmp_path / "part.conf"
    path.write_text("include part.conf;" if is_included else mark + text)
    part.write_text(mark + text)
    said = config_test(path, nginx.program, under=("unshare", "--net"))
    assert ('unknown directive "\ufeff' in said.stderr) is bool(mark), said.stderr
    assert fires("cf-byte-order-mark", path) is bool(mark)


@every_version
@each_row("name", ["a.example", "A.Example", "b.example"])
def test_cf_server_name_twice_leaves_the_second_server_without_requests(
    serve: Serve, nginx: Nginx, name: str
) -> None:
    server = serve(
        "events {} http { server { listen 127.0.0.1:PORT; server_name a.example; return 200 one; } "
        f"server {{ listen 127.0.0.1:PORT; server_name {name}; return 200 two; }} }}"
    )
    is_twice = name.lower() == "a.example"
    with server.connect() as peer:
        peer.sendall(f"GET / HTTP/1.0\r\nHost: {name}\r\n\r\n".encode())
        answer = b""
        while part := peer.recv(65536):
            answer += part
    assert answer.endswith(b"one" if is_twice else b"two")
    said = config_test(server.conf, nginx.program)
    assert said.returncode == 0
    assert ("conflicting server name" in said.stderr) is is_twice
    assert fires("cf-server-name-twice", server.conf) is is_twice
