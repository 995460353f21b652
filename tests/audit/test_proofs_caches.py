"""The claims of the rules about buffering and caches, shown on real versions of nginx."""

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from msgspec.structs import replace
from needs import lacks
from nginx_versions import Nginx, every_version
from origin import Request, ok, run_origin
from proving import fires, severity, system_calls
from rows import each_row
from scratch_nginx import Serve, Server
from started import reload, until
from tiers import dice

from nginx_tune.audit.rule import linux
from nginx_tune.documents.facts import Dataset, PathStorage, Storage

pytestmark = pytest.mark.needs("nginx", "root")

LARGE_BYTES = 32 << 20


def _cached(location: str, *, http: str = "", path: str = "max_size=1g") -> str:
    return (
        f"worker_processes 1; events {{}} http {{ {http}"
        f" proxy_cache_path DIR/cache keys_zone=c:1m {path};"
        " server { listen 127.0.0.1:PORT; location / { proxy_pass http://ORIGIN;"
        f" proxy_cache c; {location} }} }} }}"
    )


def _files(server: Server) -> list[Path]:
    found = (server.directory / "cache").rglob("*")
    return [path for path in found if path.is_file()]


def _ask(server: Server, path: str = "/", *headers: str) -> tuple[int, bytes, bytes]:
    """Status, head and body."""
    lines = [f"GET {path} HTTP/1.1", "Connection: close", *(headers or ["Host: x"]), "", ""]
    with server.connect() as peer:
        peer.sendall("\r\n".join(lines).encode())
        head, _, body = b"".join(iter(lambda: peer.recv(1 << 20), b"")).partition(b"\r\n\r\n")
    return int(head.split()[1]), head, body


@every_version
@each_row(("buffering", "is_held"), [("proxy_buffering off;", True), ("", False)])
def test_px_buffering_off_global_holds_the_server_for_a_slow_client(
    serve: Serve, buffering: str, is_held: bool
) -> None:
    sent = threading.Event()

    def answer(request: Request, peer: socket.socket) -> bytes:
        peer.sendall(ok(bytes(LARGE_BYTES)))
        sent.set()
        return b""

    with run_origin(answer) as origin:
        passed = f"proxy_pass http://127.0.0.1:{origin.port};"
        other = f"proxy_pass http://127.0.0.2:{origin.port};"
        server = serve(
            f"worker_processes 1; events {{}} http {{ {buffering} server {{"
            f" listen 127.0.0.1:PORT; location / {{ {passed} }} location /b/ {{ {other} }} }} }}"
        )
        with server.connect() as client:  # which does not read
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert sent.wait(0.5 if is_held else 20) is not is_held
    assert fires("px-buffering-off-global", server.conf) is is_held


@every_version
@each_row(("buffering", "is_stored"), [("off", False), ("on", True)])
def test_px_cache_unbuffered_stores_nothing(serve: Serve, buffering: str, is_stored: bool) -> None:
    with run_origin() as origin:
        conf = _cached(f"proxy_cache_valid 1h; proxy_buffering {buffering};")
        server = serve(conf.replace("ORIGIN", f"127.0.0.1:{origin.port}"))
        for _ in range(3):
            assert server.get("/").is_whole
        assert len(origin.requests) == (1 if is_stored else 3)
        assert len(_files(server)) == is_stored
    assert fires("px-cache-unbuffered", server.conf) is not is_stored


@pytest.mark.needs("strace")
@every_version
@each_row(("option", "is_copied"), [("", True), ("use_temp_path=off", False)])
def test_ca_temp_other_fs_copies(serve: Serve, option: str, is_copied: bool) -> None:
    with TemporaryDirectory(dir="/dev/shm") as temp, run_origin() as origin:
        conf = _cached(
            "proxy_cache_valid 1h;", http=f"proxy_temp_path {temp};", path=f"max_size=1g {option}"
        )
        server = serve(conf.replace("ORIGIN", f"127.0.0.1:{origin.port}"))
        if Path(temp).stat().st_dev == server.directory.stat().st_dev:
            lacks("disk", "the temporary directory is in memory too")
        with system_calls(server, "rename") as calls:
            assert server.get("/").is_whole
        assert any("EXDEV" in call for call in calls) is is_copied
        assert len(_files(server)) == 1
        cache = str(server.directory / "cache")
        paths = [
            PathStorage(path=cache, mount_point="/"),
            PathStorage(path=temp, mount_point="/dev/shm"),
        ]
        host = replace(linux(), storage=Storage(paths=paths))
        assert fires("ca-temp-other-fs", server.conf, host) is is_copied


@every_version
def test_ca_no_max_size_grows_until_something_else_ends_it(serve: Serve, nginx: Nginx) -> None:
    """The cache manager looks at once when it starts: after a reload."""
    size = 64 << 10
    with run_origin(lambda _request, _peer: ok(bytes(size))) as origin:
        conf = _cached("proxy_cache_valid 1h;", path="use_temp_path=off")
        server = serve(conf.replace("ORIGIN", f"127.0.0.1:{origin.port}"))
        for n in range(40):
            assert server.get(f"/{n}").is_whole
    assert len(_files(server)) == 40
    _reload(server)
    time.sleep(0.2)
    assert len(_files(server)) == 40
    assert fires("ca-no-max-size", server.conf)
    server.conf.write_text(
        server.conf.read_text().replace("use_temp_path=off", "use_temp_path=off max_size=1m")
    )
    _reload(server)
    until(lambda: len(_files(server)) * size < 1 << 20)
    assert not fires("ca-no-max-size", server.conf)


def _reload(server: Server) -> None:
    reload(server.process.pid)


@every_version
@each_row(("zone", "is_small"), [("24k", True), ("1m", False)])
def test_ca_keys_zone_small_deletes_what_there_is_room_for(
    serve: Serve, zone: str, is_small: bool
) -> None:
    asked = 300
    with run_origin() as origin:
        conf = _cached("proxy_cache_valid 1h;").replace("c:1m", f"c:{zone}")
        server = serve(conf.replace("ORIGIN", f"127.0.0.1:{origin.port}"))
        for n in range(asked):
            server.get(f"/{n}")
    kept = len(_files(server))
    assert (kept < asked) is is_small
    files = 1000
    cached = Dataset(path=str(server.directory / "cache"), files=files, bytes=files * (1 << 20))
    assert fires("ca-keys-zone-small", server.conf, replace(linux(), datasets=[cached])) is is_small


@every_version
@each_row(("lock", "fetched"), [("", 5), ("proxy_cache_lock on;", 1)])
def test_ca_stampede_fetches_for_each_client(serve: Serve, lock: str, fetched: int) -> None:
    everybody = threading.Event()

    def answer(request: Request, peer: socket.socket) -> bytes:
        if len(origin.requests) == fetched:
            everybody.set()
        everybody.wait(30)
        time.sleep(0.2)  # for those that the lock lets wait
        return ok()

    with run_origin(answer) as origin, ThreadPoolExecutor(5) as clients:
        conf = _cached(f"proxy_cache_valid 1h; {lock}")
        server = serve(conf.replace("ORIGIN", f"127.0.0.1:{origin.port}"))
        assert all(reply.is_whole for reply in clients.map(lambda _n: server.get("/"), range(5)))
        assert len(origin.requests) == fetched
    assert fires("ca-stampede", server.conf) is (fetched > 1)


WHILE = "max-age=1, stale-while-revalidate=60"
UPDATES = [
    ("max-age=1", "", b"EXPIRED"),
    ("max-age=1", "proxy_cache_use_stale updating;", b"STALE"),
    (WHILE, "", b"STALE"),
    (WHILE, "proxy_ignore_headers Cache-Control; proxy_cache_valid 1s;", b"EXPIRED"),
]
"""What the server says, what the location says, and how an old entry is asked for."""


@every_version
def test_ca_bg_update_inert_lets_the_client_wait(serve: Serve) -> None:
    def answer(request: Request, peer: socket.socket) -> bytes:
        return ok(b"x", f"Cache-Control: {UPDATES[int(request.path[1:])][0]}")

    with run_origin(answer) as origin:
        locations = "".join(
            f"location /{n} {{ proxy_pass http://127.0.0.1:{origin.port}; {directives} }}"
            for n, (_, directives, _) in enumerate(UPDATES)
        )
        server = serve(
            "worker_processes 1; events {} http { proxy_cache_path DIR/cache keys_zone=c:1m"
            " max_size=1g; proxy_cache c; proxy_cache_background_update on;"
            " add_header X $upstream_cache_status; server { listen 127.0.0.1:PORT;"
            f" {locations} }} }}"
        )
        old: dict[int, bytes] = {}

        def are_old() -> bool:
            for n in set(range(len(UPDATES))) - set(old):
                status = _ask(server, f"/{n}")[1].partition(b"\r\nX: ")[2].split()[0]
                if status not in {b"HIT", b"MISS"}:
                    old[n] = status
            return len(old) == len(UPDATES)

        until(are_old)
    assert [old[n] for n in range(len(UPDATES))] == [status for *_, status in UPDATES]
    conf = server.conf.read_text()
    for n, (_, directives, _) in enumerate(UPDATES):
        location = f"location / {{ proxy_pass http://a; {directives} }}"
        server.conf.write_text(conf.replace(locations, location))
        fault = "warning" if "ignore" in directives else None if directives else "advice"
        assert severity("ca-bg-update-inert", server.conf) == fault, n


SLICED = """
worker_processes 1;
events {{}}
http {{
    proxy_cache_path DIR/cache keys_zone=c:1m max_size=1g;
    server {{ listen 127.0.0.1:PORT; root DIR/www; }}
    server {{ listen 127.0.0.1:PORT; server_name sliced; location / {{
        proxy_pass http://127.0.0.1:PORT;
        proxy_cache c;
        slice 256k;
        {}
    }} }}
}}
"""
KEY = "proxy_cache_key $uri$slice_range;"
KEY_OF_SET = "proxy_cache_key $uri$part;"
RANGE = "proxy_set_header Range $slice_range;"
VALID = "proxy_cache_valid 200 206 1h;"
SLICES = 4
FILE = dice("a file in slices").randbytes((SLICES - 1) * (256 << 10) + 1000)


@every_version
@each_row(
    ("directives", "is_right", "kept", "fault"),
    [
        (KEY + RANGE + VALID, True, len(FILE), None),
        (RANGE + VALID, False, 256 << 10, "error"),
        (f"set $part $slice_range; {KEY_OF_SET}" + RANGE + VALID, False, 3 * (256 << 10), "error"),
        (KEY + VALID, True, 3 * len(FILE), "warning"),
        (VALID, True, len(FILE), "advice"),
        (KEY + RANGE + "proxy_cache_valid 1h;", True, 0, "advice"),
    ],
)
def test_ca_slice_incomplete_answers_wrong_bytes_or_keeps_copies(
    serve: Serve, directives: str, is_right: bool, kept: int, fault: str | None
) -> None:
    server = serve(SLICED.format(directives))
    www = server.directory / "www"
    www.mkdir()
    (www / "f").write_bytes(FILE)
    parts = [[], [], ["Range: bytes=300000-300009"], ["Range: bytes=600000-600009"]]
    got = [_ask(server, "/f", "Host: sliced", *part)[2] for part in parts]
    assert (got == [FILE, FILE, FILE[300_000:300_010], FILE[600_000:600_010]]) is is_right
    stored = sum(path.stat().st_size for path in _files(server))
    assert kept <= stored <= kept + 10_000
    assert severity("ca-slice-incomplete", server.conf) == fault
