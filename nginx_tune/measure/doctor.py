"""Asking a host what it lets nginx-tune measure: one check for each thing that is needed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from nginx_tune.documents.doctor import Check, CheckStatus, Doctor
from nginx_tune.errors import MissingToolError
from nginx_tune.host.cgroup import Group, read_group
from nginx_tune.host.door import Host
from nginx_tune.host.gaps import Missing, attempt
from nginx_tune.host.global_ids import INITIAL_NAMESPACE
from nginx_tune.host.parse_process import parse_capabilities, parse_status
from nginx_tune.measure.probe import find_probe
from nginx_tune.nginx.binary import read_nginx

_TRACEFS = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")
_EPOLL_EVENTS = ("sys_enter_epoll_wait", "sys_enter_epoll_pwait")


class _Finding(NamedTuple):
    status: CheckStatus
    detail: str
    fix: str = ""


class _Need(NamedTuple):
    name: str
    needed_for: str
    look: Callable[[Host], _Finding]


def examine(host: Host) -> Doctor:
    """Every check on a host, in the order that people read them."""
    checks = []
    for need in _NEEDS:
        found = need.look(host)
        checks.append(
            Check(
                name=need.name,
                status=found.status,
                detail=found.detail,
                needed_for=need.needed_for,
                fix="" if found.status == "ok" else found.fix,
            )
        )
    return Doctor(checks=checks)


def names() -> list[str]:
    """The names of all checks."""
    return [need.name for need in _NEEDS]


def unmet(doctor: Doctor, required: list[str]) -> list[Check]:
    """The required checks that did not come out well."""
    return [check for check in doctor.checks if check.name in required and check.status != "ok"]


def _root(host: Host) -> _Finding:
    status = attempt(host.read_text, "/proc/self/status")
    users = [] if isinstance(status, Missing) else parse_status(status).get("Uid", "").split()
    if len(users) < 2:  # noqa: PLR2004  # real and effective
        return _Finding("unknown", _reason(status, "no user id in /proc/self/status"))
    if users[1] == "0":
        return _Finding("ok", "effective user 0")
    return _Finding("missing", f"effective user {users[1]}", "run it with sudo")


def _capabilities(host: Host) -> list[str] | Missing:
    text = attempt(host.read_text, "/proc/self/status")
    mask = text if isinstance(text, Missing) else parse_status(text).get("CapEff")
    if isinstance(mask, Missing) or mask is None:
        return mask or Missing("/proc/self/status tells no capabilities")
    return parse_capabilities(mask)


def _with_capability(name: str, finding: _Finding, host: Host) -> _Finding:
    """The finding, unless the right to use what was found is not there."""
    has = _capabilities(host)
    if isinstance(has, Missing):
        return _Finding("unknown", has.reason)
    if name not in has:
        return _Finding("missing", f"no right to it (CAP_{name.upper()})", "run it with sudo")
    return finding


def _controller(name: str) -> Callable[[Host], _Finding]:
    def look(host: Host) -> _Finding:
        group = read_group(host, name)
        if isinstance(group, Missing):
            return _Finding(
                "missing", group.reason, f"mount -t cgroup -o {name} none /sys/fs/cgroup/{name}"
            )
        top = group.directories[-1]
        if group.version == 2:  # noqa: PLR2004
            return _unified(host, name, group)
        return _with_capability(
            "dac_override", _Finding("ok", f"version {group.version} at {top}"), host
        )

    return look


def _unified(host: Host, name: str, group: Group) -> _Finding:
    top = group.directories[-1]
    text = attempt(host.read_text, f"{top}/cgroup.controllers")
    if isinstance(text, Missing):
        return _Finding("unknown", text.reason)
    wanted = "io" if name == "blkio" else name
    if wanted not in text.split():
        return _Finding(
            "missing",
            f"version 2 at {top} has {' '.join(text.split()) or 'no controller'}",
            f"echo +{wanted} > {top}/cgroup.subtree_control (in the group above)",
        )
    return _with_capability("dac_override", _Finding("ok", f"version 2 at {top}"), host)


def _loop(host: Host) -> _Finding:
    if isinstance(attempt(host.device_of, "/dev/loop-control"), Missing):
        return _Finding("missing", "no /dev/loop-control", "modprobe loop")
    finding = _with_capability("sys_admin", _Finding("ok", "/dev/loop-control"), host)
    return _and_programs(host, finding, ("losetup", "mkfs.ext4"))


def _namespaces(host: Host) -> _Finding:
    for kind in ("mnt", "net", "pid", "ipc"):
        link = attempt(host.read_link, f"/proc/self/ns/{kind}")
        if isinstance(link, Missing):
            return _Finding("missing", f"the kernel has no {kind} namespaces: {link.reason}")
    finding = _with_capability(
        "sys_admin", _Finding("ok", "mount, network, PID and IPC namespaces"), host
    )
    return _and_programs(host, finding, ("unshare",))


def _and_programs(host: Host, finding: _Finding, programs: tuple[str, ...]) -> _Finding:
    for program in programs if finding.status == "ok" else ():
        if isinstance(found := attempt(host.find_program, program), Missing):
            return _Finding(
                "missing", found.reason, _install(host, _PACKAGES.get(program, program))
            )
    return finding


def _tracepoints(host: Host) -> _Finding:
    reasons = []
    for directory in _TRACEFS:
        events = attempt(host.list_dir, f"{directory}/events/syscalls")
        if not isinstance(events, Missing) and set(_EPOLL_EVENTS) & set(events):
            return _Finding("ok", f"epoll events at {directory}")
        if not isinstance(attempt(host.list_dir, f"{directory}/events"), Missing):
            return _Finding("missing", "the kernel traces no system calls (CONFIG_FTRACE_SYSCALLS)")
        reasons += [events.reason] if isinstance(events, Missing) else []
    if any("Permission denied" in reason for reason in reasons):
        return _Finding("missing", "no right to look into tracefs", "run it with sudo")
    if isinstance(attempt(host.list_dir, _TRACEFS[0]), Missing):
        return _Finding("missing", "the kernel has no tracefs (CONFIG_TRACING)")
    own = _with_capability("sys_admin", _Finding("ok", _MOUNTED_APART), host)
    if own.status == "ok":
        return own
    return _Finding("missing", "tracefs is not mounted", f"mount -t tracefs none {_TRACEFS[0]}")


_MOUNTED_APART = "tracefs is not mounted; observe mounts it for itself alone"


def _uprobes(host: Host) -> _Finding:
    for directory in _TRACEFS:
        if not isinstance(attempt(host.list_dir, f"{directory}/events"), Missing):
            if "uprobe_events" in host.list_dir(directory):
                return _and_programs(host, _Finding("ok", f"uprobes at {directory}"), ("bpftrace",))
            return _Finding("missing", "the kernel has no uprobes (CONFIG_UPROBE_EVENTS)")
    return _Finding("unknown", "tracefs is not mounted, which would tell")


def _process_ids(host: Host) -> _Finding:
    link = attempt(host.read_link, "/proc/self/ns/pid")
    if isinstance(link, Missing):
        return _Finding("unknown", link.reason)
    if link == INITIAL_NAMESPACE:
        return _Finding("ok", "processes have the ids that the kernel's events name")
    return _Finding(
        "missing", "a process namespace: events name other ids", "run it on the host itself"
    )


def _delay_accounting(host: Host) -> _Finding:
    text = attempt(host.read_text, "/proc/sys/kernel/task_delayacct")
    if isinstance(text, Missing):
        return _Finding("unknown", f"{text.reason} (a kernel before 5.14, or without it)")
    if text.strip() == "1":
        return _Finding("ok", "kernel.task_delayacct=1; counts for workers started since")
    return _Finding(
        "missing",
        "kernel.task_delayacct=0: no waiting for disks is counted",
        "sysctl kernel.task_delayacct=1, then reload nginx",
    )


def _taskstats(host: Host) -> _Finding:
    """CONFIG_TASK_IO_ACCOUNTING, which shows as a file, depends on CONFIG_TASKSTATS."""
    accounting = attempt(host.read_text, "/proc/self/io")
    if isinstance(accounting, Missing):
        return _Finding("unknown", accounting.reason)
    return _with_capability("net_admin", _Finding("ok", "the kernel has taskstats"), host)


def _sock_diag(host: Host) -> _Finding:
    listening = attempt(host.listening, None)
    if isinstance(listening, Missing):
        return _Finding("missing", listening.reason, "modprobe tcp_diag")
    return _Finding("ok", f"{len(listening.sockets)} listening TCP sockets")


def _pressure(host: Host) -> _Finding:
    text = attempt(host.read_text, "/proc/pressure/io")
    if isinstance(text, Missing):
        return _Finding("missing", text.reason, "boot with psi=1")
    return _Finding("ok", "/proc/pressure/io")


def _nginx(host: Host) -> _Finding:
    nginx = read_nginx(host)[0]
    if nginx.product is None:
        return _Finding("missing", "no nginx that says its version", _install(host, "nginx"))
    return _Finding("ok", f"{nginx.product} {nginx.version} at {nginx.binary}")


def _threads(host: Host) -> _Finding:
    nginx = read_nginx(host)[0]
    if nginx.product is None:
        return _Finding("unknown", "no nginx to ask")
    if "--with-threads" in nginx.flags:
        return _Finding("ok", "built --with-threads")
    return _Finding("missing", f"{nginx.binary} is built without threads", "install another build")


def _load_probe(_: Host) -> _Finding:
    try:
        return _Finding("ok", str(find_probe()))
    except MissingToolError as error:
        return _Finding("missing", error.message, error.hint or "install a wheel built with cargo")


def _program(program: str) -> Callable[[Host], _Finding]:
    def look(host: Host) -> _Finding:
        found = attempt(host.find_program, program)
        if isinstance(found, Missing):
            return _Finding(
                "missing", found.reason, _install(host, _PACKAGES.get(program, program))
            )
        return _Finding("ok", found)

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
    _Need("tracepoints", "time of each turn of the event loop", _tracepoints),
    _Need("process-ids", "time of each turn of the event loop", _process_ids),
    _Need("bpftrace", "time of each turn of the event loop", _program("bpftrace")),
    _Need("uprobes", "observe --queue-wait", _uprobes),
    _Need("delay-accounting", "time that workers wait for disks", _delay_accounting),
    _Need("taskstats", "time that workers wait for disks, exactly", _taskstats),
    _Need("sock-diag", "accept queues and drops by listener", _sock_diag),
    _Need("pressure", "how long the host as a whole waits for disks", _pressure),
)
