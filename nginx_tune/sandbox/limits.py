"""What nginx may use up in its sandbox, beside the cgroups of the lab (``nginx.lab.bounds``).

Processes: from Linux 6.14 on each process namespace has a ``pid_max`` of its own; before, writing
it changed the whole host's, so it is written only where the kernel says that it is that new.
RLIMIT_NPROC is no means for root: it does not hold for user 0, and counts what its workers' user
has elsewhere. Source: kernel/pid_namespace.c, pidns_install_sysctls and kernel/pid.c;
kernel/fork.c, copy_process.

Descriptors: so many for each process that all processes that the supervisor allows together leave
half of the host's (``fs.file-max``).
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
from pathlib import Path
from typing import NamedTuple

from nginx_tune.errors import UndecidedError
from nginx_tune.sandbox.spec import Confinement

_SINCE = (6, 14)
_LEAST = 301
"""RESERVED_PIDS and one."""
_LEAST_PER_CPU = 8
"""PIDS_PER_CPU_MIN, of CPUs that there may be."""
_PID_MAX = Path("/proc/sys/kernel/pid_max")
_USUAL_STACK_BYTES = 8 << 20
_LEAST_DESCRIPTORS = 1024
_AIO_SHARE = 4
"""One part in so many of the host's ``fs.aio-max-nr``."""


class HostShare(NamedTuple):
    """What one sandbox may take of what the whole host has only so much of."""

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
    """Whether a process namespace can be given so few numbers; pure."""
    found = re.match(r"([0-9]+)\.([0-9]+)", release)
    if found is None or (int(found[1]), int(found[2])) < _SINCE:
        return False
    return wanted >= max(_LEAST, _LEAST_PER_CPU * cpus)


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
            hint="--weaker-walls processes does without",
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
