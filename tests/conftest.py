"""Fixtures for all tests, and the skips that NGINX_TUNE_REQUIRE turns into failures."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings
from unprivileged import has_namespaces, interpreter

# Hypothesis fails an example that takes longer than 200 ms: no test here asserts a time.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

# A shell starts background jobs with SIGINT ignored, nohup with SIGHUP, and so would be the
# programs that tests stop.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

ROOT = Path(__file__).resolve().parent.parent


def _has_loop() -> bool:
    return os.geteuid() == 0 and Path("/dev/loop-control").exists()


def _has_blkio() -> bool:
    v1 = Path("/sys/fs/cgroup/blkio/cgroup.procs")
    v2 = Path("/sys/fs/cgroup/cgroup.controllers")
    return os.geteuid() == 0 and (v1.exists() or (v2.exists() and "io" in v2.read_text().split()))


def _has_userns() -> bool:
    run = subprocess.run(["unshare", "-Urn", "true"], capture_output=True, check=False)
    return run.returncode == 0


def _has_nobody() -> bool:
    """Whether tests can run the package as an ordinary user who may make namespaces."""
    return os.geteuid() == 0 and has_namespaces() and interpreter() is not None


def _has_matrix() -> bool:
    """Whether any version of the matrix is here; each that is not skips by itself."""
    command = [ROOT / "tools" / "nginx-matrix", "--list"]
    return bool(subprocess.run(command, capture_output=True, check=False).stdout)


def _has_layouts() -> bool:
    """Whether any nginx with the paths of another packager is here."""
    command = [ROOT / "tools" / "nginx-layouts", "--list"]
    return bool(subprocess.run(command, capture_output=True, check=False).stdout)


def _has_stream_modules() -> bool:
    command = [ROOT / "tools" / "nginx-matrix", "--modules", "--list"]
    return bool(subprocess.run(command, capture_output=True, check=False).stdout)


def _has_hdrhistogram_jar() -> bool:
    command = [ROOT / "tools" / "hdrhistogram-jar", "--list"]
    found = subprocess.run(command, capture_output=True, check=False).stdout
    return bool(found) and shutil.which("java") is not None


def _can_make(program: str, file: str, word: str) -> bool:
    """Whether the kernel knows a kind of device or file system, and the program to make one."""
    there = shutil.which(program, path="/usr/sbin:/sbin:/usr/bin:/bin") is not None
    return there and word in Path(file).read_text()


def _has_tracefs() -> bool:
    """Whether this user may trace system calls here; that it is mounted is not needed."""
    from nginx_tune.observe.tracefs import TraceFs, open_tracefs  # noqa: PLC0415

    found = open_tracefs()
    return isinstance(found, TraceFs) and bool(found.events("syscalls", "sys_enter_epoll_pwait"))


HAS: dict[str, Callable[[], bool]] = {
    "root": lambda: os.geteuid() == 0,
    "nginx": lambda: shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin") is not None,
    "loop": _has_loop,
    "blkio": _has_blkio,
    "fuse": lambda: os.geteuid() == 0 and Path("/dev/fuse").exists(),
    "userns": _has_userns,
    "nobody": _has_nobody,
    "btrfs": lambda: _can_make("mkfs.btrfs", "/proc/filesystems", "btrfs"),
    "dm": lambda: _can_make("dmsetup", "/proc/misc", "device-mapper"),
    "md": lambda: _can_make("mdadm", "/proc/devices", " md"),
    "ip": lambda: shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin:/bin") is not None,
    "hdrhistogram-jar": _has_hdrhistogram_jar,
    "gcc": lambda: shutil.which("gcc") is not None,
    "stream-modules": _has_stream_modules,
    "bwrap": lambda: shutil.which("bwrap") is not None,
    "openssl": lambda: shutil.which("openssl") is not None,
    "mandoc": lambda: shutil.which("mandoc") is not None,
    "shellcheck": lambda: shutil.which("shellcheck") is not None,
    "systemd": lambda: shutil.which("systemd-analyze") is not None,
    "terraform": lambda: shutil.which("terraform") is not None,
    "sshd": lambda: all(map(Path.exists, map(Path, ("/usr/sbin/sshd", "/usr/bin/ssh")))),
    "zsh": lambda: shutil.which("zsh") is not None,
    "fish": lambda: shutil.which("fish") is not None,
    "matrix": _has_matrix,
    "layouts": _has_layouts,
    "strace": lambda: shutil.which("strace") is not None,
    "fio": lambda: shutil.which("fio") is not None,
    "bpftrace": lambda: shutil.which("bpftrace", path="/usr/sbin:/sbin:/usr/bin:/bin") is not None,
    "tracefs": _has_tracefs,
    "nbdkit": lambda: all(map(shutil.which, ("nbdkit", "nbdfuse", "fusermount3"))),
    "cc": lambda: shutil.which("cc") is not None,
    "cargo": lambda: shutil.which("cargo") is not None,
    "probe": (ROOT / "nginx_tune" / "_bin" / "nginx-tune-probe").exists,
}


SIDE_BY_SIDE = ("audit", "cli", "conf", "emit", "learn", "secrets")
"""Rooms whose tests start an nginx each, and neither take time nor devices."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        room = item.path.relative_to(ROOT / "tests").parts[0]
        if item.get_closest_marker("needs") and room not in SIDE_BY_SIDE:
            item.add_marker("alone")
    required = {name for name in os.environ.get("NGINX_TUNE_REQUIRE", "").split(",") if name}
    has = cache(lambda name: HAS[name]())
    for item in items:
        for marker in item.iter_markers("needs"):
            for name in marker.args:
                if not has(name) and name not in required:
                    item.add_marker(pytest.mark.skip(reason=f"this host has no {name}"))


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs that tests store are not among the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture
def run_cli() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run ``nginx-tune`` as a user does: a process of its own."""

    def run(
        *arguments: str | Path,
        stdin: str | bytes = "",
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float = 120,
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "nginx_tune", *map(str, arguments)],
            input=stdin.decode() if isinstance(stdin, bytes) else stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            cwd=cwd,
            env={**os.environ, **(env or {})},
        )

    return run
