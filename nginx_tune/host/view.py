"""How a process sees files: its mounts, and where its root directory is for the reader.

An nginx in a container lives in a mount namespace of its own. Its mounts stand in
``/proc/PID/mountinfo``, its files are reached through ``/proc/PID/root``. That is a magic link:
the kernel goes on behind it with the other namespace's mounts, but its text is just ``/``, so
links are followed here one by one, each from that root.
"""

from __future__ import annotations

import posixpath
from typing import NamedTuple

from nginx_tune.host.door import Host, Missing, attempt
from nginx_tune.host.parse_mountinfo import Mount, parse_mountinfo

_MOST_STEPS = 200
"""The kernel follows 40 links; a path of more parts is none."""


class View(NamedTuple):
    """Files as one process sees them."""

    host: Host
    mounts: list[Mount]
    root: str = ""
    """``/proc/PID/root``; empty for the reader's own."""

    @property
    def is_foreign(self) -> bool:
        """Whether it is another process's."""
        return bool(self.root)

    def real_path(self, path: str) -> str | Missing:
        """The path, as this view names it, with every link resolved; the file must exist."""
        if not self.root:
            return attempt(self.host.real_path, path)
        return _real_path_below(self.host, self.root, path)

    def nearest(self, path: str) -> str | Missing:
        """The path, links resolved, or its nearest parent that exists."""
        candidate = posixpath.normpath(path)
        while True:
            real = self.real_path(candidate)
            parent = posixpath.dirname(candidate)
            # "/" and "//" are their own parents; a relative path ends at nothing.
            if not isinstance(real, Missing) or parent in {candidate, ""}:
                return real
            candidate = parent

    def outside(self, path: str) -> str:
        """How the reader names a path of this view."""
        return f"{self.root}{path}"


def own_view(host: Host) -> View:
    """The reader's view."""
    return View(host, _read_mounts(host, "self"))


def view_of(host: Host, pid: int) -> View | Missing:
    """Another process's view; what it shows needs the right to trace that process."""
    mounts = _read_mounts(host, str(pid))
    root = f"/proc/{pid}/root"
    reachable = attempt(host.device_of, f"{root}/")
    if isinstance(reachable, Missing):
        return reachable
    return View(host, mounts, root) if mounts else Missing(f"/proc/{pid}/mountinfo cannot be read")


def _read_mounts(host: Host, process: str) -> list[Mount]:
    text = attempt(host.read_text, f"/proc/{process}/mountinfo")
    return [] if isinstance(text, Missing) else parse_mountinfo(text)


def _real_path_below(host: Host, root: str, path: str) -> str | Missing:
    done = ""
    parts = path.split("/")
    for _ in range(_MOST_STEPS):
        if not parts:
            there = attempt(host.device_of, f"{root}{done}/")
            if isinstance(there, Missing):
                there = attempt(host.device_of, f"{root}{done}")
            return there if isinstance(there, Missing) else done or "/"
        part = parts.pop(0)
        if part in {"", "."}:
            continue
        if part == "..":
            done = posixpath.dirname(done).rstrip("/")
            continue
        target = attempt(host.read_link, f"{root}{done}/{part}")
        if isinstance(target, Missing):
            done = f"{done}/{part}"
            continue
        done = "" if target.startswith("/") else done
        parts = target.split("/") + parts
    return Missing(f"{path}: too many links")
