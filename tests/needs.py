"""What tests need of the host, by name.

What is not here skips, and what NGINX_TUNE_REQUIRE names fails.

A test names what it needs in ``@pytest.mark.needs(...)``; what only shows while it runs it tells to
`lacks`. No test skips otherwise (``tests/test_structure.py``), so that the last lines of a run say
all that was not tested.
"""

import ctypes
import os
import platform
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest
from nginx_versions import SERIES, need, present
from unprivileged import has_namespaces, interpreter

ROOT = Path(__file__).resolve().parent.parent
SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"


def required() -> set[str]:
    """What NGINX_TUNE_REQUIRE names: a test that lacks it fails."""
    return {name for name in os.environ.get("NGINX_TUNE_REQUIRE", "").split(",") if name}


def lacks(name: str, why: str) -> NoReturn:
    """End a test that finds out while it runs that this host has not what it needs."""
    assert name in HAS or name in FOUND_WHILE_RUNNING, f"{name} is no need that tests have"
    if name in required():
        pytest.fail(f"NGINX_TUNE_REQUIRE names {name}, but: {why}")
    pytest.skip(f"{name}: {why}")


def untested(reasons: Iterable[str]) -> list[str]:
    """Lines that count skipped tests by what they lack; empty when all was tested."""
    counts = Counter(reason.removeprefix("Skipped: ") for reason in reasons)
    return [f"{count:5} without {reason}" for reason, count in sorted(counts.items())]


def on_a_disk(path: Path) -> bool:
    """Whether a directory's files are not in memory alone."""
    command = ["stat", "--file-system", "--format", "%T", path]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    return said.stdout.strip() not in {"tmpfs", "ramfs"}


def _programs(*names: str) -> Callable[[], bool]:
    return lambda: all(shutil.which(name, path=SYSTEM_PATH) for name in names)


def _files(*paths: str) -> Callable[[], bool]:
    return lambda: all(Path(path).exists() for path in paths)


def _is_root() -> bool:
    return os.geteuid() == 0


def _has_loop() -> bool:
    return _is_root() and Path("/dev/loop-control").exists()


def _has_blkio() -> bool:
    v1 = Path("/sys/fs/cgroup/blkio/cgroup.procs")
    v2 = Path("/sys/fs/cgroup/cgroup.controllers")
    return _is_root() and (v1.exists() or (v2.exists() and "io" in v2.read_text().split()))


def _has_userns() -> bool:
    run = subprocess.run(["unshare", "-Urn", "true"], capture_output=True, check=False)
    return run.returncode == 0


def _has_nobody() -> bool:
    """Whether tests can run the package as an ordinary user who may make namespaces."""
    return _is_root() and has_namespaces() and interpreter() is not None


def _lists(tool: str, *options: str) -> Callable[[], bool]:
    """Whether one of our tools has fetched or built anything."""
    command = [ROOT / "tools" / tool, *options, "--list"]
    return lambda: bool(subprocess.run(command, capture_output=True, check=False).stdout)


def _serves(series: str) -> Callable[[], bool]:
    return lambda: series in present()


def _can_make(program: str, file: str, word: str) -> Callable[[], bool]:
    """Whether the kernel knows a kind of device or file system, and the program to make one."""
    return lambda: _programs(program)() and word in Path(file).read_text()


def _has_tracefs() -> bool:
    """Whether this user may trace system calls here; that it is mounted is not needed."""
    from nginx_tune.observe.tracefs import TraceFs, open_tracefs  # noqa: PLC0415

    found = open_tracefs()
    return isinstance(found, TraceFs) and bool(found.events("syscalls", "sys_enter_epoll_pwait"))


def _has_fanotify() -> bool:
    """Whether this user may be asked before a file is opened. Source: fanotify_init(2)."""
    libc = ctypes.CDLL(None)
    number = libc.fanotify_init(4, os.O_CLOEXEC)  # FAN_CLASS_CONTENT
    if number >= 0:
        os.close(number)
    return bool(number >= 0)


HAS: dict[str, Callable[[], bool]] = {
    "root": _is_root,
    "nginx": _programs("nginx"),
    "loop": _has_loop,
    "blkio": _has_blkio,
    "fanotify": _has_fanotify,
    "fuse": lambda: _is_root() and Path("/dev/fuse").exists(),
    "userns": _has_userns,
    "nobody": _has_nobody,
    "tracefs": _has_tracefs,
    "cpus": lambda: (os.cpu_count() or 1) > 1,
    "tun": lambda: _is_root() and Path("/dev/net/tun").exists() and _programs("ip")(),
    "x86-64": lambda: platform.machine() == "x86_64",
    "disk": lambda: all(map(on_a_disk, (Path(tempfile.gettempdir()), Path("/var/tmp")))),
    "cgroup-v1": _files("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/cpu"),
    "kernel-headers": _files(
        "/usr/include/asm-generic/unistd.h", "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"
    ),
    "system-python": _files("/usr/bin/python3"),
    "packaged-nginx": _files("/etc/nginx/nginx.conf", "/etc/nginx/mime.types"),
    "btrfs": _can_make("mkfs.btrfs", "/proc/filesystems", "btrfs"),
    "dm": _can_make("dmsetup", "/proc/misc", "device-mapper"),
    "md": _can_make("mdadm", "/proc/devices", " md"),
    "stream-modules": _lists("nginx-matrix", "--modules"),
    "layouts": _lists("nginx-layouts"),
    "script-modules": _files(
        *(f"/usr/lib/nginx/modules/ngx_http_{name}_module.so" for name in ("lua", "perl", "js"))
    ),
    "probe": _files(str(ROOT / "nginx_tune/_bin/nginx-tune-probe")),
    "cargo": lambda: shutil.which("cargo") is not None,
    "release-tools": lambda: all(
        map(shutil.which, ("cargo-cyclonedx", "dpkg-deb", "debootstrap", "unshare"))
    ),
    "terraform": lambda: shutil.which("terraform") is not None,
    "sshd": _programs("sshd", "ssh"),
    "systemd": _programs("systemd-analyze"),
    "bwrap": _programs("bwrap"),
    "s3": lambda: all(map(find_spec, ("s3fs", "moto", "flask", "flask_cors"))),
    "dask": lambda: find_spec("distributed") is not None,
    "duckdb": lambda: find_spec("duckdb") is not None,
    "kubernetes-validate": lambda: find_spec("kubernetes_validate") is not None,
    "axe": lambda: find_spec("axe_core_python") is not None,
    "sphinx": lambda: all(map(find_spec, ("sphinx", "myst_parser", "furo"))),
    **{need(series): _serves(series) for series in SERIES},
    **{
        name: _programs(name)
        for name in (
            "addpart", "bpftrace", "chromium", "dd", "fio", "fish", "gcc", "ip", "mandoc",
            "openssl", "patch", "patchelf", "setfacl", "shellcheck", "strace", "zsh",
        )
    },
}  # fmt: skip
"""By name, whether this host has it."""

FOUND_WHILE_RUNNING = {
    "cachestat",  # Linux 6.5
    "process-limit",  # Linux 6.14: pid_max is a namespace's own
    "cgroup-v2",  # a controller of version 2 that is ours to arrange
    "cold-files",  # a file system that drops pages when it is told to
    "descriptors",  # a limit of open files as a server has it
    "debian-build",  # an nginx as Debian builds it
    "known-disk",  # a disk that can be told under the temporary directory
    "older-nginx",  # than the matrix has
    "other-pythons",  # with msgspec and click
    "syscall-files",  # /proc/PID/syscall may be read
}
"""What a test can only ask its own nginx, kernel or files."""

has = cache(lambda name: HAS[name]())
