"""Whose page a cache gives out, where a chain of try_files ends, what a filter makes of threads."""

from collections.abc import Callable

import pytest
from nginx_versions import Nginx, every_version
from origin import ok, run_origin
from proving import fires
from rows import each_row
from scratch_nginx import Server, config_test
from test_proofs_mistakes import CONF, ask

pytestmark = pytest.mark.needs("nginx", "root")

Serve = Callable[[str], Server]

FILE_BYTES = 1 << 20
BUFFER_BYTES = 32 << 10


@every_version
@each_row("key", ["", "proxy_cache_key $scheme$host$request_uri;"])
def test_ca_key_without_host_serves_one_hosts_page_to_another(
    serve: Serve, nginx: Nginx, key: str
) -> None:
    def by_host(request: object, _: object) -> bytes:
        head = str(getattr(request, "head", ""))
        host = next(line for line in head.split("\r\n") if line.startswith("Host: "))
        return ok(host.encode(), "Cache-Control: max-age=60")

    with run_origin(by_host) as origin:
        server = serve(
            CONF % ("proxy_cache_path DIR/cache keys_zone=c:1m max_size=1m;",
                    ("server_name a.example b.example; location / { proxy_set_header Host $host; "
                    f"proxy_cache c; {key} proxy_pass http://127.0.0.1:{origin.port}; }}"))
        )  # fmt: skip
        pages = [_page(server, host) for host in ("a.example", "b.example", "nobody.example")]
    wanted = [f"Host: {host}.example".encode() for host in ("a", "b", "nobody")]
    assert pages == (wanted if key else [wanted[0]] * 3)
    assert fires("ca-key-without-host", server.conf) is not bool(key)


def _page(server: Server, host: str) -> bytes:
    with server.connect() as peer:
        peer.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        data = b"".join(iter(lambda: peer.recv(65536), b""))
    return data.partition(b"\r\n\r\n")[2]


@every_version
@each_row(("count", "is_followed"), [(11, True), (12, False)])
def test_io_try_files_chain_ends_after_ten_changes(
    serve: Serve, nginx: Nginx, count: int, *, is_followed: bool
) -> None:
    lines = ""
    for at in range(1, count + 1):
        following = f"try_files $uri @r{at + 1};" if at < count else ""
        lines += f"location {'/' if at == 1 else f'@r{at}'} {{ root DIR/{at}; {following} }} "
    server = serve(CONF % ("", lines))
    for at in range(1, count + 1):
        root = server.directory / str(at)
        root.mkdir()
        (root / f"file{at}").write_text("here")
    assert config_test(server.conf, nginx.program).returncode == 0, "nginx -t sees nothing"
    answers = [ask(server, f"/file{at}")[0] for at in range(1, count + 1)]
    assert answers == [200] * (count - 1) + [200 if is_followed else 500]
    assert ask(server, "/none")[0] == (404 if is_followed else 500)
    assert ("rewrite or internal redirection cycle" in server.log()) is not is_followed
    assert fires("io-try-files-chain", server.conf) is not is_followed


@every_version
@each_row(
    ("lines", "fewest", "most"),
    [
        ("aio threads; sub_filter a b;", FILE_BYTES // BUFFER_BYTES, FILE_BYTES),
        ("aio threads; output_buffers 2 1m; sub_filter a b;", 1, 4),
        ("aio off; sub_filter a b;", 0, 0),
        ("aio threads;", 0, FILE_BYTES // BUFFER_BYTES // 2),
    ],
)
def test_io_threads_body_filter_makes_a_task_of_each_buffer(
    serve: Serve, nginx: Nginx, lines: str, fewest: int, most: int
) -> None:
    server = serve(
        "error_log DIR/error.log debug; "
        + CONF % ("sendfile on; default_type text/html;", f"location / {{ root DIR; {lines} }}")
    )
    (server.directory / "a").write_bytes(b"x" * FILE_BYTES)
    assert ask(server, "/a")[2].count(b"x") == FILE_BYTES
    assert fewest <= server.log().count("added to thread pool") <= most
    wants_finding = "aio threads" in lines and "sub_filter" in lines
    if "output_buffers" not in lines:
        assert fires("io-threads-body-filter", server.conf) is wants_finding
