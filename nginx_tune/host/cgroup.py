"""Where the control group of a process is on this host, per controller."""

from __future__ import annotations

from typing import NamedTuple

from nginx_tune.host.door import Host, Missing, attempt
from nginx_tune.host.parse_cgroup import Membership, membership_for, parse_membership
from nginx_tune.host.parse_mountinfo import Mount, is_inside, parse_mountinfo


class ControlGroup(NamedTuple):
    """A control group of one controller."""

    version: int
    directories: list[str]
    """Of the group and all its ancestors that can be seen, the group first."""


def read_group(host: Host, controller: str, process: str = "self") -> ControlGroup | Missing:
    """The group of a process (a pid or ``self``) that counts for ``controller``."""
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
    """The group whose directory was named, with its ancestors in the same hierarchy."""
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


def read_mounts(host: Host) -> list[Mount]:
    """The mounts this process sees; none when the host does not tell."""
    text = attempt(host.read_text, "/proc/self/mountinfo")
    return [] if isinstance(text, Missing) else parse_mountinfo(text)


def _hierarchy_mount(mounts: list[Mount], version: int, controller: str) -> Mount | None:
    if version == 1:
        return next(
            (m for m in mounts if m.filesystem == "cgroup" and controller in m.options), None
        )
    return next((m for m in mounts if m.filesystem == "cgroup2"), None)


def _directory(mount: Mount, path: str) -> str:
    """The directory of a group below a mount that may itself show a part of the hierarchy.

    A container without a cgroup namespace sees the host's path, but mounted is only its own
    group: then ``root`` is that path. A path outside of what is mounted is the mount itself.
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


__all__ = ["ControlGroup", "Membership", "group_at", "read_group", "read_mounts"]
