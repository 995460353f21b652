"""The checks of ``doctor``: what nginx-tune can measure on a host, one check for each need.

The kernel's means of tracing are tried out, since unreadable files prove nothing.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from nginx_tune.documents.inspection import Check, CheckStatus, Doctor
from nginx_tune.errors import MissingToolError
from nginx_tune.host.door import Host, Missing, attempt
from nginx_tune.host.mounts import ControlGroup, read_group
from nginx_tune.host.namespaces import INITIAL_NAMESPACE
from nginx_tune.host.parse_proc import parse_capabilities, parse_status
from nginx_tune.measure.load.probe import find_probe
from nginx_tune.nginx.binary import read_nginx


class Checked(NamedTuple):
    """The outcome of a check."""

    status: CheckStatus
    detail: str
    fix: str = ""
    package: str = ""
    """Debian's name of a package to install; ``fix`` is then derived for the distribution."""


class _Need(NamedTuple):
    name: str
    needed_for: str
    look: Callable[[Host], Checked]


def examine(host: Host) -> Doctor:
    """All checks on a host, in the order of the report."""
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
    """The required checks that did not succeed."""
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
            return Checked("missing", f"its directory is not visible: {shown.reason}")
        if group.version == 2:  # noqa: PLR2004
            return _unified(host, name, group)
        return _with_capability(
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
    return _with_capability("dac_override", Checked("ok", f"version 2 at {top}"), host)


def _loop(host: Host) -> Checked:
    if isinstance(attempt(host.device_of, "/dev/loop-control"), Missing):
        return Checked("missing", "no /dev/loop-control", "modprobe loop")
    finding = _with_capability("sys_admin", Checked("ok", "/dev/loop-control"), host)
    return _and_programs(host, finding, ("losetup", "mkfs.ext4"))


def _fuse(host: Host) -> Checked:
    if isinstance(attempt(host.device_of, "/dev/fuse"), Missing):
        return Checked("missing", "no /dev/fuse", "modprobe fuse")
    return _with_capability("sys_admin", Checked("ok", "/dev/fuse"), host)


def _namespaces(host: Host) -> Checked:
    return _and_programs(host, _look_at_namespaces(host), ("unshare",))


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
        "missing",
        "in a process namespace, the kernel's events have other ids",
        "run it on the host itself",
    )


def _delay_accounting(host: Host) -> Checked:
    text = attempt(host.read_text, "/proc/sys/kernel/task_delayacct")
    if isinstance(text, Missing):
        return Checked("unknown", f"{text.reason} (a kernel before 5.14, or without it)")
    if text.strip() == "1":
        return Checked("ok", "kernel.task_delayacct=1; counts for workers started since")
    return Checked(
        "missing",
        "kernel.task_delayacct=0: waits for disks are not counted",
        "sysctl kernel.task_delayacct=1, then reload nginx",
    )


def _taskstats(host: Host) -> Checked:
    """Look for /proc/self/io: CONFIG_TASK_IO_ACCOUNTING depends on CONFIG_TASKSTATS."""
    accounting = attempt(host.read_text, "/proc/self/io")
    if isinstance(accounting, Missing):
        return Checked("unknown", accounting.reason)
    return _with_capability("net_admin", Checked("ok", "the kernel has taskstats"), host)


def _sock_diag(host: Host) -> Checked:
    listening = attempt(host.listening, None)
    if isinstance(listening, Missing):
        table = attempt(host.read_text, "/proc/self/net/tcp")
        if not isinstance(table, Missing):
            detail = f"{listening.reason}; /proc/net/tcp has listeners without backlog and drops"
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
        refused = [f"{found.binary}: {found.reason}" for found in nginx.candidates]
        detail = "; ".join(["no nginx that reports its version", *refused])
        return Checked("missing", detail, _install(host, "nginx"))
    others = "".join(
        f"; not {f'process {found.pid}' if found.pid else found.binary}: {found.reason}"
        for found in nginx.candidates
        if not found.chosen
    )
    detail = f"{nginx.product} {nginx.version}; {nginx.choice}{others}"
    return Checked("ok" if nginx.may_run else "missing", detail, "name one with --nginx")


def _threads(host: Host) -> Checked:
    nginx = read_nginx(host, to_run=True)[0]
    if nginx.product is None:
        return Checked("unknown", "no nginx found")
    if "--with-threads" in nginx.flags:
        return Checked("ok", "built --with-threads")
    return Checked("missing", f"{nginx.binary} is built without threads", "install another build")


def _load_probe(_: Host) -> Checked:
    try:
        return Checked("ok", str(find_probe()))
    except MissingToolError as error:
        return Checked("missing", error.message, error.hint)


def _reason(found: str | Missing, otherwise: str) -> str:
    return found.reason if isinstance(found, Missing) else otherwise


_PACKAGES = {"losetup": "mount", "mkfs.ext4": "e2fsprogs", "unshare": "util-linux"}
"""Debian packages that are not named like their program."""
_OTHER_PACKAGES = {"fedora": {"mount": "util-linux"}, "alpine": {"mount": "losetup"}}
_INSTALLERS = {
    "debian": "apt-get install",
    "fedora": "dnf install",
    "alpine": "apk add",
    "arch": "pacman -S",
    "suse": "zypper install",
}
_FAMILIES = {"ubuntu": "debian", "rhel": "fedora", "centos": "fedora", "opensuse": "suse"}


def _install(host: Host, package: str) -> str:
    """The command by which this distribution installs a package.

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


def _with_capability(name: str, finding: Checked, host: Host) -> Checked:
    """The finding, or a missing capability that it needs."""
    has = _capabilities(host)
    if isinstance(has, Missing):
        return Checked("unknown", has.reason)
    if name not in has:
        return Checked("missing", f"not permitted (needs CAP_{name.upper()})", "run it with sudo")
    return finding


def _capabilities(host: Host) -> list[str] | Missing:
    text = attempt(host.read_text, "/proc/self/status")
    mask = text if isinstance(text, Missing) else parse_status(text).get("CapEff")
    if isinstance(mask, Missing) or mask is None:
        return mask or Missing("/proc/self/status has no capabilities")
    return parse_capabilities(mask)


_TRACEFS = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")
_EPOLL_EVENTS = ("sys_enter_epoll_wait", "sys_enter_epoll_pwait")
_KINDS = ("mnt", "net", "pid", "ipc")
_MOUNTED_APART = "tracefs is not mounted; observe mounts it for itself alone"
_PROBES = "/sys/bus/event_source/devices"
_UNSHARE = ("unshare", "--user", "--map-root-user", "--mount", "--net", "--pid", "--ipc", "--fork")
_TRACE_NOTHING = ("bpftrace", "-e", "BEGIN { exit(); }")
_SECONDS = 20.0


def _look_at_namespaces(host: Host) -> Checked:
    """Look for namespaces as root, else try out a user namespace."""
    kinds = attempt(host.list_dir, "/proc/self/ns")
    if isinstance(kinds, Missing):
        return Checked("unknown", f"the kernel's namespaces cannot be listed: {kinds.reason}")
    for kind in _KINDS:
        if kind not in kinds:
            return Checked("missing", f"the kernel has no {kind} namespaces (/proc/self/ns)")
    finding = _with_capability(
        "sys_admin", Checked("ok", "mount, network, PID and IPC namespaces"), host
    )
    if finding.status != "missing":
        return finding
    tried = attempt(host.run, [*_UNSHARE, "true"])
    if isinstance(tried, Missing):
        return Checked("missing", f"{finding.detail}, and {tried.reason}", "run it with sudo")
    if tried.status == 0:
        return Checked("ok", "by a user namespace of an ordinary user (tried)")
    reason = tried.stderr.strip() or f"exit status {tried.status}"
    return Checked("missing", f"no user namespace either (tried): {reason}", "run it with sudo")


def _look_at_tracepoints(host: Host) -> Checked:
    """Look for tracefs with the events of epoll; if not mounted, for the right to mount it."""
    reasons = []
    for directory in _TRACEFS:
        events = attempt(host.list_dir, f"{directory}/events/syscalls")
        if not isinstance(events, Missing) and set(_EPOLL_EVENTS) & set(events):
            return Checked("ok", f"epoll events at {directory}")
        if not isinstance(attempt(host.list_dir, f"{directory}/events"), Missing):
            return Checked("missing", "the kernel traces no system calls (CONFIG_FTRACE_SYSCALLS)")
        reasons += [events.reason] if isinstance(events, Missing) else []
    if any("Permission denied" in reason for reason in reasons):
        return Checked("missing", "no permission to read tracefs", "run it with sudo")
    kinds = attempt(host.read_text, "/proc/filesystems")
    if isinstance(kinds, Missing):
        return Checked("unknown", f"it is unknown whether the kernel has tracefs: {kinds.reason}")
    if "tracefs" not in kinds.split():
        return Checked("missing", "the kernel has no tracefs (/proc/filesystems, CONFIG_TRACING)")
    if isinstance(there := attempt(host.list_dir, _TRACEFS[0]), Missing):
        return Checked(
            "missing",
            f"the kernel has tracefs, but {_TRACEFS[0]}, its usual place, is not visible: "
            f"{there.reason}",
            "run it where /sys is mounted",
        )
    own = _with_capability("sys_admin", Checked("ok", _MOUNTED_APART), host)
    if own.status == "missing":
        return Checked("missing", f"tracefs is not mounted; {own.detail}", "run it with sudo")
    return own


def _look_at_uprobes(host: Host) -> Checked:
    """Look for uprobes, which are probes on functions of programs."""
    for directory in _TRACEFS:
        if not isinstance(attempt(host.list_dir, f"{directory}/events"), Missing):
            if "uprobe_events" in host.list_dir(directory):
                return _if_traced(host, Checked("ok", f"uprobes at {directory}"))
            return Checked("missing", "the kernel has no uprobes (CONFIG_UPROBE_EVENTS)")
    devices = attempt(host.list_dir, _PROBES)
    if isinstance(devices, Missing):
        return Checked("unknown", f"tracefs is not mounted, and {_PROBES} is not shown")
    if "uprobe" not in devices:
        return Checked("missing", f"the kernel has no uprobes ({_PROBES})")
    return _if_traced(host, Checked("ok", "the kernel has uprobes"))


def _look_at_bpftrace(host: Host) -> Checked:
    """Try out bpftrace with a program that ends at once."""
    path = attempt(host.find_program, "bpftrace")
    if isinstance(path, Missing):
        return Checked("missing", path.reason, package="bpftrace")
    tried = attempt(host.run, list(_TRACE_NOTHING), timeout_seconds=_SECONDS)
    if isinstance(tried, Missing):
        return Checked("missing", tried.reason, "run it with sudo")
    if tried.status != 0:
        lines = [line for line in tried.stderr.splitlines() if line.strip()]
        reason = lines[-1].removeprefix("ERROR: ") if lines else f"exit status {tried.status}"
        return Checked("missing", f"{path} (tried): {reason}", "run it with sudo")
    return Checked("ok", f"{path} (tried)")


def _look_at_profiler(host: Host) -> Checked:
    """Look for the right to sample other users' processes with perf_event_open.

    Source: Documentation/admin-guide/perf-security.rst; a kernel with the call has the sysctl.
    """
    names = attempt(host.list_dir, "/proc/sys/kernel")
    if isinstance(names, Missing):
        return Checked(
            "unknown", f"it is unknown whether the kernel has perf events: {names.reason}"
        )
    if "perf_event_paranoid" not in names:
        return Checked("missing", "the kernel has no perf events (CONFIG_PERF_EVENTS)")
    return _with_capability("sys_admin", Checked("ok", "perf events"), host)


def _if_traced(host: Host, finding: Checked) -> Checked:
    tracing = _look_at_bpftrace(host)
    return finding if tracing.status == "ok" else tracing


_NEEDS = (
    _Need("root", "the lab, other users' processes, trusted residency", _root),
    _Need("nginx", "everything that runs a scratch nginx", _nginx),
    _Need("threads", "thread pools (aio threads)", _threads),
    _Need("load-probe", "all that measures or reads logs: probe, learn, validate, …", _load_probe),
    _Need("namespaces", "the sandbox", _namespaces),
    _Need("cgroup-memory", "the lab's memory limit", _controller("memory")),
    _Need("cgroup-io", "the lab's disk limits", _controller("blkio")),
    _Need("cgroup-cpu", "CPU limits of containers", _controller("cpu")),
    _Need("loop-devices", "the lab's disks", _loop),
    _Need("fuse", "modelled disks in the lab", _fuse),
    _Need("tracepoints", "time of each turn of the event loop", _look_at_tracepoints),
    _Need("profiler", "whose code the workers compute in", _look_at_profiler),
    _Need("process-ids", "time of each turn of the event loop", _process_ids),
    _Need("bpftrace", "time of each turn of the event loop", _look_at_bpftrace),
    _Need("uprobes", "observe --queue-wait", _look_at_uprobes),
    _Need("delay-accounting", "time that workers wait for disks", _delay_accounting),
    _Need("taskstats", "time that workers wait for disks, exactly", _taskstats),
    _Need("sock-diag", "accept queues and drops by listener", _sock_diag),
    _Need("pressure", "how long the host as a whole waits for disks", _pressure),
)
