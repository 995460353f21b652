"""The reads of a cached file for a hit: its header first, then its body.

    python benchmarks/cache_reads.py [--nginx BIN]

The first read of a file since nginx started fills a buffer of ``proxy_buffer_size``, whose default
is a page of memory: the length of the header is not known. Later hits read the header alone. Each
file has 64 KiB and is cached by an nginx that then ends; strace shows the reads of two hits of the
next one. Needs strace. Source: src/http/ngx_http_file_cache.c, ngx_http_file_cache_read and
ngx_http_file_cache_exists (``body_start``).
"""

import argparse
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BUFFERS = ("4k", "8k", "32k")
BODY_BYTES = 65536
CONF = """\
daemon off; master_process off; pid {top}/pid; error_log {top}/error.log;
events {{}}
http {{
    access_log off; sendfile on; proxy_temp_path {top}/temp;
    proxy_cache_path {top}/cache keys_zone=c:1m use_temp_path=off;
    server {{ listen unix:{top}/origin.sock; root {top}; }}
    server {{
        listen unix:{top}/cache.sock;
        location / {{
            proxy_pass http://unix:{top}/origin.sock; proxy_cache c; proxy_cache_valid 1h;
            proxy_buffer_size {buffer}; proxy_buffers 8 {buffer};
        }}
    }}
}}
"""
_CALL = re.compile(r"(pread64|read|sendfile)\(.* = ([0-9]+)$")


def ask(top: Path) -> None:
    """Request the file through the cache, to the last byte."""
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(str(top / "cache.sock"))
        asked.sendall(b"GET /file HTTP/1.0\r\n\r\n")
        got = b"".join(iter(lambda: asked.recv(1 << 20), b""))
    if len(got.partition(b"\r\n\r\n")[2]) != BODY_BYTES:
        raise SystemExit(f"an answer was cut: {got[:80]!r}")


@contextmanager
def serving(nginx: str, top: Path) -> Iterator[int]:
    """A running nginx: its process id."""
    with subprocess.Popen([nginx, "-c", str(top / "nginx.conf")], stderr=subprocess.PIPE) as server:
        try:
            while not (top / "pid").exists() and server.poll() is None:
                time.sleep(0.05)
            yield server.pid
        finally:
            server.terminate()
    for name in ("origin.sock", "cache.sock"):
        (top / name).unlink(missing_ok=True)


def reads_of_hits(nginx: str, top: Path, buffer: str) -> tuple[list[str], list[str]]:
    """The calls that read the cached file for the first hit and for the second, with bytes."""
    (top / "file").write_bytes(bytes(BODY_BYTES))
    (top / "nginx.conf").write_text(CONF.format(top=top, buffer=buffer))
    with serving(nginx, top):
        ask(top)
    (kept,) = (one for one in (top / "cache").iterdir() if one.is_file())
    with serving(nginx, top) as pid:
        return traced(top, pid, kept), traced(top, pid, kept)


def traced(top: Path, pid: int, kept: Path) -> list[str]:
    """The calls that read a cached file for one request."""
    command = ["strace", "-f", "-p", str(pid), "-P", str(kept), "-o", str(top / "calls")]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as tracer:
        if tracer.stderr is None or b"attached" not in tracer.stderr.readline():
            raise SystemExit("strace cannot attach to nginx")
        ask(top)
        tracer.terminate()
    found = map(_CALL.search, (top / "calls").read_text().splitlines())
    return [f"{one[1]} {int(one[2]):,}" for one in found if one]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nginx", default="nginx")
    asked = parser.parse_args()
    print("| proxy_buffer_size | first hit | next hit |\n|---|---|---|")
    for buffer in BUFFERS:
        with tempfile.TemporaryDirectory() as top:
            hits = reads_of_hits(asked.nginx, Path(top), buffer)
        print(f"| {buffer} | {' | '.join(', '.join(calls) for calls in hits)} |")


if __name__ == "__main__":
    main()
