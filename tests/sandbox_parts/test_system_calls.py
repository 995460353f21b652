"""The positive list of system calls: enough for nginx and modules, and named where it is not."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from command_line import RunCli
from nginx_versions import SERIES, find_nginx, marked
from twins import twin
from unprivileged import let_all_see

MODULES = Path("/usr/lib/nginx/modules")
NAMES = ("ndk_http", "ngx_http_lua", "ngx_http_perl", "ngx_http_js")

pytestmark = pytest.mark.needs("root", "nginx", "probe")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    let_all_see(tmp_path)
    (tmp_path / "www").mkdir()
    (tmp_path / "cache").mkdir()
    for name in "abc":
        (tmp_path / "www" / name).write_bytes(bytes(300_000))
    (tmp_path / "h.js").write_text("function f(r) { r.return(200, 'js'); }\nexport default {f};\n")
    return tmp_path


def conf(place: Path, *, top: str = "", http: str = "", server: str = "") -> Path:
    path = place / "nginx.conf"
    path.write_text(
        f"{top} worker_processes 2; worker_priority -5; pid {place}/pid;\n"
        f"error_log {place}/error.log; events {{}}\n"
        f"http {{ {http} access_log {place}/access.log; open_file_cache max=100;\n"
        f"proxy_cache_path {place}/cache levels=1:2 keys_zone=z:1m;\n"
        f"server {{ listen 127.0.0.1:18080; {server} root {place}/www; aio threads; sendfile on;\n"
        "location = /memory { return 200 ok; }\n"
        "location /direct/ { directio 4k; sendfile off; output_buffers 2 64k; }\n"
        "location /up/ { proxy_pass http://10.9.8.7:8000; proxy_cache z; }\n"
        "location /us/ { proxy_pass http://unix:/run/nginx-tune-test.sock; } } }\n"
    )
    return path


def differences(run_cli: RunCli, path: Path, nginx: str) -> list[str]:
    """What a verdict says of how a short comparison was run."""
    run = run_cli(
        "-q", "validate", str(path), "--against", str(twin(path)), "--nginx", nginx, "--trust",
        "--pairs", "1", "--duration", "1s", "--warmup", "200ms", "--no-store",
        "--accept-inconclusive", "-f", "json", timeout=120,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    verdict = json.loads(run.stdout)
    found: list[str] = verdict["environment"]["differences"]
    return found


@pytest.mark.needs("openssl")
@pytest.mark.parametrize("series", marked(*SERIES))
def test_no_version_is_refused_a_call(run_cli: RunCli, place: Path, series: str) -> None:
    """Threads, direct reads, a cache, unix sockets, and QUIC where there is."""
    quic = ""
    if tuple(map(int, series.split("."))) >= (1, 26):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=a",
             "-keyout", place / "key.pem", "-out", place / "cert.pem"],
            check=True, capture_output=True,
        )  # fmt: skip
        quic = (
            "listen 127.0.0.1:18443 quic reuseport; listen 127.0.0.1:18443 ssl;"
            f" ssl_certificate {place}/cert.pem; ssl_certificate_key {place}/key.pem;"
        )
    found = differences(run_cli, conf(place, server=quic), find_nginx(series).program)
    assert not [one for one in found if one.startswith("the sandbox refused")]


@pytest.mark.needs("script-modules")
def test_no_module_is_refused_a_call(run_cli: RunCli, place: Path) -> None:
    """Lua with a timer, a socket and a program, Perl with a program, and njs."""
    path = conf(
        place,
        top="".join(f"load_module {MODULES}/{name}_module.so;" for name in NAMES),
        http=f"js_import h from {place}/h.js; lua_package_path '/usr/share/lua/5.1/?.lua;;';",
        server="""
        location /lua/ { content_by_lua_block {
            ngx.timer.at(0, function() end)
            local s = ngx.socket.tcp()
            s:settimeout(100)
            s:connect("127.0.0.1", 18080)
            ngx.say(io.popen("echo hi"):read("*a"))
        } }
        location /perl/ { perl "sub { my $r = shift; $r->send_http_header;
            $r->print(`echo x`); return OK; }"; }
        location /js/ { js_content h.f; }
        """,
    )
    found = differences(run_cli, path, "/usr/sbin/nginx")
    assert not [one for one in found if one.startswith("the sandbox refused")]
    asked = next(one for one in found if one.startswith("also loaded"))
    assert [f"/{name}/, 200" in asked for name in ("lua", "perl", "js")] == [True] * 3, asked


REFUSED = """
#include <stdlib.h>
#include <sys/inotify.h>
void *ngx_modules[] = {0}; char *ngx_module_names[] = {0}; char *ngx_module_order[] = {0};
__attribute__((constructor)) static void load(void) { if (inotify_init1(0) < 0) exit(1); }
"""


@pytest.mark.needs("gcc")
def test_a_refusal_is_the_sandboxs_own(run_cli: RunCli, tmp_path: Path) -> None:
    (tmp_path / "m.c").write_text(REFUSED)
    module = tmp_path / "m.so"
    subprocess.run(["gcc", "-shared", "-fPIC", tmp_path / "m.c", "-o", module], check=True)
    path = tmp_path / "nginx.conf"
    path.write_text(f"load_module {module}; events {{}}\n")
    words = ("audit", str(path), "--test", "--facts", "none", "--nginx", "/usr/sbin/nginx")
    run = run_cli(*words, "--trust")
    assert run.returncode == 4
    assert "the sandbox had refused it inotify_init1" in run.stderr
