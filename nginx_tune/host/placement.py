"""Where in a machine of several nodes a device hangs, and which CPUs its interrupts go to."""

from __future__ import annotations

import posixpath
from typing import NamedTuple

from nginx_tune.host.door import Host, Missing, attempt
from nginx_tune.host.parse_values import parse_id_list, parse_integer

MOST_INTERRUPTS = 1024
"""Of a device that are looked at."""
_TOP = "/sys/devices"


class Interrupts(NamedTuple):
    """The interrupts of a device."""

    number: int
    cpus: int | Missing
    """Different CPUs that they go to now."""


def read_numa_node(host: Host, directory: str) -> int | Missing:
    """The node of a device by its directory (links resolved), or that of the bus above it.

    Source: Documentation/ABI/testing/sysfs-bus-pci: ``numa_node``, -1 where the firmware tells
            none.
    """
    online = attempt(host.read_text, "/sys/devices/system/node/online")
    nodes = online if isinstance(online, Missing) else parse_id_list(online)
    if isinstance(nodes, Missing):
        return nodes
    if len(nodes) < 2:  # noqa: PLR2004
        return Missing("a host of one node")
    while directory.startswith(_TOP + "/"):
        text = attempt(host.read_text, f"{directory}/numa_node")
        if isinstance(text, str):
            node = parse_integer(text)
            if isinstance(node, int) and node < 0:
                return Missing("the firmware tells no node")
            return node
        directory = posixpath.dirname(directory)
    return Missing("it hangs on no bus that has a node")


def read_interrupts(host: Host, directory: str) -> Interrupts | Missing:
    """The message-signalled interrupts of a device (links resolved) or of the bus just above it.

    The device of a virtual NIC is a virtio one; its interrupts are those of the PCI device that
    carries it.

    Source: Documentation/ABI/testing/sysfs-bus-pci, msi_irqs; Documentation/core-api/irq/
            irq-affinity.rst, effective_affinity_list since 4.13.
    """
    numbers: list[str] = []
    for place in (directory, posixpath.dirname(directory)):
        listed = attempt(host.list_dir, f"{place}/msi_irqs")
        if not isinstance(listed, Missing):
            numbers = [name for name in listed if name.isdecimal() and len(name) < 10]  # noqa: PLR2004
            break
    if not numbers:
        return Missing("no message-signalled interrupts")
    cpus: set[int] = set()
    reason = Missing("no interrupt tells its CPU")
    for number in numbers[:MOST_INTERRUPTS]:
        text = attempt(host.read_text, f"/proc/irq/{number}/effective_affinity_list")
        found = text if isinstance(text, Missing) else parse_id_list(text)
        if isinstance(found, Missing):
            reason = found
        else:
            cpus |= found
    return Interrupts(len(numbers), len(cpus) or reason)
