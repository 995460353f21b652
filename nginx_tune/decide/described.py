"""Conversion of a described host to facts and a workload, and of facts to a description.

Only three values are filled in: the page cache (nine tenths of the memory), the build (nginx.org's
package of the version) and the number of files (amount of data divided by the mean size).
"""

import math
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from nginx_tune.conf.known_directives import version_fault
from nginx_tune.conf.values import parse_bytes
from nginx_tune.decide.model.volumes import VOLUME_NAMES
from nginx_tune.decide.objectives import time_goal
from nginx_tune.documents.base import decode_tables
from nginx_tune.documents.described_host import (
    LEAST_OF_HOST_BYTES,
    DescribedDirectory,
    DescribedDisk,
    DescribedHost,
    DescribedSize,
    parse_rate,
    parse_size,
    parse_speed,
)
from nginx_tune.documents.facts import Dataset, Facts, Nginx, Unknown
from nginx_tune.documents.facts_machine import DECLARED, Cpu, Link, Memory, Network
from nginx_tune.documents.facts_storage import (
    NETWORK_FILESYSTEMS,
    Disk,
    DiskClass,
    PathStorage,
    Storage,
    Volume,
)
from nginx_tune.documents.units import bytes_text, plural
from nginx_tune.documents.workload import Objective, ObjectSizes, ServedData, Workload
from nginx_tune.errors import UsageError

PAGE_CACHE_SHARE = 0.9
"""Page cache as a share of the memory; the rest is for the system and nginx."""
_PAGE_CACHE_REASON = "nine tenths of the declared memory"
_CLASSES: tuple[DiskClass, ...] = DiskClass.__args__  # type: ignore[attr-defined]  # of a Literal
_HOST_WORDS = ("cpus", "memory", "page_cache", "disks", "directories", "facts")
"""Words that describe a host. A link alone does not, since it is added to the facts of the host at
hand."""
_ABOVE = "/data/"
"""Parent of the invented directories of a description with several disks."""


def describes_host(described: DescribedHost) -> bool:
    """True if the description has any figure of the host itself, beside traffic and link."""
    return any(getattr(described, word) for word in _HOST_WORDS)


def with_link(facts: Facts, speed: DescribedSize) -> Facts:
    """The facts with a declared link in the place of the speeds of their own links."""
    own = [replace(link, speed_bits_per_second=None) for link in facts.network.links]
    declared = _link(speed)
    return replace(facts, network=replace(facts.network, links=[*own, declared]))


def _link(speed: DescribedSize) -> Link:
    return Link(
        name="link",
        kind="physical",
        state="up",
        speed_bits_per_second=parse_speed(speed, "link"),
        speed_reason=DECLARED,
    )


class Placed(NamedTuple):
    """A description whose disks have directories, and a note on the assumption behind these."""

    described: DescribedHost
    note: str = ""


def placed(described: DescribedHost, named: Sequence[str], usual: str) -> Placed:
    """The description with its disks assigned to its directories, or to those of the site.

    ``usual`` is the directory of a site that names none.
    Shape: directories that name their disks stay as they are. Several disks without any directory
           get a directory each, with a ``note``. Nothing is assigned if the numbers of disks and
           directories differ.
    """
    kinds = {name: _kind(disk.kind) for disk in described.disks for name in _names(described, disk)}
    names = list(kinds)
    own = described.directories
    if not names or any(directory.disks for directory in own):
        return Placed(described)
    note = ""
    given = own or [DescribedDirectory(path=path) for path in named or [usual]]
    if not own and not named and len(names) > 1:
        given = [DescribedDirectory(path=f"{_ABOVE}{name}") for name in names]
        note = (
            f"{len(names)} disks, each assumed to have its own file system, from {given[0].path} on"
        )
    if len(given) == len(names):
        under = [[name] for name in names]
    elif len(given) == 1 or len(names) == 1:
        under = [names for _ in given]
    else:
        note = f"not known which of {len(names)} disks is under which of {len(given)} directories"
        return Placed(replace(described, directories=given), note)
    found = [
        replace(place, disks=disks, filesystem=place.filesystem or kinds[disks[0]].filesystem)
        for place, disks in zip(given, under, strict=True)
    ]
    return Placed(replace(described, directories=found), note)


def described_facts(described: DescribedHost) -> Facts:
    """The facts of a described host; missing values are null and listed in ``unknown``.

    Errors: UsageError that names the invalid value and its fault.
    """
    disks = {disk.name: disk for spec in described.disks for disk in _disks(described, spec)}
    cpus, version = described.cpus, described.nginx_version
    if version and (fault := version_fault(version)):
        raise UsageError(f"nginx_version: {fault}")
    facts = Facts(
        declared=True,
        cpu=Cpu(effective=cpus, fitting_workers=math.ceil(cpus)) if cpus else Cpu(),
        memory=_memory(described),
        storage=Storage(
            disks=list(disks.values()),
            paths=[_path(directory, disks) for directory in described.directories],
        ),
        network=Network(links=[_link(described.link)] if described.link else []),
        nginx=_nginx(version) if version else Nginx(),
        datasets=[
            Dataset(
                path=directory.path,
                bytes=parse_size(directory.bytes, directory.path),
                files=directory.files,
            )
            for directory in described.directories
            if directory.bytes is not None
        ],
        unknown=[Unknown(path=path, reason="not described") for path in _gaps(described)],
    )
    if not described.facts:
        return facts
    merged = _merged(msgspec.to_builtins(facts), described.facts)
    return decode_tables(Facts, merged, "facts")


_PACKAGED = (
    ("--error-log-path=/var/log/nginx/error.log", (0,)),
    ("--http-log-path=/var/log/nginx/access.log", (0,)),
    ("--with-file-aio", (0,)),
    ("--with-http_ssl_module", (0,)),
    ("--with-http_realip_module", (0,)),
    ("--with-http_gzip_static_module", (0,)),
    ("--with-http_stub_status_module", (0,)),
    ("--with-threads", (1, 7, 11)),
    ("--with-http_v2_module", (1, 9, 5)),
    ("--with-http_slice_module", (1, 9, 8)),
    ("--with-http_v3_module", (1, 25)),
)
"""Configure arguments of nginx.org's packages that decisions need, with the first release that has
them. Source: ``nginx -V`` of these packages."""


def _nginx(version: str) -> Nginx:
    numbers = tuple(int(number) for number in version.split("."))
    flags = [flag for flag, since in _PACKAGED if numbers >= since]
    return Nginx(
        product="nginx",
        version=version,
        nginx_version=version,
        flags=flags,
        mime_types_path="/etc/nginx/mime.types",
        error_log_path="/var/log/nginx/error.log",
    )


def missing_words(described: DescribedHost) -> list[str]:
    """The most important values that the description lacks, each with its option."""
    disks = described.disks or described.directories
    words = {
        "CPUs (--cpus)": described.cpus,
        "memory (--memory)": described.memory or described.page_cache,
        "disks (--disk)": disks or described.kind == "proxy",
        "link (--link)": described.link,
        "nginx version (--nginx-version)": described.nginx_version,
        "size of the data (--data)": _data_is_said(described) or described.kind == "proxy",
        "mean size of an answer (--mean-size)": described.mean_size or described.kind == "proxy",
    }
    return [word for word, value in words.items() if not value]


def _data_is_said(described: DescribedHost) -> bool:
    return bool(described.data) or any(directory.bytes for directory in described.directories)


def check_room(described: DescribedHost) -> None:
    """Check that the disks hold the data, and that no mean size exceeds all of the data.

    Errors: UsageError.
    """
    data = _size(described.data, "data")
    mean = _size(described.mean_size, "mean_size")
    if data and mean and mean > data:
        raise UsageError(
            f"--mean-size {described.mean_size} is more than all of the data ({described.data})"
        )
    disks = [disk for spec in described.disks for disk in _disks(described, spec)]
    sizes = [disk.size_bytes for disk in disks]
    room = sum(size for size in sizes if size)
    if data and sizes and all(sizes) and data > room:
        raise UsageError(
            f"--data {described.data}: the {plural(len(sizes), 'disk')} "
            f"{'holds' if len(sizes) == 1 else 'hold'} {bytes_text(room)}",
            hint="name more or larger disks, or --kind cache where only a part is kept on them",
        )


def described_workload(described: DescribedHost, given: Workload | None = None) -> Workload | None:
    """The given workload with the described data and traffic; None if both are missing.

    The described rate and objective are a demand, and replace those of ``given``.
    Errors: UsageError for another figure that ``given`` has too.
    """
    found = given or Workload()
    parts: dict[str, Any] = {}
    requests = {
        directory.path: directory.requests
        for directory in described.directories
        if directory.requests
    }
    mean = _size(described.mean_size, "mean_size")
    if described.data or requests:
        _once("data", found.dataset.bytes or found.dataset.requests_by_path)
        size = _size(described.data, "data")
        parts["dataset"] = ServedData(
            bytes=size,
            files=max(1, size // mean) if size and mean else None,
            requests_by_path=requests,
            provenance="declared",
        )
    if mean:
        _once("mean-size", found.sizes.mean_bytes)
        parts["sizes"] = ObjectSizes(mean_bytes=float(mean), provenance="declared")
    if described.clients:
        _once("clients", found.concurrency.peak or found.concurrency.mean)
        parts["concurrency"] = replace(
            found.concurrency, peak=described.clients, provenance="declared"
        )
    if described.rate is not None:
        peak = parse_rate(described.rate, mean or found.sizes.mean_bytes, "rate")
        parts["rate"] = replace(found.rate, peak_per_second=peak, provenance="declared")
    if described.objective is not None:
        wanted = [Objective(expression=described.objective)]
        if time_goal(wanted) is None:
            raise UsageError(
                f"objective '{described.objective}': not an upper limit on the time of a complete "
                "response",
                hint="such as 'p99 <= 50ms' or 'hot.p99 <= 5ms'; mean, p50, p90, p99 or p999",
            )
        parts["objectives"] = wanted
    if described.kind:
        if found.kind_provenance != "assumed" and found.kind != described.kind:
            raise UsageError(
                f"kind {described.kind}: the workload has kind {found.kind}",
                hint="give one of them",
            )
        parts |= {"kind": described.kind, "kind_provenance": "declared"}
    return replace(found, **parts) if parts else given


def _once(word: str, known: object) -> None:
    if known:
        raise UsageError(f"{word}: already in the workload", hint="give one of them")


def _memory(described: DescribedHost) -> Memory:
    total = _size(described.memory, "memory", LEAST_OF_HOST_BYTES)
    if described.page_cache is None:
        cache = None if total is None else round(PAGE_CACHE_SHARE * total)
        reason = _PAGE_CACHE_REASON
    else:
        cache, reason = parse_size(described.page_cache, "page_cache"), ""
    if cache is None:
        return Memory()
    if total is not None and cache > total:
        raise UsageError("page_cache: larger than memory")
    return Memory(total_bytes=total, page_cache_limit_bytes=cache, page_cache_limit_reason=reason)


class _DiskKind(NamedTuple):
    class_name: DiskClass = "network"
    volume: Volume | None = None
    filesystem: str | None = None
    """A network file system, whose disks are not known."""


def _kind(text: str) -> _DiskKind:
    """The class, cloud volume or network file system that a word names. Errors: UsageError."""
    name, *figures = text.lower().split(",")
    if name in VOLUME_NAMES:
        return _DiskKind(volume=parse_volume(text, f"disk {text}"))
    if not figures and name in NETWORK_FILESYSTEMS:
        return _DiskKind(filesystem=name)
    for class_name in _CLASSES:
        if not figures and name == class_name:
            return _DiskKind(class_name)
    near = get_close_matches(name, [*_CLASSES, *VOLUME_NAMES, *NETWORK_FILESYSTEMS], n=1)
    kinds = "use hdd, ssd, nvme, a cloud volume (gp3,6000,250m) or a network file system (nfs)"
    raise UsageError(
        f"disk {text}: unknown kind", hint=f"did you mean {near[0]}?" if near else kinds
    )


def parse_volume(text: str, place: str) -> Volume:
    """A cloud volume from ``TYPE[,READS[,BYTES]]``. Errors: UsageError that names ``place``."""
    kind, *figures = text.split(",")
    if kind.lower() not in VOLUME_NAMES or len(figures) > 2:  # noqa: PLR2004
        raise UsageError(
            f"{place}: not TYPE[,READS[,BYTES]]",
            hint=f"such as gp3,6000,250m; types: {', '.join(VOLUME_NAMES)}",
        )
    found = [parse_bytes(figure) for figure in figures]
    if None in found:
        raise UsageError(
            f"{place}: {','.join(figures)}: not READS[,BYTES]", hint="such as 6000,250m"
        )
    reads, size = [*found, None, None][:2]
    return Volume(type=kind.lower(), reads_per_second=reads, bytes_per_second=size)


def _names(described: DescribedHost, disk: DescribedDisk) -> list[str]:
    """Names of the disks of one entry; unnamed disks are numbered across all entries."""
    if disk.name:
        numbers = range(1, disk.count + 1)
        return [disk.name] if disk.count == 1 else [f"{disk.name}{n}" for n in numbers]
    before = 0
    for entry in described.disks:
        if entry is disk:
            break
        before += 0 if entry.name else entry.count
    return [f"disk{before + number}" for number in range(1, disk.count + 1)]


def _disks(described: DescribedHost, disk: DescribedDisk) -> list[Disk]:
    kind = _kind(disk.kind)
    size = _size(disk.size, f"disk {disk.kind}: size", LEAST_OF_HOST_BYTES)
    ahead = _size(disk.read_ahead, f"disk {disk.kind}: read_ahead")
    if kind.filesystem is not None:
        return []
    made = Disk(
        name="",
        class_=kind.class_name,
        class_reason="described",
        size_bytes=size,
        read_ahead_bytes=ahead,
        volume=kind.volume or msgspec.UNSET,
    )
    return [replace(made, name=name) for name in _names(described, disk)]


def _size(text: DescribedSize | None, place: str, least: int = 1) -> int | None:
    return None if text is None else parse_size(text, place, least)


def _path(directory: DescribedDirectory, disks: Mapping[str, Disk]) -> PathStorage:
    """Storage of a directory, with those of its disks that belong to the host."""
    leaves = [name for name in directory.disks if name in disks]
    only = disks[leaves[0]] if len(leaves) == 1 else None
    path = directory.path
    return PathStorage(
        path=path,
        mount_point=directory.mount_point or path,
        filesystem=directory.filesystem,
        leaf_disks=leaves,
        stack=leaves if only else [],
        read_ahead_bytes=_size(directory.read_ahead, f"{path}: read_ahead")
        or (only.read_ahead_bytes if only else None),
        size_bytes=_size(directory.size, f"{path}: size") or (only.size_bytes if only else None),
        available_bytes=_size(directory.free, f"{path}: free"),
    )


def _gaps(described: DescribedHost) -> list[str]:
    pointers = {
        "/cpu/effective": described.cpus,
        "/memory/page_cache_limit_bytes": described.memory or described.page_cache,
        "/storage/disks": described.disks,
        "/network/links": described.link,
        "/nginx/nginx_version": described.nginx_version,
    }
    return [pointer for pointer, value in pointers.items() if not value]


def _merged(tables: Mapping[str, Any], rest: Mapping[str, Any]) -> dict[str, Any]:
    """Tables merged key by key; values of ``rest`` take precedence, and lists are replaced."""
    found = dict(tables)
    for key, value in rest.items():
        old = found.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            found[key] = _merged(old, value)
        else:
            found[key] = value
    return found
