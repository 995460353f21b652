"""The real paths of files, the links to them, and the mounts below a path."""

import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from nginx_tune.host.parse_storage import Mount, is_inside, parse_mountinfo

PRIVATE = ("/dev", "/proc", "/sys", "/run", "/tmp", "/var/tmp", "/var/run")  # noqa: S108
"""Directories that are never shown whole, since each sandbox has its own, or none."""
KERNELS_OWN = frozenset(
    {
        "proc", "sysfs", "devtmpfs", "devpts", "mqueue", "cgroup", "cgroup2", "debugfs", "tracefs",
        "securityfs", "bpf", "configfs", "pstore", "efivarfs", "fusectl", "binfmt_misc", "autofs",
        "hugetlbfs", "rpc_pipefs", "nsfs", "selinuxfs", "nfsd",
    }
)  # fmt: skip
"""Kernel file systems, which hold no files of the operator."""
_MOST_LINKS = 40


class ResolvedPath(NamedTuple):
    """The resolved path of a file, and the links that led to it."""

    path: str
    """The path without links."""
    is_directory: bool
    links: dict[str, str]
    """The targets of the links on the way, by path."""


def find(path: str) -> ResolvedPath | None:
    """The real path of a file or directory; None for anything else.

    Source: path_resolution(7); 40 links at most.
    """
    links: dict[str, str] = {}
    real = "/"
    left = [part for part in path.split("/") if part not in {"", "."}][::-1]
    while left:
        part = left.pop()
        if part == "..":
            real = os.path.dirname(real)  # noqa: PTH120  # textual, since it has no links
            continue
        here = os.path.join(real, part)  # noqa: PTH118
        try:
            mode = os.lstat(here).st_mode
            if not stat.S_ISLNK(mode):
                real = here
                continue
            links[here] = os.readlink(here)  # noqa: PTH115
        except OSError:
            return None
        if len(links) > _MOST_LINKS:
            return None
        text = links[here]
        real = "/" if text.startswith("/") else real
        left += [part for part in text.split("/") if part not in {"", "."}][::-1]
    mode = os.stat(real).st_mode  # noqa: PTH116
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        return None
    return ResolvedPath(real, stat.S_ISDIR(mode), links)


def settle(path: str) -> ResolvedPath:
    """The real path of a file that need not exist."""
    missing: list[str] = []
    here = os.path.normpath(path)
    while (found := find(here)) is None:
        here, name = os.path.split(here)
        missing.append(name)
    real = "/".join([found.path.rstrip("/"), *reversed(missing)]) or "/"
    return ResolvedPath(real, found.is_directory and not missing, found.links)


def read_mounts() -> list[Mount]:
    """The reachable mounts of this namespace, each after its parent."""
    text = Path("/proc/self/mountinfo").read_bytes().decode(errors="surrogateescape")
    return in_sight(parse_mountinfo(text))


def in_sight(mounts: Sequence[Mount]) -> list[Mount]:
    """The mounts that no later mount covers. A later mount on ``/`` counts as covering nothing."""
    covers: set[str] = set()
    found = []
    for mount in reversed(mounts):
        point = mount.mount_point
        if point not in covers and not any(is_inside(point, cover) for cover in covers):
            found.append(mount)
        if point != "/":
            covers.add(point)
    return found[::-1]


def below(mounts: Iterable[Mount], directory: str) -> list[Mount]:
    """The mounts below a directory, without its own mount and kernel file systems."""
    return [
        mount
        for mount in mounts
        if mount.mount_point != directory
        and is_inside(mount.mount_point, directory)
        and mount.filesystem not in KERNELS_OWN
    ]


def is_private(path: str) -> bool:
    """True for the root and for paths that are never shown whole."""
    return path == "/" or path in PRIVATE or is_inside(path, "/proc") or is_inside(path, "/sys")


def outermost(paths: Iterable[str]) -> list[str]:
    """The paths that are not below another of the paths, sorted."""
    found: list[str] = []
    for path in sorted(set(paths)):
        if not any(is_inside(path, other) for other in found):
            found.append(path)
    return found
