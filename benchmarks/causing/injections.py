"""The injections, and the causes that observe must name for each."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from causing.bench import NAMES, NGINX_CPU, Bench, Limits, evict
from causing.peers import DeafListener, NameServer, Upstream
from nginx_tune.nginx.lab.disks import run_tool

ROOT = Path(__file__).resolve().parents[2]
MODULES = Path("/usr/share/nginx/modules")


class Skipped(Exception):  # noqa: N818  # not an error: this machine lacks something
    """The reason why an injection is impossible here."""


class Injection(NamedTuple):
    name: str
    act: Callable[[Bench], int]
    """Sets it up in the environment; returns the master's process id."""
    causes: tuple[str, ...]
    """Causes of which any is right as the first one."""
    words: tuple[str, ...] = ()
    """Words of which one must be in its text."""
    beside: tuple[str, ...] = ()
    """Other true causes, which may follow."""
    options: tuple[str, ...] = ()


def cold_disk(bench: Bench) -> int:
    disk = bench.disks["data"]
    limits = Limits(disk)
    limits.reads(4 << 20)
    evict(disk.mount)
    instance = bench.nginx(f"location /files/ {{ alias {disk.mount}/; }}", limits=limits)
    bench.clients(["/files/{n}"], threads=4, names=160)
    bench.clients(["/memory"], pause=0.01, keepalive=True)
    return instance.pid


def disk_stall(bench: Bench) -> int:
    disk = bench.disks["data"]
    limits = Limits(disk)
    limits.reads()
    evict(disk.mount)
    instance = bench.nginx(f"location /files/ {{ alias {disk.mount}/; }}", limits=limits)

    def stall() -> None:
        limits.reads(1000)
        time.sleep(0.25)
        limits.reads()
        time.sleep(0.75)

    bench.clients(["/files/{n}"], threads=2, names=160, pause=0.1)
    bench.clients(["/memory"], pause=0.01, keepalive=True)
    bench.meanwhile(stall)
    return instance.pid


def gzip(bench: Bench) -> int:
    (bench.directory / "text").write_bytes(b"%s\n" % os.urandom(1 << 16).hex().encode() * 160)
    instance = bench.nginx(
        "location = /text { gzip on; gzip_comp_level 9; default_type text/html; }"
    )
    bench.clients(["/text"], threads=2, gzip=True)
    bench.clients(["/memory"], pause=0.02, keepalive=True)
    return instance.pid


def lua(bench: Bench) -> int:
    if not (MODULES / "ngx_http_lua_module.so").exists():
        raise Skipped("libnginx-mod-http-lua is not installed")
    loop = "local s = 0; for i = 1, 60000000 do s = (s * 31 + i) % 1000003 end; ngx.say(s)"
    instance = bench.nginx(
        f"location = /lua {{ content_by_lua_block {{ {loop} }} }}",
        main=f"worker_processes 1; load_module {MODULES}/ndk_http_module.so;"
        f" load_module {MODULES}/ngx_http_lua_module.so;",
    )
    bench.clients(["/lua"], threads=1, pause=0.2)
    bench.clients(["/memory"], pause=0.02, keepalive=True)
    return instance.pid


def perl(bench: Bench) -> int:
    return _perl(bench, "my $s = 0; for my $i (1..3000000) { $s = ($s * 31 + $i) % 1000003; }")


def sleeping_perl(bench: Bench) -> int:
    return _perl(bench, "select(undef, undef, undef, 0.2);")


def _perl(bench: Bench, work: str) -> int:
    if not (MODULES / "ngx_http_perl_module.so").exists():
        raise Skipped("libnginx-mod-http-perl is not installed")
    body = f"sub {{ my $r = shift; {work} $r->send_http_header; $r->print(1); return OK; }}"
    instance = bench.nginx(
        f"location = /perl {{ perl '{body}'; }}",
        main=f"worker_processes 1; load_module {MODULES}/ngx_http_perl_module.so;",
    )
    bench.clients(["/perl"], threads=1, pause=0.2)
    bench.clients(["/memory"], pause=0.02, keepalive=True)
    return instance.pid


def tls_handshakes(bench: Bench) -> int:
    key, certificate = bench.directory / "key", bench.directory / "certificate"
    run_tool(
        "openssl", "req", "-x509", "-newkey", "rsa:4096", "-nodes", "-days", "2", "-subj",
        "/CN=localhost", "-keyout", str(key), "-out", str(certificate),
    )  # fmt: skip
    instance = bench.nginx(
        "", listen="ssl",
        http=f"ssl_certificate {certificate}; ssl_certificate_key {key}; ssl_session_tickets off;",
    )  # fmt: skip
    for _ in range(4):
        bench.clients(["/memory"], threads=8, tls=True)
    return instance.pid


def many_requests(bench: Bench) -> int:
    # Each request becomes four, so that the probe is not the first to run out of CPU time.
    hops = " ".join(
        f"location = {at} {{ proxy_pass http://127.0.0.1:{bench.port}{to}; }}"
        for at, to in (("/many", "/b"), ("/b", "/c"), ("/c", "/memory"))
    )
    instance = bench.nginx(hops, http="keepalive_requests 100000;", connections=2048)
    url = f"http://127.0.0.1:{bench.port}/many"
    process = subprocess.Popen(
        [sys.executable, "-m", "nginx_tune", "probe", url, "--connections", "32", "--duration",
         "60s", "--allow-live"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT,
    )  # fmt: skip

    def end() -> None:
        process.kill()
        process.wait()

    bench.stack.callback(end)
    time.sleep(1.5)
    if process.poll() is not None:
        raise Skipped("the load probe does not start: is it built?")
    return instance.pid


def listen_overflow(bench: Bench) -> int:
    instance = bench.nginx("", listen="backlog=8")
    bench.clients([], kind="burst", connections=300, pause=0.3, cpus=NGINX_CPU)
    return instance.pid


def connections_used_up(bench: Bench) -> int:
    """Idle connections take all slots, are closed to make room, and are opened again."""
    instance = bench.nginx("", connections=20)
    bench.clients(["/memory"], threads=40, pause=0.05, keepalive=True)
    return instance.pid


def descriptors_used_up(bench: Bench) -> int:
    """Descriptors run out before slots: a served file takes one more than its connection."""
    instance = bench.nginx("", main="worker_processes 1; worker_rlimit_nofile 24;", connections=200)
    bench.clients(["/index.html"], threads=40, pause=0.05, keepalive=True)
    return instance.pid


def refused_upstream(bench: Bench) -> int:
    """An upstream without a listener."""
    gone = Upstream(0.0)
    gone.close()
    instance = bench.nginx(f"location /app {{ proxy_pass http://127.0.0.1:{gone.port}; }}")
    bench.clients(["/app"], threads=6, pause=0.05)
    bench.clients(["/memory"], pause=0.02, keepalive=True)
    return instance.pid


def refusing_limit(bench: Bench) -> int:
    """All clients share one key, and send a hundred times as many requests as it allows."""
    instance = bench.nginx(
        "location = /index.html { limit_req zone=few; }",
        http="limit_req_zone $server_port zone=few:1m rate=5r/s;",
    )
    bench.clients(["/index.html"], threads=6, pause=0.02, keepalive=True)
    return instance.pid


def slow_upstream(bench: Bench) -> int:
    upstream = Upstream(0.4)
    bench.stack.callback(upstream.close)
    instance = bench.nginx(f"location /app {{ proxy_pass http://127.0.0.1:{upstream.port}; }}")
    bench.clients(["/app"], threads=6, pause=0.05)
    bench.clients(["/memory"], pause=0.02, keepalive=True)
    return instance.pid


def deaf_upstream(bench: Bench) -> int:
    deaf = DeafListener()
    bench.stack.callback(deaf.close)
    instance = bench.nginx(
        f"location /app {{ proxy_connect_timeout 3s; proxy_pass http://127.0.0.1:{deaf.port}; }}"
    )
    bench.clients(["/app"], threads=4, pause=0.05)
    bench.clients(["/memory"], pause=0.02, keepalive=True)
    return instance.pid


def slow_resolver(bench: Bench) -> int:
    upstream, names = Upstream(0.0), NameServer(0.6)
    bench.stack.callback(upstream.close)
    bench.stack.callback(names.close)
    instance = bench.nginx(
        f"location ~ ^/app/(?<n>[0-9]+) {{ resolver 127.0.0.1:{names.port} ipv6=off;"
        f" proxy_pass http://n$n.example.test:{upstream.port}; }}"
    )
    bench.clients(["/app/{n}"], threads=6, pause=0.05)
    bench.clients(["/memory"], pause=0.02, keepalive=True)
    return instance.pid


def blocked_log(bench: Bench) -> int:
    disk = bench.disks["logs"]
    limits = Limits(disk)
    limits.writes(40)
    instance = bench.nginx(
        f"location = /logged {{ access_log {disk.mount}/access.log; return 200 ok; }}",
        limits=limits,
    )
    bench.clients(["/logged"], threads=2, pause=0.01, keepalive=True)
    return instance.pid


def stopped_worker(bench: Bench) -> int:
    instance = bench.nginx("")
    [worker] = instance.workers()

    def stop() -> None:
        os.kill(worker, signal.SIGSTOP)
        time.sleep(0.2)
        os.kill(worker, signal.SIGCONT)
        time.sleep(0.8)

    bench.clients(["/memory"], threads=2, pause=0.005, keepalive=True)
    bench.meanwhile(stop)
    return instance.pid


def quota(bench: Bench) -> int:
    limits = Limits()
    limits.group.limit_cpu(0.2)
    (bench.directory / "text").write_bytes(b"%s\n" % os.urandom(1 << 13).hex().encode() * 8)
    instance = bench.nginx(
        "location = /text { gzip on; gzip_comp_level 6; default_type text/html; }", limits=limits
    )
    bench.clients(["/text"], threads=2, gzip=True, keepalive=True)
    bench.clients(["/memory"], pause=0.02, keepalive=True)
    return instance.pid


def contention(bench: Bench) -> int:
    """Other programs on the CPU of the worker."""
    instance = bench.nginx("", ahead=False)
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        os.sched_setaffinity(process.pid, NGINX_CPU)

        def end(process: subprocess.Popen[bytes] = process) -> None:
            process.kill()
            process.wait()

        bench.stack.callback(end)
    bench.clients(["/memory"], threads=6, keepalive=True)
    return instance.pid


def swap(_bench: Bench) -> int:
    raise Skipped("swap is the host's: it is not switched on for a benchmark")


def uneven_workers(bench: Bench) -> int:
    """One worker accepts all connections while it holds the accept mutex, and keeps them."""
    instance = bench.nginx(
        "", main="worker_processes 4;", events="accept_mutex on; multi_accept on;",
    )  # fmt: skip
    bench.clients(["/memory"], threads=60, pause=0.2, keepalive=True)
    return instance.pid


def pool_queue(bench: Bench) -> int:
    return _pool(bench, "threads=2", 24)


def pool_overflow(bench: Bench) -> int:
    return _pool(bench, "threads=2 max_queue=4", 24)


def _pool(bench: Bench, pool: str, threads: int) -> int:
    disk = bench.disks["data"]
    limits = Limits(disk)
    limits.reads(8 << 20)
    evict(disk.mount)
    instance = bench.nginx(
        f"location /files/ {{ alias {disk.mount}/; aio threads; }}",
        main=f"worker_processes 1; thread_pool default {pool};", limits=limits,
    )  # fmt: skip
    bench.clients(["/files/{n}"], threads=threads, names=160, pause=0.01)
    bench.clients(["/memory"], pause=0.02, keepalive=True)
    return instance.pid


def cold_names(bench: Bench) -> int:
    disk = bench.disks["names"]
    disk.reattach()
    limits = Limits(disk)
    limits.reads(reads_per_second=40)
    instance = bench.nginx(
        f"location /names/ {{ alias {disk.mount}/; }}", limits=limits,
        main="worker_processes 1; thread_pool default threads=16;", http="aio threads;",
    )  # fmt: skip
    paths = [f"/names/{index % 800}/{index}" for index in range(NAMES)]
    bench.clients(paths, threads=2, pause=0.01)
    bench.clients(["/memory"], pause=0.01, keepalive=True)
    return instance.pid


def quiet(bench: Bench) -> int:
    """No injection."""
    instance = bench.nginx("", main="worker_processes 2;")
    bench.clients(["/memory", "/index.html"], threads=8, pause=0.02, keepalive=True)
    return instance.pid


ON_DISK = ("loop-blocked-on-disk",)
BY_CPU = ("loop-held-by-cpu", "cpu-saturated")
INJECTIONS = (
    Injection("cold disk", cold_disk, ON_DISK, ("these reads",)),
    Injection("disk stalls of 250 ms", disk_stall, ON_DISK, ("these reads",)),
    Injection("gzip at level 9", gzip, ("loop-held-by-cpu",), ("zlib",), ("cpu-saturated",)),
    Injection("a loop in Lua", lua, ("loop-held-by-cpu",), ("Lua",)),
    Injection("a loop in Perl", perl, ("loop-held-by-cpu",), ("Perl",)),
    Injection("a sleep in Perl", sleeping_perl, ("loop-asleep-in-call",)),
    Injection("TLS handshakes", tls_handshakes, BY_CPU, ("TLS",), BY_CPU),
    Injection("more requests than a CPU can", many_requests, ("cpu-saturated",)),
    Injection("accept queue overflow", listen_overflow, ("accept-queue-overflow",)),
    Injection("worker_connections used up", connections_used_up, ("connections-exhausted",)),
    Injection("descriptors used up", descriptors_used_up, ("descriptors-exhausted",)),
    Injection("upstream that is gone", refused_upstream, ("failing-upstream",), ("upstream",)),
    Injection("a limit that refuses", refusing_limit, ("refused-by-limit",)),
    Injection("slow upstream", slow_upstream, ("slow-upstream",)),
    Injection("upstream that does not accept", deaf_upstream, ("slow-upstream",), ("connect",)),
    Injection("slow name server", slow_resolver, ("slow-resolver",)),
    Injection("access log on a slow disk", blocked_log, ("loop-blocked-on-writes",), ("buffer=",)),
    Injection("stopped worker", stopped_worker, ("worker-stopped",)),
    Injection("CPU quota", quota, ("cpu-throttled",)),
    Injection("other programs on its CPU", contention, ("cpu-contention",)),
    Injection("swap", swap, ("loop-blocked-on-swap",)),
    Injection("uneven workers", uneven_workers, ("uneven-workers",)),
    Injection("pool queue", pool_queue, ("pool-queue-wait",)),
    Injection("pool overflow", pool_overflow, ("pool-queue-overflow",), (), ("pool-queue-wait",)),
    Injection("open() of cold names", cold_names, ("loop-blocked-on-names",)),
    Injection("nothing", quiet, ("nothing-found",)),
)
