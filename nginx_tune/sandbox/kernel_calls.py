"""The system calls that build a sandbox, through ctypes.

They run between fork and exec, thousands of times in a benchmark, so nothing here starts a process
or keeps state. Errors: OSError with the call's name.
"""

import ctypes
import fcntl
import os
import platform
import re
import struct
from typing import NamedTuple

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
_CLONE_FS = 0x00000200

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_NOATIME, MS_NODIRATIME, MS_BIND = 32, 1024, 2048, 4096
MS_REC, MS_PRIVATE, MS_RELATIME = 0x4000, 1 << 18, 1 << 21
_MNT_DETACH = 2

_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 4, 24, 38
_PR_CAP_AMBIENT, _AMBIENT_RAISE, _AMBIENT_CLEAR_ALL = 47, 2, 4
_CAPABILITY_VERSION_3 = 0x20080522

_AT_RECURSIVE, _AT_EMPTY_PATH = 0x8000, 0x1000
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID, _MOUNT_ATTR_NODEV = 1, 2, 4

_SECCOMP_SET_MODE_FILTER, _FILTER_SPEC_ALLOW, _FILTER_NEW_LISTENER = 1, 4, 8
NOTIFICATIONS = _NOTIFICATION_RECEIVE, _NOTIFICATION_SEND = (0xC0502100, 0xC0182101)
"""The ioctl() requests on the descriptor of a seccomp supervisor."""
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
"""struct seccomp_notif: id, pid, flags, then struct seccomp_data."""
_RESPONSE = struct.Struct("=QqiI")
_CONTINUE = 1
_LANDLOCK_VERSION, _LANDLOCK_PATH_BENEATH = 1, 1
_O_PATH = os.O_PATH | os.O_CLOEXEC


_SECCOMP = {"x86_64": 317, "aarch64": 277}
"""The call's number by architecture (include/uapi/asm*/unistd.h); the numbers below are the same on
all architectures."""
_MOUNT_SETATTR = 442
_LANDLOCK_CREATE, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT = 444, 445, 446

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.mount.argtypes = [
    ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p,
]  # fmt: skip
_libc.prctl.argtypes = [ctypes.c_int, *(ctypes.c_ulong,) * 4]


def architecture() -> str:
    """The kernel's name for this machine."""
    return platform.machine()


def unshare(flags: int) -> None:
    """Enter new namespaces."""
    _check(_libc.unshare(flags), "unshare")


def enter_mounts(namespace: int) -> None:
    """Move the calling thread, and no other, into a mount namespace."""
    _check(_libc.unshare(_CLONE_FS), "unshare")
    _check(_libc.setns(namespace, CLONE_NEWNS), "setns")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Mount a file system or bind mount (mount(2))."""
    status = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        kind.encode() or None,
        flags,
        os.fsencode(data) or None,
    )
    _check(status, "mount", target)


def unmount(target: str) -> None:
    """Unmount an unused mount."""
    _check(_libc.umount2(os.fsencode(target), 0), "umount", target)


def detach(target: str) -> None:
    """Unmount lazily, with all mounts below."""
    _check(_libc.umount2(os.fsencode(target), _MNT_DETACH), "umount", target)


def pivot_root(new_root: str, put_old: str) -> None:
    """Change the root of the mount namespace."""
    # The C library (glibc and musl export it) knows the number on every architecture.
    _check(_libc.pivot_root(os.fsencode(new_root), os.fsencode(put_old)), "pivot_root")


class _MountAttributes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns"))


def seal_tree(mounted: int, *, read_only: bool) -> None:
    """Make a mount and all mounts below it nodev, nosuid and optionally read-only in one call.

    ``mounted`` is a descriptor of the mount's root.
    Errors: OSError ENOSYS before Linux 5.12.
    """
    flags = _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV | (_MOUNT_ATTR_RDONLY if read_only else 0)
    wanted = _MountAttributes(flags, 0, 0, 0)
    status = _libc.syscall(
        ctypes.c_long(_MOUNT_SETATTR),
        ctypes.c_int(mounted),
        b"",
        ctypes.c_uint(_AT_RECURSIVE | _AT_EMPTY_PATH),
        ctypes.byref(wanted),
        ctypes.c_size_t(ctypes.sizeof(wanted)),
    )
    _check(status, "mount_setattr")


def no_new_privileges() -> None:
    """Prevent programs, from here on, from gaining rights by setuid bits or file capabilities."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def hide_memory() -> None:
    """Hide this process's memory and descriptors from other processes of the same user."""
    _check(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0), "PR_SET_DUMPABLE")


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapabilityData(ctypes.Structure):
    _fields_ = tuple((n, ctypes.c_uint32) for n in ("effective", "permitted", "inheritable"))


def drop_from_bounding_set(number: int) -> bool:
    """Drop a capability from the bounding set; returns False if the kernel lacks it."""
    return bool(_libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) == 0)


def set_capabilities(mask: int, *, inheritable: int = 0) -> None:
    """Set the effective and permitted capabilities to exactly those of ``mask``."""
    header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
    words = (_CapabilityData * 2)()
    for index in range(2):
        part = (mask >> (32 * index)) & 0xFFFFFFFF
        words[index] = _CapabilityData(part, part, (inheritable >> (32 * index)) & 0xFFFFFFFF)
    _check(_libc.capset(ctypes.byref(header), words), "capset")


def clear_ambient() -> None:
    """Drop all ambient capabilities."""
    _check(_libc.prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0), "PR_CAP_AMBIENT")


def raise_ambient(number: int) -> None:
    """Keep a capability across exec in a process that is not root."""
    _check(_libc.prctl(_PR_CAP_AMBIENT, _AMBIENT_RAISE, number, 0, 0), "PR_CAP_AMBIENT")


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def can_supervise() -> bool:
    """True when a supervisor can let a filtered call proceed: since Linux 5.5.

    Source: SECCOMP_USER_NOTIF_FLAG_CONTINUE, seccomp_unotify(2).
    """
    return [int(part) for part in re.findall("[0-9]+", os.uname().release)[:2]] >= [5, 5]


def install_filter(program: bytes, *, listens: bool = False) -> int:
    """Filter all system calls from here on by a BPF program (seccomp(2)).

    With ``listens``, returns a descriptor for ``receive_call``; otherwise 0.
    Errors: OSError for a kernel without filters.
    """
    code = ctypes.create_string_buffer(program, len(program))
    whole = _Program(len(program) // 8, ctypes.addressof(code))
    # Before Linux 5.16 a filter adds speculation barriers, which would distort measurements.
    status = _libc.syscall(
        ctypes.c_long(_SECCOMP[architecture()]),
        ctypes.c_uint(_SECCOMP_SET_MODE_FILTER),
        ctypes.c_uint(_FILTER_SPEC_ALLOW | (_FILTER_NEW_LISTENER if listens else 0)),
        ctypes.byref(whole),
    )
    _check(status, "seccomp")
    return int(status)


class StoppedCall(NamedTuple):
    """A system call that waits for an answer."""

    id: int
    number: int
    arguments: tuple[int, ...]


def receive_call(listener: int) -> StoppedCall:
    """The next call that the filter passed to its supervisor.

    Errors: OSError ENOENT if its process has ended.
    Source: seccomp_unotify(2).
    """
    text = fcntl.ioctl(listener, _NOTIFICATION_RECEIVE, bytes(_NOTIFICATION.size))
    number, _, _, call, _, _, *arguments = _NOTIFICATION.unpack(text)
    return StoppedCall(number, call, tuple(arguments))


def answer_call(listener: int, call: StoppedCall, *, error: int) -> None:
    """Fail a call with an error number; 0 lets it proceed."""
    answer = _RESPONSE.pack(call.id, 0, -error, 0 if error else _CONTINUE)
    fcntl.ioctl(listener, _NOTIFICATION_SEND, answer)


def landlock_version() -> int:
    """The kernel's active Landlock version; 0 without Landlock."""
    status = _libc.syscall(
        ctypes.c_long(_LANDLOCK_CREATE), None, ctypes.c_size_t(0), ctypes.c_uint(_LANDLOCK_VERSION)
    )
    return max(0, int(status))


class _Ruleset(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("files", "network", "scoped"))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def make_ruleset(files: int, scoped: int) -> int:
    """Create a Landlock ruleset that forbids these file rights wherever no rule allows them."""
    rules = _Ruleset(files, 0, scoped)
    size = ctypes.sizeof(rules) if scoped else 8
    number = _libc.syscall(
        ctypes.c_long(_LANDLOCK_CREATE),
        ctypes.byref(rules),
        ctypes.c_size_t(size),
        ctypes.c_uint(0),
    )
    _check(number, "landlock_create_ruleset")
    return int(number)


def allow_beneath(ruleset: int, path: str, files: int) -> None:
    """Add a rule that allows file rights below a path."""
    parent = os.open(path, _O_PATH)
    try:
        rule = _Beneath(files, parent)
        status = _libc.syscall(
            ctypes.c_long(_LANDLOCK_ADD_RULE),
            ctypes.c_int(ruleset),
            ctypes.c_uint(_LANDLOCK_PATH_BENEATH),
            ctypes.byref(rule),
            ctypes.c_uint(0),
        )
        _check(status, "landlock_add_rule", path)
    finally:
        os.close(parent)


def restrict_self(ruleset: int) -> None:
    """Apply a ruleset to this process."""
    status = _libc.syscall(
        ctypes.c_long(_LANDLOCK_RESTRICT), ctypes.c_int(ruleset), ctypes.c_uint(0)
    )
    _check(status, "landlock_restrict_self")


def _check(status: int, call: str, path: str = "") -> None:
    if status < 0:
        number = ctypes.get_errno()
        place = f"{call} {path}" if path else call
        raise OSError(number, f"{place}: {os.strerror(number)}")
