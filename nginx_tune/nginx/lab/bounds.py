"""What root's nginx may use up in all, by cgroups: processes and memory.

An ordinary user has no cgroups: processes are bounded by the namespace (RLIMIT_NPROC, and numbers
of its own where the kernel has them), memory by process (RLIMIT_DATA). What runs in the sandbox is
what the kernel ends first in either case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from nginx_tune.errors import NginxTuneError, UndecidedError
from nginx_tune.nginx.lab.cgroups import LabCgroups, wall_bytes
from nginx_tune.nginx.lab.walls import Walls, given_up
from nginx_tune.sandbox.limits import can_limit_numbers
from nginx_tune.sandbox.spec import ResourceLimits, Wall


def bound(group: LabCgroups, walls: Walls, *, is_brief: bool = False) -> list[Wall]:
    """Bound root's nginx; the walls that cannot be had and are done without.

    ``is_brief`` is for what is over within a minute in any case: it may do without any.
    Errors: UndecidedError for what cannot be bounded and is not given up.
    """
    if not walls.root:
        return []
    most = ResourceLimits().processes
    lacking: dict[Wall, str] = {}
    why = _attempt(lambda: group.limit_processes(most))
    if why and not can_limit_numbers(most):
        lacking["processes"] = f"the processes of nginx cannot be bounded: {why}"
    why = _attempt(lambda: group.limit_memory(wall_bytes()))
    if why:
        lacking["memory"] = f"the memory of nginx in all cannot be bounded: {why}"
    for wall, message in lacking.items():
        if not is_brief and wall not in given_up():
            _refuse(wall, message)
    return sorted(lacking)


def _attempt(call: Callable[[], object]) -> str:
    try:
        call()
    except NginxTuneError as error:
        return error.message
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _refuse(wall: Wall, message: str) -> NoReturn:
    raise UndecidedError(
        message,
        hint="have cgroups that root may write (in a container: a cgroup namespace of its own, "
        f"mounted rw), or run this as an ordinary user; --weaker-walls {wall} does without",
    )
