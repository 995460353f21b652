"""The confinement of an nginx: its files, rights and resources inside the sandbox.

Processes: from Linux 6.14 on each PID namespace has its own ``pid_max``. Before, it was the whole
host's, so it is written only on a new enough kernel. RLIMIT_NPROC does not help root: it does not
apply to user 0, and counts processes of the workers' user elsewhere. The lab's cgroups limit
processes and memory beside these limits (``nginx.lab.sandbox``). Source: kernel/pid_namespace.c,
pidns_install_sysctls and kernel/pid.c; kernel/fork.c, copy_process.

Descriptors: the limit of each process leaves half of the host's (``fs.file-max``) when the
supervisor allows as many processes as it may.

Rights: the capabilities of a master that binds ports and changes its workers' user.

Writes: a second barrier by Landlock, where the kernel has it. A host's pipe in a shown directory
can be written through a read-only mount, and Landlock prevents opening it for writing. Reads are
not checked, so they cost nothing. Source: Documentation/userspace-api/landlock.rst.
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
"""A part of the sandbox that the user may give up where a host lacks it."""


class ResourceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of nginx's resources."""

    processes: int = 2048
    """Processes and threads, with all children."""
    data_bytes: int = 2 << 30
    """Private memory of a process."""
    file_bytes: int = 4 << 30
    """The size of a written file."""
    cover_bytes: int = 1 << 30
    """Data in a writable place in memory."""
    cover_files: int = 200_000


class Confinement(msgspec.Struct, frozen=True, kw_only=True):
    """The contents and limits of a sandbox, by nginx's paths."""

    shown: list[str]
    """Files and directories of the host, read-only, with the links on the way."""
    covers: dict[str, str] = {}
    """Writable directories by path, each from ``Covers``."""
    disks: dict[str, str] = {}
    """Read-only directories of ``Covers`` in place of the host's."""
    laid: dict[str, str] = {}
    """Read-only files and sockets of ours in place of the host's."""
    hidden: list[str] = []
    """Directories that appear empty within shown ones."""
    uses_unix_sockets: bool = False
    """True for a configuration with unix sockets, which are forbidden otherwise."""
    uses_file_aio: bool = False
    """True for a build with file AIO, whose contexts are limited on the host."""
    transparent: bool = False
    """True for sending from other addresses than the host's (``proxy_bind … transparent``)."""
    threads: int = 0
    """Pool threads of a process: each has a stack, which counts as private memory although next to
    nothing of it is used."""
    workers: int = 0
    """Workers of the configuration, where they exceed the CPUs."""
    limits: ResourceLimits = ResourceLimits()
    weaker: list[SandboxPart] = []
    """Parts to do without where they are impossible."""


_OWN_NUMBERS_SINCE = (6, 14)
_LEAST_NUMBERS = 301
"""RESERVED_PIDS plus one."""
_LEAST_NUMBERS_PER_CPU = 8
"""PIDS_PER_CPU_MIN, for each possible CPU."""
_PID_MAX = Path("/proc/sys/kernel/pid_max")
_USUAL_STACK_BYTES = 8 << 20
_LEAST_DESCRIPTORS = 1024
_AIO_SHARE = 4
"""A sandbox's share of the host's ``fs.aio-max-nr``: one in so many."""


class HostShare(NamedTuple):
    """A sandbox's share of the host's limited resources."""

    processes: int
    """Concurrent processes: the workers of two generations and some more, without threads."""
    descriptors: int
    """Open descriptors of a process."""
    aio_events: int
    """Events of file AIO over the life of the sandbox."""


def share_of_host(wanted: Confinement) -> HostShare:
    """The share of a sandbox by this host's limits."""
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
    """The share of a sandbox by sysctls ``fs.*``; pure."""
    processes = min(32 + 4 * max(wanted.workers, cpus), wanted.limits.processes)
    descriptors = min(nr_open, max(_LEAST_DESCRIPTORS, file_max // 2 // processes))
    return HostShare(processes, descriptors, aio_max_nr // _AIO_SHARE)


def _kernel_figure(name: str) -> int:
    """The value of a sysctl ``fs.*``; 0 where the kernel lacks it."""
    try:
        return int(Path("/proc/sys/fs", name).read_text())
    except OSError:
        return 0


def has_own_numbers(release: str, cpus: int, wanted: int) -> bool:
    """True if a PID namespace on such a kernel can be limited to so few process ids; pure."""
    found = re.match(r"([0-9]+)\.([0-9]+)", release)
    if found is None or (int(found[1]), int(found[2])) < _OWN_NUMBERS_SINCE:
        return False
    return wanted >= max(_LEAST_NUMBERS, _LEAST_NUMBERS_PER_CPU * cpus)


def can_limit_numbers(wanted: int) -> bool:
    """True if a PID namespace on this host can be limited to so few process ids."""
    try:
        possible = Path("/sys/devices/system/cpu/possible").read_text()
        cpus = int(possible.strip().rpartition(",")[2].rpartition("-")[2]) + 1
    except (OSError, ValueError):
        cpus = os.cpu_count() or 1
    return has_own_numbers(os.uname().release, cpus, wanted)


def limit_processes(wanted: Confinement, *, in_groups: bool) -> None:
    """Limit processes and threads by the PID namespace where possible, beside or without a cgroup.

    The first process of the namespace calls it.
    Errors: UndecidedError when nothing limits them.
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
    """Limit the resources of the calling process and its children, each by itself."""
    # Not 0, since a program in kernel.core_pattern would still get the crash, outside. With 1 the
    # kernel dumps nothing. Source: do_coredump() in fs/coredump.c.
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    size = wanted.limits.file_bytes
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    # A stack is a private writable mapping, which RLIMIT_DATA counts whole (Linux 4.7).
    threads = min(wanted.threads, wanted.limits.processes)
    size = wanted.limits.data_bytes + threads * _stack_bytes()
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    hard = min(hard, share.descriptors)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard), hard))
    # The hard limit may rise to the share now, since the right to raise it is dropped.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard), share.descriptors))
    if not is_root:
        # A user namespace counts its own processes (Linux 5.14).
        with contextlib.suppress(OSError, ValueError):
            most = wanted.limits.processes
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def end_first() -> None:
    """Make this process the first that the kernel kills when memory is short.

    Nothing in the sandbox can undo it, which needs CAP_SYS_RESOURCE (proc(5)).
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _stack_bytes() -> int:
    """Bytes of a thread's default stack: the soft limit (pthread_create(3))."""
    soft, _ = resource.getrlimit(resource.RLIMIT_STACK)
    return _USUAL_STACK_BYTES if soft == resource.RLIM_INFINITY else soft


CHOWN, DAC_OVERRIDE, KILL, SETGID, SETUID, NET_BIND_SERVICE, NET_RAW = 0, 1, 5, 6, 7, 10, 13
_LAST_CAPABILITY = 63

KEPT_AS_ROOT = (CHOWN, DAC_OVERRIDE, KILL, SETGID, SETUID, NET_BIND_SERVICE)
"""Capabilities to own temporary directories, read others' keys and write their logs, end workers,
change to the workers' user, and bind ports below 1024. All visible files of the host are read-only,
so DAC_OVERRIDE only reads."""
KEPT_AS_USER = (NET_BIND_SERVICE,)


def drop_capabilities(*, is_root: bool, transparent: bool) -> None:
    """Drop all capabilities that nginx does not need, for good."""
    kept = (*(KEPT_AS_ROOT if is_root else KEPT_AS_USER), *((NET_RAW,) if transparent else ()))
    for number in range(_LAST_CAPABILITY + 1):
        if number not in kept and not kernel_calls.drop_from_bounding_set(number):
            break  # beyond the kernel's last one
    mask = sum(1 << number for number in kept)
    kernel_calls.clear_ambient()
    kernel_calls.set_capabilities(mask, inheritable=0 if is_root else mask)
    if not is_root:
        for number in kept:
            kernel_calls.raise_ambient(number)


def drop_all_capabilities() -> None:
    """Drop all capabilities."""
    for number in range(_LAST_CAPABILITY + 1):
        if not kernel_calls.drop_from_bounding_set(number):
            break
    kernel_calls.clear_ambient()
    kernel_calls.set_capabilities(0)


_WRITE_FILE, _REMOVE_DIR, _REMOVE_FILE = 1 << 1, 1 << 4, 1 << 5
_MAKE = sum(1 << bit for bit in range(6, 13))
"""The rights to create directories, files, links, sockets, pipes and devices."""
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_REFER_SINCE, _TRUNCATE_SINCE, _IOCTL_SINCE, _SCOPES_SINCE = 2, 3, 5, 6
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2


def restrict_writes(writable: Iterable[str], files: Iterable[str]) -> None:
    """Restrict writes to some directories and files, where the kernel has Landlock.

    Errors: OSError when it refuses.
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
            with contextlib.suppress(OSError):  # missing, or a pipe, which has no rules
                kernel_calls.allow_beneath(ruleset, path, file_rights)
        kernel_calls.restrict_self(ruleset)
    finally:
        os.close(ruleset)
