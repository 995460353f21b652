"""What system call a thread is in, from /proc/PID/syscall; pure, text in, names out.

Source: fs/proc/base.c, proc_pid_syscall: ``running``, or the number of the call with six
arguments in hexadecimal, or -1 where a thread waits outside of any (a page fault).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["read", "write", "names", "page fault", "loop", "running", "other"]

_X86_64 = {
    0: "read", 1: "write", 2: "open", 3: "close", 4: "stat", 5: "fstat", 6: "lstat", 7: "poll",
    17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev", 21: "access", 23: "select",
    35: "nanosleep", 40: "sendfile", 42: "connect", 44: "sendto", 45: "recvfrom", 46: "sendmsg",
    47: "recvmsg", 61: "wait4", 72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync",
    77: "ftruncate", 78: "getdents", 82: "rename", 83: "mkdir", 84: "rmdir", 87: "unlink",
    202: "futex", 217: "getdents64", 230: "clock_nanosleep", 232: "epoll_wait", 257: "openat",
    262: "newfstatat", 263: "unlinkat", 264: "renameat", 269: "faccessat", 270: "pselect6",
    271: "ppoll",
    275: "splice", 281: "epoll_pwait", 285: "fallocate", 295: "preadv", 296: "pwritev",
    316: "renameat2", 327: "preadv2", 328: "pwritev2", 332: "statx", 437: "openat2",
    439: "faccessat2", 441: "epoll_pwait2",
}  # fmt: skip
_GENERIC = {
    22: "epoll_pwait", 25: "fcntl", 32: "flock", 34: "mkdirat", 35: "unlinkat", 38: "renameat",
    46: "ftruncate", 47: "fallocate", 48: "faccessat", 56: "openat", 57: "close", 61: "getdents64",
    63: "read", 64: "write", 65: "readv", 66: "writev", 67: "pread64", 68: "pwrite64",
    69: "preadv", 70: "pwritev", 71: "sendfile", 72: "pselect6", 73: "ppoll", 76: "splice",
    79: "newfstatat", 80: "fstat", 82: "fsync", 83: "fdatasync", 98: "futex", 101: "nanosleep",
    115: "clock_nanosleep", 203: "connect", 206: "sendto", 207: "recvfrom", 211: "sendmsg",
    212: "recvmsg", 260: "wait4", 276: "renameat2", 286: "preadv2", 287: "pwritev2", 291: "statx",
    437: "openat2", 439: "faccessat2", 441: "epoll_pwait2",
}  # fmt: skip
"""Of aarch64, riscv64 and loongarch64 (include/uapi/asm-generic/unistd.h)."""

_TABLES = {"x86_64": _X86_64, "aarch64": _GENERIC, "riscv64": _GENERIC, "loongarch64": _GENERIC}
_READS = {"read", "readv", "pread64", "preadv", "preadv2", "sendfile", "splice"}
_WRITES = {"write", "writev", "pwrite64", "pwritev", "pwritev2", "fsync", "fdatasync", "ftruncate",
           "fallocate"}  # fmt: skip
_NAMES = {"open", "openat", "openat2", "stat", "fstat", "lstat", "newfstatat", "statx", "access",
          "faccessat", "faccessat2", "getdents", "getdents64", "unlink", "unlinkat", "rename",
          "renameat", "renameat2", "mkdir", "mkdirat", "rmdir", "close"}  # fmt: skip
_SECOND_ARGUMENT = {"sendfile"}
"""Calls that read from the descriptor in their second argument."""


class Call(NamedTuple):
    """A system call under way."""

    name: str
    kind: Kind
    descriptor: int | None = None
    """Of the file that it reads or writes."""


def parse_call(text: str, machine: str) -> Call | None:
    """The call that a thread is in; None where the file has another form."""
    words = text.split()
    if not words:
        return None
    if words[0] == "running":
        return Call("", "running")
    try:
        number = int(words[0])
        arguments = [int(word, 16) for word in words[1:7]]
    except ValueError:
        return None
    if number == -1:
        return Call("page fault", "page fault")
    name = _TABLES.get(machine, {}).get(number, f"system call {number}")
    if name in _READS or name in _WRITES:
        place = 1 if name in _SECOND_ARGUMENT else 0
        descriptor = arguments[place] if len(arguments) > place else None
        return Call(name, "read" if name in _READS else "write", descriptor)
    if name.startswith("epoll_"):
        return Call(name, "loop")
    return Call(name, "names" if name in _NAMES else "other")
