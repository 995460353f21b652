"""What the kernel lets nginx-tune trace, found by trying: no guess from what could not be read."""

from __future__ import annotations

from nginx_tune.host.door import Host, Missing, attempt
from nginx_tune.observe.inspect.doctor_finding import Checked, with_capability

_TRACEFS = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")
_EPOLL_EVENTS = ("sys_enter_epoll_wait", "sys_enter_epoll_pwait")
_KINDS = ("mnt", "net", "pid", "ipc")
_MOUNTED_APART = "tracefs is not mounted; observe mounts it for itself alone"
_PROBES = "/sys/bus/event_source/devices"
_UNSHARE = ("unshare", "--user", "--map-root-user", "--mount", "--net", "--pid", "--ipc", "--fork")
_TRACE_NOTHING = ("bpftrace", "-e", "BEGIN { exit(); }")
_SECONDS = 20.0


def look_at_namespaces(host: Host) -> Checked:
    """Namespaces, as root or by a user namespace, which is tried."""
    kinds = attempt(host.list_dir, "/proc/self/ns")
    if isinstance(kinds, Missing):
        return Checked("unknown", f"what namespaces there are is not shown: {kinds.reason}")
    for kind in _KINDS:
        if kind not in kinds:
            return Checked("missing", f"the kernel has no {kind} namespaces (/proc/self/ns)")
    finding = with_capability(
        "sys_admin", Checked("ok", "mount, network, PID and IPC namespaces"), host
    )
    if finding.status != "missing":
        return finding
    tried = attempt(host.run, [*_UNSHARE, "true"])
    if isinstance(tried, Missing):
        return Checked("missing", f"{finding.detail}, and {tried.reason}", "run it with sudo")
    if tried.status == 0:
        return Checked("ok", "by a user namespace of an ordinary user (tried)")
    said = tried.stderr.strip() or f"exit status {tried.status}"
    return Checked("missing", f"no user namespace either (tried): {said}", "run it with sudo")


def look_at_tracepoints(host: Host) -> Checked:
    """Tracefs with the events of epoll; where it is not mounted, whether it can be."""
    reasons = []
    for directory in _TRACEFS:
        events = attempt(host.list_dir, f"{directory}/events/syscalls")
        if not isinstance(events, Missing) and set(_EPOLL_EVENTS) & set(events):
            return Checked("ok", f"epoll events at {directory}")
        if not isinstance(attempt(host.list_dir, f"{directory}/events"), Missing):
            return Checked("missing", "the kernel traces no system calls (CONFIG_FTRACE_SYSCALLS)")
        reasons += [events.reason] if isinstance(events, Missing) else []
    if any("Permission denied" in reason for reason in reasons):
        return Checked("missing", "no right to look into tracefs", "run it with sudo")
    kinds = attempt(host.read_text, "/proc/filesystems")
    if isinstance(kinds, Missing):
        return Checked("unknown", f"whether the kernel has tracefs is not shown: {kinds.reason}")
    if "tracefs" not in kinds.split():
        return Checked("missing", "the kernel has no tracefs (/proc/filesystems, CONFIG_TRACING)")
    if isinstance(there := attempt(host.list_dir, _TRACEFS[0]), Missing):
        return Checked(
            "missing",
            f"the kernel has tracefs, but {_TRACEFS[0]}, where it belongs, cannot be seen: "
            f"{there.reason}",
            "run it where /sys is mounted",
        )
    own = with_capability("sys_admin", Checked("ok", _MOUNTED_APART), host)
    if own.status == "missing":
        return Checked("missing", f"tracefs is not mounted; {own.detail}", "run it with sudo")
    return own


def look_at_uprobes(host: Host) -> Checked:
    """Probes on functions of programs."""
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


def look_at_bpftrace(host: Host) -> Checked:
    """bpftrace, by a program that ends at once."""
    path = attempt(host.find_program, "bpftrace")
    if isinstance(path, Missing):
        return Checked("missing", path.reason, package="bpftrace")
    tried = attempt(host.run, list(_TRACE_NOTHING), timeout_seconds=_SECONDS)
    if isinstance(tried, Missing):
        return Checked("missing", tried.reason, "run it with sudo")
    if tried.status != 0:
        lines = [line for line in tried.stderr.splitlines() if line.strip()]
        said = lines[-1].removeprefix("ERROR: ") if lines else f"exit status {tried.status}"
        return Checked("missing", f"{path} (tried): {said}", "run it with sudo")
    return Checked("ok", f"{path} (tried)")


def look_at_profiler(host: Host) -> Checked:
    """Whether perf_event_open lets the caller sample other users' processes.

    Source: Documentation/admin-guide/perf-security.rst; the sysctl is there with the call.
    """
    names = attempt(host.list_dir, "/proc/sys/kernel")
    if isinstance(names, Missing):
        return Checked(
            "unknown", f"whether the kernel has perf events is not shown: {names.reason}"
        )
    if "perf_event_paranoid" not in names:
        return Checked("missing", "the kernel has no perf events (CONFIG_PERF_EVENTS)")
    return with_capability("sys_admin", Checked("ok", "perf events"), host)


def _if_traced(host: Host, finding: Checked) -> Checked:
    tracing = look_at_bpftrace(host)
    return finding if tracing.status == "ok" else tracing
