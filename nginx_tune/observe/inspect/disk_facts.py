"""Facts with the curves that probing the disks gave."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from nginx_tune.documents.curve import DiskProbe, SharedCurve
from nginx_tune.documents.facts import Facts
from nginx_tune.host.door import Gaps, under
from nginx_tune.observe.inspect.disk_curve import curve_gaps
from nginx_tune.observe.inspect.facts import seal_facts


def with_disk_probes(facts: Facts, probes: Sequence[DiskProbe]) -> Facts:
    """The facts with the curves in their disks, and the reasons for those that are missing."""
    gaps: Gaps = {unknown.path: unknown.reason for unknown in facts.unknown}
    disks = list(facts.storage.disks)
    index_of = {disk.name: index for index, disk in enumerate(disks)}
    shared = list(facts.storage.shared_curves)
    for probe in probes:
        for name in probe.disks:
            if name in index_of and (probe.reason or len(probe.disks) > 1):
                gaps[f"/storage/disks/{index_of[name]}/curve"] = probe.reason or (
                    f"measured as one: {'+'.join(probe.disks)}, in shared_curves"
                )
        if probe.curve is None:
            continue
        if len(probe.disks) > 1:
            gaps |= under(f"/storage/shared_curves/{len(shared)}/curve", curve_gaps(probe.curve))
            shared.append(SharedCurve(disks=probe.disks, curve=probe.curve))
        elif (index := index_of.get(probe.disks[0])) is not None:
            gaps.pop(f"/storage/disks/{index}/curve", None)
            gaps |= under(f"/storage/disks/{index}/curve", curve_gaps(probe.curve))
            disks[index] = msgspec.structs.replace(disks[index], curve=probe.curve)
    storage = msgspec.structs.replace(facts.storage, disks=disks, shared_curves=shared)
    return seal_facts(msgspec.structs.replace(facts, storage=storage), gaps)
