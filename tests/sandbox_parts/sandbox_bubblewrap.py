"""The attacks of the module inside bubblewrap, given the same view as the package's sandbox gives.

bubblewrap is told by its command line what to show; a filter of system calls it takes by a
descriptor and has none of its own. Nothing of the package but that filter takes part.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sandbox_requests import LISTEN
from unprivileged import AS_NOBODY

_KEPT_AS_ROOT = ("CHOWN", "DAC_OVERRIDE", "KILL", "SETGID", "SETUID", "NET_BIND_SERVICE")
_KEPT_AS_USER = ("NET_BIND_SERVICE",)
_SOFTWARE = ("/usr/lib", "/usr/lib64", "/usr/share", "/lib", "/lib64")
_OF_ETC = ("/etc/ld.so.cache", "/etc/nginx", "/etc/ssl/openssl.cnf", "/etc/passwd", "/etc/group",
           "/etc/nsswitch.conf")  # fmt: skip
_COVERS = ("/run", "/tmp", "/var/tmp", "/var/log/nginx", "/var/lib/nginx", "/dev/shm")
_SECONDS = 60.0


def command(*, is_root: bool, shown: Sequence[str], filter_fd: int = -1) -> list[str]:
    """``bwrap`` with what it is to show; what it is to run goes behind.

    As root no user namespace: nginx could not change its workers' user in one that has one user.
    """
    words = ["bwrap", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net"]
    words += ["--unshare-cgroup-try", *([] if is_root else ["--unshare-user"])]
    words += ["--die-with-parent", "--new-session", "--clearenv", "--chdir", "/"]
    for path in _SOFTWARE:
        if Path(path).is_symlink():
            words += ["--symlink", str(Path(path).readlink()), path]
        elif Path(path).exists():
            words += ["--ro-bind", path, path]
    words += ["--proc", "/proc", "--dev", "/dev"]
    for path in _COVERS:
        words += ["--perms", "1777", "--size", str(1 << 30), "--tmpfs", path]
    for parent in sorted({str(up) for path in shown for up in Path(path).parents} - {"/"}):
        if not parent.startswith(("/usr/lib", *_COVERS)):  # not for root alone
            words += ["--perms", "0755", "--dir", parent]
    for path in (*_OF_ETC, *shown):
        words += ["--ro-bind-try", path, path]
    words += ["--remount-ro", "/", "--cap-drop", "ALL"]
    for name in _KEPT_AS_ROOT if is_root else _KEPT_AS_USER:
        words += ["--cap-add", f"CAP_{name}"]
    return [*words, *(["--seccomp", str(filter_fd)] if filter_fd >= 0 else []), "--"]


@contextlib.contextmanager
def given_filter(package: str) -> Iterator[int]:
    """The package's own filter of system calls, as a descriptor; that of nginx without sockets."""
    sys.path.insert(0, package)
    from nginx_tune.sandbox.plan_filter import (  # noqa: PLC0415  # of that package
        call_numbers,
        plan_filter,
    )

    machine = os.uname().machine
    program = plan_filter(machine, call_numbers(machine), asks=False)
    descriptor = os.memfd_create("filter")
    os.write(descriptor, program)
    os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def run_module(conf: Path, request: dict[str, Any], shown: Sequence[str]) -> str:
    """What nginx says in which the module attacks, while it is loaded or in a worker."""
    user, nginx, how = request["user"], request["nginx"], request["how"]
    with contextlib.ExitStack() as stack:
        descriptor = -1
        if request["sandbox"] == "bubblewrap and filter":
            descriptor = stack.enter_context(given_filter(request["package"]))
        told, tell = os.pipe()
        words = command(is_root=user == "root", shown=[nginx, *shown], filter_fd=descriptor)
        words[1:1] = ["--info-fd", str(tell)]
        mode = ["-t"] if how == "test" else ["-g", "daemon off;"]
        process = subprocess.Popen(
            [*words, nginx, "-c", conf, *mode],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            pass_fds=[tell, *([descriptor] if descriptor >= 0 else [])],
            cwd="/", **(AS_NOBODY if user == "nobody" else {}),
        )  # fmt: skip
        os.close(tell)
        with os.fdopen(told) as pipe:
            told_by_it = pipe.read()
        if how == "request" and told_by_it:
            _ask(json.loads(told_by_it)["child-pid"])
            process.terminate()
        try:
            said, _ = process.communicate(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
        return said


_CLIENT = f"""
import socket, time
for _ in range(100):
    try:
        client = socket.create_connection(("127.0.0.1", {LISTEN}), 1.0)
        break
    except OSError:
        time.sleep(0.05)
client.settimeout({_SECONDS})
client.sendall(b"GET /memory HTTP/1.0\\r\\n\\r\\n")
client.recv(100)
"""


def _ask(pid: int) -> None:
    """Send a request from inside its network namespace, which no one else is in."""
    subprocess.run(
        ["nsenter", "--net", "--target", str(pid), sys.executable, "-c", _CLIENT],
        capture_output=True, check=False, timeout=_SECONDS + 10,
    )  # fmt: skip


def groups() -> dict[str, str]:
    """Which group each attack is of, by the comments of ``attack.c``; not those that exhaust."""
    found, group = {}, ""
    text = Path(__file__).with_name("attack.c").read_text()
    tried = set(re.findall(r"\bA\((\w+)\)", text))
    for line in text.splitlines():
        if heading := re.match(r"/\* (.+)\. \*/$", line):
            group = heading[1]
        elif (function := re.match(r"static int (\w+)\(void\)", line)) and function[1] in tried:
            found[function[1]] = group
    return found
