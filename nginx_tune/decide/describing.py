"""The description that gives the same decisions as a host's facts (``inspect -f toml``)."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from nginx_tune.decide.described import PAGE_CACHE_SHARE, described_facts
from nginx_tune.decide.model.volumes import VOLUME_NAMES
from nginx_tune.documents.described_host import (
    DescribedDirectory,
    DescribedDisk,
    DescribedHost,
    DescribedSize,
)
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.facts_storage import Disk, PathStorage

_KEPT: dict[str, Sequence[str]] = {
    "kernel": ("system", "release", "features", "sysctls"),
    "cpu": ("online", "quota_cpus", "effective", "throttled"),
    "memory": ("total_bytes", "cgroup_limit_bytes", "page_cache_limit_bytes", "names_apart",
               "arc_limit_bytes"),
    "limits": ("nofile_of", "nofile_soft", "nofile_hard", "nr_open", "can_raise"),
    "network": ("somaxconn", "listen_overflows", "listen_drops"),
    "nginx": ("product", "version", "nginx_version", "flags", "conf_path", "error_log_path",
              "user", "mime_types_path", "gzip", "tcp_nopush", "openssl", "openssl_built"),
    "storage": ("paths", "disks", "layers", "arrays", "shared_curves"),
}  # fmt: skip
"""Facts that decisions use, by part."""
_KEPT_WITHIN: dict[str, Sequence[str]] = {
    "sysctls": (
        "fs.nr_open", "net.core.rmem_default", "net.core.rmem_max", "net.core.somaxconn",
        "net.core.wmem_max", "net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.tcp_max_syn_backlog", "net.ipv4.tcp_migrate_req", "net.ipv4.tcp_tw_reuse",
        "net.ipv6.conf.all.disable_ipv6",
    ),
    "features": ("epollexclusive", "tcp_migrate_req", "tls"),
    "paths": (
        "path", "mount_point", "filesystem", "stack", "leaf_disks", "read_ahead_bytes",
        "size_bytes", "available_bytes",
    ),
    "disks": ("name", "class", "size_bytes", "read_ahead_bytes", "volume", "curve"),
    "datasets": ("path", "files", "bytes", "allocated_bytes", "complete", "directories", "sizes"),
    "listeners": ("address", "port", "sockets", "backlog", "drops", "of_nginx"),
}  # fmt: skip
_UNITS = ((1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (10**12, "TB"), (10**9, "GB"))


def describe(facts: Facts) -> DescribedHost:
    """The description that gives the same decisions as these facts."""
    memory, speeds = facts.memory, [link.speed_bits_per_second or 0 for link in facts.network.links]
    cache = memory.page_cache_limit_bytes
    is_whole = cache is not None and memory.total_bytes is not None
    usual = round(PAGE_CACHE_SHARE * (memory.total_bytes or 0))
    files = {dataset.path: dataset for dataset in facts.datasets}
    short = DescribedHost(
        cpus=facts.cpu.effective,
        memory=_size_of(memory.total_bytes) if is_whole else None,
        page_cache=None if not is_whole or cache == usual else _size_of(cache),
        link=_speed(max(speeds, default=0)),
        nginx_version=facts.nginx.nginx_version,
        disks=[_disk(disk) for disk in facts.storage.disks],
        directories=[_directory(place, files) for place in facts.storage.paths],
    )
    return msgspec.structs.replace(short, facts=_rest(facts, described_facts(short)))


def _size_of(size: int | None) -> DescribedSize | None:
    """A size in the largest unit that is exact."""
    for unit, name in _UNITS:
        if size and size % unit == 0:
            return f"{size // unit}{name}"
    return size or None


def _speed(bits_per_second: int) -> DescribedSize | None:
    for unit, name in ((10**9, "G"), (10**6, "M")):
        if bits_per_second and bits_per_second % unit == 0:
            return f"{bits_per_second // unit}{name}"
    return bits_per_second or None


def _disk(disk: Disk) -> DescribedDisk:
    kind: str = disk.class_
    if disk.volume and disk.volume.type in VOLUME_NAMES and kind == "network":
        figures = (disk.volume.reads_per_second, disk.volume.bytes_per_second)
        kind = ",".join(
            [disk.volume.type, *(f"{figure:.0f}" for figure in figures if figure is not None)]
        )
    return DescribedDisk(
        kind=kind,
        name=disk.name,
        size=_size_of(disk.size_bytes),
        read_ahead=_size_of(disk.read_ahead_bytes),
    )


def _directory(place: PathStorage, files: Mapping[str, Any]) -> DescribedDirectory:
    dataset = files.get(place.path)
    return DescribedDirectory(
        path=place.path,
        disks=place.leaf_disks,
        filesystem=place.filesystem,
        mount_point=None if place.mount_point == place.path else place.mount_point,
        size=_size_of(place.size_bytes),
        free=_size_of(place.available_bytes),
        read_ahead=_size_of(place.read_ahead_bytes),
        bytes=_size_of(dataset.bytes) if dataset else None,
        files=dataset.files if dataset else None,
    )


def _rest(facts: Facts, described: Facts) -> dict[str, Any]:
    """Facts that decisions use and that the description lacks or has with another value."""
    wanted, have = msgspec.to_builtins(facts), msgspec.to_builtins(described)
    rest = {part: _missing(wanted[part], have[part], names) for part, names in _KEPT.items()}
    rest |= _missing(wanted, have, ("datasets", "listeners"))
    running = facts.nginx.running
    if running is not None and running.other_mount_namespace:
        rest["nginx"]["running"] = {"pid": running.pid, "other_mount_namespace": True}
    return {name: value for name, value in rest.items() if value}


def _missing(wanted: Mapping[str, Any], have: Mapping[str, Any], names: Sequence[str]) -> Any:
    kept = {name: _kept(name, wanted[name]) for name in names}
    return {
        name: value
        for name, value in kept.items()
        if value is not None and value != _kept(name, have[name])
    }


def _kept(name: str, value: Any) -> Any:
    """The parts of a value that decisions use, without nulls."""
    names = _KEPT_WITHIN.get(name)
    if isinstance(value, list):
        return [_kept(name if names else "", item) for item in value]
    if isinstance(value, dict):
        return {
            key: _kept("", item)
            for key, item in value.items()
            if item is not None and (names is None or key in names)
        }
    return value
