"""The claims of the rules about reading, opening and sending files, shown on real versions."""

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace
from needs import lacks
from nginx_versions import Nginx, every_version, versions
from proving import fires
from rows import each_row
from scratch_nginx import Serve, Server, config_test, write_conf
from started import until

from nginx_tune.audit.rule import linux
from nginx_tune.conf.tree import read_tree
from nginx_tune.documents.facts import Facts, Kernel
from nginx_tune.documents.facts import Nginx as NginxFacts
from nginx_tune.host.live import LiveHost
from nginx_tune.observe.inspect.live_facts import gather_live_facts

pytestmark = pytest.mark.needs("nginx", "root")

FILE_BYTES = 3_000_000


def _file(directory: Path, name: str, size: int = FILE_BYTES) -> Path:
    path = directory / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(bytes(size))
    return path


def _threads(server: Server) -> int:
    return len(list(Path(f"/proc/{server.workers()[0]}/task").iterdir()))


@every_version
@each_row(("aio", "is_used"), [("", False), ("aio threads=media;", True)])
def test_io_pool_unused_starts_threads_for_nothing(
    serve: Serve, tmp_path: Path, aio: str, *, is_used: bool
) -> None:
    _file(tmp_path, "a")
    server = serve(
        f"""
        error_log DIR/error.log debug;
        worker_processes 1;
        thread_pool media threads=7;
        events {{}}
        http {{ sendfile on; server {{ listen 127.0.0.1:PORT; root DIR; {aio} }} }}
        """,
        directory=tmp_path,
    )
    assert server.get("/a").is_whole
    assert _threads(server) == 8
    assert ("added to thread pool" in server.log()) is is_used
    assert fires("io-pool-unused", server.conf) is not is_used


@every_version
@each_row(("queue", "is_enough"), [("max_queue=1", False), ("", True)])
def test_io_pool_queue_small_breaks_responses(
    serve: Serve, tmp_path: Path, queue: str, *, is_enough: bool
) -> None:
    _file(tmp_path, "a")
    server = serve(
        f"""
        worker_processes 1;
        thread_pool tiny threads=1 {queue};
        events {{}}
        http {{ sendfile on; server {{ listen 127.0.0.1:PORT; root DIR; aio threads=tiny; }} }}
        """,
        directory=tmp_path,
    )
    broken = 0
    with ThreadPoolExecutor(32) as clients:
        for _ in range(1 if is_enough else 20):
            replies = list(clients.map(lambda _: server.get("/a"), range(64)))
            broken += sum(not reply.is_whole for reply in replies)
            if broken:
                break
    assert (broken == 0) is is_enough
    assert fires("io-pool-queue-small", server.conf) is not is_enough


@every_version
def test_io_aio_on_not_built_does_not_start(nginx: Nginx, tmp_path: Path) -> None:
    if "--with-file-aio" in nginx.build:
        lacks("debian-build", "this nginx has file AIO")
    _refuses_aio(nginx, tmp_path, "on", "unsupported on this platform")


def _refuses_aio(nginx: Nginx, tmp_path: Path, kind: str, says: str) -> None:
    location = f"location / {{ root /srv; aio {kind}; }}"
    conf = write_conf(tmp_path, f"events {{}} http {{ server {{ {location} }} }}")
    refused = config_test(conf, nginx.program)
    assert refused.returncode == 1
    assert says in refused.stderr
    flags = [word for word in nginx.build.split() if word.startswith("--")]
    told = NginxFacts(version=nginx.version, nginx_version=nginx.version, flags=flags)
    facts = Facts(kernel=Kernel(system="Linux"), nginx=told)
    assert fires("io-aio-on-not-built", conf, facts)


UPSTREAM = """
error_log DIR/error.log debug;
worker_processes 1;
events {{}}
http {{
    server {{ listen unix:DIR/app.sock; root DIR; }}
    server {{
        listen 127.0.0.1:PORT;
        location / {{ proxy_pass http://unix:DIR/app.sock; aio_write on; {aio} }}
    }}
}}
"""


@every_version
@each_row(("aio", "is_offloaded"), [("", False), ("aio threads;", True)])
def test_io_aio_write_noop_writes_in_the_event_loop(
    serve: Serve, tmp_path: Path, aio: str, *, is_offloaded: bool
) -> None:
    _file(tmp_path, "a", 20_000_000)
    server = serve(UPSTREAM.format(aio=aio), directory=tmp_path)
    with server.connect() as peer:  # reads nothing, so that the response goes to a file
        peer.sendall(b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        until(lambda: "buffered to a temporary file" in server.log())
    assert ("thread write chain" in server.log()) is is_offloaded
    assert fires("io-aio-write-noop", server.conf) is not is_offloaded


def _split(parts: str) -> str:
    return (
        "events {} http { split_clients $uri $disk { " + parts + " }"
        " server { listen 127.0.0.1:PORT; location / { root DIR/disk$disk; } } }"
    )


NAMES = [f"f{number}" for number in range(40)]


def _found(server: Server, directory: Path, *disks: str) -> set[int]:
    for disk in disks:
        for name in NAMES:
            _file(directory, f"disk{disk}/{name}", 10)
    return {server.get(f"/{name}").status for name in NAMES}


@every_version
@each_row(("last", "statuses"), [("33.3%", {200, 404}), ("*", {200})])
def test_io_split_no_default_loses_some_files(
    serve: Serve, tmp_path: Path, last: str, statuses: set[int]
) -> None:
    server = serve(_split(f"33.3% 1; {last} 2;"), directory=tmp_path)
    assert _found(server, tmp_path, "1", "2") == statuses
    assert fires("io-split-no-default", server.conf) is (404 in statuses)


@every_version
@each_row("disks", [("1",), ("1", "2")])
def test_io_split_disk_missing_loses_its_part(
    serve: Serve, tmp_path: Path, disks: tuple[str, ...]
) -> None:
    server = serve(_split("50% 1; * 2;"), directory=tmp_path)
    is_missing = len(disks) == 1
    assert _found(server, tmp_path, *disks) == ({200, 404} if is_missing else {200})
    host = LiveHost()
    live = gather_live_facts(host, read_tree(str(server.conf), host))
    absent = [one.path for one in live.datasets if one.reason == "no such directory"]
    assert absent == ([f"{tmp_path}/disk2"] if is_missing else [])
    apart = linux(disks={f"{tmp_path}/disk1": ("sdb", "hdd"), f"{tmp_path}/disk2": ("sdc", "hdd")})
    facts = replace(apart, datasets=live.datasets)
    assert fires("io-split-disk-missing", server.conf, facts) is is_missing


CACHED = """
{main}
events {{ worker_connections 30; }}
http {{ server {{
    listen 127.0.0.1:PORT;
    root DIR;
    open_file_cache max={files} inactive=1h;
    open_file_cache_valid {valid};
}} }}
"""


@every_version
@each_row(("valid", "is_stale"), [("1h", True), ("1s", False)])
def test_io_open_cache_inplace_sends_the_old_size(
    serve: Serve, tmp_path: Path, valid: str, *, is_stale: bool
) -> None:
    grows, shrinks = _file(tmp_path, "grows", 1000), _file(tmp_path, "shrinks", 1000)
    server = serve(
        CACHED.format(main="worker_processes 1;", files=10, valid=valid), directory=tmp_path
    )
    for name in ("grows", "shrinks"):
        assert server.get(f"/{name}").is_whole
    with grows.open("r+b") as file:
        file.truncate(2000)
    with shrinks.open("r+b") as file:
        file.truncate(400)
    if not is_stale:
        time.sleep(2.1)  # the cached clock of nginx counts whole seconds
    assert server.get("/grows").received == (1000 if is_stale else 2000)
    assert server.get("/shrinks").is_whole is not is_stale
    assert fires("io-open-cache-inplace", server.conf) is is_stale


@every_version
@each_row(("nofile", "is_enough"), [(70, False), (400, True)])
def test_io_open_cache_fd_budget_fails_to_open(
    serve: Serve, tmp_path: Path, nofile: int, *, is_enough: bool
) -> None:
    for number in range(100):
        _file(tmp_path, f"f{number}", 10)
    server = serve(
        CACHED.format(
            main=f"worker_processes 1; worker_rlimit_nofile {nofile};", files=300, valid="60s"
        ),
        directory=tmp_path,
    )
    statuses = {server.get(f"/f{number}").status for number in range(50)}
    assert statuses == {200}
    late = {server.get(f"/f{number}").status for number in range(50, 100)}
    assert (late == {200}) is is_enough
    assert ("24: Too many open files" in server.log()) is not is_enough
    assert fires("io-open-cache-fd-budget", server.conf) is not is_enough


@every_version
@each_row(("sendfile", "is_copied"), [("", True), ("sendfile on;", False)])
def test_io_sendfile_off_static_copies_files_through_buffers(
    serve: Serve, tmp_path: Path, sendfile: str, *, is_copied: bool
) -> None:
    _file(tmp_path, "a")
    server = serve(
        f"""
        error_log DIR/error.log debug;
        events {{}}
        http {{ {sendfile} server {{ listen 127.0.0.1:PORT; root DIR; }} }}
        """,
        directory=tmp_path,
    )
    assert server.get("/a").is_whole
    pieces = server.log().count("read: ")
    assert ("sendfile: @" in server.log()) is not is_copied
    assert (pieces >= FILE_BYTES // 32_768) is is_copied
    facts = linux(disks={str(tmp_path): ("vda", "ssd")})
    assert fires("io-sendfile-off-static", server.conf, facts) is is_copied


@pytest.mark.needs("strace")
@versions("1.18", "1.22", "1.30")
@each_row(("aio", "is_held_up"), [("", True), ("aio threads;", False)])
def test_io_directio_no_aio_reads_from_the_disk_each_time(
    serve: Serve, tmp_path: Path, aio: str, *, is_held_up: bool
) -> None:
    """Each read is made by the worker itself, or by a thread of the pool; the cache has no part."""
    path = _file(tmp_path, "a", 1 << 20)
    server = serve(
        f"""
        worker_processes 1;
        events {{}}
        http {{ sendfile on; server {{
            listen 127.0.0.1:PORT; root DIR; directio 512k; {aio}
        }} }}
        """,
        directory=tmp_path,
    )
    (worker,) = server.workers()
    for _ in range(2):
        with subprocess.Popen(
            ["strace", "-f", "-p", str(worker), "-P", path, "-e", "trace=pread64,sendfile"],
            stderr=subprocess.PIPE,
            text=True,
        ) as tracer:
            assert tracer.stderr is not None
            assert "attached" in tracer.stderr.readline()
            assert server.get("/a").is_whole
            tracer.terminate()
            calls = [line for line in tracer.stderr if "pread64(" in line or "sendfile(" in line]
        assert len(calls) >= (1 << 20) // 32_768, "small reads, every time again"
        assert not any("sendfile(" in call for call in calls)
        makers = {call.split("]")[0].split()[-1] for call in calls if call.startswith("[pid")}
        assert (str(worker) in makers or not makers) is is_held_up
    assert fires("io-directio-no-aio", server.conf) is is_held_up
