"""The seccomp program: the allowed system calls of nginx and its children.

It is a list of the calls of nginx 1.18 to 1.30 and its modules with threads, file AIO and QUIC, and
of Lua, Perl and njs. A few calls are checked by their arguments. Any other call is refused: with
ENOSYS where C libraries have a fallback, else by the supervisor, which records it (``launch``).

The numbers of system calls, by architecture, come from the table ``system_calls.tsv`` in this
directory (Linux 6.14). Apart from reading the table, the module is pure.

Source: seccomp(2), seccomp_unotify(2); include/uapi/linux/{seccomp,filter,audit}.h;
arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The kernel's ids of the architectures with known call numbers."""
_LOAD, _JUMP_EQUAL, _JUMP_ABOVE, _JUMP_AT_LEAST, _JUMP_SET = 0x20, 0x15, 0x25, 0x35, 0x45
_AND, _RETURN = 0x54, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_ALLOW, _KILL, _ERROR, _ASK = 0x7FFF0000, 0x80000000, 0x00050000, 0x7FC00000
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_X32 = 0x40000000
_FIRST_NEW = 424
"""First number (Linux 5.1) from which every architecture has the same calls. C libraries have a
fallback if such a call fails with ENOSYS."""
ALLOWED = frozenset(  # a text: shorter than a list of 200 strings
    """
    read write pread64 pwrite64 readv writev preadv pwritev preadv2 pwritev2 sendfile splice tee
    copy_file_range open openat creat close close_range stat lstat fstat newfstatat statx statfs
    fstatfs access faccessat faccessat2 readlink readlinkat getdents getdents64 lseek truncate
    ftruncate fallocate fsync fdatasync sync_file_range fadvise64 readahead rename renameat
    renameat2 mkdir mkdirat rmdir unlink unlinkat link linkat symlink symlinkat chmod fchmod
    fchmodat chown fchown lchown fchownat utime utimes utimensat futimesat umask getcwd chdir
    fchdir dup dup2 dup3 pipe pipe2
    mmap munmap mprotect mremap brk madvise mincore msync mlock munlock membarrier memfd_create
    execve exit exit_group wait4 waitid kill tkill tgkill getpid getppid gettid getpgid
    getpgrp setpgid setsid getsid getuid geteuid getgid getegid getresuid getresgid setuid setgid
    setreuid setregid setresuid setresgid setfsuid setfsgid setgroups getgroups capget capset
    arch_prctl set_tid_address set_robust_list get_robust_list rseq sched_yield
    sched_setaffinity sched_getaffinity sched_getparam sched_getscheduler sched_get_priority_max
    sched_get_priority_min getpriority setpriority getrlimit getrusage times
    sysinfo uname getcpu getrandom nanosleep clock_nanosleep clock_gettime clock_getres
    gettimeofday time alarm getitimer setitimer timerfd_create timerfd_settime timerfd_gettime
    rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigqueueinfo
    rt_sigsuspend sigaltstack pause restart_syscall signalfd signalfd4
    poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait eventfd
    eventfd2 futex bind connect listen accept accept4 getsockname getpeername setsockopt getsockopt
    sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg shutdown
    io_submit io_getevents io_destroy io_cancel io_pgetevents
    """.split()  # noqa: SIM905
)
"""Calls that are allowed with any arguments. The supervisor counts new processes and io_setup()."""
_FCNTL = (0, 1, 2, 3, 4, 8, 9, 1030, 1031, 1032)
"""Allowed commands: F_DUPFD to F_SETFL, F_SETOWN, F_GETOWN, F_DUPFD_CLOEXEC, the sizes of pipes.
Locks and leases on shown files would block the host."""
_IOCTL = (0x5421, 0x5452, 0x541B, 0x5411, 0x5450, 0x5451, 0x5401, 0x5413)
"""Allowed requests: FIONBIO, FIOASYNC, FIONREAD, TIOCOUTQ, FIONCLEX, FIOCLEX, TCGETS,
TIOCGWINSZ."""
_PRCTL = (1, 2, 3, 7, 8, 15, 16, 21, 23, 38, 39, 0x53564D41)
"""Allowed options: PDEATHSIG, GET_DUMPABLE, KEEPCAPS, NAME, GET_SECCOMP, CAPBSET_READ,
NO_NEW_PRIVS, names of memory areas."""
_PR_SET_DUMPABLE = 4
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_SOCK_FLAGS = 0o2004000
"""SOCK_NONBLOCK and SOCK_CLOEXEC, the same on both architectures."""
_SOCK_STREAM, _SOCK_DGRAM = 1, 2
_PROTOCOLS = (0, 6, 17, 262)
"""Allowed protocols: the family's default, TCP, UDP, MPTCP."""
_NEW_NAMESPACES = 0x7E020080
"""Flags of all new namespaces (CLONE_NEW*), including CLONE_NEWTIME."""
_RLIMIT_CORE = 4
_CLONE_THREAD = 0x00010000
_FILE_TYPES = (0, 0o100000, 0o010000)
"""Allowed file types: regular files and pipes; no devices."""


def plan_filter(
    machine: str,
    numbers: Mapping[str, int],
    *,
    unix_sockets: bool = False,
    file_aio: bool = False,
    asks: bool = True,
    also_ioctl: Iterable[int] = (),
) -> bytes:
    """The filter as a BPF program, for an architecture of ``AUDIT``.

    ``numbers`` are the call numbers by name. ``unix_sockets`` allows sockets with a path; connected
    pairs of streams are always allowed, since nginx needs them. ``file_aio`` is for a build whose
    workers set up file-AIO contexts as they start. With ``asks``, a supervisor decides on calls to
    refuse or count. Without it they are refused, but new processes are allowed. ``also_ioctl`` are
    requests that are allowed in addition to nginx's.
    """
    refuse = _ASK if asks else _ERROR | _EPERM
    count = _ASK if asks else _ALLOW
    program = FilterProgram()
    program.load(_ARCHITECTURE)
    program.unless_one_of([AUDIT[machine]], _KILL)
    program.load(_NUMBER)
    if machine == "x86_64":
        program.if_within(_X32, 0xFFFFFFFF, _KILL)
    parts = {
        "clone": _clone(refuse, count),
        "fcntl": _one_of(1, _FCNTL, refuse),
        "ioctl": _one_of(1, (*_IOCTL, *also_ioctl), refuse),
        "prctl": _prctl(refuse),
        "socket": _socket([_AF_INET, _AF_INET6, *([_AF_UNIX] if unix_sockets else [])], refuse),
        # Not for core dumps: a limit of 0 would run a program in kernel.core_pattern.
        "setrlimit": _set_limit(0, refuse),
        "prlimit64": _set_limit(1, refuse, value=2),
        "socketpair": _pair(refuse),
        "mknod": _one_of(1, _FILE_TYPES, refuse, without=0o7777),
        "mknodat": _one_of(2, _FILE_TYPES, refuse, without=0o7777),
    }
    for name, part in parts.items():
        if name in numbers:
            program.only_for(numbers[name], part)
    if not file_aio:
        program.if_within(numbers["io_setup"], numbers["io_setup"], _ERROR | _ENOSYS)
    for name in ("fork", "vfork"):
        if name in numbers:
            program.if_within(numbers[name], numbers[name], count)
    for first, last in _ranges(numbers[name] for name in ALLOWED if name in numbers):
        program.if_within(first, last, _ALLOW)
    program.if_within(_FIRST_NEW, 0xFFFFFFFF, _ERROR | _ENOSYS)
    program.answer(refuse)
    return program.code


def _clone(refuse: int, count: int) -> FilterProgram:
    """Refuse new namespaces, allow any number of threads, and count new processes."""
    part = FilterProgram()
    part.load(_argument(0))
    part.if_any_bit(_NEW_NAMESPACES, refuse)
    part.if_any_bit(_CLONE_THREAD, _ALLOW)
    part.answer(count)
    return part


def _socket(families: list[int], refuse: int) -> FilterProgram:
    """Allow streams and datagrams of nginx's address families.

    Other types are refused: SOCK_PACKET of AF_INET would be a packet socket (inet_create,
    packet(7)).
    """
    part = FilterProgram()
    part.load(_argument(0))
    part.unless_one_of(families, _ERROR | _EAFNOSUPPORT)
    part.load(_argument(1))
    part.mask(0xFFFFFFFF ^ _SOCK_FLAGS)
    part.unless_one_of([_SOCK_STREAM, _SOCK_DGRAM], refuse)
    part.load(_argument(2))
    part.unless_one_of(_PROTOCOLS, refuse)
    part.answer(_ALLOW)
    return part


def _pair(refuse: int) -> FilterProgram:
    """Allow only pairs of unix streams, since a datagram socket of a pair could send anywhere.

    Another family would make the host load its module (net-pf-N, __sock_create()).
    """
    part = FilterProgram()
    part.load(_argument(0))
    part.unless_one_of([_AF_UNIX], _ERROR | _EAFNOSUPPORT)
    part.load(_argument(1))
    part.mask(0xFFFFFFFF ^ _SOCK_FLAGS)
    part.unless_one_of([_SOCK_STREAM], refuse)
    part.answer(_ALLOW)
    return part


def _prctl(refuse: int) -> FilterProgram:
    """Allow the requests of nginx and C libraries; PR_SET_DUMPABLE succeeds without effect.

    A dumpable worker would expose its root, as /proc/PID/root, to its user outside the sandbox.
    """
    part = FilterProgram()
    part.load(_argument(0))
    part.if_within(_PR_SET_DUMPABLE, _PR_SET_DUMPABLE, _ERROR)
    part.unless_one_of(_PRCTL, refuse)
    part.answer(_ALLOW)
    return part


def _one_of(place: int, values: Iterable[int], refuse: int, *, without: int = 0) -> FilterProgram:
    """Allow only these values of an argument, ignoring the bits in ``without``."""
    part = FilterProgram()
    part.load(_argument(place))
    if without:
        part.mask(0xFFFFFFFF ^ without)
    part.unless_one_of(list(values), refuse)
    part.answer(_ALLOW)
    return part


def _set_limit(place: int, refuse: int, *, value: int | None = None) -> FilterProgram:
    """Allow setting any limit except that of core dumps, which may only be read.

    ``value`` is the position of the argument that points to a new limit.
    """
    part = FilterProgram()
    part.load(_argument(place))
    part.unless_one_of([_RLIMIT_CORE], _ALLOW)
    if value is not None:
        for offset in (_argument(value), _argument(value) + 4):
            part.load(offset)
            part.if_any_bit(0xFFFFFFFF, refuse)
        part.answer(_ALLOW)
    part.answer(refuse)
    return part


def _ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """The first and last number of each run of successive numbers."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def _argument(number: int) -> int:
    """The offset of an argument's low half; both known architectures are little-endian.

    The kernel takes all checked arguments as 32-bit numbers, so the high half is irrelevant.
    """
    return _ARGUMENTS + 8 * number


class FilterProgram:
    """A program of classic BPF, with eight bytes for each instruction."""

    def __init__(self) -> None:
        self.code = b""

    def _add(self, code: int, yes: int, no: int, value: int) -> None:
        self.code += struct.pack("=HBBI", code, yes, no, value)

    def load(self, offset: int) -> None:
        """Load a word of struct seccomp_data."""
        self._add(_LOAD, 0, 0, offset)

    def mask(self, bits: int) -> None:
        """Keep these bits of the word."""
        self._add(_AND, 0, 0, bits)

    def answer(self, action: int) -> None:
        """End the program with an action."""
        self._add(_RETURN, 0, 0, action)

    def if_within(self, first: int, last: int, action: int) -> None:
        """End the program with an action when the word is in a range, both ends included."""
        if first == last:
            self._add(_JUMP_EQUAL, 0, 1, first)
        else:
            self._add(_JUMP_AT_LEAST, 0, 2, first)
            self._add(_JUMP_ABOVE, 1, 0, last)
        self.answer(action)

    def if_any_bit(self, bits: int, action: int) -> None:
        """End the program with an action when any of the bits is set."""
        self._add(_JUMP_SET, 0, 1, bits)
        self.answer(action)

    def unless_one_of(self, values: Iterable[int], action: int) -> None:
        """End the program with an action when the word is none of these values."""
        known = list(values)
        for index, value in enumerate(known):
            self._add(_JUMP_EQUAL, len(known) - index, 0, value)
        self.answer(action)

    def only_for(self, number: int, part: FilterProgram) -> None:
        """Check one system call by its own part of the program, which must end with an action."""
        self._add(_JUMP_EQUAL, 0, len(part.code) // 8, number)
        self.code += part.code


_COLUMNS = {"x86_64": 1, "aarch64": 2}
"""The table's column by architecture."""


@functools.cache
def call_numbers(machine: str) -> Mapping[str, int]:
    """The call numbers of an architecture, by name; empty for an unknown architecture."""
    column = _COLUMNS.get(machine)
    if column is None:
        return {}
    rows = Path(__file__).with_name("system_calls.tsv").read_text().splitlines()
    fields = [row.split("\t") for row in rows]
    return {row[0]: int(row[column]) for row in fields if row[column]}
