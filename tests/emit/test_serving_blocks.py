"""How many small objects a real cache keeps: whole blocks of the file system, as reckoned."""

from __future__ import annotations

import contextlib
import http.client
import os
import stat
import subprocess
import time
from pathlib import Path

import pytest

from nginx_tune.model.cache_size import HEAD_BYTES, block_bytes, file_bytes, scanned_file_bytes

MEBIBYTE = 1 << 20
CONF = """\
user root; daemon off; pid {folder}/pid; error_log {folder}/error.log; worker_processes 1;
events {{}}
http {{
    access_log off; proxy_temp_path {folder}/t; client_body_temp_path {folder}/t1;
    fastcgi_temp_path {folder}/t2; uwsgi_temp_path {folder}/t3; scgi_temp_path {folder}/t4;
    proxy_cache_path {folder}/cache levels=1:2 keys_zone=c:10m max_size={most}m inactive=30d
                     manager_sleep=10ms manager_files=2000;
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://127.0.0.1:{port}/made; proxy_cache c; proxy_cache_valid 1h;
                      proxy_cache_key $request_uri; }}
        location /made {{ return 200 "{body}"; }}
    }}
}}
"""


@pytest.mark.needs("nginx", "root")
@pytest.mark.parametrize(("body_bytes", "most"), [(300, 2), (3400, 2), (3900, 4)])
def test_nginx_keeps_as_many_files_as_are_reckoned(
    tmp_path: Path, free_port: int, body_bytes: int, most: int
) -> None:
    """ngx_http_file_cache_update(): ``fs_size``, of files of 300 bytes a fourteenth."""
    body, conf = "x" * body_bytes, tmp_path / "nginx.conf"
    conf.write_text(CONF.format(folder=tmp_path, port=free_port, body=body, most=most))
    each = file_bytes(body_bytes, block_bytes("ext4"))
    expected = most * MEBIBYTE / each
    nginx = subprocess.Popen(["/usr/sbin/nginx", "-p", str(tmp_path), "-c", str(conf)])
    try:
        with contextlib.closing(connected(free_port)) as client:
            for number in range(int(expected * 1.5)):
                client.request("GET", f"/{number:029}")
                assert len(client.getresponse().read()) == body_bytes
        files: list[os.stat_result] = []
        for _ in range(300):  # the manager looks every ten seconds, and once more when it is full
            files = kept(tmp_path / "cache")
            if len(files) <= expected:
                break
            time.sleep(0.1)
    finally:
        nginx.terminate()
        nginx.wait()
    assert expected * 0.97 <= len(files) <= expected
    bytes_, allocated = sum(f.st_size for f in files), sum(f.st_blocks * 512 for f in files)
    assert 400 < bytes_ / len(files) - body_bytes <= HEAD_BYTES
    assert scanned_file_bytes(len(files), bytes_, allocated) == each
    assert scanned_file_bytes(len(files), bytes_, None) == each


def kept(cache: Path) -> list[os.stat_result]:
    """The files that are there; the manager may remove one at any moment."""
    found = []
    for one in cache.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            found.append(one.stat())
    return [one for one in found if stat.S_ISREG(one.st_mode)]


def connected(port: int) -> http.client.HTTPConnection:
    for _ in range(200):
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        try:
            client.connect()
        except OSError:
            client.close()
            time.sleep(0.02)
        else:
            return client
    raise AssertionError("nginx did not come")
