"""A unix socket of nginx is reached, and nothing else that is put in its place."""

import contextlib
import errno
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nginx_tune.nginx.place import Door, connect

pytestmark = pytest.mark.needs("root")

SERVE = """
import os, signal, socket, sys
os.chroot(sys.argv[1])
held = []
for line in sys.stdin:
    if line.startswith("/"):
        with_name = socket.socket(socket.AF_UNIX)
        with_name.bind(line.strip()); with_name.listen()
        held.append(with_name)
    print("done", flush=True)
"""


class Server:
    """A process with a root of its own, which listens where it is told to."""

    def __init__(self, root: Path, *before: str) -> None:
        argv = [*before, sys.executable, "-c", SERVE, str(root)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True)
        self.ask("\n")
        self.pid = self.process.pid

    def ask(self, line: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def listen(self, path: str) -> None:
        self.ask(path + "\n")

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """What a sandbox has: a directory, and the operator's own links to it."""
    inside = tmp_path / "root"
    (inside / "run" / "nginx").mkdir(parents=True)
    (inside / "var").mkdir()
    (inside / "var" / "run").symlink_to("/run")
    return inside


@pytest.fixture
def server(root: Path) -> Iterator[Server]:
    found = Server(root)
    yield found
    found.end()


class HostSocket:
    """A socket of the host, which must not be asked."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "host.sock"
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(self.path))
        self.socket.listen()
        self.socket.setblocking(False)

    def came(self) -> bytes | None:
        """What came on a connection; null where there was none."""
        try:
            connection = self.socket.accept()[0]
        except BlockingIOError:
            return None
        with connection:
            connection.settimeout(5)
            return connection.recv(64)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[HostSocket]:
    (tmp_path / "host").mkdir()
    found = HostSocket(tmp_path / "host")
    yield found
    found.socket.close()


def is_let_in(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(path)
        except ConnectionRefusedError:
            return False
    return True


def test_a_socket_is_reached_as_the_process_sees_it(server: Server) -> None:
    server.listen("/run/nginx/s")
    for path in ("/run/nginx/s", "/var/run/nginx/s", "/var/run/../run/nginx/./s"):
        connect(path, pid=server.pid, timeout_seconds=1).close()
        with contextlib.closing(Door(path, server.pid)) as door:
            assert len(door.path) < 32
            assert is_let_in(door.path), path


LINKS: dict[str, Callable[[Path, Path], None]] = {
    "in the socket's place": lambda at, host: at.symlink_to(host),
    "by as many steps up as there are": lambda at, host: at.symlink_to("../" * 30 + str(host)[1:]),
    "in a directory's place": lambda at, host: _instead(at.parent, host.parent),
    "by the process's own root": lambda at, host: _instead(
        at.parent, Path("/proc/1/root", str(host.parent)[1:])
    ),
    "to itself": lambda at, _: _instead(at.parent, at.parent),
}


def _instead(directory: Path, target: Path) -> None:
    directory.rmdir()
    directory.symlink_to(target)


@pytest.mark.parametrize("link", LINKS)
def test_a_link_leads_to_no_socket_of_the_host(
    server: Server, root: Path, host: HostSocket, link: str
) -> None:
    path = f"/run/nginx/{host.path.name}"
    LINKS[link](root / path[1:], host.path)
    with pytest.raises(OSError):
        connect(path, pid=server.pid, timeout_seconds=1)
    with contextlib.closing(Door(path, server.pid)) as door:
        assert not is_let_in(door.path)
    assert host.came() is None


def test_what_is_no_socket_takes_no_time_and_no_connection(server: Server, root: Path) -> None:
    place = root / "run" / "nginx"
    os.mkfifo(place / "pipe")
    (place / "file").write_text("")
    (place / "directory").mkdir()
    for name in ("pipe", "file", "directory", "none"):
        wanted = errno.ENOENT if name == "none" else errno.ENOTSOCK
        with pytest.raises(OSError, match=os.strerror(wanted)):
            connect(f"/run/nginx/{name}", pid=server.pid, timeout_seconds=1)
        with contextlib.closing(Door(f"/run/nginx/{name}", server.pid)) as door:
            assert not is_let_in(door.path)


def test_another_process_is_sent_nothing_where_its_socket_is_shown(
    server: Server, root: Path
) -> None:
    shown = HostSocket(root / "run" / "nginx")
    with contextlib.closing(shown.socket):
        with pytest.raises(PermissionError, match="another process listens there"):
            connect("/run/nginx/host.sock", pid=server.pid, timeout_seconds=1)
        assert shown.came() == b""
        with contextlib.closing(Door("/run/nginx/host.sock", server.pid)) as door:
            assert shown.came() == b""
            assert not is_let_in(door.path)
        assert shown.came() is None
        # A name of it in the place of nginx's own.
        server.listen("/run/nginx/own")
        connect("/run/nginx/own", pid=server.pid, timeout_seconds=1).close()
        (root / "run/nginx/own").unlink()
        (root / "run/nginx/own").hardlink_to(root / "run/nginx/host.sock")
        with pytest.raises(PermissionError):
            connect("/run/nginx/own", pid=server.pid, timeout_seconds=1)


def test_in_a_process_namespace_whoever_is_in_it_may_listen(root: Path, host: HostSocket) -> None:
    waiting = Server(root, "unshare", "--pid", "--fork", "--kill-child")
    try:
        waiting.listen("/run/nginx/s")
        children = Path(f"/proc/{waiting.pid}/task/{waiting.pid}/children").read_text()
        first = int(children)
        connect("/run/nginx/s", pid=first, timeout_seconds=1).close()
        # A socket of this process, which is outside.
        (root / "run/nginx/shown").hardlink_to(host.path)
        with pytest.raises(PermissionError):
            connect("/run/nginx/shown", pid=first, timeout_seconds=1)
    finally:
        waiting.end()


def test_who_listened_and_has_ended_is_not_known(server: Server, root: Path) -> None:
    # Of the host anybody could have been it. The first process of a lab knows better.
    listens = (
        "import os, socket, sys\n"
        "s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen()\n"
        "if os.fork(): os._exit(0)\n"
        "print('there', flush=True); sys.stdin.read()\n"
    )
    argv = [sys.executable, "-c", listens, str(root / "run/nginx/left")]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe) as left:
        assert left.stdout is not None
        left.stdout.readline()
        left.wait()
        with pytest.raises(PermissionError):
            connect("/run/nginx/left", pid=server.pid, timeout_seconds=1)


def test_a_door_follows_the_socket_and_no_link(
    server: Server, root: Path, host: HostSocket
) -> None:
    path, at = "/run/nginx/s", root / "run/nginx/s"
    server.listen(path)
    with contextlib.closing(Door(path, server.pid)) as door:
        held = door.path
        assert is_let_in(held)
        # The socket that was there is held, whatever stands there now.
        at.unlink()
        at.symlink_to(host.path)
        assert is_let_in(held)
        door.look(server.pid)
        assert not is_let_in(held)
        at.unlink()
        server.listen(path)
        door.look(server.pid)
        assert (door.path, is_let_in(held)) == (held, True)
        again = Server(root)
        try:
            at.unlink()
            again.listen(path)
            door.look(server.pid)
            assert not is_let_in(held)
            door.look(again.pid)
            assert is_let_in(held)
        finally:
            again.end()
        door.look(0)
        assert not is_let_in(held)
    assert host.came() is None
