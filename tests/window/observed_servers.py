"""A real nginx that `observe` watches in tests, and what it says of it."""

import contextlib
import http.client
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from command_line import RunCli

from nginx_tune.documents.base import decode
from nginx_tune.documents.observation import Observation
from nginx_tune.nginx.instance import RunningNginx, start_instance
from nginx_tune.report.observation import observation_screen
from nginx_tune.report.screen import plain_text

# As root: whoever starts pytest next takes others' rights to its temporary directory away.
CONF = """\
user root;
worker_processes 1;
pid {scratch}/nginx.pid;
error_log {scratch}/error.log;
events {{ worker_connections 256; }}
http {{
    access_log off;
    sendfile on;
    sendfile_max_chunk 512k;
    server {{
        listen 127.0.0.1:{port};
        root {data};
        location = /status {{ stub_status; }}
        location = /memory {{ return 200 "ok"; }}
        location /files/ {{ {aio} }}
    }}
}}
"""


def observe(run_cli: RunCli, running: RunningNginx, directory: Path, *options: str) -> Observation:
    """What the command says of it, as JSON."""
    file = directory / "observation.json"
    run = run_cli(
        "observe", "--pid", str(running.pid), "--duration", "3s", *options,
        "-f", "console", "-f", f"json={file}",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    return decode(Observation, file.read_bytes())


@contextlib.contextmanager
def serving(
    scratch: Path, port: int, location: str, http: str = "", main: str = "", connections: int = 256
) -> Iterator[RunningNginx]:
    """A worker with one more location."""
    conf = scratch / "nginx.conf"
    text = CONF.format(scratch=scratch, data=scratch, port=port, aio="")
    text = text.replace("worker_connections 256", f"worker_connections {connections}")
    text = text.replace("location = /status", f"{location}\n        location = /status")
    conf.write_text(main + text.replace("access_log off;", f"access_log off; {http}"))
    instance = start_instance(
        "nginx", conf, stderr_path=scratch / "stderr", address=("127.0.0.1", port)
    )
    try:
        yield instance
    finally:
        instance.stop()


@contextlib.contextmanager
def asking(port: int, path: str, clients: int, patience: float = 20) -> Iterator[None]:
    """Clients that ask for one path, one after the other."""
    ended = threading.Event()

    def ask() -> None:
        while not ended.wait(0.02):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience)
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
                connection.getresponse().read()
            connection.close()

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def named(
    run_cli: RunCli, running: RunningNginx, scratch: Path, cause: str, *, tries: int = 4
) -> Observation:
    """What is seen once the cause comes first: a busy machine may spend a window otherwise."""
    for _ in range(tries):
        found = observe(run_cli, running, scratch)
        if found.causes[0].id == cause:
            break
    assert found.causes[0].id == cause, plain_text(observation_screen(found))
    return found
