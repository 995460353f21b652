"""Which objects of an origin lie in which cache, by the split that decisions emit; pure."""

from __future__ import annotations

from collections.abc import Sequence

from nginx_tune.documents.lab import Lab
from nginx_tune.measure.load.classes import ServedFile
from nginx_tune.nginx.split_clients import even_part


def share_out(lab: Lab, objects: Sequence[ServedFile], *, host: str) -> dict[str, list[ServedFile]]:
    """The objects by the disk whose cache has them.

    The key is that of ``decide.cache_layout``, ``$scheme$host$request_uri``; so is the order of
    the disks.
    """
    disks = [disk.name for disk in lab.disks if disk.writable and not disk.spare]
    scheme = "https" if lab.tls else "http"
    found: dict[str, list[ServedFile]] = {name: [] for name in disks}
    for item in objects:
        key = f"{scheme}{host}{item.url}"
        found[disks[even_part(key.encode(), len(disks))]].append(item)
    return found
