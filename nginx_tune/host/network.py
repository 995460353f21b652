"""Network links and how much of their reported speed can be believed."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from nginx_tune.documents.facts import Link, Network, Queues
from nginx_tune.errors import UsageError
from nginx_tune.host.door import Gaps, Host, Missing, attempt, known
from nginx_tune.host.parse_network_use import has_cpus
from nginx_tune.host.parse_values import parse_integer
from nginx_tune.host.placement import Interrupts, read_interrupts, read_numa_node

_FAKES = {
    "veth": "a veth pair reports a made-up 10 Gbit/s",
    "tun": "a tun device reports a made-up speed",
    "tap": "a tap device reports a made-up speed",
    "loopback": "the loopback has no speed",
    "dummy": "a dummy has no speed",
    "ifb": "an ifb has no speed",
}
"""Source: drivers/net/veth.c, drivers/net/tun.c: fixed ethtool answers."""

_NOMINAL_DRIVERS = {"vmxnet3": "vmxnet3 reports a nominal speed, not the host's uplink"}

MOST_QUEUES = 256
"""Queues of each direction that are looked at."""

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def parse_speed(text: str) -> int:
    """A declared speed, such as ``10G``, ``2.5G``, ``100M`` or ``1000Mbit/s``.

    Units:  bits per second.
    Errors: UsageError.
    """
    match = re.fullmatch(
        r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([kmgt]?)(?:bit|bits|b)?(?:/s|ps)?", text.strip().lower()
    )
    speed = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if speed <= 0:
        raise UsageError(f"'{text}' is no link speed", hint="for example eth0=10G")
    return speed


def read_network(host: Host, declared: Mapping[str, int]) -> tuple[Network, Gaps]:
    """Every link, with the speeds that were declared (bits per second by name) set.

    Errors: UsageError when a declared link is not there.
    """
    asked = attempt(host.links)
    if isinstance(asked, Missing):
        links = [Link(name=name) for name in sorted(declared)]
    else:
        links = sorted(asked, key=lambda link: link.name)
    by_name = {link.name: link for link in links}
    for name in declared:
        if name not in by_name:
            raise UsageError(f"no network link '{name}'", hint=f"there are {', '.join(by_name)}")
    judged = [_judge(host, link, by_name, declared.get(link.name)) for link in links]
    gaps: Gaps = {}
    if isinstance(asked, Missing):
        gaps["/links"] = asked.reason
    for index, link in enumerate(judged):
        for field in ("kind", "state", "mtu", "qdisc"):
            if getattr(link, field) is None:
                gaps[f"/links/{index}/{field}"] = "the kernel does not tell"
        if link.speed_bits_per_second is None:
            gaps[f"/links/{index}/speed_bits_per_second"] = link.speed_reason
        queued = _with_queues(host, link, f"/links/{index}", gaps)
        judged[index] = _with_place(host, queued, f"/links/{index}", gaps)
    return Network(links=judged), gaps


def _with_queues(host: Host, link: Link, pointer: str, gaps: Gaps) -> Link:
    """The link with its driver and queues, from sysfs."""
    names = attempt(host.list_dir, f"/sys/class/net/{link.name}/queues")
    queues: Queues | Missing
    if isinstance(names, Missing):
        queues = names
    else:
        receive = [name for name in names if name.startswith("rx-")]
        send = [name for name in names if name.startswith("tx-")]
        rss = link.queues.rss if link.queues else None
        queues = Queues(
            rx=len(receive),
            tx=len(send),
            rps=_count_masks(host, link.name, receive, "rps_cpus"),
            xps=_count_masks(host, link.name, send, "xps_cpus"),
            rss=known(
                Missing("ethtool tells none") if rss is None else rss, gaps, f"{pointer}/queues/rss"
            ),
        )
    if link.rings is None:
        gaps[f"{pointer}/rings"] = "ethtool tells none"
    return msgspec.structs.replace(
        link, driver=_driver(host, link.name), queues=known(queues, gaps, f"{pointer}/queues")
    )


def _with_place(host: Host, link: Link, pointer: str, gaps: Gaps) -> Link:
    """The link with the node and the interrupts of its device, and what its ring missed.

    Source: Documentation/ABI/testing/sysfs-class-net-statistics, rx_missed_errors.
    """
    if link.kind != "physical":
        for field in ("numa_node", "interrupts", "interrupt_cpus", "missed_packets"):
            gaps[f"{pointer}/{field}"] = "no device of its own"
        return link
    directory = attempt(host.real_path, f"/sys/class/net/{link.name}/device")
    found: Interrupts | Missing
    if isinstance(directory, Missing):
        node: int | Missing = directory
        found = directory
    else:
        node = read_numa_node(host, directory)
        found = read_interrupts(host, directory)
    text = attempt(host.read_text, f"/sys/class/net/{link.name}/statistics/rx_missed_errors")
    missed = text if isinstance(text, Missing) else parse_integer(text)
    count, cpus = (found, found) if isinstance(found, Missing) else (found.number, found.cpus)
    return msgspec.structs.replace(
        link,
        numa_node=known(node, gaps, f"{pointer}/numa_node"),
        interrupts=known(count, gaps, f"{pointer}/interrupts"),
        interrupt_cpus=known(cpus, gaps, f"{pointer}/interrupt_cpus"),
        missed_packets=known(missed, gaps, f"{pointer}/missed_packets"),
    )


def _count_masks(host: Host, link: str, queues: list[str], mask: str) -> int:
    """Queues whose mask of CPUs is not empty; none in a kernel without such masks.

    Source: Documentation/networking/scaling.rst.
    """
    masks = [
        attempt(host.read_text, f"/sys/class/net/{link}/queues/{queue}/{mask}")
        for queue in queues[:MOST_QUEUES]
    ]
    return sum(isinstance(mask, str) and has_cpus(mask) for mask in masks)


def _judge(host: Host, link: Link, links: Mapping[str, Link], declared: int | None) -> Link:
    """The link with a speed that can be believed, or none and why."""
    if declared is not None:
        return _with_speed(link, declared, "declared")
    if link.kind in _FAKES:
        return _with_speed(link, None, _FAKES[link.kind])
    driver = _driver(host, link.name)
    if driver in _NOMINAL_DRIVERS:
        return _with_speed(link, None, _NOMINAL_DRIVERS[driver])
    lower = [links[name] for name in link.lower if name in links]
    fakes = [one for one in lower if one.kind in _FAKES]
    if fakes:
        reason = f"{fakes[0].name} under it: {_FAKES[str(fakes[0].kind)]}"
        return _with_speed(link, None, reason)
    if link.speed_bits_per_second:
        said = f"driver {driver}" if driver else f"{link.kind or 'driver'}, as the kernel adds up"
        return _with_speed(link, link.speed_bits_per_second, said)
    if link.state == "down":
        return _with_speed(link, None, "the link is down")
    if driver == "virtio_net":
        return _with_speed(link, None, "virtio_net: the hypervisor offers no speed")
    if lower:
        return _from_lower(host, link, lower)
    return _with_speed(link, None, f"{f'driver {driver}' if driver else 'the kernel'} tells none")


def _with_speed(link: Link, speed: int | None, reason: str) -> Link:
    return msgspec.structs.replace(link, speed_bits_per_second=speed, speed_reason=reason)


def _from_lower(host: Host, link: Link, lower: list[Link]) -> Link:
    """The speed that the links under a bond, VLAN or bridge allow."""
    names = ", ".join(one.name for one in lower)
    real = [one.speed_bits_per_second for one in lower if one.speed_bits_per_second]
    if not real or len(real) < len(lower):
        return _with_speed(link, None, f"not known for every link under it ({names})")
    if link.kind == "bond":
        mode = attempt(host.read_text, f"/sys/class/net/{link.name}/bonding/mode")
        if isinstance(mode, str) and mode.startswith("active-backup"):
            return _with_speed(link, max(real), f"one active port of {names}")
        return _with_speed(link, sum(real), f"sum of {names}")
    return _with_speed(link, max(real), f"from {names} under it")


def _driver(host: Host, name: str) -> str:
    target = attempt(host.read_link, f"/sys/class/net/{name}/device/driver")
    return "" if isinstance(target, Missing) else target.rpartition("/")[2]
