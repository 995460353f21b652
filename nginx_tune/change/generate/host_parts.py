"""What decisions ask of the host as drop-in files of their own, each with its way back; pure.

A change of nginx's files can be taken back by a reload; these cannot, so they are never part of
it. Source: sysctl.d(5), systemd.unit(5) (drop-in directories), systemd.exec(5) (LimitNOFILE=).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from nginx_tune.documents.decisions import Decision, HostSetting
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.plan import HostPart
from nginx_tune.errors import UsageError

SYSCTL_PATH = "/etc/sysctl.d/60-nginx-tune.conf"
UNIT_PATH = "/etc/systemd/system/nginx.service.d/60-nginx-tune.conf"
_BOUNDS = {
    ("sysctl", "net.core.somaxconn"): (1, (1 << 31) - 1),
    ("sysctl", "net.ipv4.tcp_migrate_req"): (0, 1),
    ("sysctl", "fs.nr_open"): (1, (1 << 31) - 1),
    ("unit", "LimitNOFILE"): (1, (1 << 31) - 1),
}
"""All that decisions ask for. Source: Documentation/admin-guide/sysctl of Linux; an int each."""
_NUMBER = re.compile(r"[0-9]{1,20}")
_HEAD = "# Made by nginx-tune. Remove this file to take it back; what was before stands beside.\n"


def host_parts(decisions: Iterable[Decision], facts: Facts) -> list[HostPart]:
    """The files that the host needs: kernel settings first, since the unit's limit may need one.

    None of a host whose nginx runs in a container: its files say nothing about it; and none of
    one that is no Linux.
    """
    running = facts.nginx.running
    if running and (running.other_mount_namespace or running.other_network_namespace):
        return []
    if facts.kernel.system not in {None, "Linux"}:
        return []
    asked = _highest(one for decision in decisions for one in decision.host_settings)
    kernel = [one for one in asked if one.kind == "sysctl"]
    unit = [one for one in asked if one.kind == "unit"]
    return [*_kernel_part(kernel), *_unit_part(unit)]


def told_host_parts(parts: Iterable[HostPart]) -> list[HostPart]:
    """The parts of a plan that anybody may have written, made anew of their names and numbers.

    What is to be typed is then of this program and not of the plan.
    Errors: UsageError for what no decision asks for.
    """
    settings = [one for part in parts for one in part.settings]
    for number, one in enumerate(settings, start=1):
        low, high = _BOUNDS.get((one.kind, one.name), (1, 0))
        is_number = _NUMBER.fullmatch(one.value) and _NUMBER.fullmatch(one.before or "0")
        if not (is_number and low <= int(one.value) <= high):
            raise UsageError(
                f"the plan's setting {number} of the host is none that a decision asks for",
                hint="make it again: nginx-tune plan",
            )
    kernel, unit = ([one for one in settings if one.kind == kind] for kind in ("sysctl", "unit"))
    return [*_kernel_part(kernel), *_unit_part(unit)]


def _highest(asked: Iterable[HostSetting]) -> list[HostSetting]:
    """One of each name: the highest value serves all who ask."""
    kept: dict[tuple[str, str], HostSetting] = {}
    for one in asked:
        key = (one.kind, one.name)
        if key not in kept or int(one.value) > int(kept[key].value):
            kept[key] = one
    return sorted(kept.values(), key=lambda one: one.name)


def _kernel_part(settings: Sequence[HostSetting]) -> Iterable[HostPart]:
    if not settings:
        return
    before = [
        f"sudo sysctl -w {one.name}={one.before}"
        if one.before
        else f"a restart of the host ({one.name}: what it is now is not known)"
        for one in settings
    ]
    yield HostPart(
        kind="sysctl",
        path=SYSCTL_PATH,
        content=_HEAD
        + "".join(_commented(one) + f"{one.name} = {one.value}\n" for one in settings),
        settings=list(settings),
        commands=[f"sudo sysctl -p {SYSCTL_PATH}"],
        undo=[f"sudo rm {SYSCTL_PATH}", *before],
    )


def _unit_part(settings: Sequence[HostSetting]) -> Iterable[HostPart]:
    if not settings:
        return
    restart = ["sudo systemctl daemon-reload", "sudo systemctl restart nginx"]
    yield HostPart(
        kind="unit",
        path=UNIT_PATH,
        content=_HEAD
        + "[Service]\n"
        + "".join(_commented(one) + f"{one.name}={one.value}\n" for one in settings),
        settings=list(settings),
        commands=restart,
        undo=[f"sudo rm {UNIT_PATH}", *restart],
    )


def _commented(one: HostSetting) -> str:
    now = f" (was {one.before})" if one.before else ""
    return f"# {one.decision}: {one.reason}{now}\n"
