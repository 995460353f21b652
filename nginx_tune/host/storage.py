"""The disks under paths.

A path is on a mount with a block device (``MAJOR:MINOR``), or on a file system that keeps its data
elsewhere: overlayfs in its layers, btrfs on a list of devices, tmpfs in memory, NFS on a server. A
block device is a partition, or on top of others (``slaves/``: md, LVM, dm, bcache), or a file
(loop), which again has a path. A device with nothing under it is a leaf disk. Paths that share a
leaf disk also share its failures and queues, whatever devices are in between.
"""

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from nginx_tune.documents.facts import Array, Disk, Layer, PathStorage, Storage
from nginx_tune.host.block_devices import read_array, read_disk, read_layer, read_read_ahead_bytes
from nginx_tune.host.door import Gaps, Host, Missing, attempt, known, mapped, under
from nginx_tune.host.mounts import View, own_view, view_of
from nginx_tune.host.parse_storage import (
    Classification,
    Mount,
    classify_filesystem,
    is_inside,
    mount_of,
    parse_zpool_devices,
)

_MAX_DEPTH = 32
"""Maximum number of levels of devices; a recorded host may contain a cycle."""

_SYSTEM_DIRECTORIES = (
    "/boot", "/dev", "/efi", "/etc", "/proc", "/root", "/run", "/snap", "/sys", "/tmp", "/usr",  # noqa: S108
    "/var/lib/containerd", "/var/lib/containers", "/var/lib/docker", "/var/lib/kubelet",
    "/var/lib/lxcfs", "/var/log", "/var/snap", "/var/tmp",  # noqa: S108
)  # fmt: skip
"""Mounts at or below these directories count as without served data, unless the user names a path
there."""
_NO_SIZE = Missing("the file system has no size")
"""File systems without a size: the kernel's own, and some FUSE file systems."""
_SYSTEM_FILESYSTEMS = {"squashfs", "iso9660", "udf", "vfat", "efivarfs", "erofs"}


def read_storage(
    host: Host,
    paths: Iterable[str],
    *,
    loop_is_leaf: bool = False,
    nginx_pid: int | None = None,
    nginx_first: bool = False,
    watch_seconds: float = 0.0,
) -> tuple[Storage, Gaps]:
    """The storage under the given paths and under every mount for data.

    ``nginx_pid`` is an nginx in another mount namespace. Paths that do not exist in ours are looked
    up in its mounts; with ``nginx_first``, its mounts come first for all paths. The disks are
    watched for ``watch_seconds``.

    Shape: the given paths first, then data mounts of the preferred view. Independent disks are
           counted over the given paths, else over the data mounts. If there are neither, only the
           root is read.
    """
    gaps: Gaps = {}
    views = [own_view(host)]
    if nginx_pid is not None:
        foreign = view_of(host, nginx_pid)
        if isinstance(foreign, Missing):
            gaps["/paths"] = f"not through the mounts of nginx: {foreign.reason}"
        else:
            views.insert(0 if nginx_first else 1, foreign)
    resolver = PathResolver(host, views, loop_is_leaf=loop_is_leaf)
    given = list(dict.fromkeys(paths))
    mounts = [point for point in data_mount_points(views[0].mounts) if point not in given]
    wanted = [*given, *mounts] or ["/"]
    placed = []
    for index, path in enumerate(wanted):
        part, part_gaps = resolver.place(path)
        placed.append(part)
        gaps |= under(f"/paths/{index}", part_gaps)
    busy = _watch(host, watch_seconds)
    disks = []
    for index, name in enumerate(sorted(resolver.disks)):
        disk, disk_gaps = resolver.disks[name]
        ratio = busy if isinstance(busy, Missing) else busy.get(name, Missing("no block device"))
        utilisation = known(ratio, disk_gaps, "/utilisation_ratio")
        disks.append(replace(disk, utilisation_ratio=utilisation))
        gaps |= under(f"/disks/{index}", disk_gaps)
    arrays = []
    for index, name in enumerate(sorted(resolver.arrays)):
        array, array_gaps = resolver.arrays[name]
        arrays.append(array)
        gaps |= under(f"/arrays/{index}", array_gaps)
    counted = placed[: len(given)] if given else placed
    count = count_independent(counted, disks)
    if count is None:
        gaps["/independent_disk_count"] = "no leaf disk is known under the paths"
    layers = [resolver.layers[name] for name in sorted(resolver.layers)]
    return (
        Storage(
            paths=placed, disks=disks, layers=layers, arrays=arrays, independent_disk_count=count
        ),
        gaps,
    )


def _watch(host: Host, seconds: float) -> dict[str, float] | Missing:
    if not seconds:
        return Missing("not watched; --utilisation watches the disks for a second")
    return attempt(host.disk_activity, seconds)


def data_mount_points(mounts: list[Mount]) -> list[str]:
    """Mount points that may hold served data on disks, without those of the system, sorted."""
    points = {
        mount.mount_point
        for mount in mounts
        if (not mount.device.startswith("0:") or mount.filesystem in {"btrfs", "zfs", "bcachefs"})
        and mount.filesystem not in _SYSTEM_FILESYSTEMS
        and mount.mount_point != "/"
        and not any(is_inside(mount.mount_point, system) for system in _SYSTEM_DIRECTORIES)
    }
    return sorted(points)


def count_independent(paths: Iterable[PathStorage], disks: Iterable[Disk]) -> int | None:
    """The number of groups of leaf disks; paths with a common leaf are one group.

    None if no path is on a disk; memory does not count as one.
    """
    memory = {disk.name for disk in disks if disk.class_ == "memory"}
    groups: list[set[str]] = []
    for path in paths:
        joined = set(path.leaf_disks) - memory
        if not joined:
            continue
        apart = []
        for group in groups:
            if group & joined:
                joined |= group
            else:
                apart.append(group)
        groups = [*apart, joined]
    return len(groups) or None


@dataclass
class _Below:
    """The devices under a mount or a device."""

    stack: dict[str, None] = field(default_factory=dict)
    """Names of devices from the top down, each once."""
    leaves: dict[str, None] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)


class PathResolver:
    """Finds the storage under paths, and collects the leaf disks, layers and arrays on the way.

    ``views`` are in order of preference; one of them must be our own.
    """

    def __init__(self, host: Host, views: list[View], *, loop_is_leaf: bool = False) -> None:
        self.disks: dict[str, tuple[Disk, Gaps]] = {}
        self.layers: dict[str, Layer] = {}
        self.arrays: dict[str, tuple[Array, Gaps]] = {}
        self._host = host
        self._views = views
        self._own = next(view for view in views if not view.is_foreign)
        self._loop_is_leaf = loop_is_leaf

    def place(self, path: str) -> tuple[PathStorage, Gaps]:
        """The storage under a path, which need not exist yet."""
        view = self._view_with(path)
        real = view.nearest(path)
        mount = None if isinstance(real, Missing) else mount_of(view.mounts, real)
        if isinstance(real, Missing) or mount is None:
            reason = real.reason if isinstance(real, Missing) else "no mount is known"
            gaps = dict.fromkeys(
                (
                    "/mount_point", "/filesystem", "/source", "/device", "/read_ahead_bytes",
                    "/size_bytes", "/available_bytes",
                ),
                reason,
            )  # fmt: skip
            return PathStorage(path=path, reason=reason), gaps
        below = _Below()
        self._under_mount(view, mount, below, 0)
        gaps = {}
        room = attempt(self._host.room, view.outside(real))
        size = mapped(room, lambda found: found.size_bytes or _NO_SIZE)
        free = mapped(size, lambda _: mapped(room, lambda found: found.available_bytes))
        placed = PathStorage(
            path=path,
            mount_point=mount.mount_point,
            filesystem=mount.filesystem,
            source=mount.source,
            device=mount.device,
            stack=list(below.stack),
            leaf_disks=list(below.leaves),
            read_ahead_bytes=known(self._read_ahead(mount), gaps, "/read_ahead_bytes"),
            size_bytes=known(size, gaps, "/size_bytes"),
            available_bytes=known(free, gaps, "/available_bytes"),
            seen_by_nginx=view.is_foreign,
            reason="; ".join(dict.fromkeys(below.reasons)),
        )
        return placed, gaps

    def _view_with(self, path: str) -> View:
        """The first view in which the path exists, else the first view."""
        if len(self._views) == 1:
            return self._views[0]
        there = (v for v in self._views if not isinstance(v.real_path(path), Missing))
        return next(there, self._views[0])

    def _under_mount(self, view: View, mount: Mount, below: _Below, depth: int) -> None:
        if depth > _MAX_DEPTH:
            below.reasons.append("devices refer to each other in a circle")
        elif mount.filesystem in {"overlay", "aufs", "fuse.fuse-overlayfs"}:
            self._under_overlay(view, mount, below, depth)
        elif mount.filesystem == "btrfs":
            self._under_btrfs(mount, below, depth)
        elif mount.filesystem == "bcachefs":
            self._under_bcachefs(mount, below, depth)
        elif mount.filesystem == "zfs" and self._under_zfs(mount, below, depth):
            return
        elif verdict := classify_filesystem(mount.filesystem):
            name = "memory" if verdict.disk_class == "memory" else mount.source
            if verdict.disk_class == "unknown":
                below.reasons.append(verdict.reason)
            else:
                below.leaves[name] = None
                self.disks.setdefault(name, _without_device(name, verdict))
        elif mount.device.startswith("0:"):
            below.reasons.append(f"{mount.filesystem} has no block device")
        else:
            self._under_device(f"/sys/dev/block/{mount.device}", below, depth)

    def _under_overlay(self, view: View, mount: Mount, below: _Below, depth: int) -> None:
        """Follow the layers: writes go to the upper layer, reads to any layer."""
        upper = mount.options.get("upperdir")
        lower = mount.options.get("lowerdir", "").replace("\\:", "\0").split(":")
        layers = [layer.replace("\0", ":") for layer in ([upper] if upper else []) + lower if layer]
        seen = set()
        for layer in layers:
            holder, where = self._layer_holder(view, mount, layer)
            if holder is None:
                below.reasons.append("overlay layers are outside this mount namespace")
            elif holder.mount_id not in seen:
                seen.add(holder.mount_id)
                self._under_mount(where, holder, below, depth + 1)
        if not layers:
            below.reasons.append(f"{mount.filesystem} does not show its layers")

    def _layer_holder(self, view: View, mount: Mount, layer: str) -> tuple[Mount | None, View]:
        """The mount of a layer, and its view.

        The path of a container's layer is valid for the process that mounted it, often in our own
        view. If a layer is not visible, its parent must not be used instead: the nearest visible
        one would be the overlay itself.
        """
        for candidate in [view, self._own] if view.is_foreign else [view]:
            real = candidate.real_path(layer)
            holder = None if isinstance(real, Missing) else mount_of(candidate.mounts, real)
            if holder is not None and holder != mount:
                return holder, candidate
        return None, view

    def _under_btrfs(self, mount: Mount, below: _Below, depth: int) -> None:
        """Follow every device of the btrfs to which the mounted device belongs."""
        source = attempt(self._host.real_path, mount.source)
        name = mount.source if isinstance(source, Missing) else source
        name = name.rpartition("/")[2]
        filesystems = attempt(self._host.list_dir, "/sys/fs/btrfs")
        for uuid in [] if isinstance(filesystems, Missing) else filesystems:
            directory = f"/sys/fs/btrfs/{uuid}/devices"
            devices = attempt(self._host.list_dir, directory)
            if not isinstance(devices, Missing) and name in devices:
                for device in devices:
                    self._under_device(f"{directory}/{device}", below, depth + 1)
                return
        below.reasons.append(f"the devices of the btrfs on {mount.source} are not known")

    def _under_bcachefs(self, mount: Mount, below: _Below, depth: int) -> None:
        """Follow every device, joined by colons. Source: bch2_show_devname(), fs/bcachefs/fs.c."""
        for source in mount.source.split(":"):
            real = attempt(self._host.real_path, source)
            name = posixpath.basename(source if isinstance(real, Missing) else real)
            self._under_device(f"/sys/class/block/{name}", below, depth + 1)

    def _under_zfs(self, mount: Mount, below: _Below, depth: int) -> bool:
        """Follow the disks of a pool, listed by ``zpool``; returns False when they are unknown."""
        pool = mount.source.partition("/")[0]
        if not re.fullmatch(r"[A-Za-z][\w.:-]*", pool):
            return False
        run = attempt(self._host.run, ["zpool", "list", "-vHPL", pool])
        devices = [] if isinstance(run, Missing) else parse_zpool_devices(run.stdout)
        for device in devices:
            self._under_device(f"/sys/class/block/{posixpath.basename(device)}", below, depth + 1)
        return bool(devices)

    def _under_device(self, path: str, below: _Below, depth: int) -> None:
        """Follow a block device, by any of its paths in sysfs."""
        real = attempt(self._host.real_path, path)
        if isinstance(real, Missing):
            below.reasons.append(real.reason)
            return
        name = real.rpartition("/")[2]
        if depth > _MAX_DEPTH:
            below.reasons.append("devices refer to each other in a circle")
            return
        if name in below.stack:
            return
        below.stack[name] = None
        if not isinstance(attempt(self._host.read_text, f"{real}/partition"), Missing):
            disk = posixpath.dirname(real)
            self.layers[name] = read_layer(self._host, real, [posixpath.basename(disk)])
            self._under_device(disk, below, depth + 1)
            return
        slaves = attempt(self._host.list_dir, f"{real}/slaves")
        if not isinstance(slaves, Missing) and slaves:
            self._under_stacked(real, slaves, below, depth)
            return
        backing = attempt(self._host.read_text, f"{real}/loop/backing_file")
        if not isinstance(backing, Missing) and not self._loop_is_leaf:
            self.layers[name] = read_layer(self._host, real, [])
            self._under_file(name, backing.rstrip("\n").removesuffix(" (deleted)"), below, depth)
            return
        below.leaves[name] = None
        if name not in self.disks:
            self.disks[name] = read_disk(self._host, real)

    def _under_stacked(self, real: str, slaves: list[str], below: _Below, depth: int) -> None:
        name = posixpath.basename(real)
        if name not in self.layers:
            self.layers[name] = read_layer(self._host, real, slaves)
        layer = self.layers[name]
        if layer.kind == "md" and name not in self.arrays:
            self.arrays[name] = read_array(self._host, real)
        if layer.kind == "multipath":
            self._add_multipath(real, slaves, below)
            return
        for slave in slaves:
            self._under_device(f"{real}/slaves/{slave}", below, depth + 1)

    def _add_multipath(self, real: str, paths: list[str], below: _Below) -> None:
        """Add a multipath disk, with the facts of its first path."""
        name = posixpath.basename(real)
        below.leaves[name] = None
        first = attempt(self._host.real_path, f"{real}/slaves/{paths[0]}")
        if name in self.disks:
            return
        if isinstance(first, Missing):
            why = f"none of its paths can be looked at: {first.reason}"
            self.disks[name] = _without_device(name, Classification("unknown", why))
            return
        disk, gaps = read_disk(self._host, first)
        reason = f"{disk.class_reason} (by path {paths[0]} of {len(paths)})"
        self.disks[name] = (replace(disk, name=name, paths=paths, class_reason=reason), gaps)

    def _under_file(self, loop: str, path: str, below: _Below, depth: int) -> None:
        """Follow the file of a loop device to its disk."""
        view = self._own
        real = view.nearest(path)
        mount = None if isinstance(real, Missing) else mount_of(view.mounts, real)
        if mount is None or real != path:
            below.reasons.append(f"the file behind {loop} cannot be seen, only a parent directory")
        if mount is not None:
            self._under_mount(view, mount, below, depth + 1)

    def _read_ahead(self, mount: Mount) -> int | Missing:
        if mount.device.startswith("0:"):
            return Missing(f"{mount.filesystem} has no block device")
        path = f"/sys/dev/block/{mount.device}"
        real = attempt(self._host.real_path, path)
        if isinstance(real, Missing):
            return real
        own = read_read_ahead_bytes(self._host, real)
        # A partition has the queue of its disk.
        whole = posixpath.dirname(real)
        return read_read_ahead_bytes(self._host, whole) if isinstance(own, Missing) else own


def _without_device(name: str, verdict: Classification) -> tuple[Disk, Gaps]:
    """A placeholder disk for a file system without a block device."""
    disk = Disk(name=name, class_=verdict.disk_class, class_reason=verdict.reason)
    absent = [
        "size_bytes", "model", "rotational", "scheduler", "nr_requests", "hardware_queues",
        "depth", "device_queue_depth", "read_ahead_bytes", "numa_node", "curve",
    ]  # fmt: skip
    return disk, {f"/{field}": "not a block device" for field in absent}
