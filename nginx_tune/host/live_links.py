"""Network links of this machine, by netlink; by sysfs where netlink is not to be had."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from nginx_tune.documents.facts import Link, Queues, Rings
from nginx_tune.host.door import HostReadError

_IFF_LOOPBACK = 0x8
_ASKED_KINDS = frozenset({"physical", "bond", "team", "vlan", "macvlan", "ipvlan", "bridge"})
"""Kinds whose driver may know a speed; hosts of containers have hundreds of others."""
_DETAILED_KINDS = frozenset({"physical"})
_OFFLOADS = (
    ("tcp-segmentation-offload", "tso"),
    ("generic-segmentation-offload", "gso"),
    ("generic-receive-offload", "gro"),
    ("scatter-gather", "sg"),
)
_CARRIED_KINDS = frozenset({"vlan", "macvlan", "macvtap", "ipvlan"})
_CLASS = Path("/sys/class/net")


def read_links() -> list[Link]:
    """Every link of this network namespace, sorted by name.

    Errors: HostReadError when neither netlink nor sysfs answers.
    """
    try:
        return _read_netlink()
    except (ImportError, OSError, HostReadError):
        return _read_sysfs()


def _read_netlink() -> list[Link]:
    from pyroute2 import Ethtool, IPRoute, NetlinkError  # noqa: PLC0415  # heavy

    with contextlib.ExitStack() as stack:
        try:
            dump = list(stack.enter_context(IPRoute()).get_links())
            ethtool = stack.enter_context(Ethtool())
        except NetlinkError as error:
            raise HostReadError("links", str(error)) from None

        def ask_speed(name: str) -> int | None:
            try:
                return _bits(ethtool.get_link_mode(name).speed)
            except Exception:  # noqa: BLE001  # pyroute2 raises what the driver's answer leads it to
                return _sysfs_speed(name)

        lower = _lower_names(dump)
        links = [_link(message, lower, ask_speed) for message in dump]
        detailed = [
            replace(link, **_details(ethtool, link.name)) if link.kind in _DETAILED_KINDS else link
            for link in links
        ]
        return sorted(detailed, key=lambda link: link.name)


def _details(ethtool: Any, name: str) -> dict[str, Any]:
    """What the driver tells of queues, rings and offloads.

    Parts that it does not tell are left out: pyroute2 raises whatever its answer leads it to.
    """
    found: dict[str, Any] = {}
    with contextlib.suppress(Exception):
        rings = ethtool.get_rings(name)
        found["rings"] = Rings(rx=rings.rx or 0, rx_max=rings.rx_max or 0)
    with contextlib.suppress(Exception):
        channels = ethtool.get_channels(name)
        count = (channels.combined_count or 0) + (channels.rx_count or 0)
        found["queues"] = Queues(rx=0, tx=0, rss=count or None)
    with contextlib.suppress(Exception):
        flags = ethtool.get_features(name).offload_flags
        found["offloads"] = {ours: flags[theirs] for theirs, ours in _OFFLOADS if theirs in flags}
    return found


def _lower_names(dump: list[Any]) -> dict[str, list[str]]:
    """Links under each link: those that name it as their master, or the one it is put on."""
    names = {message["index"]: str(message.get_attr("IFLA_IFNAME")) for message in dump}
    found: dict[str, list[str]] = {name: [] for name in names.values()}
    for message in dump:
        name = names[message["index"]]
        master = message.get_attr("IFLA_MASTER")
        if master in names:
            found[names[master]].append(name)
        carrier = message.get_attr("IFLA_LINK")
        kind = message.get_nested("IFLA_LINKINFO", "IFLA_INFO_KIND")
        # The index of a carrier in another namespace would name some other link here.
        if kind in _CARRIED_KINDS and message.get_attr("IFLA_LINK_NETNSID") is None:
            found[name] += [names[carrier]] if carrier in names else []
    return found


def _link(
    message: Any, lower: dict[str, list[str]], ask_speed: Callable[[str], int | None]
) -> Link:
    name = str(message.get_attr("IFLA_IFNAME"))
    kind = message.get_nested("IFLA_LINKINFO", "IFLA_INFO_KIND")
    if kind is None:
        kind = "loopback" if message["flags"] & _IFF_LOOPBACK else "physical"
    state = message.get_attr("IFLA_OPERSTATE")
    return Link(
        name=name,
        kind=str(kind),
        state=str(state).lower() if state else None,
        speed_bits_per_second=ask_speed(name) if kind in _ASKED_KINDS else None,
        mtu=message.get_attr("IFLA_MTU"),
        lower=sorted(lower[name]),
        qdisc=message.get_attr("IFLA_QDISC"),
    )


def _read_sysfs() -> list[Link]:
    try:
        directories = sorted(_CLASS.iterdir())
    except OSError as error:
        raise HostReadError("links", error.strerror or str(error)) from None
    links = []
    for directory in directories:
        name = directory.name
        if not directory.is_dir():
            continue  # bonding_masters is a file
        mtu = _word(directory / "mtu")
        links.append(
            Link(
                name=name,
                kind=_sysfs_kind(directory),
                state=_word(directory / "operstate") or None,
                speed_bits_per_second=_sysfs_speed(name),
                mtu=int(mtu) if mtu.isdecimal() else None,
                lower=sorted(p.name.removeprefix("lower_") for p in directory.glob("lower_*")),
            )
        )
    return links


def _sysfs_kind(directory: Path) -> str | None:
    """The kind as far as sysfs shows it; a veth is told by nothing but its missing device."""
    if _word(directory / "type") == "772":
        return "loopback"
    if (directory / "tun_flags").exists():
        return "tun"
    for line in _word(directory / "uevent").split():
        if line.startswith("DEVTYPE="):
            return line.removeprefix("DEVTYPE=")
    return "physical" if (directory / "device").exists() else None


def _sysfs_speed(name: str) -> int | None:
    text = _word(_CLASS / name / "speed")
    return _bits(int(text)) if text.isdecimal() else None


def _bits(megabits: int | None) -> int | None:
    """Drivers that do not know say 0, -1 or its unsigned form."""
    return megabits * 10**6 if megabits and 0 < megabits < (1 << 31) else None


def _word(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
