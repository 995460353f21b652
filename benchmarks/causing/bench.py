"""The environment of every injection: limited disks, nginx on a separate CPU, clients."""

import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from nginx_tune.nginx.instance import RunningNginx, start_instance
from nginx_tune.nginx.lab.cgroups import LabCgroups
from nginx_tune.nginx.lab.disks import Loop, device_number, evict, run_tool

HERE = Path(__file__).parent
MIB = 1 << 20
FILES = 160
NAMES = 4000
PLENTY = 1 << 40
_NUMBERS = itertools.count()
CPUS = sorted(os.sched_getaffinity(0))
NGINX_CPU, OTHER_CPUS = CPUS[:1], CPUS[1:] or CPUS

CONF = """\
user root;
{main}
pid {directory}/nginx.pid;
error_log {directory}/error.log warn;
events {{ worker_connections {connections}; {events} }}
http {{
    access_log off;
    sendfile on;
    sendfile_max_chunk 512k;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    {http}
    server {{
        listen 127.0.0.1:{port} {listen};
        root {directory};
        location = /memory {{ return 200 "ok"; }}
        {server}
    }}
}}
"""


class Disk:
    """A file system on a loop device, which control groups can slow down."""

    def __init__(self, base: Path, name: str, size: int, *, sync: bool = False) -> None:
        self.mount = base / name
        self._image = base / f"{name}.image"
        self._options = "noatime,sync" if sync else "noatime"
        self.mount.mkdir()
        with self._image.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)
        run_tool("mkfs.ext4", "-F", "-q", "-O", "^has_journal", "-N", "8192", str(self._image))
        self._loop: Loop | None = None

    def attach(self) -> None:
        self._loop = Loop(str(self._image))
        run_tool("mount", "-o", self._options, self._loop.device, str(self.mount))
        self.device = self._loop.device

    def detach(self) -> None:
        if self._loop is not None:
            run_tool("umount", "--lazy", str(self.mount))
            self._loop.close()
            self._loop = None

    def reattach(self) -> None:
        """Mount the disk again, so that no file name is in memory."""
        self.detach()
        self.attach()


class Limits:
    """A control group with limits on one disk, which can be lifted at once."""

    def __init__(self, disk: Disk | None = None) -> None:
        self.group = LabCgroups(f"causes-{os.getpid()}-{next(_NUMBERS)}")
        self._disk = disk
        self._number = device_number(disk.device) if disk else ""

    def reads(self, bytes_per_second: int = PLENTY, reads_per_second: int = 1 << 20) -> None:
        self.group.limit_reads(
            self._number, bytes_per_second=bytes_per_second, reads_per_second=reads_per_second
        )

    def writes(self, per_second: int) -> None:
        controller = self.group.use("blkio")
        directory = controller.parent / self.group.directories[0].name
        if controller.version == 1:
            file = directory / "blkio.throttle.write_iops_device"
            file.write_text(f"{self._number} {per_second}")
        else:
            (directory / "io.max").write_text(f"{self._number} wiops={per_second}")

    def lift(self) -> None:
        """Lift the limits, so that queued requests finish and release the file system."""
        if self._disk is not None:
            self.reads()
            self.writes(1 << 20)


@dataclass
class Bench:
    """The environment of an injection; everything that it adds ends with it."""

    base: Path
    disks: dict[str, Disk]
    stack: contextlib.ExitStack
    seconds: float
    directory: Path = field(init=False)
    port: int = field(init=False)

    def __post_init__(self) -> None:
        scratch = self.stack.enter_context(tempfile.TemporaryDirectory(dir=self.base))
        self.directory = Path(scratch)
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port = int(one.getsockname()[1])

    def nginx(
        self, server: str, *, main: str = "worker_processes 1;", events: str = "", http: str = "",
        listen: str = "", connections: int = 512, limits: Limits | None = None,
        ahead: bool = True,
    ) -> RunningNginx:  # fmt: skip
        conf = self.directory / "nginx.conf"
        conf.write_text(
            CONF.format(
                directory=self.directory, port=self.port, main=main, events=events, http=http,
                listen=listen, server=server, connections=connections,
            )
        )  # fmt: skip
        (self.directory / "index.html").write_text("ok")
        files = limits.group.join_files() if limits else []
        if limits:
            self.stack.callback(limits.group.remove)
        instance = start_instance(
            "nginx", conf, stderr_path=self.directory / "stderr",
            address=("127.0.0.1", self.port), join_files=files,
            cpus=NGINX_CPU, ahead=ahead,  # what else this machine does is no injection
        )  # fmt: skip
        self.stack.callback(instance.stop)
        if limits:
            self.stack.callback(limits.lift)
        return instance

    def clients(self, paths: list[str], *, threads: int = 1, **more: object) -> None:
        ask = {"port": self.port, "paths": paths, "threads": threads, **more}
        process = subprocess.Popen([sys.executable, HERE / "clients.py", json.dumps(ask)])

        def end() -> None:
            process.kill()
            process.wait()

        self.stack.callback(end)

    def meanwhile(self, act: Callable[[], None]) -> None:
        """Call ``act``, which returns often, repeatedly in a thread until the injection ends."""
        ended = threading.Event()

        def run() -> None:
            while not ended.is_set():
                act()

        thread = threading.Thread(target=run, daemon=True)

        def end() -> None:
            ended.set()
            thread.join()

        self.stack.callback(end)
        thread.start()


@contextlib.contextmanager
def open_disks(base: Path) -> Iterator[dict[str, Disk]]:
    with contextlib.ExitStack() as stack:
        disks = {
            "data": Disk(base, "data", (FILES + 48) * MIB),
            "names": Disk(base, "names", 32 * MIB),
            "logs": Disk(base, "logs", 32 * MIB, sync=True),
        }
        for disk in disks.values():
            disk.attach()
            stack.callback(disk.detach)
        for index in range(FILES):
            (disks["data"].mount / str(index)).write_bytes(os.urandom(MIB))
        for index in range(NAMES):
            directory = disks["names"].mount / str(index % 800)
            directory.mkdir(exist_ok=True)
            (directory / str(index)).touch()
        os.sync()
        yield disks


__all__ = ["MIB", "NAMES", "NGINX_CPU", "OTHER_CPUS", "Bench", "Limits", "evict", "open_disks"]
