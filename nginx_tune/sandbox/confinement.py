"""The confinement of an nginx: what it sees, may do and may use up inside its sandbox.

Processes: from Linux 6.14 on each process namespace has a ``pid_max`` of its own; before, writing
it changed the whole host's, so it is written only where the kernel says that it is that new.
RLIMIT_NPROC is no means for root: it does not hold for user 0, and counts what its workers' user
has elsewhere. Source: kernel/pid_namespace.c, pidns_install_sysctls and kernel/pid.c;
kernel/fork.c, copy_process. The cgroups of the lab bound processes and memory beside these limits
(``nginx.lab.sandbox``).

Descriptors: so many for each process that all processes that the supervisor allows together leave
half of the host's (``fs.file-max``).

Rights: the capabilities of a master that binds ports and changes its workers' user.

Writes: a second belt, by Landlock, where the kernel has it. A pipe of the host in a directory that
is shown takes writes though its mount is read-only; Landlock keeps it from being opened for
writing. Only writing is judged, so reading costs nothing.
Source: Documentation/userspace-api/landlock.rst.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from nginx_tune.errors import UndecidedError
from nginx_tune.sandbox import kernel_calls

SandboxPart = Literal["memory", "processes", "seccomp", "sockets"]
"""A part that may be given up, by its name, where a host cannot have it."""


class ResourceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The most that nginx may use up."""

    processes: int = 2048
    """Its own and those of all its children, threads too."""
    data_bytes: int = 2 << 30
    """Memory that one process has for itself alone."""
    file_bytes: int = 4 << 30
    """The size of one file that it writes."""
    cover_bytes: int = 1 << 30
    """Everything it writes to memory in places of its own."""
    cover_files: int = 200_000


class Confinement(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox, by paths as nginx will see them."""

    shown: list[str]
    """Files and directories of the host that are seen, read-only; links on the way are too."""
    covers: dict[str, str] = {}
    """Directories that take writes, by path: each is a directory of ``Covers``."""
    disks: dict[str, str] = {}
    """Directories of ``Covers`` that are seen, read-only, in the host's place."""
    laid: dict[str, str] = {}
    """Files and sockets of ours that are seen, read-only, in the host's place."""
    hidden: list[str] = []
    """Directories that are seen empty, though what is around them is shown."""
    uses_unix_sockets: bool = False
    """It opens sockets with a path: without need of them it cannot."""
    uses_file_aio: bool = False
    """Its build sets up contexts of file AIO, which the host has only so many of."""
    transparent: bool = False
    """It sends from addresses that are not the host's (``proxy_bind … transparent``)."""
    threads: int = 0
    """Threads of one process, in the pools of its configuration: each has a stack, which counts as
    memory of its own though next to nothing of it is ever used."""
    workers: int = 0
    """Processes that its configuration asks for, where they are more than the CPUs."""
    limits: ResourceLimits = ResourceLimits()
    weaker: list[SandboxPart] = []
    """Sandbox that are given up where they cannot be had."""


_OWN_NUMBERS_SINCE = (6, 14)
_LEAST_NUMBERS = 301
"""RESERVED_PIDS and one."""
_LEAST_NUMBERS_PER_CPU = 8
"""PIDS_PER_CPU_MIN, of CPUs that there may be."""
_PID_MAX = Path("/proc/sys/kernel/pid_max")
_USUAL_STACK_BYTES = 8 << 20
_LEAST_DESCRIPTORS = 1024
_AIO_SHARE = 4
"""One part in so many of the host's ``fs.aio-max-nr``."""


class HostShare(NamedTuple):
    """The share that one sandbox may take of what the whole host has only so much of."""

    processes: int
    """At a time: workers of two generations, and some beside them; threads are not counted."""
    descriptors: int
    """Open in each of them."""
    aio_events: int
    """In contexts of file AIO, over the life of the sandbox."""


def share_of_host(wanted: Confinement) -> HostShare:
    """The share for a sandbox, by this host's limits."""
    return share_of(
        wanted,
        cpus=os.cpu_count() or 1,
        file_max=_kernel_figure("file-max"),
        nr_open=_kernel_figure("nr_open"),
        aio_max_nr=_kernel_figure("aio-max-nr"),
    )


def share_of(
    wanted: Confinement, *, cpus: int, file_max: int, nr_open: int, aio_max_nr: int
) -> HostShare:
    """The share for a sandbox by sysctls ``fs.*``; pure."""
    processes = min(32 + 4 * max(wanted.workers, cpus), wanted.limits.processes)
    descriptors = min(nr_open, max(_LEAST_DESCRIPTORS, file_max // 2 // processes))
    return HostShare(processes, descriptors, aio_max_nr // _AIO_SHARE)


def _kernel_figure(name: str) -> int:
    """A sysctl of files; 0 where the kernel has none."""
    try:
        return int(Path("/proc/sys/fs", name).read_text())
    except OSError:
        return 0


def has_own_numbers(release: str, cpus: int, wanted: int) -> bool:
    """True where a process namespace can be given so few numbers; pure."""
    found = re.match(r"([0-9]+)\.([0-9]+)", release)
    if found is None or (int(found[1]), int(found[2])) < _OWN_NUMBERS_SINCE:
        return False
    return wanted >= max(_LEAST_NUMBERS, _LEAST_NUMBERS_PER_CPU * cpus)


def can_limit_numbers(wanted: int) -> bool:
    """The same of this host."""
    try:
        possible = Path("/sys/devices/system/cpu/possible").read_text()
        cpus = int(possible.strip().rpartition(",")[2].rpartition("-")[2]) + 1
    except (OSError, ValueError):
        cpus = os.cpu_count() or 1
    return has_own_numbers(os.uname().release, cpus, wanted)


def limit_processes(wanted: Confinement, *, in_groups: bool) -> None:
    """Bound processes and threads where the namespace can, beside a cgroup or in its place.

    To be called by the first process of a process namespace.
    Errors: UndecidedError where nothing bounds them.
    """
    most = wanted.limits.processes
    is_bounded = _limit_numbers(most) or in_groups or os.geteuid() != 0
    if not is_bounded and can_limit_numbers(most) and "processes" not in wanted.weaker:
        raise UndecidedError(
            "the processes of nginx cannot be bounded: kernel.pid_max of their namespace "
            "takes no writes",
            hint="--weaker-sandbox processes does without",
        )


def _limit_numbers(most: int) -> bool:
    if os.getpid() != 1 or not can_limit_numbers(most):
        return False
    try:
        _PID_MAX.write_text(str(most))
        return _PID_MAX.read_text().strip() == str(most)
    except OSError:
        return False


def limit_process(wanted: Confinement, share: HostShare, *, is_root: bool) -> None:
    """Limit what the calling process and its children may use, each by itself."""
    # Not 0: a program in kernel.core_pattern would be run all the same, outside, with what crashed
    # in its hands. With 1 the kernel dumps nothing at all. Source: do_coredump() in fs/coredump.c.
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    size = wanted.limits.file_bytes
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    # A stack is a private mapping that may be written: RLIMIT_DATA counts all of it (Linux 4.7).
    threads = min(wanted.threads, wanted.limits.processes)
    size = wanted.limits.data_bytes + threads * _stack_bytes()
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    hard = min(hard, share.descriptors)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard), hard))
    # As many as root might ask for: the right to ask is given up.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard), share.descriptors))
    if not is_root:
        # In a user namespace of its own these are counted by themselves (Linux 5.14).
        with contextlib.suppress(OSError, ValueError):
            most = wanted.limits.processes
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def end_first() -> None:
    """Be what the kernel ends first when memory is short: nobody else is to suffer.

    None of the sandbox can take it back: that needs CAP_SYS_RESOURCE (proc(5)).
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _stack_bytes() -> int:
    """Bytes of the stack of a thread that asks for no size: the soft limit (pthread_create(3))."""
    soft, _ = resource.getrlimit(resource.RLIMIT_STACK)
    return _USUAL_STACK_BYTES if soft == resource.RLIM_INFINITY else soft


CHOWN, DAC_OVERRIDE, KILL, SETGID, SETUID, NET_BIND_SERVICE, NET_RAW = 0, 1, 5, 6, 7, 10, 13
_LAST_CAPABILITY = 63

KEPT_AS_ROOT = (CHOWN, DAC_OVERRIDE, KILL, SETGID, SETUID, NET_BIND_SERVICE)
"""To own its temporary directories, read keys and write logs that others own, end its workers,
change to its workers' user, bind ports below 1024. Every file of the host that it can see is
read-only, so DAC_OVERRIDE only reads."""
KEPT_AS_USER = (NET_BIND_SERVICE,)


def drop_capabilities(*, is_root: bool, transparent: bool) -> None:
    """Give up every capability but those that nginx needs, for good."""
    kept = (*(KEPT_AS_ROOT if is_root else KEPT_AS_USER), *((NET_RAW,) if transparent else ()))
    for number in range(_LAST_CAPABILITY + 1):
        if number not in kept and not kernel_calls.drop_from_bounding_set(number):
            break  # past the last one that this kernel knows
    mask = sum(1 << number for number in kept)
    kernel_calls.clear_ambient()
    kernel_calls.set_capabilities(mask, inheritable=0 if is_root else mask)
    if not is_root:
        for number in kept:
            kernel_calls.raise_ambient(number)


def drop_all_capabilities() -> None:
    """Have no capability at all."""
    for number in range(_LAST_CAPABILITY + 1):
        if not kernel_calls.drop_from_bounding_set(number):
            break
    kernel_calls.clear_ambient()
    kernel_calls.set_capabilities(0)


_WRITE_FILE, _REMOVE_DIR, _REMOVE_FILE = 1 << 1, 1 << 4, 1 << 5
_MAKE = sum(1 << bit for bit in range(6, 13))
"""Directories, files, links, sockets, pipes and devices."""
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_REFER_SINCE, _TRUNCATE_SINCE, _IOCTL_SINCE, _SCOPES_SINCE = 2, 3, 5, 6
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2


def restrict_writes(writable: Iterable[str], files: Iterable[str]) -> None:
    """Allow writing below some directories and to some files only.

    Errors: OSError where the kernel has Landlock and refuses. Nothing happens where it has none.
    """
    version = kernel_calls.landlock_version()
    if version < 1:
        return
    wanted = _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE
    wanted |= _REFER if version >= _REFER_SINCE else 0
    wanted |= _TRUNCATE if version >= _TRUNCATE_SINCE else 0
    wanted |= _IOCTL_DEV if version >= _IOCTL_SINCE else 0
    scopes = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if version >= _SCOPES_SINCE else 0
    ruleset = kernel_calls.make_ruleset(wanted, scopes)
    try:
        for path in writable:
            with contextlib.suppress(FileNotFoundError):
                kernel_calls.allow_beneath(ruleset, path, wanted)
        file_rights = wanted & (_WRITE_FILE | _TRUNCATE | _IOCTL_DEV)
        for path in files:
            with contextlib.suppress(OSError):  # not there, or a pipe, which it does not judge
                kernel_calls.allow_beneath(ruleset, path, file_rights)
        kernel_calls.restrict_self(ruleset)
    finally:
        os.close(ruleset)
