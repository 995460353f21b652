"""Paths and mounts as they really are: the links that lead to a path, the mounts below one."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from nginx_tune.host.parse_storage import Mount, is_inside, parse_mountinfo

PRIVATE = ("/dev", "/proc", "/sys", "/run", "/tmp", "/var/tmp", "/var/run")  # noqa: S108
"""Never shown whole: each sandbox has its own, or none. What is named below them may be."""
KERNELS_OWN = frozenset(
    {
        "proc", "sysfs", "devtmpfs", "devpts", "mqueue", "cgroup", "cgroup2", "debugfs", "tracefs",
        "securityfs", "bpf", "configfs", "pstore", "efivarfs", "fusectl", "binfmt_misc", "autofs",
        "hugetlbfs", "rpc_pipefs", "nsfs", "selinuxfs", "nfsd",
    }
)  # fmt: skip
"""File systems that hold no files of the operator."""
_MOST_LINKS = 40


class ResolvedPath(NamedTuple):
    """A path as it really is."""

    path: str
    """Without links."""
    is_directory: bool
    links: dict[str, str]
    """Links on the way: where each stands, with what is written in it."""


def find(path: str) -> ResolvedPath | None:
    """The place that a path leads to; None where nothing is, or neither a file nor a directory.

    Source: path_resolution(7); 40 links at most.
    """
    links: dict[str, str] = {}
    real = "/"
    left = [part for part in path.split("/") if part not in {"", "."}][::-1]
    while left:
        part = left.pop()
        if part == "..":
            real = os.path.dirname(real)  # noqa: PTH120  # plain text, no links in it
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
    """The place of a path that need not exist: links are followed as far as they lead."""
    missing: list[str] = []
    here = os.path.normpath(path)
    while (found := find(here)) is None:
        here, name = os.path.split(here)
        missing.append(name)
    real = "/".join([found.path.rstrip("/"), *reversed(missing)]) or "/"
    return ResolvedPath(real, found.is_directory and not missing, found.links)


def read_mounts() -> list[Mount]:
    """Every mount of this namespace that some path leads to, each after what it stands on."""
    text = Path("/proc/self/mountinfo").read_bytes().decode(errors="surrogateescape")
    return in_sight(parse_mountinfo(text))


def in_sight(mounts: Sequence[Mount]) -> list[Mount]:
    """Without those that a later mount lies over; one over the root itself covers nothing."""
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
    """The mounts in a directory, itself not among them; those that hold files of somebody."""
    return [
        mount
        for mount in mounts
        if mount.mount_point != directory
        and is_inside(mount.mount_point, directory)
        and mount.filesystem not in KERNELS_OWN
    ]


def is_private(path: str) -> bool:
    """True for one of the private places, and for the root, which holds nothing but them."""
    return path == "/" or path in PRIVATE or is_inside(path, "/proc") or is_inside(path, "/sys")


def outermost(paths: Iterable[str]) -> list[str]:
    """Those that are in no other one, sorted."""
    found: list[str] = []
    for path in sorted(set(paths)):
        if not any(is_inside(path, other) for other in found):
            found.append(path)
    return found
