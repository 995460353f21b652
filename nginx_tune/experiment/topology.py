"""A site and a load plan in the lab's topology; pure."""

from __future__ import annotations

import msgspec

from nginx_tune.documents.lab import Lab, LabDisk
from nginx_tune.documents.loadplan import LoadClass, LoadPlan, Tls
from nginx_tune.documents.site import CacheBounds, Site, SiteTls, Upstream
from nginx_tune.lab.environment import LOOPBACK, Placement


def place_site(site: Site, lab: Lab, placement: Placement) -> Site:
    """The site with the address, certificate, origin and cache that the lab has for it."""
    changes: dict[str, object] = {
        "listen": [_listen(listen, placement) for listen in site.listen],
    }
    if placement.certificate is not None and placement.certificate_key is not None:
        changes["tls"] = SiteTls(
            certificate=placement.certificate, certificate_key=placement.certificate_key
        )
    if placement.origin is not None:
        changes["upstreams"] = [Upstream(name="origin", servers=[placement.origin])]
        caches = [disk for disk in lab.disks if disk.writable and not disk.spare]
        changes["cache_dirs"] = [disk.mount for disk in caches]
        changes["cache_bounds"] = {disk.mount: _bounds(disk) for disk in caches}
    return msgspec.structs.replace(site, **changes)


def _bounds(disk: LabDisk) -> CacheBounds:
    """Most of the room of a disk that is small beside any that a host has."""
    room = disk.room_bytes >> 20
    return CacheBounds(max_bytes=room * 3 // 4 << 20, min_free_bytes=max(1, room // 16) << 20)


def _listen(listen: str, placement: Placement) -> str:
    placed = listen.replace(f"{LOOPBACK}:", f"{placement.address}:", 1)
    is_tls = placement.certificate is not None and "ssl" not in placed.split()
    return f"{placed} ssl" if is_tls else placed


def place_plan(plan: LoadPlan, placement: Placement, *, cleartext: bool = False) -> LoadPlan:
    """The plan aimed at nginx from where the lab's clients are, in TLS where nginx speaks it.

    ``cleartext`` is of an arm that listens without TLS in a lab that has it.

    No certificate is checked: behind the lab's walls nobody else can answer, and an operator's
    configuration brings a certificate of its own.
    """
    target, permit = plan.target, plan.permit
    if placement.certificate is not None and not cleartext:
        target = msgspec.structs.replace(target, tls=Tls(verify=False))
    if placement.address != LOOPBACK and target.unix is None:
        target = msgspec.structs.replace(target, address=placement.address)
        permit = msgspec.structs.replace(permit, hosts=[*permit.hosts, placement.address])
    classes = [_placed_class(item, placement) for item in plan.classes]
    return msgspec.structs.replace(plan, target=target, permit=permit, classes=classes)


def _placed_class(item: LoadClass, placement: Placement) -> LoadClass:
    """A class that asks a server of its own asks it from where the clients are."""
    if item.target is None or item.target.address != LOOPBACK:
        return item
    target = msgspec.structs.replace(item.target, address=placement.address)
    return msgspec.structs.replace(item, target=target)
