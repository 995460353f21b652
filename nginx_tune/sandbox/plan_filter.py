"""The seccomp program: which system calls nginx and its children cannot make; pure.

A list of what is forbidden, not of what is allowed: nginx, its modules and what these embed use
most of the kernel's calls in some version. What leads out of a sandbox, changes the machine or
opens parts of the kernel that a web server has no use for is forbidden. New calls that mount or
trace are among the forbidden by their numbers; those that this list does not know can do neither
without a capability, and none is left.

Source: seccomp(2); include/uapi/linux/{seccomp,filter,audit}.h; the numbers are those of
include/uapi/asm-generic/unistd.h (aarch64) and arch/x86/entry/syscalls/syscall_64.tbl.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_SET, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_X32 = 0x40000000
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_SOCK_TYPE_MASK, _SOCK_STREAM = 0xF, 1
_NEW_NAMESPACES = 0x7E020080
"""Every CLONE_NEW* flag, that of time included."""
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C


class Architecture(NamedTuple):
    """What the kernel calls it, and its own numbers of calls."""

    audit: int
    numbers: dict[str, int]


_COMMON = {
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432,
    "fspick": 433, "clone3": 435, "pidfd_getfd": 438, "process_madvise": 440,
    "mount_setattr": 442, "quotactl_fd": 443, "io_uring_setup": 425, "io_uring_enter": 426,
    "io_uring_register": 427, "open_tree_attr": 467, "process_mrelease": 448,
}  # fmt: skip

ARCHITECTURES = {
    "x86_64": Architecture(
        0xC000003E,
        {
            "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "swapon": 167,
            "swapoff": 168, "reboot": 169, "sethostname": 170, "setdomainname": 171,
            "iopl": 172, "ioperm": 173, "init_module": 175, "delete_module": 176,
            "finit_module": 313, "kexec_load": 246, "kexec_file_load": 320, "bpf": 321,
            "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312,
            "keyctl": 250, "add_key": 248, "request_key": 249, "perf_event_open": 298,
            "userfaultfd": 323, "unshare": 272, "setns": 308, "quotactl": 179, "acct": 163,
            "name_to_handle_at": 303, "open_by_handle_at": 304, "settimeofday": 164,
            "clock_settime": 227, "adjtimex": 159, "clock_adjtime": 305, "personality": 135,
            "syslog": 103, "vhangup": 153, "nfsservctl": 180, "lookup_dcookie": 212,
            "fanotify_init": 300, "mknod": 133, "mknodat": 259, "uselib": 134, "_sysctl": 156,
            "create_module": 174, "get_kernel_syms": 177, "query_module": 178, "ustat": 136,
            "sysfs": 139, "modify_ldt": 154, "vmsplice": 278, "move_pages": 279,
            "migrate_pages": 256, "mq_open": 240,
            "clone": 56, "socket": 41, "socketpair": 53, "ioctl": 16,
        },
    ),
    "aarch64": Architecture(
        0xC00000B7,
        {
            "mount": 40, "umount2": 39, "pivot_root": 41, "chroot": 51, "swapon": 224,
            "swapoff": 225, "reboot": 142, "sethostname": 161, "setdomainname": 162,
            "init_module": 105, "delete_module": 106, "finit_module": 273, "kexec_load": 104,
            "kexec_file_load": 294, "bpf": 280, "ptrace": 117, "process_vm_readv": 270,
            "process_vm_writev": 271, "kcmp": 272, "keyctl": 219, "add_key": 217,
            "request_key": 218, "perf_event_open": 241, "userfaultfd": 282, "unshare": 97,
            "setns": 268, "quotactl": 60, "acct": 89, "name_to_handle_at": 264,
            "open_by_handle_at": 265, "settimeofday": 170, "clock_settime": 112,
            "adjtimex": 171, "clock_adjtime": 266, "personality": 92, "syslog": 116,
            "vhangup": 58, "nfsservctl": 42, "lookup_dcookie": 18, "fanotify_init": 262,
            "mknodat": 33, "vmsplice": 75, "move_pages": 239, "migrate_pages": 238,
            "mq_open": 180,
            "clone": 220, "socket": 198, "socketpair": 199, "ioctl": 29,
        },
    ),
}  # fmt: skip

_JUDGED = ("clone", "socket", "socketpair", "ioctl", "mknod", "mknodat")
"""By their arguments."""
_UNKNOWN = frozenset(
    {
        "clone3", "io_uring_setup", "io_uring_enter", "io_uring_register", "open_tree",
        "move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "open_tree_attr",
        "userfaultfd", "mq_open",
    }
)  # fmt: skip
"""Told as if the kernel had none: C libraries and nginx then do without."""


def forbidden_calls(machine: str) -> dict[str, int]:
    """Number of each call that is forbidden whatever its arguments, by name."""
    numbers = {**ARCHITECTURES[machine].numbers, **_COMMON}
    return {name: number for name, number in numbers.items() if name not in _JUDGED}


def plan_filter(machine: str, *, unix_sockets: bool, raw_sockets: bool = False) -> bytes | None:
    """The program; None for an architecture whose numbers are not known here.

    ``unix_sockets`` allows sockets with a path; pairs of connected ones nginx always needs.
    """
    known = ARCHITECTURES.get(machine)
    if known is None:
        return None
    numbers = known.numbers
    program = _Program()
    program.load(_ARCHITECTURE)
    program.unless_equal_kill(known.audit)
    program.load(_NUMBER)
    if machine == "x86_64":
        program.if_at_least(_X32, _KILL)
    for name, number in sorted(forbidden_calls(machine).items(), key=lambda item: item[1]):
        program.if_equal(number, _ERROR | (_ENOSYS if name in _UNKNOWN else _EPERM))
    families = [_AF_INET, _AF_INET6, *([_AF_UNIX] if unix_sockets else [])]
    with_flags = _Program()
    with_flags.load(_argument(0))
    with_flags.if_any_bit(_NEW_NAMESPACES, _ERROR | _EPERM)
    program.only_for(numbers["clone"], with_flags)
    program.only_for(numbers["socket"], _socket(families, raw_sockets=raw_sockets))
    program.only_for(numbers["socketpair"], _pair())
    program.only_for(numbers["ioctl"], _ioctl())
    for name, place in (("mknod", 1), ("mknodat", 2)):
        if name in numbers:
            program.only_for(numbers[name], _node(place))
    program.answer(_ALLOW)
    return program.code


def _socket(families: list[int], *, raw_sockets: bool) -> _Program:
    """Families that nginx speaks; streams and datagrams of them."""
    part = _Program()
    part.load(_argument(0))
    part.unless_one_of(families, _ERROR | _EAFNOSUPPORT)
    if not raw_sockets:
        part.load(_argument(1))
        part.mask(_SOCK_TYPE_MASK)
        part.if_equal(3, _ERROR | _EPERM)  # SOCK_RAW
    return part


def _pair() -> _Program:
    """Streams alone: a pair of datagram sockets can send anywhere."""
    part = _Program()
    part.load(_argument(1))
    part.mask(_SOCK_TYPE_MASK)
    part.unless_one_of([_SOCK_STREAM], _ERROR | _EPERM)
    return part


def _ioctl() -> _Program:
    part = _Program()
    part.load(_argument(1))
    part.if_equal(_TIOCSTI, _ERROR | _EPERM)
    part.if_equal(_TIOCLINUX, _ERROR | _EPERM)
    return part


def _node(place: int) -> _Program:
    """Regular files and pipes may be made by it, devices not."""
    part = _Program()
    part.load(_argument(place))
    part.mask(0o170000)
    part.if_equal(0o020000, _ERROR | _EPERM)
    part.if_equal(0o060000, _ERROR | _EPERM)
    return part


def _argument(number: int) -> int:
    """Offset of the low half of an argument, on little-endian machines: both that are known."""
    return _ARGUMENTS + 8 * number


class _Program:
    """Instructions of classic BPF, each of eight bytes."""

    def __init__(self) -> None:
        self.code = b""

    def __len__(self) -> int:
        return len(self.code) // 8

    def _add(self, code: int, yes: int, no: int, value: int) -> None:
        self.code += struct.pack("=HBBI", code, yes, no, value)

    def load(self, offset: int) -> None:
        """A word of struct seccomp_data."""
        self._add(_LOAD, 0, 0, offset)

    def mask(self, bits: int) -> None:
        """Keep these bits of what was loaded."""
        self._add(_AND, 0, 0, bits)

    def answer(self, action: int) -> None:
        """End with an action."""
        self._add(_RETURN, 0, 0, action)

    def if_equal(self, value: int, action: int) -> None:
        """End with an action when it is this value."""
        self._add(_JUMP_EQUAL, 0, 1, value)
        self.answer(action)

    def unless_equal_kill(self, value: int) -> None:
        """Kill when it is any other value."""
        self._add(_JUMP_EQUAL, 1, 0, value)
        self.answer(_KILL)

    def if_at_least(self, value: int, action: int) -> None:
        """End with an action from this value on."""
        self._add(_JUMP_AT_LEAST, 0, 1, value)
        self.answer(action)

    def if_any_bit(self, bits: int, action: int) -> None:
        """End with an action when any of the bits is set."""
        self._add(_JUMP_SET, 0, 1, bits)
        self.answer(action)

    def unless_one_of(self, values: list[int], action: int) -> None:
        """End with an action when it is none of these values."""
        for index, value in enumerate(values):
            self._add(_JUMP_EQUAL, len(values) - index, 0, value)
        self.answer(action)

    def only_for(self, number: int, part: _Program) -> None:
        """Judge one call by a part of its own; the number is loaded before and after."""
        self._add(_JUMP_EQUAL, 0, len(part) + 1, number)
        self.code += part.code
        self.load(_NUMBER)
