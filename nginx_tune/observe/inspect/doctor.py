"""Asking a host what it lets nginx-tune measure: one check for each thing that is needed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from nginx_tune.documents.doctor import Check, Doctor
from nginx_tune.errors import MissingToolError
from nginx_tune.host.cgroup import ControlGroup, read_group
from nginx_tune.host.door import Host, Missing, attempt
from nginx_tune.host.global_ids import INITIAL_NAMESPACE
from nginx_tune.host.parse_process import parse_status
from nginx_tune.measure.load.probe import find_probe
from nginx_tune.nginx.binary import read_nginx
from nginx_tune.observe.inspect.doctor_finding import Checked, with_capability
from nginx_tune.observe.inspect.doctor_kernel import (
    look_at_bpftrace,
    look_at_namespaces,
    look_at_profiler,
    look_at_tracepoints,
    look_at_uprobes,
)


class _Need(NamedTuple):
    name: str
    needed_for: str
    look: Callable[[Host], Checked]


def examine(host: Host) -> Doctor:
    """Every check on a host, in the order that people read them."""
    checks = []
    for need in _NEEDS:
        found = need.look(host)
        fix = _install(host, found.package) if found.package else found.fix
        checks.append(
            Check(
                name=need.name,
                status=found.status,
                detail=found.detail,
                needed_for=need.needed_for,
                fix="" if found.status == "ok" else fix,
            )
        )
    return Doctor(checks=checks)


def names() -> list[str]:
    """The names of all checks."""
    return [need.name for need in _NEEDS]


def unmet(doctor: Doctor, required: list[str]) -> list[Check]:
    """The required checks that did not come out well."""
    return [check for check in doctor.checks if check.name in required and check.status != "ok"]


def _root(host: Host) -> Checked:
    status = attempt(host.read_text, "/proc/self/status")
    users = [] if isinstance(status, Missing) else parse_status(status).get("Uid", "").split()
    if len(users) < 2:  # noqa: PLR2004  # real and effective
        return Checked("unknown", _reason(status, "no user id in /proc/self/status"))
    if users[1] == "0":
        return Checked("ok", "effective user 0")
    return Checked("missing", f"effective user {users[1]}", "run it with sudo")


def _controller(name: str) -> Callable[[Host], Checked]:
    def look(host: Host) -> Checked:
        group = read_group(host, name)
        if isinstance(group, Missing):
            return Checked(
                "missing", group.reason, f"mount -t cgroup -o {name} none /sys/fs/cgroup/{name}"
            )
        top = group.directories[-1]
        shown = attempt(host.list_dir, group.directories[0])
        if isinstance(shown, Missing):
            return Checked("missing", f"its directory is not to be seen: {shown.reason}")
        if group.version == 2:  # noqa: PLR2004
            return _unified(host, name, group)
        return with_capability(
            "dac_override", Checked("ok", f"version {group.version} at {top}"), host
        )

    return look


def _unified(host: Host, name: str, group: ControlGroup) -> Checked:
    top = group.directories[-1]
    text = attempt(host.read_text, f"{top}/cgroup.controllers")
    if isinstance(text, Missing):
        return Checked("unknown", text.reason)
    wanted = "io" if name == "blkio" else name
    if wanted not in text.split():
        return Checked(
            "missing",
            f"version 2 at {top} has {' '.join(text.split()) or 'no controller'}",
            f"echo +{wanted} > {top}/cgroup.subtree_control (in the group above)",
        )
    return with_capability("dac_override", Checked("ok", f"version 2 at {top}"), host)


def _loop(host: Host) -> Checked:
    if isinstance(attempt(host.device_of, "/dev/loop-control"), Missing):
        return Checked("missing", "no /dev/loop-control", "modprobe loop")
    finding = with_capability("sys_admin", Checked("ok", "/dev/loop-control"), host)
    return _and_programs(host, finding, ("losetup", "mkfs.ext4"))


def _namespaces(host: Host) -> Checked:
    return _and_programs(host, look_at_namespaces(host), ("unshare",))


def _and_programs(host: Host, finding: Checked, programs: tuple[str, ...]) -> Checked:
    for program in programs if finding.status == "ok" else ():
        if isinstance(found := attempt(host.find_program, program), Missing):
            return Checked("missing", found.reason, _install(host, _PACKAGES.get(program, program)))
    return finding


def _process_ids(host: Host) -> Checked:
    link = attempt(host.read_link, "/proc/self/ns/pid")
    if isinstance(link, Missing):
        return Checked("unknown", link.reason)
    if link == INITIAL_NAMESPACE:
        return Checked("ok", "processes have the ids that the kernel's events name")
    return Checked(
        "missing", "a process namespace: events name other ids", "run it on the host itself"
    )


def _delay_accounting(host: Host) -> Checked:
    text = attempt(host.read_text, "/proc/sys/kernel/task_delayacct")
    if isinstance(text, Missing):
        return Checked("unknown", f"{text.reason} (a kernel before 5.14, or without it)")
    if text.strip() == "1":
        return Checked("ok", "kernel.task_delayacct=1; counts for workers started since")
    return Checked(
        "missing",
        "kernel.task_delayacct=0: no waiting for disks is counted",
        "sysctl kernel.task_delayacct=1, then reload nginx",
    )


def _taskstats(host: Host) -> Checked:
    """CONFIG_TASK_IO_ACCOUNTING, which shows as a file, depends on CONFIG_TASKSTATS."""
    accounting = attempt(host.read_text, "/proc/self/io")
    if isinstance(accounting, Missing):
        return Checked("unknown", accounting.reason)
    return with_capability("net_admin", Checked("ok", "the kernel has taskstats"), host)


def _sock_diag(host: Host) -> Checked:
    listening = attempt(host.listening, None)
    if isinstance(listening, Missing):
        table = attempt(host.read_text, "/proc/self/net/tcp")
        if not isinstance(table, Missing):
            detail = f"{listening.reason}; /proc/net/tcp tells listeners without backlog and drops"
            return Checked("missing", detail, "modprobe tcp_diag")
        return Checked("missing", listening.reason, "modprobe tcp_diag")
    return Checked("ok", f"{len(listening.sockets)} listening TCP sockets")


def _pressure(host: Host) -> Checked:
    text = attempt(host.read_text, "/proc/pressure/io")
    if isinstance(text, Missing):
        return Checked("missing", text.reason, "boot with psi=1")
    return Checked("ok", "/proc/pressure/io")


def _nginx(host: Host) -> Checked:
    nginx = read_nginx(host, to_run=True)[0]
    if nginx.product is None:
        refused = [f"{one.binary}: {one.reason}" for one in nginx.candidates]
        said = "; ".join(["no nginx that says its version", *refused])
        return Checked("missing", said, _install(host, "nginx"))
    others = [f"; not process {one.pid}: {one.reason}" if one.pid else f"; not {one.binary}: "
              f"{one.reason}" for one in nginx.candidates if not one.chosen]  # fmt: skip
    detail = f"{nginx.product} {nginx.version}; {nginx.choice}{''.join(others)}"
    return Checked("ok" if nginx.may_run else "missing", detail, "name one with --nginx")


def _threads(host: Host) -> Checked:
    nginx = read_nginx(host, to_run=True)[0]
    if nginx.product is None:
        return Checked("unknown", "no nginx to ask")
    if "--with-threads" in nginx.flags:
        return Checked("ok", "built --with-threads")
    return Checked("missing", f"{nginx.binary} is built without threads", "install another build")


def _load_probe(_: Host) -> Checked:
    try:
        return Checked("ok", str(find_probe()))
    except MissingToolError as error:
        return Checked("missing", error.message, error.hint or "install a wheel built with cargo")


def _program(program: str) -> Callable[[Host], Checked]:
    def look(host: Host) -> Checked:
        found = attempt(host.find_program, program)
        if isinstance(found, Missing):
            return Checked("missing", found.reason, _install(host, _PACKAGES.get(program, program)))
        return Checked("ok", found)

    return look


_PACKAGES = {
    "nbdfuse": "libnbd-bin",
    "losetup": "mount",
    "mkfs.ext4": "e2fsprogs",
    "unshare": "util-linux",
}
"""Packages, as Debian calls them, that are not called as their program."""
_OTHER_PACKAGES = {
    "fedora": {"libnbd-bin": "nbdfuse", "mount": "util-linux"},
    "alpine": {"libnbd-bin": "libnbd", "mount": "losetup"},
}
_INSTALLERS = {
    "debian": "apt-get install",
    "fedora": "dnf install",
    "alpine": "apk add",
    "arch": "pacman -S",
    "suse": "zypper install",
}
_FAMILIES = {"ubuntu": "debian", "rhel": "fedora", "centos": "fedora", "opensuse": "suse"}


def _install(host: Host, package: str) -> str:
    """How this distribution installs a package.

    Source: os-release(5).
    """
    text = attempt(host.read_text, "/etc/os-release")
    words = (
        [] if isinstance(text, Missing) else re.findall(r"^ID(?:_LIKE)?=(.*)$", text, re.MULTILINE)
    )
    for name in " ".join(words).replace('"', "").split():
        family = _FAMILIES.get(name, name)
        if family in _INSTALLERS:
            named = _OTHER_PACKAGES.get(family, {}).get(package, package)
            return f"{_INSTALLERS[family]} {named}"
    return f"install {package}"


def _reason(found: str | Missing, otherwise: str) -> str:
    return found.reason if isinstance(found, Missing) else otherwise


_NEEDS = (
    _Need("root", "the lab, other users' processes, trusted residency", _root),
    _Need("nginx", "everything that runs a scratch nginx", _nginx),
    _Need("threads", "thread pools (aio threads)", _threads),
    _Need("load-probe", "probe, validate and scenario; inspect --disks", _load_probe),
    _Need("namespaces", "the lab's walls", _namespaces),
    _Need("cgroup-memory", "the lab's memory limit", _controller("memory")),
    _Need("cgroup-io", "the lab's disk limits", _controller("blkio")),
    _Need("cgroup-cpu", "CPU limits of containers", _controller("cpu")),
    _Need("loop-devices", "the lab's disks", _loop),
    _Need("nbdkit", "modelled disks in the lab", _program("nbdkit")),
    _Need("nbdfuse", "modelled disks in the lab", _program("nbdfuse")),
    _Need("tracepoints", "time of each turn of the event loop", look_at_tracepoints),
    _Need("profiler", "whose code the workers compute in", look_at_profiler),
    _Need("process-ids", "time of each turn of the event loop", _process_ids),
    _Need("bpftrace", "time of each turn of the event loop", look_at_bpftrace),
    _Need("uprobes", "observe --queue-wait", look_at_uprobes),
    _Need("delay-accounting", "time that workers wait for disks", _delay_accounting),
    _Need("taskstats", "time that workers wait for disks, exactly", _taskstats),
    _Need("sock-diag", "accept queues and drops by listener", _sock_diag),
    _Need("pressure", "how long the host as a whole waits for disks", _pressure),
)
