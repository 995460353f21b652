"""A real nginx for the proofs of rules."""

import ssl
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from free_ports import free_port
from nginx_versions import Nginx, find_nginx, installed
from scratch_nginx import Serve, Server, write_conf
from started import until


@pytest.fixture
def nginx(request: pytest.FixtureRequest) -> Nginx:
    """The installed nginx, or each version of the matrix with the mark ``every_version``."""
    return find_nginx(request.param) if hasattr(request, "param") else installed()


@pytest.fixture
def serve(tmp_path: Path, nginx: Nginx) -> Iterator[Serve]:
    """Start nginx on a configuration; ``PORT`` and ``DIR`` in it are replaced.

    ``under`` is a command that runs it in its place, such as ``taskset``. Each has a directory of
    its own, if none is given.
    """
    started: list[subprocess.Popen[bytes]] = []

    def start(
        conf: str,
        under: Sequence[str] = (),
        *,
        directory: Path | None = None,
        has_workers: bool = True,
    ) -> Server:
        if directory is None:
            directory = tmp_path / f"nginx-{len(started)}"
            directory.mkdir()
        port = free_port()
        path = write_conf(directory, conf.replace("PORT", str(port)))
        process = subprocess.Popen([*under, nginx.program, "-p", directory, "-c", path])
        started.append(process)
        server = Server(directory, port, process)
        until(lambda: _listens(server))
        # The listening socket is there before the first worker.
        assert not has_workers or until(server.workers)
        return server

    yield start
    for process in started:
        for worker in Server(tmp_path, 0, process).workers():
            subprocess.run(["kill", "-CONT", str(worker)], check=False)
        process.terminate()
    for process in started:
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _listens(server: Server) -> bool:
    assert server.process.poll() is None, server.log()
    try:
        server.connect().close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost and its key."""
    directory = tmp_path_factory.mktemp("tls")
    names = directory / "localhost.crt", directory / "localhost.key"
    request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    command = ["openssl", *request.split(), "-subj", "/CN=localhost"]
    subprocess.run(
        [*command, "-out", names[0], "-keyout", names[1]], check=True, capture_output=True
    )
    return names


@pytest.fixture
def server_tls(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    """A server's side of TLS 1.2, whose sessions are counted more easily than those of 1.3."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(*certificate)
    return context
