"""What decisions ask of the host as drop-in files of their own, each with its way back; pure.

A change of nginx's files can be taken back by a reload; these cannot, so they are never part of
it. Source: sysctl.d(5), systemd.unit(5) (drop-in directories), systemd.exec(5) (LimitNOFILE=).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nginx_tune.documents.decisions import Decision, HostSetting
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.plan import HostPart

SYSCTL_PATH = "/etc/sysctl.d/60-nginx-tune.conf"
UNIT_PATH = "/etc/systemd/system/nginx.service.d/60-nginx-tune.conf"
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
