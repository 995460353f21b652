"""This machine through the door, with programs and files that misbehave."""

import contextlib
import os
import socket
import subprocess
import time
from pathlib import Path

import pytest
from rows import each_row
from started import is_alive, until

from nginx_tune.documents.facts_machine import Listening
from nginx_tune.host import live_network
from nginx_tune.host.door import HostReadError
from nginx_tune.host.live import LiveHost
from nginx_tune.host.network import ask_listening
from nginx_tune.host.storage import read_storage


def test_a_program_is_run_without_a_shell() -> None:
    said = LiveHost().run(["printf", "%s", "$HOME; true"])
    assert said == (0, "$HOME; true", "")


def test_a_program_that_hangs_is_ended(tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(HostReadError, match="too long"):
        LiveHost().run(
            ["sh", "-c", "sleep 60 & echo $! > $0; wait", f"{tmp_path}/pid"], timeout_seconds=0.5
        )
    assert time.monotonic() - started < 30
    child = int((tmp_path / "pid").read_text())
    until(lambda: not is_alive(child))


def test_a_program_that_closes_its_mouth_and_stays_is_ended() -> None:
    with pytest.raises(HostReadError, match="too long"):
        LiveHost().run(["sh", "-c", "exec >&- 2>&-; sleep 60"], timeout_seconds=0.3)


def test_a_program_that_never_stops_talking_is_ended() -> None:
    with pytest.raises(HostReadError, match="too much"):
        LiveHost().run(["yes"])


@each_row("name", ["no-such-program", "/no/such/program", "/etc/hostname", "a\0b"])
def test_a_program_that_is_none(name: str) -> None:
    with pytest.raises(HostReadError):
        LiveHost().run([name])


def test_sbin_is_searched_without_it_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert LiveHost().find_program("sh").endswith("/sh")


def test_a_fifo_is_named_and_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(HostReadError, match="a FIFO"):
        LiveHost().read_bytes(f"{tmp_path}/fifo")


def test_a_file_that_never_ends_is_refused() -> None:
    with pytest.raises(HostReadError, match="larger than"):
        LiveHost().read_bytes("/dev/zero")


@each_row("path", ["/no/such/file", "/", "a\0b", "/etc/hostname/x"])
def test_unreadable_files(path: str) -> None:
    with pytest.raises(HostReadError):
        LiveHost().read_text(path)


def test_own_process_is_found_by_its_name() -> None:
    name = Path("/proc/self/comm").read_text().strip()
    assert os.getpid() in LiveHost().processes(name)


def test_netlink_and_sysfs_see_the_same_links() -> None:
    host = LiveHost()
    by_netlink = {link.name: link for link in host.links()}
    by_sysfs = {link.name: link for link in live_network._read_sysfs()}
    assert by_netlink.keys() == by_sysfs.keys()
    assert by_netlink["lo"].kind == by_sysfs["lo"].kind == "loopback"
    for name, link in by_netlink.items():
        assert link.mtu == by_sysfs[name].mtu
        assert link.state == by_sysfs[name].state


def test_links_without_netlink(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise PermissionError

    monkeypatch.setattr(live_network, "_read_netlink", refuse)
    assert "lo" in [link.name for link in LiveHost().links()]


@each_row("path", ["/", "/proc", "/dev/shm"])
def test_room_is_what_df_says(path: str) -> None:
    """Free space moves while others write; a file system of the kernel's own has no size."""
    command = ["df", "--block-size=1", "--output=size,avail", path]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    room = LiveHost().room(path)
    assert room.size_bytes == int(told[2])
    assert abs(room.available_bytes - int(told[3])) <= max(2 << 30, room.size_bytes // 50)


def test_storage_has_the_room_of_a_path_that_is_not_there_yet() -> None:
    storage, _ = read_storage(LiveHost(), ["/var/cache/not-there/yet"])
    (place,) = storage.paths
    assert place.size_bytes == LiveHost().room("/var").size_bytes


def test_a_file_system_without_a_size_says_so() -> None:
    storage, gaps = read_storage(LiveHost(), ["/proc"])
    assert storage.paths[0].size_bytes is None
    assert "no size" in gaps["/paths/0/size_bytes"]


class WithoutSockDiag(LiveHost):
    def listening(self, pid: int | None) -> Listening:
        raise HostReadError("listening", "Operation not permitted")


@each_row("family", [socket.AF_INET, socket.AF_INET6])
def test_listeners_are_told_without_sock_diag(family: socket.AddressFamily) -> None:
    """As an ordinary user beside root's nginx: from /proc/net/tcp, held against sock_diag."""
    with socket.socket(family) as listener, contextlib.ExitStack() as stack:
        listener.bind(("127.0.0.1" if family == socket.AF_INET else "::1", 0))
        listener.listen(8)
        port = listener.getsockname()[1]
        for _ in range(3):
            client = stack.enter_context(socket.socket(family))
            client.connect(listener.getsockname())
        found = ask_listening(WithoutSockDiag(), None)
        exact = ask_listening(LiveHost(), None)
    assert isinstance(found, Listening)
    assert isinstance(exact, Listening)
    (told,) = (one for one in found.sockets if one.port == port)
    (known,) = (one for one in exact.sockets if one.port == port)
    assert (told.address, told.inode, told.accept_queue) == (known.address, known.inode, 3)
    assert (known.backlog, known.accept_queue) == (8, 3)
    assert (told.backlog, told.drops) == (None, None)
