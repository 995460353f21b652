"""How many small objects a real cache keeps: whole blocks of the file system, as reckoned."""

import contextlib
import http.client
import os
import stat
import time
from pathlib import Path

import pytest
from started import serving

from nginx_tune.decide.cache_growth import HEAD_BYTES, block_bytes, file_bytes, scanned_file_bytes

MEBIBYTE = 1 << 20
CASES = [(300, 2), (3400, 2), (3900, 4)]
"""The bytes of an object, and the mebibytes that its cache may take."""
CONF = """\
user root; daemon off; pid {folder}/pid; error_log {folder}/error.log; worker_processes 1;
events {{}}
http {{
    access_log off; proxy_temp_path {folder}/t; client_body_temp_path {folder}/t1;
    fastcgi_temp_path {folder}/t2; uwsgi_temp_path {folder}/t3; scgi_temp_path {folder}/t4;
    proxy_cache_valid 1h; proxy_cache_key $request_uri;
    {caches}
    server {{ listen 127.0.0.1:{port}; {locations} }}
}}
"""
CACHE = """
    proxy_cache_path {folder}/{n} levels=1:2 keys_zone=c{n}:10m max_size={most}m inactive=30d
                     manager_sleep=10ms manager_files=2000;
"""
LOCATION = """
    location /{n}/ {{ proxy_pass http://127.0.0.1:{port}/made{n}; proxy_cache c{n}; }}
    location /made{n} {{ return 200 "{body}"; }}
"""


@pytest.mark.thorough
@pytest.mark.needs("nginx", "root")
def test_nginx_keeps_as_many_files_as_are_reckoned(tmp_path: Path, free_port: int) -> None:
    """ngx_http_file_cache_update(): ``fs_size``, of files of 300 bytes a fourteenth.

    The manager looks every ten seconds, so one nginx has all the caches.
    """
    caches, locations = "", ""
    for n, (body_bytes, most) in enumerate(CASES):
        caches += CACHE.format(folder=tmp_path, n=n, most=most)
        locations += LOCATION.format(n=n, port=free_port, body="x" * body_bytes)
    conf = tmp_path / "nginx.conf"
    conf.write_text(
        CONF.format(folder=tmp_path, port=free_port, caches=caches, locations=locations)
    )
    sizes = [file_bytes(body_bytes, block_bytes("ext4")) for body_bytes, _ in CASES]
    expected = [most * MEBIBYTE / each for (_, most), each in zip(CASES, sizes, strict=True)]
    with serving(["/usr/sbin/nginx", "-p", str(tmp_path), "-c", str(conf)], free_port):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", free_port)) as client:
            for n, (body_bytes, _) in enumerate(CASES):
                for number in range(int(expected[n] * 1.5)):
                    client.request("GET", f"/{n}/{number:027}")
                    assert len(client.getresponse().read()) == body_bytes
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            all_kept = [kept(tmp_path / f"{n}") for n in range(len(CASES))]
            if all(len(files) <= most for files, most in zip(all_kept, expected, strict=True)):
                break
            time.sleep(0.1)
    for (body_bytes, _), files, most, each in zip(CASES, all_kept, expected, sizes, strict=True):
        assert most * 0.97 <= len(files) <= most, body_bytes
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
