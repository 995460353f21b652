"""The claims of the rules about limits, shown on real versions of nginx."""

import os
import re
import struct
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from busy import HELD_SECONDS, ask, status_of, transfers
from nginx_versions import Nginx, every_version
from proving import fires
from rows import each_row
from scratch_nginx import Serve, Server, config_test
from started import until

from nginx_tune.audit.rule import linux
from nginx_tune.documents.facts import Cpu, Facts, Kernel
from nginx_tune.host.kernel import read_limits
from nginx_tune.host.live import LiveHost
from nginx_tune.observe.inspect.live_facts import read_error_log

pytestmark = pytest.mark.needs("nginx", "root")

ONLINE = os.sysconf("SC_NPROCESSORS_ONLN")
CONNECTION_BYTES = 432

SLOW = """
{main}
events {{ worker_connections {connections}; }}
http {{ {http} server {{
    listen 127.0.0.1:PORT {listen};
    root DIR;
    location /slow {{ limit_rate 1k; {location} }}
    location = /here {{ return 200 here; }}
}} }}
"""


def _slow(
    main: str, connections: int, *, http: str = "", listen: str = "", location: str = ""
) -> str:
    return SLOW.format(
        main=main, connections=connections, http=http, listen=listen, location=location
    )


def _files(directory: Path) -> None:
    (directory / "slow").write_bytes(bytes(100_000))


def _worker_limit(server: Server) -> str:
    limits = Path(f"/proc/{server.workers()[0]}/limits").read_text()
    match = re.search(r"Max open files\s+(\S+)", limits)
    assert match is not None
    return match[1]


@every_version
@each_row(("nofile", "is_enough"), [(40, False), (120, True)])
def test_lim_nofile_lt_2x_answers_500(
    serve: Serve, tmp_path: Path, nofile: int, *, is_enough: bool
) -> None:
    _files(tmp_path)
    server = serve(
        _slow(f"worker_processes 1; worker_rlimit_nofile {nofile};", 40), directory=tmp_path
    )
    patience = 30 if is_enough else HELD_SECONDS
    with transfers(server, ["/slow"] * 25, patience) as statuses:
        assert (set(statuses) == {200}) is is_enough
        assert 200 in statuses
    assert ("24: Too many open files" in server.log()) is not is_enough
    assert fires("lim-nofile-lt-2x", server.conf) is not is_enough


@every_version
def test_lim_conn_exceeds_rlimit_leaves_clients_waiting(serve: Serve) -> None:
    server = serve(_slow("worker_processes 1; worker_rlimit_nofile 20;", 1000))
    idle = [server.connect() for _ in range(30)]
    late = ask(server, "/here", HELD_SECONDS)
    assert status_of(late) is None, "nobody accepts it, though 1000 connections are allowed"
    assert "accept4() failed (24: Too many open files)" in server.log()
    for peer in [*idle, late]:
        peer.close()
    assert fires("lim-conn-exceeds-rlimit", server.conf)
    assert not fires("lim-nofile-lt-2x", server.conf), "one finding is enough"


@every_version
@each_row(("wanted", "gets"), [(4096, "64"), (60, "60")])
def test_lim_nofile_not_raisable_keeps_the_old_limit(serve: Serve, wanted: int, gets: str) -> None:
    server = serve(
        _slow(f"worker_processes 1; worker_rlimit_nofile {wanted};", 30),
        under=("prlimit", "--nofile=64:64", "setpriv", "--bounding-set=-sys_resource"),
    )
    until(lambda: _worker_limit(server) == gets)
    is_refused = wanted > 64
    failed = f"setrlimit(RLIMIT_NOFILE, {wanted}) failed (1: Operation not permitted)"
    until(lambda: (failed in server.log()) is is_refused)
    limits, _ = read_limits(LiveHost(), process=str(server.process.pid))
    assert (limits.nofile_hard, limits.can_raise) == (64, False)
    facts = Facts(kernel=Kernel(system="Linux"), limits=limits)
    assert fires("lim-nofile-not-raisable", server.conf, facts) is is_refused


def _resident_bytes(server: Server) -> int:
    status = Path(f"/proc/{server.workers()[0]}/status").read_text()
    match = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(match[1]) * 1024 if match else 0


@every_version
def test_lim_conn_memory_is_taken_at_start(serve: Serve) -> None:
    few = serve(_slow("worker_processes 1;", 512))
    assert few.get("/here").status == 200, "the worker is ready"
    assert not fires("lim-conn-memory", few.conf, linux(memory_limit_mib=64))
    base = _resident_bytes(few)
    many = serve(_slow("worker_processes 1;", 200_512))
    assert many.get("/here").status == 200
    grown = _resident_bytes(many) - base
    assert grown == pytest.approx(200_000 * CONNECTION_BYTES, rel=0.1)
    assert fires("lim-conn-memory", many.conf, linux(memory_limit_mib=64))


@every_version
def test_lim_conn_exhausted_seen_counts_resets(serve: Serve, tmp_path: Path) -> None:
    _files(tmp_path)
    server = serve(
        _slow(f"worker_processes 1; worker_rlimit_nofile 200; error_log {tmp_path}/error.log;", 32),
        directory=tmp_path,
    )
    with transfers(server, ["/slow"] * 40) as statuses:
        refused = statuses.count(None)
    assert refused >= 8
    log = read_error_log(str(tmp_path / "error.log"))
    assert log.connections_exhausted == {"32": refused}
    assert fires("lim-conn-exhausted-seen", server.conf, Facts(error_logs=[log]))
    raised = server.conf.read_text().replace("connections 32", "connections 64")
    server.conf.write_text(raised)
    assert not fires("lim-conn-exhausted-seen", server.conf, Facts(error_logs=[log]))


@every_version
@each_row(("main", "count"), [("", 1), ("worker_processes 3;", 3)])
def test_lim_workers_one_is_the_default(serve: Serve, main: str, count: int) -> None:
    server = serve(_slow(main, 512))
    until(lambda: len(server.workers()) == count)
    assert fires("lim-workers-one", server.conf, linux(cpus=8)) is (count == 1)


@every_version
def test_lim_workers_none_connects_and_never_answers(serve: Serve, nginx: Nginx) -> None:
    server = serve(_slow("worker_processes 0;", 512), has_workers=False)
    assert config_test(server.conf, nginx.program, under=("unshare", "--net")).returncode == 0
    with server.connect() as client:
        client.settimeout(0.5)
        client.sendall(b"GET /here HTTP/1.0\r\n\r\n")
        with pytest.raises(TimeoutError):
            client.recv(1)
    server.process.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        server.process.wait(0.5)
    server.process.kill()
    assert "[emerg]" not in server.log()
    assert fires("lim-workers-none", server.conf)
    server.conf.write_text(f"master_process off;\n{server.conf.read_text()}")
    assert not fires("lim-workers-none", server.conf)


@every_version
@pytest.mark.needs("cpus")
def test_lim_workers_cgroup_auto_counts_all_cpus(serve: Serve) -> None:
    server = serve(_slow("worker_processes auto;", 512), under=("taskset", "-c", "0"))
    until(lambda: len(server.workers()) == ONLINE)
    allowed = re.search(
        r"Cpus_allowed_list:\s+(\S+)", Path(f"/proc/{server.workers()[0]}/status").read_text()
    )
    assert allowed is not None
    assert allowed[1] == "0"
    facts = linux(cpus=max(ONLINE, 3), effective_cpus=1.0)  # one more than CPUs is no finding
    assert fires("lim-workers-cgroup", server.conf, facts)


def _pinned(server: Server) -> list[str]:
    lists = []
    for worker in server.workers():
        status = Path(f"/proc/{worker}/status").read_text()
        match = re.search(r"Cpus_allowed_list:\s+(\S+)", status)
        assert match is not None
        lists.append(match[1])
    return lists


@every_version
@pytest.mark.needs("cpus")
@each_row(
    ("masks", "pinned", "is_right"),
    [("01 10", {"0": 1, "1": 3}, False), ("01 10 01 10", {"0": 2, "1": 2}, True)],
)
def test_lim_affinity_mismatch_repeats_the_last_mask(
    serve: Serve, masks: str, pinned: dict[str, int], *, is_right: bool
) -> None:
    server = serve(_slow(f"worker_processes 4; worker_cpu_affinity {masks};", 512))
    until(lambda: Counter(_pinned(server)) == pinned)
    facts = Facts(kernel=Kernel(system="Linux"), cpu=Cpu(online=ONLINE))
    assert fires("lim-affinity-mismatch", server.conf, facts) is not is_right


@every_version
@each_row(("size", "is_enough"), [("32k", False), ("1m", True)])
def test_lim_zone_too_small_refuses_keys_it_has_no_room_for(
    serve: Serve, tmp_path: Path, size: str, *, is_enough: bool
) -> None:
    _files(tmp_path)
    server = serve(
        _slow(
            "worker_processes 1; worker_rlimit_nofile 4096;",
            1024,
            http=f"limit_conn_zone $arg_key zone=keys:{size};",
            location="limit_conn keys 1;",
        ),
        directory=tmp_path,
    )
    with transfers(server, [f"/slow?key={n:08}" for n in range(400)]) as statuses:
        assert (statuses.count(503) == 0) is is_enough
        assert set(statuses) <= {200, 503}
    assert fires("lim-zone-too-small", server.conf) is not is_enough


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _streams(path: str, count: int) -> bytes:
    """An HTTP/2 connection with that many requests (RFC 9113, RFC 7541)."""
    name = path.encode()
    headers = b"\x82\x86\x41\x01x\x44" + bytes([len(name)]) + name
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, b"")
    return preface + b"".join(_frame(1, 5, 2 * n + 1, headers) for n in range(count))


@every_version
def test_lim_conn_h2_counts_streams(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "slow").write_bytes(bytes(1_000_000))
    server = serve(
        _slow(
            "worker_processes 1;",
            512,
            http="limit_conn_zone $binary_remote_addr zone=addresses:1m;"
            " log_format status $status; access_log DIR/access.log status;",
            listen="http2",
            location="limit_conn addresses 7;",
        ),
        directory=tmp_path,
    )
    with server.connect() as peer:
        peer.sendall(_streams("/slow", 12))
        log = tmp_path / "access.log"
        until(lambda: log.exists() and log.read_text().split() == ["503"] * 5)
    until(lambda: Counter(log.read_text().split()) == {"503": 5, "200": 7})
    assert fires("lim-conn-h2", server.conf)
    server.conf.write_text(server.conf.read_text().replace("addresses 7;", "addresses 100;"))
    assert not fires("lim-conn-h2", server.conf)
