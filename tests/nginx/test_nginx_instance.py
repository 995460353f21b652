"""The scratch nginx: it comes up, or says why not, and always goes."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from free_ports import free_port
from tiers import draws

from nginx_tune.errors import ConfigurationError, MissingToolError, UndecidedError
from nginx_tune.nginx.instance import _wait_workers, start_instance

NGINX = "/usr/sbin/nginx"

pytestmark = pytest.mark.needs("root", "nginx")


@pytest.fixture
def port() -> int:
    return free_port()


def write(directory: Path, port: int, extra: str = "") -> Path:
    path = directory / "nginx.conf"
    temp = " ".join(
        f"{kind}_temp_path {directory}/t;"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    path.write_text(
        f"pid {directory}/pid; error_log stderr; {extra}\nevents {{ }}\n"
        f"http {{ access_log off; {temp} server {{ listen 127.0.0.1:{port}; return 200; }} }}\n"
    )
    return path


@pytest.mark.parametrize("extra", ["", "daemon off;", "worker_processes 2;"])
def test_it_runs_in_the_foreground_and_stops(tmp_path: Path, port: int, extra: str) -> None:
    conf = write(tmp_path, port, extra)
    instance = start_instance(
        NGINX, conf, stderr_path=tmp_path / "err", address=("127.0.0.1", port)
    )
    wanted = 2 if "2" in extra else 1
    workers = instance.workers()
    assert len(workers) == wanted
    instance.stop()
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1)


@pytest.mark.parametrize(
    ("extra", "wanted"),
    [("worker_processes 24;", 24), ("master_process off;", 0)],
    ids=["workers", "one process"],
)
def test_a_start_returns_when_all_workers_are_there(
    tmp_path: Path, port: int, extra: str, wanted: int
) -> None:
    for _ in range(draws(2, 8)):
        instance = start_instance(
            NGINX,
            write(tmp_path, port, extra),
            stderr_path=tmp_path / "err",
            address=("127.0.0.1", port),
        )
        workers = instance.workers()
        instance.stop()
        assert len(workers) == wanted


def test_a_process_that_ends_while_its_threads_are_listed_has_no_children(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = start_instance(NGINX, write(tmp_path, port), stderr_path=tmp_path / "stderr",
                              address=("127.0.0.1", port))  # fmt: skip

    def gone(*_: object) -> Iterator[Path]:
        raise FileNotFoundError(2, "No such file or directory")

    try:
        with monkeypatch.context() as patch:
            patch.setattr(Path, "glob", gone)
            assert instance.workers() == []
    finally:
        instance.stop()


def test_a_taken_port_is_named(tmp_path: Path, port: int) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", port))
        with pytest.raises(UndecidedError, match="Address already in use") as caught:
            start_instance(
                NGINX,
                write(tmp_path, port),
                stderr_path=tmp_path / "err",
                address=("127.0.0.1", port),
            )
    assert caught.value.hint == "free the port or listen on another one"


def test_one_that_still_tries_an_address_is_not_up(tmp_path: Path, port: int) -> None:
    """It listens at the first while it tries the second, which is taken, for two seconds more."""
    conf = write(tmp_path, port)
    second = f"listen 127.0.0.1:{port}; listen unix:{tmp_path}/taken;"
    conf.write_text(conf.read_text().replace(f"listen 127.0.0.1:{port};", second))
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(f"{tmp_path}/taken")
        with pytest.raises(UndecidedError, match=r"taken failed .98: Address already in use"):
            start_instance(NGINX, conf, stderr_path=tmp_path / "err", address=("127.0.0.1", port))


def test_a_rejected_configuration_has_the_words_of_nginx(tmp_path: Path, port: int) -> None:
    with pytest.raises(ConfigurationError, match='unknown directive "threads"'):
        start_instance(
            NGINX,
            write(tmp_path, port, "threads 4;"),
            stderr_path=tmp_path / "err",
            address=("127.0.0.1", port),
        )


def test_a_binary_that_is_not_there(tmp_path: Path, port: int) -> None:
    with pytest.raises(MissingToolError, match="no such file"):
        start_instance(
            "/nowhere/nginx",
            write(tmp_path, port),
            stderr_path=tmp_path / "err",
            address=("127.0.0.1", port),
        )


def test_a_master_whose_workers_end_at_once_is_not_up() -> None:
    class Instance:
        def stderr(self) -> str:
            return "[alert] 7#7: worker process 8 exited with fatal code 2\n"

    with pytest.raises(UndecidedError, match=r"starts no worker: .*fatal code 2"):
        _wait_workers(Instance(), deadline=0.0)  # type: ignore[arg-type]
