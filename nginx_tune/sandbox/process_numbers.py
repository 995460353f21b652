"""The process numbers of a namespace: as many processes and threads as there are numbers.

From Linux 6.14 on each process namespace has a ``pid_max`` of its own; before, writing it changed
the whole host's, so it is written only where the kernel says that it is that new. RLIMIT_NPROC is
no means for root: it does not hold for user 0, and counts what its workers' user has elsewhere.
Source: kernel/pid_namespace.c, pidns_install_sysctls and kernel/pid.c; kernel/fork.c, copy_process.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_SINCE = (6, 14)
_LEAST = 301
"""RESERVED_PIDS and one."""
_LEAST_PER_CPU = 8
"""PIDS_PER_CPU_MIN, of CPUs that there may be."""
_FILE = Path("/proc/sys/kernel/pid_max")


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


def limit_numbers(most: int) -> bool:
    """Give this process namespace so many numbers; whether it has them.

    To be called by a process of a namespace that is not the host's.
    """
    if os.getpid() != 1 or not can_limit_numbers(most):
        return False
    try:
        _FILE.write_text(str(most))
        return _FILE.read_text().strip() == str(most)
    except OSError:
        return False
