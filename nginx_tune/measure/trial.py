"""``nginx -t`` on a tree with some files replaced, inside walls that keep nothing of it.

``nginx -t`` creates logs, pid files and directories, binds addresses, resolves names and runs the
code of modules. Inside the walls the file system is read-only but for memory, the only link is
``lo``, every address can be bound and every name of the configuration resolves, so what is judged
is the configuration, and nothing of the host is touched.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nginx_tune.documents.findings import NginxTest
from nginx_tune.host.door import ProgramResult
from nginx_tune.host.live import LiveHost
from nginx_tune.lab import mounts
from nginx_tune.lab.stub_server import RESOLVED
from nginx_tune.lab.walls import Walls
from nginx_tune.measure.session import MODULE_INSIDE

MOST_RUNS = 200
"""Each run past the first gives nginx one more thing that the walls had taken away."""

_SECONDS = 60.0
_READ_ONLY = re.compile(r'\((?:\) )?"(/[^"\n]*)"(?:, [0-9]+\))? failed \(30: ')
_NO_HOST = re.compile(r'host not found in [a-z "]*?"?([^\s":;/$]+)(?::[0-9]+)?"')
_BIND_ANYWHERE = ("ipv4/ip_nonlocal_bind", "ipv6/ip_nonlocal_bind")


def try_configuration(
    binary: str, conf: str, *, prefix: str | None, replaced: Mapping[str, bytes]
) -> NginxTest:
    """What the target's ``nginx -t`` says of a configuration with some files replaced.

    Errors: MissingPermissionError when the walls cannot be made by this user.
    """
    argv = [binary, "-t", "-c", os.path.abspath(conf)]  # noqa: PTH100  # links stay
    argv += ["-p", os.path.abspath(prefix)] if prefix is not None else []  # noqa: PTH100
    files = {
        os.path.realpath(path): base64.b64encode(data).decode() for path, data in replaced.items()
    }
    with Walls(MODULE_INSIDE) as walls:
        answer = walls.ask("try_configuration", {"argv": argv, "files": files, "seal": walls.root})
    return NginxTest(accepted=answer["status"] == 0, messages=answer["messages"])


def try_inside(argv: list[str], files: dict[str, str], directory: Path, *, seal: bool) -> Any:
    """Run the test; called by the process inside the walls.

    Shape: ``status`` and ``messages`` of the last run.
    """
    _bind_anywhere()
    show_files({path: base64.b64decode(data) for path, data in files.items()}, directory)
    if seal:
        mounts.seal_all(keep=directory)
    hosts = Path("/etc/hosts").read_text() if Path("/etc/hosts").exists() else "127.0.0.1 x\n"
    given: set[str] = set()
    run = _run(argv)
    for _ in range(MOST_RUNS):
        if run.status == 0:
            break
        wanted = _lacking(run.stderr)
        if wanted is None or wanted in given:
            break
        given.add(wanted)
        if wanted.startswith("/"):
            mounts.make_writable(Path(wanted).parent)
        else:
            hosts += f"127.0.0.1 {wanted}\n"
            _show_hosts(hosts, directory)
        run = _run(argv)
    return {"status": run.status, "messages": [line for line in run.stderr.splitlines() if line]}


def show_files(files: Mapping[str, bytes], directory: Path) -> None:
    """Show other bytes in the place of some files; the copies are kept in the directory."""
    for number, (path, data) in enumerate(files.items()):
        _replace(Path(path), data, directory / f"replaced-{number}")


def give_names(argv: list[str], directory: Path) -> list[str]:
    """Have every name that a configuration needs resolve, to where nothing but stubs answers.

    Shape: the names.

    Called by the process inside the walls. What else nginx says of the configuration it says
    again when it is started.
    """
    given: list[str] = []
    hosts = Path("/etc/hosts").read_text() if Path("/etc/hosts").exists() else ""
    for _ in range(MOST_RUNS):
        run = _run(argv)
        wanted = _lacking(run.stderr) if run.status else None
        if wanted is None or wanted.startswith("/") or wanted in given:
            break
        given.append(wanted)
        hosts = f"{hosts.rstrip()}\n{RESOLVED} {wanted}\n"
        _show_hosts(hosts, directory)
    return given


def _run(argv: list[str]) -> ProgramResult:
    return LiveHost().run(argv, timeout_seconds=_SECONDS)


def _lacking(stderr: str) -> str | None:
    """The path that could not be written, or the name that could not be resolved."""
    for line in stderr.splitlines():
        if "[emerg]" not in line:
            continue
        if path := _READ_ONLY.search(line):
            return path[1]
        if name := _NO_HOST.search(line):
            return name[1]
    return None


def _replace(path: Path, data: bytes, copy: Path) -> None:
    """Show other bytes in a file's place; it need not exist."""
    if not path.exists():
        mounts.place(path.parent)
        mounts.make_writable(path.parent)
        path.write_bytes(data)
        return
    copy.write_bytes(data)
    copy.chmod(path.stat().st_mode & 0o7777)
    mounts.show_instead(copy, path)


def _show_hosts(text: str, directory: Path) -> None:
    copy = directory / "hosts"
    is_shown = copy.exists()
    copy.write_text(text)
    if not is_shown:
        mounts.show_instead(copy, Path("/etc/hosts"))


def _bind_anywhere() -> None:
    for name in _BIND_ANYWHERE:
        try:
            Path("/proc/sys/net", name).write_text("1")
        except OSError:  # a kernel without IPv6; nginx then says so of its addresses
            continue
