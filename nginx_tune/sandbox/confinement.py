"""The confinement of an nginx: its files, rights and resources inside the sandbox.

Processes: since Linux 6.14 each PID namespace has its own ``pid_max``, which is set there. On older
kernels it applies to the whole host and is left alone. RLIMIT_NPROC does not help root: it does not
apply to user 0, and it also counts processes of the workers' user outside the sandbox. The lab's
cgroups limit processes and memory in addition (``nginx.lab.sandbox``). Source:
kernel/pid_namespace.c, pidns_install_sysctls and kernel/pid.c; kernel/fork.c, copy_process.

Descriptors: even if the supervisor allows the most processes, all of them together can open only
half of what the host allows (``fs.file-max``).

Rights: only the capabilities that a master needs to bind ports and change its workers' user.

Writes: Landlock is a second barrier, where the kernel has it. A host's pipe in a shown directory
can be written even through a read-only mount; Landlock prevents that. Reads are not checked, so
they cost nothing. Source: Documentation/userspace-api/landlock.rst.
"""

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
"""A part of the sandbox that the user may give up on a host that cannot provide it."""


class ResourceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on the resources of the sandboxed nginx."""

    processes: int = 2048
    """Number of processes and threads, children included."""
    data_bytes: int = 2 << 30
    """Private memory of one process."""
    file_bytes: int = 4 << 30
    """Size of one written file."""
    cover_bytes: int = 1 << 30
    """Data in one writable directory in memory."""
    cover_files: int = 200_000


class Confinement(msgspec.Struct, frozen=True, kw_only=True):
    """The contents and limits of a sandbox. Paths are those that nginx uses."""

    shown: list[str]
    """Files and directories of the host to show read-only, with the links that lead to them."""
    covers: dict[str, str] = {}
    """Writable directories: the source of each (``Covers.source``), by path."""
    disks: dict[str, str] = {}
    """Read-only directories that replace the host's: the source of each (``Covers.source``)."""
    laid: dict[str, str] = {}
    """Read-only files and sockets that replace the host's: the source of each, by path."""
    hidden: list[str] = []
    """Directories inside the shown directories that appear empty."""
    uses_unix_sockets: bool = False
    """True if the configuration uses unix sockets, which are forbidden if it does not."""
    uses_file_aio: bool = False
    """True for a build with file AIO; the host limits its contexts."""
    transparent: bool = False
    """True if nginx sends from addresses that are not the host's (``proxy_bind … transparent``)."""
    threads: int = 0
    """Pool threads of one process. The whole stack of each counts as private memory, although
    hardly any of it is used."""
    workers: int = 0
    """Workers of the configuration; it matters only if they outnumber the CPUs."""
    limits: ResourceLimits = ResourceLimits()
    weaker: list[SandboxPart] = []
    """Parts to leave out if the host cannot provide them."""


_OWN_NUMBERS_SINCE = (6, 14)
_LEAST_NUMBERS = 301
"""Minimum number of process ids of a namespace: RESERVED_PIDS plus one."""
_LEAST_NUMBERS_PER_CPU = 8
"""Minimum number of process ids for each possible CPU: PIDS_PER_CPU_MIN."""
_PID_MAX = Path("/proc/sys/kernel/pid_max")
_USUAL_STACK_BYTES = 8 << 20
_LEAST_DESCRIPTORS = 1024
_AIO_SHARE = 4
"""Divisor of the host's ``fs.aio-max-nr`` that gives a sandbox's share."""


class HostShare(NamedTuple):
    """A sandbox's share of the host's limited resources."""

    processes: int
    """Concurrent processes: two worker generations and a reserve. Threads do not count."""
    descriptors: int
    """Open descriptors of one process."""
    aio_events: int
    """File-AIO events over the whole life of the sandbox."""


def share_of_host(wanted: Confinement) -> HostShare:
    """A sandbox's share under the limits of this host."""
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
    """A sandbox's share under the given values of sysctls ``fs.*``; pure."""
    processes = min(32 + 4 * max(wanted.workers, cpus), wanted.limits.processes)
    descriptors = min(nr_open, max(_LEAST_DESCRIPTORS, file_max // 2 // processes))
    return HostShare(processes, descriptors, aio_max_nr // _AIO_SHARE)


def _kernel_figure(name: str) -> int:
    """The value of a sysctl ``fs.*``; 0 if the kernel lacks it."""
    try:
        return int(Path("/proc/sys/fs", name).read_text())
    except OSError:
        return 0


def has_own_numbers(release: str, cpus: int, wanted: int) -> bool:
    """True if this kernel release can limit a PID namespace to ``wanted`` process ids; pure."""
    found = re.match(r"([0-9]+)\.([0-9]+)", release)
    if found is None or (int(found[1]), int(found[2])) < _OWN_NUMBERS_SINCE:
        return False
    return wanted >= max(_LEAST_NUMBERS, _LEAST_NUMBERS_PER_CPU * cpus)


def can_limit_numbers(wanted: int) -> bool:
    """True if this host can limit a PID namespace to ``wanted`` process ids."""
    try:
        possible = Path("/sys/devices/system/cpu/possible").read_text()
        cpus = int(possible.strip().rpartition(",")[2].rpartition("-")[2]) + 1
    except (OSError, ValueError):
        cpus = os.cpu_count() or 1
    return has_own_numbers(os.uname().release, cpus, wanted)


def limit_processes(wanted: Confinement, *, in_groups: bool) -> None:
    """Limit the number of processes and threads through the PID namespace, if the host allows it.

    ``in_groups``: true if a cgroup limits them too. The first process of the namespace must call
    this.
    Errors: UndecidedError when nothing limits them.
    """
    most = wanted.limits.processes
    is_bounded = _limit_numbers(most) or in_groups or os.geteuid() != 0
    if not is_bounded and can_limit_numbers(most) and "processes" not in wanted.weaker:
        raise UndecidedError(
            "the number of nginx processes cannot be limited: kernel.pid_max of their PID "
            "namespace is not writable",
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
    """Limit the resources of the calling process and its children; limits are per process."""
    # Not 0: a program in kernel.core_pattern would still run, outside the sandbox. With 1 the
    # kernel dumps nothing. Source: do_coredump() in fs/coredump.c.
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    size = wanted.limits.file_bytes
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    # RLIMIT_DATA counts a whole stack, as a private writable mapping (Linux 4.7).
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

    Nothing in the sandbox can undo this: that needs CAP_SYS_RESOURCE (proc(5)).
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
"""Capabilities to change the owner of temporary directories, read keys and write logs of other
users, end workers, change to the workers' user, and bind ports below 1024. The host's visible files
are read-only, so DAC_OVERRIDE only allows reading them."""
KEPT_AS_USER = (NET_BIND_SERVICE,)


def drop_capabilities(*, is_root: bool, transparent: bool) -> None:
    """Permanently drop all capabilities that nginx does not need."""
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
    """Drop every capability, permanently."""
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
    """Allow writes only below ``writable`` and to ``files``, if the kernel has Landlock.

    Errors: OSError if the kernel refuses.
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
            with contextlib.suppress(OSError):  # missing, or a pipe: no rule for it
                kernel_calls.allow_beneath(ruleset, path, file_rights)
        kernel_calls.restrict_self(ruleset)
    finally:
        os.close(ruleset)
