"""Calls of open() by main threads: what the kernel's lines say, and those of a real nginx."""

import http.client
import os
from collections import Counter
from pathlib import Path

import pytest
from rows import each_row

from nginx_tune.nginx.instance import start_instance
from nginx_tune.observe.parse_turns import NameCalls, OpenReader
from nginx_tune.observe.tracefs import OpenTracer, start_open_tracing

LINES = """\
           nginx-4711    [001] .....  9075.000001: sys_openat -> 0x5
           nginx-4711    [001] .....  9075.000010: sys_openat(dfd: ffffff9c, filename: 55d0, flags: 800)
           nginx-4711    [001] .....  9075.000025: sys_openat -> 0x6
           nginx-4711    [000] .....  9075.100000: sys_open(filename: 55d0, flags: 800, mode: 0)
           nginx-4712    ( 4712) [001] ...1.  9075.100100: sys_openat2(dfd: ffffff9c, filename: 55d0)
           nginx-4711    [000] .....  9075.130000: sys_open -> 0xfffffffffffffffe
           nginx-4712    ( 4712) [001] ...1.  9075.100101: sys_openat2 -> 0x7
           nginx-4711    [000] .....  9075.200000: sys_openat(dfd: ffffff9c, filename: 55d0)
           nginx-4711    [000] .....  9075.200001: sys_close(fd: 5)
          noise sys_openat(
""".splitlines()  # noqa: E501  # as they are


def test_calls_are_counted_with_their_time() -> None:
    reader = OpenReader()
    reader.read(LINES[:6])
    reader.read(LINES[6:])
    calls = reader.finish(9_075_250_000_000)
    assert calls.opens == Counter({15_000: 1, 30_000_000: 1, 1_000: 1, 50_000_000: 1}), (
        "one is still under way"
    )
    assert not calls.renames
    assert reader.lost == 0
    reader.read(["CPU:1 [LOST 512 EVENTS]", "CPU:0 [LOST 3 EVENTS]"])
    assert reader.lost == 515


READS = """\
 nginx-4711 [000] ..... 1.000010: block_bio_queue: 7,0 R 4096 + 8 [nginx]
 nginx-4711 [000] ..... 2.000000: sys_openat(dfd: ffffff9c, filename: 55d0, flags: 800)
 nginx-4711 [000] ..... 2.000010: block_bio_queue: 7,0 RM 4096 + 8 [nginx]
 nginx-4712 [001] ..... 2.000011: block_bio_queue: 7,0 R 8192 + 8 [nginx]
 nginx-4711 [000] ..... 2.000012: block_bio_queue: 7,0 WS 16 + 8 [nginx]
 nginx-4711 [000] ..... 2.000013: block_bio_queue: 7,0 RM 5120 + 8 [nginx]
 nginx-4711 [000] ..... 2.000014: block_bio_queue: 7,0 RAM 5128 + 8 [nginx]
 nginx-4711 [000] ..... 2.000020: sys_openat -> 0x6
 nginx-4711 [000] ..... 2.000030: block_bio_queue: 7,0 R 9000 + 8 [nginx]
 nginx-4711 [000] ..... 2.000040: sys_rename(oldname: 55d0, newname: 55e0)
 nginx-4711 [000] ..... 2.000045: block_bio_queue: 7,0 RM 9000 + 8 [nginx]
 nginx-4711 [000] ..... 2.000090: sys_rename -> 0x0
 nginx-4711 [000] ..... 2.000100: sys_openat(dfd: ffffff9c, filename: 55d0, flags: 800)
 nginx-4711 [000] ..... 2.000101: sys_openat -> 0x6
""".splitlines()


def test_reads_are_those_that_the_open_asked_for_itself() -> None:
    reader = OpenReader()
    reader.read(READS)
    calls = reader.finish(3_000_000_000)
    assert calls.open_reads == Counter({2: 1, 0: 1})
    assert calls.renames == Counter({50_000: 1})
    assert reader.finish(3_000_000_000, has_reads=False).open_reads is None


CONF = """\
worker_processes 1;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
events {{ worker_connections 64; }}
http {{
    access_log off;
    server {{
        listen 127.0.0.1:{port};
        location /plain/ {{ alias {directory}/; }}
        location /kept/ {{ alias {directory}/; open_file_cache max=8; }}
    }}
}}
"""


@pytest.mark.alone  # as in test_real_tracing.py
@pytest.mark.needs("root", "nginx", "tracefs")
@each_row(("path", "opens"), [("/plain/file", 40), ("/kept/file", 1)])
def test_each_open_of_a_worker_is_counted_and_nothing_else(
    tmp_path: Path, free_port: int, path: str, opens: int
) -> None:
    for directory in (tmp_path, *tmp_path.parents):
        if directory.stat().st_uid == os.geteuid() and directory.is_relative_to("/tmp"):
            directory.chmod(directory.stat().st_mode | 0o755)
    (tmp_path / "file").write_bytes(b"x" * 5000)
    conf = tmp_path / "nginx.conf"
    conf.write_text(CONF.format(directory=tmp_path, port=free_port))
    instance = start_instance(
        "nginx", conf, stderr_path=tmp_path / "stderr", address=("127.0.0.1", free_port)
    )
    try:
        tracer = start_open_tracing(instance.workers())
        assert isinstance(tracer, OpenTracer), tracer
        tracer.start()
        for _ in range(40):
            connection = http.client.HTTPConnection("127.0.0.1", free_port, timeout=20)
            connection.request("GET", path)
            assert len(connection.getresponse().read()) == 5000
            connection.close()
        (tmp_path / "file").read_bytes()  # somebody else's
        calls = tracer.finish()
    finally:
        instance.stop()
    assert isinstance(calls, NameCalls), calls
    assert calls.opens.total() == opens
    assert min(calls.opens) >= 0
    assert calls.open_reads is None or calls.open_reads.total() == opens
