"""The claims of rules, shown on a real nginx."""

import contextlib
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from importlib import import_module
from pathlib import Path

import pytest
from needs import lacks
from nginx_versions import Nginx, every_version
from rows import each_row
from scratch_nginx import Reply, Server, config_test, read_reply, write_conf
from started import until

from nginx_tune.audit.engine import audit
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import linux
from nginx_tune.conf.tree import read_tree
from nginx_tune.documents.facts import ErrorLog, Facts
from nginx_tune.host.live import LiveHost
from nginx_tune.observe.inspect.live_facts import read_error_log

pytestmark = pytest.mark.needs("nginx", "root")

Serve = Callable[[str], Server]

STALL_SECONDS = 2.0
HELD_POLLS = 5
FILE_BYTES = 3_000_000
SMALL_BYTES = 1000
"""One sendfile() sends it, so that it is held once."""


def _fires(rule: str, conf: Path, facts: Facts | None = None) -> bool:
    found = audit(read_tree(str(conf), LiveHost()), facts)
    return rule in {one.rule for one in found.findings}


def _file(directory: Path, name: str, size: int = FILE_BYTES) -> None:
    path = directory / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(bytes(size))


def test_every_proven_rule_has_a_proof_here() -> None:
    sources = [path.read_text() for path in Path(__file__).parent.glob("test_*proofs*.py")]
    found = re.findall(r"^def test_(\w+)\(", "".join(sources), re.MULTILINE)
    proofs = {name.replace("_", "-") for name in found}
    proven = {rule.id for rule in ALL if rule.proof == "proven"}
    assert {rule for rule in proven if not any(name.startswith(rule) for name in proofs)} == set()


def _versions_of_proofs() -> dict[str, set[str]]:
    """The series of nginx that the proofs of each rule run on."""
    found: dict[str, set[str]] = {}
    ids = sorted((rule.id for rule in ALL), key=len, reverse=True)
    for path in Path(__file__).parent.glob("test_*proofs*.py"):
        for name, proof in vars(import_module(path.stem)).items():
            proven = name.removeprefix("test_").replace("_", "-")
            rule = next((one for one in ids if proven.startswith(one)), None)
            if rule is None or not name.startswith("test_"):
                continue
            series = [
                getattr(one, "values", (one,))[0]
                for mark in getattr(proof, "pytestmark", ())
                if mark.name == "parametrize" and mark.args[0] == "nginx"
                for one in mark.args[1]
            ]
            found.setdefault(rule, set()).update(series or ["1.22"])
    return found


def test_rules_name_only_versions_that_their_proofs_run_on() -> None:
    proofs = _versions_of_proofs()
    for rule in ALL:
        named = {".".join(one.split(".")[:2]) for one in rule.proven_on}
        assert named <= proofs.get(rule.id, set()), rule.id
        assert not named or rule.proof == "proven", rule.id


@every_version
def test_io_pool_var_unresolved_answers_200_without_the_body(serve: Serve, nginx: Nginx) -> None:
    server = serve(
        """
        thread_pool pool_a threads=2;
        events {}
        http {
            sendfile on;
            map $uri $disk { ~zz zz; default a; }
            server { listen 127.0.0.1:PORT; location / { root DIR; aio threads=pool_$disk; } }
        }
        """
    )
    _file(server.directory, "a")
    _file(server.directory, "zz")
    assert config_test(server.conf, nginx.program).returncode == 0, "nginx -t sees nothing"
    assert server.get("/a").is_whole
    reply = server.get("/zz")
    assert reply.status in {0, 200}  # 0: the connection is closed before any header
    assert not reply.is_whole
    assert 'thread pool "pool_zz" not found' in server.log()
    assert _fires("io-pool-var-unresolved", server.conf)


@every_version
def test_io_pool_literal_unknown_does_not_start(nginx: Nginx, tmp_path: Path) -> None:
    location = "location / { root /srv; aio threads%s; }"
    conf = "events {} http { server { listen 127.0.0.1:1; " + location + " } }"
    refused = config_test(write_conf(tmp_path, conf % "=nope"), nginx.program)
    assert refused.returncode == 1
    assert 'unknown thread pool "nope"' in refused.stderr
    assert _fires("io-pool-literal-unknown", tmp_path / "nginx.conf")
    assert config_test(write_conf(tmp_path, conf % ""), nginx.program).returncode == 0
    assert not _fires("io-pool-literal-unknown", tmp_path / "nginx.conf")


@every_version
def test_io_pool_overflow_seen_counts_broken_responses(serve: Serve) -> None:
    server = serve(
        """
        error_log DIR/error.log;
        worker_processes 1;
        thread_pool tiny threads=1 max_queue=0;
        events {}
        http {
            sendfile on;
            server {
                listen 127.0.0.1:PORT;
                error_log DIR/server.log;
                location / { root DIR; aio threads=tiny; }
            }
        }
        """
    )
    _file(server.directory, "a")
    broken = 0
    with ThreadPoolExecutor(32) as clients:
        for _ in range(20):
            replies = list(clients.map(lambda _n: server.get("/a"), range(32)))
            broken += sum(not reply.is_whole for reply in replies)
            if broken:
                break
    log = read_error_log(str(server.directory / "error.log"))
    assert log.pool_overflow == {"tiny": broken}
    assert broken > 0
    assert "overflow" not in (server.directory / "server.log").read_text()
    facts = Facts(error_logs=[log])
    assert _fires("io-pool-overflow-seen", server.conf, facts)
    clean = Facts(error_logs=[ErrorLog(path=log.path)])
    assert not _fires("io-pool-overflow-seen", server.conf, clean)


@every_version
@each_row(("aio", "is_queued"), [("aio threads", True), ("aio off", False)])
def test_io_pool_cached_dataset_queues_page_cache_hits(
    serve: Serve, nginx: Nginx, aio: str, is_queued: bool
) -> None:
    server = serve(
        f"""
        error_log DIR/error.log debug;
        events {{}}
        http {{ sendfile on; {aio}; server {{ listen 127.0.0.1:PORT; root DIR; }} }}
        """
    )
    if "--with-debug" not in nginx.build:
        lacks("debian-build", "this nginx writes no debug log")
    _file(server.directory, "a")  # just written: in the page cache
    for _ in range(2):
        assert server.get("/a").is_whole
    assert ("added to thread pool" in server.log()) is is_queued
    facts = linux(datasets={str(server.directory): (1, 1.0)})
    assert _fires("io-pool-cached-dataset", server.conf, facts) is is_queued


@every_version
@each_row(
    ("chunk", "bytes_"),
    [("sendfile_max_chunk 0;", FILE_BYTES), ("sendfile_max_chunk 512k;", 512 << 10), ("", None)],
)
def test_io_chunk_unlimited_asks_for_the_whole_file_at_once(
    serve: Serve, nginx: Nginx, chunk: str, bytes_: int | None
) -> None:
    """One call may be as long as the file; nginx 1.21.4 and later limit it by themselves."""
    server = serve(
        f"""
        error_log DIR/error.log debug;
        events {{}}
        http {{ sendfile on; {chunk} server {{ listen 127.0.0.1:PORT; root DIR; }} }}
        """
    )
    if "--with-debug" not in nginx.build:
        lacks("debian-build", "this nginx writes no debug log")
    largest = bytes_ or (2 << 20 if nginx.number >= (1, 21, 4) else FILE_BYTES)
    _file(server.directory, "a")
    assert server.get("/a").is_whole
    asked = [int(size) for size in re.findall(r"sendfile: @\d+ (\d+)", server.log())]
    assert max(asked) == largest
    facts = linux(version=nginx.version)
    assert _fires("io-chunk-unlimited", server.conf, facts) is (largest == FILE_BYTES)


@every_version
@each_row(("option", "strands"), [("reuseport", True), ("", False)])
def test_ls_reuseport_blocking_strands_connections(
    serve: Serve, option: str, strands: bool
) -> None:
    """One of two workers does not come back to its loop, as while it waits for a disk."""
    server = serve(
        f"""
        worker_processes 2;
        events {{}}
        http {{ server {{ listen 127.0.0.1:PORT {option}; location / {{ return 200; }} }} }}
        """
    )
    blocked = server.workers()[0]
    subprocess.run(["kill", "-STOP", str(blocked)], check=True)
    peers = [server.connect() for _ in range(40)]
    for peer in peers:
        peer.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    with ThreadPoolExecutor(len(peers)) as readers:
        answers = [readers.submit(read_reply, peer) for peer in peers]
        done, waiting = wait(answers, timeout=2 if strands else 20)
        assert bool(waiting) is strands
        assert done, "the other worker answers its own"
        subprocess.run(["kill", "-CONT", str(blocked)], check=True)
        assert {answer.result(20).status for answer in answers} == {200}
    for peer in peers:
        peer.close()


@contextlib.contextmanager
def _slow_file(server: Server, path: Path) -> Iterator[None]:
    """Each sendfile() of one file takes as long as a disk that stalls."""
    (worker,) = server.workers()
    inject = f"inject=sendfile:delay_enter={int(STALL_SECONDS * 1e6)}"
    with subprocess.Popen(
        ["strace", "-f", "-p", str(worker), "-P", path, "-e", "trace=sendfile", "-e", inject],
        stderr=subprocess.PIPE,
        text=True,
    ) as tracer:
        assert tracer.stderr is not None
        assert "attached" in tracer.stderr.readline()
        try:
            yield
        finally:
            tracer.terminate()


def _overtakes(server: Server, slow: str, quick: str) -> bool:
    """Whether an answer that needs no slow disk comes while the one asked for first is held."""
    with ThreadPoolExecutor(2) as clients:
        first = clients.submit(server.get, slow)
        _await_stall(server)
        second = clients.submit(server.get, quick)
        wait([second])
        overtook = _is_stalled(server)
        assert _is_ok(first.result(), second.result())
    return overtook


def _await_stall(server: Server) -> None:
    until(lambda: _is_stalled(server))


def _is_stalled(server: Server) -> bool:
    """Whether a thread is held for longer than the moment that tracing a call takes."""
    for _ in range(HELD_POLLS):
        if not _is_held(server):
            return False
        time.sleep(0.01)
    return True


def _is_held(server: Server) -> bool:
    """Whether the tracer holds a thread of the worker."""
    (worker,) = server.workers()
    stats = [path.read_text() for path in Path(f"/proc/{worker}/task").glob("*/stat")]
    return any(stat.rpartition(")")[2].split()[0] == "t" for stat in stats)


def _is_ok(*replies: Reply) -> bool:
    return all(reply.is_whole for reply in replies)


@pytest.mark.needs("strace")
@each_row(("aio", "is_held_up"), [("", True), ("aio threads;", False)])
def test_io_no_pool_cold_dataset_holds_up_answers_from_memory(
    serve: Serve, aio: str, is_held_up: bool
) -> None:
    server = serve(
        f"""
        worker_processes 1;
        events {{}}
        http {{ sendfile on; server {{
            listen 127.0.0.1:PORT;
            location / {{ root DIR; {aio} }}
            location = /memory {{ return 200 "here"; }}
        }} }}
        """
    )
    _file(server.directory, "cold", SMALL_BYTES)
    with _slow_file(server, server.directory / "cold"):
        assert _overtakes(server, "/cold", "/memory") is not is_held_up
    facts = linux(datasets={str(server.directory): (256, 0.1)})
    assert _fires("io-no-pool-cold-dataset", server.conf, facts) is is_held_up


@pytest.mark.needs("strace")
@each_row("pools", [1, 2])
def test_io_pool_single_many_disks_holds_up_the_healthy_disk(serve: Serve, pools: int) -> None:
    server = serve(
        f"""
        worker_processes 1;
        thread_pool pool_1 threads=1;
        thread_pool pool_2 threads=1;
        events {{}}
        http {{ sendfile on; server {{
            listen 127.0.0.1:PORT;
            location /disk1/ {{ root DIR; aio threads=pool_1; }}
            location /disk2/ {{ root DIR; aio threads=pool_{pools}; }}
        }} }}
        """
    )
    _file(server.directory, "disk1/a", SMALL_BYTES)
    _file(server.directory, "disk2/a", SMALL_BYTES)
    with _slow_file(server, server.directory / "disk1" / "a"):
        assert _overtakes(server, "/disk1/a", "/disk2/a") is (pools == 2)
    at = str(server.directory)
    facts = linux(disks={f"{at}/disk1": ("sdb", "hdd"), f"{at}/disk2": ("sdc", "hdd")})
    assert _fires("io-pool-single-many-disks", server.conf, facts) is (pools == 1)
