"""What is planned beside ``stream``, on a real nginx: it starts, and sessions stay in one piece."""

import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from made_decisions import decide
from nginx_versions import stream_modules
from real_nginx import PATH
from rows import each_row
from situations import host, load, nginx, site
from started import running
from test_plan_changes import contents, write

from nginx_tune.change.generate.changes import plan_changes
from nginx_tune.change.plan.changing import as_changes
from nginx_tune.change.plan.solver import site_in
from nginx_tune.documents.decisions import DecisionId

CONF = """\
load_module {module}; daemon off; pid {folder}/pid; error_log {folder}/error.log; user root;
{main}
events {{ worker_connections 256; }}
stream {{ log_format b '$remote_addr'; {stream} }}
http {{ {http} server {{ listen 127.0.0.1:{port}; root {folder}; }} }}
"""
pytestmark = pytest.mark.needs("root", "nginx", "stream-modules")


@pytest.fixture(scope="module")
def module() -> str:
    return stream_modules()[0]


def planned(folder: Path, conf: str, name: DecisionId, log: str | None = None) -> str:
    """The configuration with what one decision has written into it."""
    tree = write(folder, {"nginx.conf": conf})
    given = site_in(tree, site(roots=[str(folder)], access_log=log))
    made = decide(host(cpus=4, nginx=nginx()), load(rate=5000), site=given)
    some = type(made)(kind="static", decisions=[one for one in made.decisions if one.id == name])
    changes = plan_changes(as_changes(some, tree), tree, lambda _: set(), annotates=False)
    text = contents(changes).get(tree.path, conf.encode()).decode()
    Path(tree.path).write_text(text, encoding="utf-8")
    return text


HAS = "buffer=16k flush=1m"
WRITTEN = "combined buffer=64k flush=1s"


@each_row("log", ["{folder}/a.log", "a.log"])
@each_row(
    ("before", "after"),
    [
        ((f"b {HAS}", "combined"), (f"b {HAS}", "combined")),
        (("b gzip=4 flush=1m", "combined"), ("b gzip=4 flush=1m", "combined")),
        (("b buffer=16k", "combined"), ("b buffer=16k flush=1s", "combined")),
        (
            ("b buffer=16k", "combined buffer=16k"),
            ("b buffer=16k flush=1s", "combined buffer=16k flush=1s"),
        ),
        (("b", "combined"), ("b", WRITTEN)),
    ],
)
def test_a_file_that_stream_logs_to_has_one_buffer(
    tmp_path: Path,
    free_port: int,
    module: str,
    before: tuple[str, str],
    after: tuple[str, str],
    log: str,
) -> None:
    """ngx_stream_log_set_log(): [emerg] already defined with conflicting parameters."""
    in_stream, in_http = log.format(folder=tmp_path), f"{tmp_path}/a.log"
    conf = CONF.format(
        module=module,
        folder=tmp_path,
        port=free_port,
        main="worker_processes 2;",
        stream=f"access_log {in_stream} {before[0]};",
        http=f"access_log {in_http} {before[1]};",
    )
    text = planned(tmp_path, conf, "access-log")
    assert f"access_log {in_stream} {after[0]};" in text
    assert f"access_log {in_http} {after[1]};" in text
    assert_starts(tmp_path)


def test_the_log_of_the_build_takes_no_second_buffer(
    tmp_path: Path, free_port: int, module: str
) -> None:
    """Where http names none; another file of ``stream`` is nobody's business."""
    for name, is_written in (("a", False), ("b", True)):
        conf = CONF.format(
            module=module,
            folder=tmp_path,
            port=free_port,
            main="worker_processes 2;",
            stream=f"access_log {tmp_path}/{name}.log b {HAS};",
            http="",
        )
        text = planned(tmp_path, conf, "access-log", log=f"{tmp_path}/a.log")
        assert (f"access_log {tmp_path}/a.log {WRITTEN};" in text) is is_written
        assert_starts(tmp_path)


@each_row(
    ("listen", "server", "main", "is_written"),
    [
        ("udp", "", "worker_processes 1;", False),
        ("udp reuseport", "", "worker_processes 1;", True),
        ("udp", "proxy_responses 1;", "", True),
    ],
)
def test_clients_of_datagrams_keep_their_sessions(
    tmp_path: Path,
    free_port: int,
    module: str,
    listen: str,
    server: str,
    main: str,
    *,
    is_written: bool,
) -> None:
    """The server behind sees as many addresses as with the one worker before."""
    with answering() as (upstream, seen):
        conf = CONF.format(
            module=module,
            folder=tmp_path,
            port=free_port,
            main=main,
            stream=f"server {{ listen 127.0.0.1:{free_port} {listen}; "
            f"proxy_pass 127.0.0.1:{upstream}; {server} }}",
            http="access_log off;",
        )
        text = planned(tmp_path, conf, "workers")
        assert ("worker_processes auto;" in text) is is_written
        # More than there may be CPUs here.
        (tmp_path / "nginx.conf").write_text(text.replace("auto", "4"), encoding="utf-8")
        # http listens before all of stream are bound, and each that is bound moves clients.
        with running(["nginx", "-c", f"{tmp_path}/nginx.conf"], 4 if is_written else 1):
            ask(free_port)
    if server:  # each exchange was a session already; a port may come twice
        assert len(seen) > CLIENTS * DATAGRAMS / 2
    else:
        assert len(seen) == CLIENTS


CLIENTS, DATAGRAMS = 3, 20


@contextmanager
def answering() -> Iterator[tuple[int, set[tuple[str, int]]]]:
    """A server of datagrams: its port, and the addresses that it hears from."""
    seen: set[tuple[str, int]] = set()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.bind(("127.0.0.1", 0))

        def answer() -> None:
            while (got := end.recvfrom(99))[0] != b"end":
                seen.add(got[1])
                end.sendto(b"ok", got[1])

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield end.getsockname()[1], seen
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
                last.sendto(b"end", end.getsockname())
            thread.join()


def ask(port: int) -> None:
    def client() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
            end.connect(("127.0.0.1", port))
            end.settimeout(30)
            for _ in range(DATAGRAMS):
                end.send(b"x")
                assert end.recv(9) == b"ok"

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()


def assert_starts(folder: Path) -> None:
    argv = ["nginx", "-t", "-p", folder, "-c", folder / "nginx.conf"]
    said = subprocess.run(argv, capture_output=True, text=True, check=False, env=PATH)
    assert said.returncode == 0, said.stderr
