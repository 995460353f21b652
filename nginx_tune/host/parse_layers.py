"""What device-mapper, md, ZFS and the block layer print about stacked devices and their load."""

from __future__ import annotations

import re

from nginx_tune.host.door import Missing

_TABLE_LINE = re.compile(r"^(.+?): [0-9]+ [0-9]+ ([\w-]+)", re.MULTILINE)
_DISKSTATS = re.compile(
    r"^ *[0-9]+ +[0-9]+ (\S+) (?:[0-9]{1,20} ){9}([0-9]{1,20})(?: |$)", re.MULTILINE
)


def parse_dm_kind(uuid: str) -> str:
    """What a device-mapper device is by the prefix of its uuid; ``dm`` when that says nothing.

    Source: the prefixes of lvm2, cryptsetup and multipath-tools.
    """
    uuid = uuid.strip()
    if uuid.startswith("mpath-"):
        return "multipath"
    if uuid.startswith("CRYPT-"):
        return "crypt"
    if uuid.startswith("LVM-"):
        return "thin-pool" if uuid.endswith("-tpool") else "lvm"
    return "dm"


def parse_dm_table(text: str) -> dict[str, str]:
    """Targets by device, from ``dmsetup table``; several of a device are joined with ``+``."""
    found: dict[str, list[str]] = {}
    for name, target in _TABLE_LINE.findall(text):
        targets = found.setdefault(name, [])
        if target not in targets:
            targets.append(target)
    return {name: "+".join(targets) for name, targets in found.items()}


def parse_sync_completed(text: str) -> float | Missing:
    """Share that is done, from ``md/sync_completed``: ``DONE / TOTAL`` sectors, or ``none``."""
    match = re.fullmatch(r"([0-9]{1,20}) / ([0-9]{1,20})", text.strip())
    if match is None:
        return Missing("nothing is being synchronised")
    done, total = int(match[1]), int(match[2])
    return min(1.0, done / total) if total else Missing("nothing is being synchronised")


def parse_zpool_devices(text: str) -> list[str]:
    """Device files of a pool, from ``zpool list -vHPL POOL``, in its order."""
    return list(dict.fromkeys(re.findall(r"^\s*(/dev/[\w./:+-]+)", text, re.MULTILINE)))


def parse_busy_milliseconds(text: str) -> dict[str, int]:
    """Time with any request in flight, by device, from ``/proc/diskstats``.

    Source: Documentation/admin-guide/iostats.rst, field 10.
    """
    return {name: int(busy) for name, busy in _DISKSTATS.findall(text)}
