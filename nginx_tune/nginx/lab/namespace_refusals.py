"""Why the kernel makes no namespaces for this user, and what to do about it; pure."""

from __future__ import annotations

from typing import NamedTuple

_SYS_ADMIN = 21
"""Source: capability.h."""
_IN_A_CONTAINER = (
    "in a container add it (docker run --cap-add SYS_ADMIN --security-opt apparmor=unconfined), or "
    "run this on the host, or as an ordinary user who may make user namespaces; a systemd unit "
    "needs it in CapabilityBoundingSet="
)


class NamespaceRefusal(NamedTuple):
    """In words."""

    message: str
    hint: str


def has_sys_admin(status: str) -> bool:
    """Whether a process may make namespaces and mounts, by its /proc/PID/status."""
    for line in status.splitlines():
        name, _, mask = line.partition(":")
        if name == "CapEff":
            return bool(int(mask, 16) >> _SYS_ADMIN & 1)
    return True


def explain_refusal(said: str, *, is_root: bool, status: str) -> NamespaceRefusal | None:
    """What unshare(1) said, explained; None where that is not about namespaces."""
    last = said.strip().rpartition("unshare: ")[2]
    if "unshare: " not in said:
        return None
    if "No space left on device" in last:
        return NamespaceRefusal(
            "this host's number of namespaces is used up",
            "see sysctl user.max_mnt_namespaces, user.max_net_namespaces and their kin",
        )
    if not is_root:
        return NamespaceRefusal(
            f"cannot make namespaces as an ordinary user: {last}",
            "run it with sudo, or allow unprivileged user namespaces (sysctl "
            "user.max_user_namespaces, kernel.unprivileged_userns_clone, "
            "kernel.apparmor_restrict_unprivileged_userns)",
        )
    if not has_sys_admin(status):
        return NamespaceRefusal(
            "root without the capability CAP_SYS_ADMIN may make no namespaces and mounts: the "
            "walls around nginx cannot be had",
            _IN_A_CONTAINER,
        )
    return NamespaceRefusal(
        f"something forbids root to make namespaces and mounts ({last}): a container's filter of "
        "system calls, RestrictNamespaces= or SystemCallFilter= of a systemd unit, AppArmor or "
        "SELinux",
        "run this on the host, or give the container --security-opt seccomp=unconfined "
        "--security-opt apparmor=unconfined, or the unit RestrictNamespaces=no and "
        "SystemCallFilter=@mount",
    )
