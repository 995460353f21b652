"""The files that a process sees through its mounts, and its control groups.

An nginx in a container has its own mount namespace, with its mounts in ``/proc/PID/mountinfo`` and
its files below ``/proc/PID/root``. That is a magic link: the kernel continues with the other
namespace's mounts, but the link's text is just ``/``. So links are followed here one by one, from
that root.

A control group is a directory below a mount; each controller can have a different one.
"""

import posixpath
from typing import NamedTuple

from nginx_tune.host.door import Host, Missing, attempt
from nginx_tune.host.parse_proc import membership_for, parse_membership
from nginx_tune.host.parse_storage import Mount, is_inside, parse_mountinfo

_MOST_STEPS = 200
"""Maximum number of components to resolve in a path; the kernel follows 40 links."""


class View(NamedTuple):
    """The files that a process sees."""

    host: Host
    mounts: list[Mount]
    root: str = ""
    """``/proc/PID/root``; empty for our own."""

    @property
    def is_foreign(self) -> bool:
        """True for another process's view."""
        return bool(self.root)

    def real_path(self, path: str) -> str | Missing:
        """The path in this view with its links resolved; the file must exist."""
        if not self.root:
            return attempt(self.host.real_path, path)
        return _real_path_below(self.host, self.root, path)

    def nearest(self, path: str) -> str | Missing:
        """The path with its links resolved, or its nearest existing parent."""
        candidate = posixpath.normpath(path)
        while True:
            real = self.real_path(candidate)
            parent = posixpath.dirname(candidate)
            # "/" and "//" are their own parents; a relative path ends at "".
            if not isinstance(real, Missing) or parent in {candidate, ""}:
                return real
            candidate = parent

    def outside(self, path: str) -> str:
        """The path by which this process reaches a file of this view."""
        return f"{self.root}{path}"


def own_view(host: Host) -> View:
    """The view of this process."""
    return View(host, read_mounts(host))


def view_of(host: Host, pid: int) -> View | Missing:
    """The view of another process; this needs the right to trace that process."""
    mounts = read_mounts(host, str(pid))
    root = f"/proc/{pid}/root"
    reachable = attempt(host.device_of, f"{root}/")
    if isinstance(reachable, Missing):
        return reachable
    return View(host, mounts, root) if mounts else Missing(f"/proc/{pid}/mountinfo cannot be read")


def read_mounts(host: Host, process: str = "self") -> list[Mount]:
    """The mounts of a process; empty if unreadable."""
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


class ControlGroup(NamedTuple):
    """A control group for a controller."""

    version: int
    directories: list[str]
    """The directories of the group and its visible ancestors, the group first."""


def read_group(host: Host, controller: str, process: str = "self") -> ControlGroup | Missing:
    """The control group of a process (a pid or ``self``) for a controller."""
    membership_text = attempt(host.read_text, f"/proc/{process}/cgroup")
    if isinstance(membership_text, Missing):
        return membership_text
    membership = membership_for(parse_membership(membership_text), controller)
    if isinstance(membership, Missing):
        return membership
    mount = _hierarchy_mount(read_mounts(host), membership.version, controller)
    if mount is None:
        return Missing(f"cgroup version {membership.version} is not mounted")
    return ControlGroup(
        membership.version, _upward(mount.mount_point, _directory(mount, membership.path))
    )


def group_at(host: Host, directory: str) -> ControlGroup | Missing:
    """The control group at a directory, with its ancestors in the hierarchy."""
    directory = directory.rstrip("/") or "/"
    around = [
        mount
        for mount in read_mounts(host)
        if mount.filesystem in {"cgroup", "cgroup2"} and is_inside(directory, mount.mount_point)
    ]
    if not around:
        return Missing(f"{directory} is not inside a mounted cgroup hierarchy")
    mount = max(around, key=lambda m: len(m.mount_point))
    version = 2 if mount.filesystem == "cgroup2" else 1
    return ControlGroup(version, _upward(mount.mount_point, directory))


def _hierarchy_mount(mounts: list[Mount], version: int, controller: str) -> Mount | None:
    if version == 1:
        return next(
            (m for m in mounts if m.filesystem == "cgroup" and controller in m.options), None
        )
    return next((m for m in mounts if m.filesystem == "cgroup2"), None)


def _directory(mount: Mount, path: str) -> str:
    """The directory of a group below a mount, which may show only a part of the hierarchy.

    A container without a cgroup namespace sees the host's path, but only its own group is mounted.
    That path is then the mount's ``root``. For a path outside of ``root``, the mount point is
    returned.
    """
    if mount.root != "/" and is_inside(path, mount.root):
        path = path[len(mount.root) :]
    elif mount.root != "/" or path.startswith("/.."):
        path = ""
    return (mount.mount_point.rstrip("/") + "/" + path.strip("/")).rstrip("/")


def _upward(top: str, directory: str) -> list[str]:
    found = [directory]
    while found[-1] != top and is_inside(found[-1], top):
        found.append(found[-1].rpartition("/")[0] or "/")
    return found
