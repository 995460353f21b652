"""Well-known mistakes that nginx -t accepts, and what a real nginx makes of them."""

import contextlib
import json
import socket
import struct
import threading
import zlib
from collections.abc import Callable, Iterator

import psutil
import pytest
from nginx_versions import Nginx, every_version
from origin import Request, ok, run_origin
from proving import fires
from rows import each_row
from scratch_nginx import Server, config_test
from tiers import dice

from nginx_tune.audit.rule import linux

pytestmark = pytest.mark.needs("nginx", "root")

Serve = Callable[[str], Server]

REQUESTS = 4
CONF = "worker_processes 1; events {} http { %s server { listen 127.0.0.1:PORT; %s } }"


def ask(server: Server, path: str, *headers: str) -> tuple[int, dict[str, str], bytes]:
    """A request by itself: status, headers with small names, body."""
    with server.connect() as peer:
        lines = [f"GET {path} HTTP/1.1", "Host: x", "Connection: close", *headers, "", ""]
        peer.sendall("\r\n".join(lines).encode())
        data = b""
        while part := peer.recv(65536):
            data += part
    head, _, body = data.partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    pairs = (line.partition(":") for line in rest)
    return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in pairs}, body


@contextlib.contextmanager
def fastcgi() -> Iterator[tuple[int, list[bool]]]:
    """A FastCGI server; for each connection, whether nginx asked it to stay open."""
    kept: list[bool] = []

    def serve(peer: socket.socket) -> None:
        with peer:
            while head := peer.recv(8, socket.MSG_WAITALL):
                kind, number, length, padding = struct.unpack(">xBHHBx", head)
                body = peer.recv(length + padding, socket.MSG_WAITALL) if length + padding else b""
                if kind == 1:
                    kept.append(bool(body[2] & 1))
                if kind == 5 and not length:
                    text = b"Content-Type: text/plain\r\n\r\nhere"
                    peer.sendall(struct.pack(">BBHHBx", 1, 6, number, len(text), 0) + text)
                    peer.sendall(struct.pack(">BBHHBx", 1, 3, number, 8, 0) + bytes(8))
                    if not kept[-1]:
                        return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        connections: list[bool] = kept

        def accept() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(peer,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1], connections
        listener.shutdown(socket.SHUT_RDWR)


@every_version
@each_row("line", ["", "fastcgi_keep_conn on;"])
def test_up_fastcgi_keep_conn_asks_to_close(serve: Serve, nginx: Nginx, line: str) -> None:
    with fastcgi() as (port, kept):
        server = serve(
            CONF % (f"upstream u {{ server 127.0.0.1:{port}; keepalive 4; }}",
                    f"location / {{ fastcgi_pass u; {line} }}")
        )  # fmt: skip
        for _ in range(REQUESTS):
            assert ask(server, "/")[0] == 200
    assert kept == [bool(line)] * REQUESTS
    assert fires("up-fastcgi-keep-conn", server.conf) is not bool(line)


@every_version
@each_row(
    ("root", "inside", "status"),
    [
        ("", "expires 30d; gzip_static off;", 404),
        ("root DIR;", "expires 30d;", 200),
        ("", "proxy_pass http://PEER;", 200),
        ("error_page 404 =200 /there;", "expires 30d;", 200),
    ],
)
def test_px_assets_no_root_finds_no_file(
    serve: Serve, nginx: Nginx, root: str, inside: str, status: int
) -> None:
    with run_origin() as origin:
        text = f"{root} location / {{ proxy_pass http://PEER; }} location ~* \\.css$ {{ {inside} }}"
        server = serve(CONF % ("", text.replace("PEER", f"127.0.0.1:{origin.port}")))
        (server.directory / "a.css").write_text("a {}")
        assert ask(server, "/a")[0] == 200
        assert ask(server, "/a.css")[0] == status
    assert fires("px-assets-no-root", server.conf) is (status == 404)


@every_version
@each_row("by_variable", [False, True])
@each_row("is_named", [True, False])
def test_up_literal_no_keepalive_opens_a_connection_each(
    serve: Serve, nginx: Nginx, is_named: bool, by_variable: bool
) -> None:
    reuse = 'proxy_http_version 1.1; proxy_set_header Connection "";'
    with run_origin() as origin:
        peer = f"127.0.0.1:{origin.port}"
        named = "u" if is_named else peer
        to = "$to" if by_variable else named
        server = serve(
            CONF % (f"upstream u {{ server {peer}; keepalive 4; }}",
                    f"set $to {named}; location / {{ proxy_pass http://{to}; {reuse} }}")
        )  # fmt: skip
        for _ in range(REQUESTS):
            assert ask(server, "/")[0] == 200
        assert origin.connections == (1 if is_named else REQUESTS)
    far = server.conf.read_text().replace(peer, "10.0.0.1").replace("http://", "https://")
    server.conf.write_text(far)
    assert fires("up-literal-no-keepalive", server.conf, linux(version="1.30.6")) is not is_named
    assert fires("up-literal-no-keepalive", server.conf) is not (is_named or by_variable)


@every_version
@each_row("inner", ["", "add_header X-Part a;"])
def test_cn_add_header_lost_takes_the_outer_ones(serve: Serve, nginx: Nginx, inner: str) -> None:
    server = serve(
        CONF % ("add_header X-Content-Type-Options nosniff;",
                f"location / {{ return 200 a; {inner} }}")
    )  # fmt: skip
    assert ("x-content-type-options" in ask(server, "/")[1]) is not bool(inner)
    assert fires("cn-add-header-lost", server.conf) is bool(inner)


@every_version
@each_row("inner", ["", "proxy_set_header X-Part a;"])
def test_px_set_header_lost_takes_the_outer_ones(serve: Serve, nginx: Nginx, inner: str) -> None:
    with run_origin() as origin:
        server = serve(
            CONF % ("proxy_set_header Host outer.example;",
                    f"location / {{ proxy_pass http://127.0.0.1:{origin.port}; {inner} }}")
        )  # fmt: skip
        ask(server, "/")
        assert ("Host: outer.example" in origin.requests[0].head) is not bool(inner)
    assert fires("px-set-header-lost", server.conf) is bool(inner)


def _cached(port: int, lines: str) -> str:
    return CONF % (
        "proxy_cache_path DIR/cache keys_zone=c:1m;",
        (
            f"location / {{ proxy_pass http://127.0.0.1:{port}; proxy_cache c; "
            f"proxy_cache_valid 200 1m; {lines} }}"
        ),
    )


@every_version
@each_row(
    ("key", "is_shared"),
    [("$scheme$host$uri", True), ("$scheme$host$request_uri", False), ("$host$uri$args", False),
     ("$uri$cookie_x", True)],
)  # fmt: skip
def test_ca_key_without_args_gives_one_answer_to_all(
    serve: Serve, nginx: Nginx, key: str, is_shared: bool
) -> None:
    with run_origin(lambda request, _: ok(request.path.encode())) as origin:
        server = serve(_cached(origin.port, f"proxy_cache_key {key};"))
        answers = {ask(server, f"/a?page={number}")[2] for number in range(2)}
    assert (len(answers) == 1) is is_shared
    is_told = is_shared and "cookie" not in key
    assert fires("ca-key-without-args", server.conf) is is_told


@every_version
@each_row(
    ("lines", "is_shared"),
    [("", False), ("proxy_ignore_headers Set-Cookie;", True),
     ("proxy_ignore_headers Set-Cookie; proxy_hide_header Set-Cookie;", False)],
)  # fmt: skip
def test_ca_set_cookie_cached_gives_the_cookie_to_all(
    serve: Serve, nginx: Nginx, lines: str, is_shared: bool
) -> None:
    seen: list[Request] = []

    def answer(request: Request, _: socket.socket) -> bytes:
        seen.append(request)
        return ok(b"a", f"Set-Cookie: session={len(seen)}")

    with run_origin(answer) as origin:
        server = serve(_cached(origin.port, lines))
        cookies = [ask(server, "/")[1].get("set-cookie") for _ in range(2)]
    assert (cookies[0] == cookies[1] == "session=1") is is_shared
    assert fires("ca-set-cookie-cached", server.conf) is is_shared


@every_version
@each_row(
    ("lines", "is_shared"),
    [
        ("proxy_no_cache $upstream_http_set_cookie;", False),
        ("proxy_no_cache $sent_http_set_cookie;", False),
        ("proxy_no_cache $arg_a; proxy_no_cache $arg_b x$upstream_http_set_cookie;", False),
        (("proxy_no_cache $upstream_http_set_cookie; "
         "proxy_cache_bypass $upstream_http_set_cookie;"), False),
        ("proxy_no_cache $upstream_cookie_session;", False),
        ("proxy_no_cache $of;", False),
        ("proxy_no_cache $of_sent;", False),
        ("proxy_no_cache $of_of;", False),
        ("proxy_no_cache $fresh; proxy_cache_bypass $fresh;", False),
        ("proxy_no_cache 1;", False),
        ("proxy_no_cache $sent_http_set_cookie; proxy_cache_bypass $sent_http_set_cookie;", True),
        ("proxy_no_cache $of; proxy_cache_bypass $of;", True),
        ("proxy_no_cache $of; if ($of) { return 403; }", True),
        ("proxy_no_cache $of_sent; proxy_set_header X-A $of_sent;", True),
        ("set $early $upstream_http_set_cookie; proxy_no_cache $early;", True),
        ("proxy_no_cache $inverted;", True),
        ("proxy_no_cache $http_cookie $http_authorization;", True),
        ("proxy_cache_bypass $upstream_http_set_cookie;", True),
        ("proxy_no_cache 0;", True),
    ],
)  # fmt: skip
def test_ca_set_cookie_cached_knows_what_is_not_kept(
    serve: Serve, nginx: Nginx, lines: str, *, is_shared: bool
) -> None:
    seen: list[Request] = []

    def answer(request: Request, _: socket.socket) -> bytes:
        seen.append(request)
        return ok(b"a", f"Set-Cookie: session={len(seen)}")

    maps = (
        "map $upstream_http_set_cookie $of { '' 0; default 1; }"
        "map $sent_http_set_cookie $of_sent { '' ''; ~. yes; }"
        "map $of $of_of { default 0; 1 1; }"
        "map $upstream_http_set_cookie $fresh { volatile; '' 0; default 1; }"
        "map $upstream_http_set_cookie $inverted { '' 1; default 0; }"
    )
    with run_origin(answer) as origin:
        conf = _cached(origin.port, f"proxy_ignore_headers Set-Cookie; {lines}")
        server = serve(conf.replace("http {", f"http {{ {maps}", 1))
        cookies = [ask(server, "/")[1].get("set-cookie") for _ in range(2)]
    assert (cookies[0] == cookies[1] == "session=1") is is_shared
    assert fires("ca-set-cookie-cached", server.conf) is is_shared


@every_version
@each_row(
    ("lines", "is_leaked"),
    [("", True), ("proxy_cache_bypass $http_authorization;", True),
     ("proxy_no_cache $http_authorization; proxy_cache_bypass $http_authorization;", False),
     ("proxy_cache_key $uri$http_authorization;", False)],
)  # fmt: skip
def test_ca_authorization_cached_gives_one_user_s_answer_to_others(
    serve: Serve, nginx: Nginx, lines: str, is_leaked: bool
) -> None:
    def answer(request: Request, _: socket.socket) -> bytes:
        sent = [line for line in request.head.split("\r\n") if line.startswith("Authorization")]
        return ok((sent or ["nobody"])[0].encode())

    passed = "proxy_set_header Authorization $http_authorization;"
    with run_origin(answer) as origin:
        server = serve(_cached(origin.port, f"{passed} {lines}"))
        asked = ["Authorization: a"], []
        told = [ask(server, "/", *headers)[2] for headers in asked]
    assert told == [b"Authorization: a", b"Authorization: a" if is_leaked else b"nobody"]
    assert fires("ca-authorization-cached", server.conf) is is_leaked


@every_version
@each_row("burst", ["", " burst=20 nodelay"])
def test_lim_req_no_burst_refuses_the_second(serve: Serve, nginx: Nginx, burst: str) -> None:
    server = serve(
        CONF % ("limit_req_zone $binary_remote_addr zone=one:1m rate=1r/s;",
                f"location / {{ limit_req zone=one{burst}; root DIR; }}")
    )  # fmt: skip
    (server.directory / "a").write_text("a")
    said = [ask(server, "/a")[0] for _ in range(3)]
    assert said[0] == 200
    assert (503 in said) is not bool(burst)
    assert fires("lim-req-no-burst", server.conf) is not bool(burst)


@every_version
@each_row("types", ["text/css", "image/jpeg text/css"])
def test_gz_compressed_types_takes_the_length_and_saves_nothing(
    serve: Serve, nginx: Nginx, types: str
) -> None:
    server = serve(
        CONF % (f"gzip on; gzip_types {types};",
                "types { image/jpeg jpg; } location / { root DIR; }")
    )  # fmt: skip
    data = dice("a picture").randbytes(100_000)
    (server.directory / "a.jpg").write_bytes(data)
    _, headers, body = ask(server, "/a.jpg", "Accept-Encoding: gzip")
    is_told = "image" in types
    assert ("content-length" in headers) is not is_told
    assert ("accept-ranges" in headers) is not is_told
    assert len(body) >= len(data)
    assert fires("gz-compressed-types", server.conf) is is_told


def test_gz_level_high_costs_more_than_it_saves(serve: Serve, nginx: Nginx) -> None:
    server = serve(
        CONF % ("gzip on; gzip_types text/plain; types { text/plain txt; }",
                "".join(f"location /{n}/ {{ alias DIR/; gzip_comp_level {n}; }}" for n in (4, 9)))
    )  # fmt: skip
    draw = dice("a table")
    words = ["".join(draw.choices("abcdefghij", k=6)) for _ in range(300)]
    rows = [{"id": n, "name": draw.choice(words), "n": draw.randrange(99)} for n in range(20_000)]
    (server.directory / "a.txt").write_text(json.dumps(rows))
    spent, size = {}, {}
    (worker,) = server.workers()
    for level in (4, 9):
        before = psutil.Process(worker).cpu_times()
        for _ in range(3):
            _, _, body = ask(server, f"/{level}/a.txt", "Accept-Encoding: gzip", "X-A: b")
        after = psutil.Process(worker).cpu_times()
        spent[level], size[level] = after.user - before.user, len(body)
    assert spent[9] > 2 * spent[4]
    assert size[9] > 0.7 * size[4]
    assert fires("gz-level-high", server.conf)


@every_version
@each_row("mark", ["", " down"])
def test_up_all_down_is_answered_with_502(serve: Serve, nginx: Nginx, mark: str) -> None:
    with run_origin() as origin:
        server = serve(
            CONF % (f"upstream u {{ server 127.0.0.1:{origin.port}{mark}; }}",
                    "location / { proxy_pass http://u; }")
        )  # fmt: skip
        assert config_test(server.conf, nginx.program).returncode == 0, "nginx -t sees nothing"
        assert ask(server, "/")[0] == (502 if mark else 200)
    assert fires("up-all-down", server.conf) is bool(mark)


HELD_SECONDS = 1.0


@every_version
@each_row(
    ("lines", "is_held"),
    [
        ("gzip on; gzip_types text/event-stream;", True),
        ("gzip on; gzip_types text/css;", False),
        ("gzip on; gzip_types text/event-stream; proxy_buffering off;", False),
    ],
)
def test_px_event_stream_gzip_holds_events_back(
    serve: Serve, nginx: Nginx, lines: str, is_held: bool
) -> None:
    """Without gzip a chunked stream is passed on as it comes, though it is buffered."""
    done = threading.Event()

    def answer(_: Request, peer: socket.socket) -> None:
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked"
        peer.sendall(head.encode() + b"\r\n\r\nd\r\ndata: first\n\n\r\n")
        done.wait(60)
        peer.sendall(b"0\r\n\r\n")

    with run_origin(answer) as origin:
        server = serve(
            CONF % ("", (f"location / {{ proxy_pass http://127.0.0.1:{origin.port}; "
                    f"proxy_http_version 1.1; {lines} }}"))
        )  # fmt: skip
        with server.connect(timeout=HELD_SECONDS if is_held else 30) as peer:
            peer.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n")
            data = b""
            with contextlib.suppress(TimeoutError):
                while not _events(data) and (part := peer.recv(65536)):
                    data += part
        done.set()
    assert _events(data) is not is_held
    assert fires("px-event-stream-gzip", server.conf) is is_held


def _events(data: bytes) -> bool:
    """Whether the first event has come."""
    body = data.partition(b"\r\n\r\n")[2]
    if b"first" in body:
        return True
    inflater = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        return b"first" in inflater.decompress(b"".join(_chunks(body)))
    except zlib.error:
        return False


def _chunks(body: bytes) -> Iterator[bytes]:
    while b"\r\n" in body:
        size, _, body = body.partition(b"\r\n")
        count = int(size or b"0", 16)
        yield body[:count]
        body = body[count + 2 :]


@every_version
@each_row("line", ["", "default u;"])
def test_up_map_no_default_is_answered_with_500(serve: Serve, nginx: Nginx, line: str) -> None:
    with run_origin() as origin:
        server = serve(
            CONF % ((f"upstream u {{ server 127.0.0.1:{origin.port}; }} "
                    f"map $host $pool {{ {line} a.example u; }}"),
                    "location / { proxy_pass http://$pool; }")
        )  # fmt: skip
        assert config_test(server.conf, nginx.program).returncode == 0, "nginx -t sees nothing"
        assert ask(server, "/")[0] == (200 if line else 500)
    assert fires("up-map-no-default", server.conf) is not bool(line)


@every_version
@each_row(
    ("location", "asked", "is_reached"),
    [
        ("/a?b=1", "/a?b=1", False),
        ("a", "/a", False),
        ("/a%20b", "/a%20b", False),
        ('"/a b"', "/a%20b", True),
        ("/a//b", "/a//b", False),
        ("/a/b", "/a//b", True),
        ("= /a", "/a?b=1", True),
        ("~ /c { return 200; } location ~ /c", "/c", False),
        ("//a", "//a", False),
        ("/*.gif", "/a.gif", False),
        ("/api/*", "/api/a", False),
        ("= /a$", "/a", False),
        (r"^~ ^(/a\.gif)$", "/a.gif", False),
        (r"/a\.gif", "/a.gif", False),
        ("/(a|b)", "/a", False),
        (r"~ ^/(a|b)\.gif$", "/a.gif", True),
        ("/./a", "/./a", False),
        ("/a/../b", "/a/../b", False),
        ("^~ /a/./b", "/a/%2e/b", False),
        ("= /a/.", "/a/.", False),
        ("= /a/..", "/a/..", False),
        ("/a/.", "/a/.b", True),
        ("/a/..", "/a/..b", True),
        ("/a/...", "/a/...", True),
        ("/.well-known/", "/.well-known/", True),
        ("/z { rewrite ^ //dbl last; } location //dbl", "/z", True),
        ("/z { rewrite ^ /./dot last; } location /./dot", "/z", True),
        ("/z { root /nonexistent; try_files $uri //dbl; } location //dbl", "/z", True),
    ],
)
def test_cn_location_unreachable_answers_nothing(
    serve: Serve, nginx: Nginx, location: str, asked: str, is_reached: bool
) -> None:
    server = serve(
        CONF % ("", f"location / {{ return 204; }} location {location} {{ return 205; }}")
    )
    assert (ask(server, asked)[0] == 205) is is_reached
    assert fires("cn-location-unreachable", server.conf) is not is_reached


@every_version
@each_row("line", ["", "location @b { return 204; }"])
def test_cf_named_location_missing_is_answered_with_500(
    serve: Serve, nginx: Nginx, line: str
) -> None:
    server = serve(CONF % ("", f"location / {{ root DIR; try_files $uri @b; }} {line}"))
    assert config_test(server.conf, nginx.program).returncode == 0, "nginx -t sees nothing"
    assert ask(server, "/none")[0] == (204 if line else 500)
    assert ("could not find named location" in server.log()) is not bool(line)
    assert fires("cf-named-location-missing", server.conf, linux()) is not bool(line)


@every_version
@each_row("is_itself", [True, False])
def test_up_proxies_to_itself_runs_out_of_connections(
    serve: Serve, nginx: Nginx, is_itself: bool
) -> None:
    with run_origin() as origin:
        port = "PORT" if is_itself else str(origin.port)
        server = serve(
            "worker_processes 1; events { worker_connections 64; } http { server { "
            f"listen 127.0.0.1:PORT; location / {{ proxy_pass http://127.0.0.1:{port}; }} }} }}"
        )
        assert config_test(server.conf, nginx.program).returncode == 0, "nginx -t sees nothing"
        assert ask(server, "/")[0] == (502 if is_itself else 200)
    assert ("worker_connections are not enough" in server.log()) is is_itself
    assert fires("up-proxies-to-itself", server.conf) is is_itself
