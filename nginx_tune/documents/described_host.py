"""``host``: a short description of a host by its operator; every figure counts as declared.

    cpus = 8
    memory = "64G"
    link = "25G"
    nginx_version = "1.26.3"
    kind = "media"
    mean_size = "4M"

    [[disks]]
    kind = "nvme"
    size = "3.84TB"

    [[directories]]
    path = "/srv/video"
    bytes = "2TB"

Other values are in ``[facts]``, in the words of the facts document.
"""

import re
from typing import Annotated, Any

from msgspec import Meta

from nginx_tune.documents.base import Count, Document, Number, Part
from nginx_tune.documents.workload import Kind
from nginx_tune.errors import UsageError

DescribedSize = int | str
"""Bytes, or a text such as ``16G``."""
MOST_DISKS = 1024


class DescribedDisk(Part, frozen=True, kw_only=True):
    """One disk, or several equal ones."""

    kind: str
    """A class of disk (``hdd``, ``ssd``, ``nvme``, …), a cloud volume with its provisioned reads
    and bytes per second (``gp3,6000,250m``), or a network file system (``nfs``)."""
    name: str = ""
    """The kernel's name, followed by a number where ``count`` is more than one; empty for
    ``disk1``, ``disk2``, …"""
    count: Annotated[int, Meta(ge=1, le=MOST_DISKS)] = 1
    size: DescribedSize | None = None
    """Size of each disk."""
    read_ahead: DescribedSize | None = None


class DescribedDirectory(Part, frozen=True, kw_only=True):
    """A data directory, its storage and its content."""

    path: str
    disks: list[str] = []
    """Names of the disks under the directory. If no directory names disks, each directory gets one
    disk if there are as many disks as directories. A single directory gets all disks, and a single
    disk is shared by all directories."""
    filesystem: str | None = None
    mount_point: str | None = None
    """Mount point of its file system; null for the path itself."""
    size: DescribedSize | None = None
    """Size of the file system; null for the size of its single disk."""
    free: DescribedSize | None = None
    read_ahead: DescribedSize | None = None
    """Read-ahead of the file system's device; null for the read-ahead of its single disk."""
    bytes: DescribedSize | None = None
    """Bytes of its files."""
    files: Count | None = None
    requests: Number | None = None
    """Requests for its files, in proportion to those of the other directories."""


class DescribedHost(Document, frozen=True, kw_only=True, tag="nginx-tune/host/1"):
    """A described host with its data and traffic; null values are not known."""

    cpus: Number | None = None
    """CPU time that nginx can use, in CPUs."""
    memory: DescribedSize | None = None
    page_cache: DescribedSize | None = None
    """Memory for file data; null for nine tenths of the memory."""
    link: DescribedSize | None = None
    """Bits per second, or a text such as ``10G``."""
    nginx_version: str | None = None
    disks: list[DescribedDisk] = []
    directories: list[DescribedDirectory] = []
    facts: dict[str, Any] = {}
    """Other values, as in the facts document."""
    kind: Kind | None = None
    data: DescribedSize | None = None
    """Bytes of all served data; null if the ``directories`` state theirs."""
    mean_size: DescribedSize | None = None
    """Mean size of a requested object."""
    clients: Number | None = None
    """Requests in flight at the peak."""
    rate: Number | str | None = None
    """Requests per second at the peak, or a bandwidth of answers, such as ``8Gbit/s``."""
    objective: str | None = None
    """Upper limit on the time of a complete response, such as ``p99 <= 50ms``."""


_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*(?:([kmgtp])(i?b)?|b)?", re.IGNORECASE)
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5}


LEAST_OF_HOST_BYTES = 1 << 20
"""The least memory or disk of a host; a smaller figure lacks its unit."""
_LEAST_LINK_BITS = 1000


def parse_size(text: DescribedSize, place: str, least: int = 1) -> int:
    """Bytes of ``16G`` or ``16GiB`` (powers of 1024, as nginx counts), ``3.84TB`` (of 1000).

    Errors: UsageError that names ``place``, for anything else, less than ``least`` bytes and more
            than 2^60.
    """
    match = _SIZE.fullmatch(str(text).strip())
    base = 1000 if match and (match[3] or "").lower() == "b" else 1024
    size = 0
    if match is not None:
        size = round(float(match[1]) * base ** _POWERS.get((match[2] or "").lower(), 0))
    if not 0 < size <= 1 << 60:
        raise UsageError(f"{place} {text}: not a size", hint="for example 16G, 512M or 3.84TB")
    if size < least:
        raise UsageError(f"{place} {text}: only {size} bytes", hint="give a unit, such as 16G")
    return size


_BIT_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def parse_speed(text: DescribedSize, place: str = "") -> int:
    """A declared speed, such as ``10G``, ``2.5G``, ``100M`` or ``1000Mbit/s``.

    Units:  bits per second.
    Errors: UsageError.
    """
    match = re.fullmatch(
        r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([kmgt]?)(?:bit|bits|b)?(?:/s|ps)?",
        str(text).strip().lower(),
    )
    speed = int(float(match[1]) * _BIT_UNITS[match[2]]) if match else 0
    if speed <= 0:
        name = f"{place} " if place else ""
        raise UsageError(f"{name}'{text}' is not a link speed", hint="for example 10G")
    if speed < _LEAST_LINK_BITS:
        name = f"{place} " if place else ""
        raise UsageError(f"{name}'{text}': only {speed} bits/s", hint="give a unit, such as 10G")
    return speed


_RATE = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,6})?")
_BANDWIDTH = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6})? ?[kmgt]?(?:bit/s|bps)", re.IGNORECASE)


def parse_rate(text: float | str, mean_bytes: float | None, place: str) -> float:
    """A rate of requests, or a bandwidth (``8Gbit/s``) of answers of this mean size.

    Units:  requests per second.
    Errors: UsageError that names ``place``.
    """
    said = str(text).strip()
    if _BANDWIDTH.fullmatch(said):
        if not mean_bytes:
            raise UsageError(
                f"{place} {said}: a bandwidth needs the mean size of an answer (--mean-size)"
            )
        return parse_speed(said, place) / 8 / mean_bytes
    rate = float(said) if _RATE.fullmatch(said) else 0.0
    if rate <= 0:
        raise UsageError(
            f"{place} {said}: not a rate",
            hint="give requests per second, or a bandwidth such as 8Gbit/s",
        )
    return rate
