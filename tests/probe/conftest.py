"""A real nginx with files of known sizes."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from free_ports import free_port
from probe_loads import SIZES, Nginx, StartNginx
from started import await_port, number_in, until, workers_of
from tiers import dice

CONF = """
{user}
worker_processes {workers};
daemon off;
pid {dir}/nginx.pid;
error_log {dir}/error.log;
{main}
events {{ worker_connections {connections}; }}
http {{
    access_log off;
    {http}
    client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/fcgi;
    uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
    server {{
        listen 127.0.0.1:{port};
        root {dir}/files;
        {server}
    }}
}}
"""


def nginx_binary() -> str:
    found = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    assert found is not None
    return found


@pytest.fixture
def start_nginx(tmp_path: Path) -> Iterator[StartNginx]:
    files = tmp_path / "files"
    files.mkdir()
    for path, size in SIZES.items():
        (files / path[1:]).write_bytes(dice(path).randbytes(size))
    with contextlib.ExitStack() as stack:

        def start(
            *,
            main: str = "",
            http: str = "",
            server: str = "",
            connections: int = 512,
            workers: int = 1,
            argv: Sequence[str] = (),
        ) -> Nginx:
            port = free_port()
            user = "user root;" if os.geteuid() == 0 else ""
            conf = tmp_path / "nginx.conf"
            conf.write_text(
                CONF.format(
                    dir=tmp_path,
                    port=port,
                    main=main,
                    http=http,
                    server=server,
                    user=user,
                    connections=connections,
                    workers=workers,
                )
            )
            log = tmp_path / "error.log"
            command = [*argv, nginx_binary(), "-e", str(log), "-c", str(conf)]
            process = subprocess.Popen(command)
            stack.callback(_stop, process, tmp_path / "nginx.pid")
            await_port(port, process)
            until(lambda: len(workers_of(number_in(tmp_path / "nginx.pid"))) == workers)
            return Nginx(port, log)

        yield start


def _stop(process: subprocess.Popen[bytes], pid_file: Path) -> None:
    with contextlib.suppress(OSError, ValueError):
        os.kill(int(pid_file.read_text()), 15)
    process.terminate()
    process.wait(timeout=20)


@pytest.fixture
def nginx(start_nginx: StartNginx) -> Nginx:
    return start_nginx()
