"""The rights that nginx keeps: those of a master that binds ports and changes its workers' user."""

from __future__ import annotations

from nginx_tune.sandbox import kernel_calls

CHOWN, DAC_OVERRIDE, KILL, SETGID, SETUID, NET_BIND_SERVICE, NET_RAW = 0, 1, 5, 6, 7, 10, 13
_LAST = 63

KEPT_AS_ROOT = (CHOWN, DAC_OVERRIDE, KILL, SETGID, SETUID, NET_BIND_SERVICE)
"""To own its temporary directories, read keys and write logs that others own, end its workers,
change to its workers' user, bind ports below 1024. Every file of the host that it can see is
read-only, so DAC_OVERRIDE only reads."""
KEPT_AS_USER = (NET_BIND_SERVICE,)


def drop_capabilities(*, is_root: bool, transparent: bool) -> None:
    """Give up every capability but those that nginx needs, for good."""
    kept = (*(KEPT_AS_ROOT if is_root else KEPT_AS_USER), *((NET_RAW,) if transparent else ()))
    for number in range(_LAST + 1):
        if number not in kept and not kernel_calls.drop_from_bounding_set(number):
            break  # past the last one that this kernel knows
    mask = sum(1 << number for number in kept)
    kernel_calls.clear_ambient()
    kernel_calls.set_capabilities(mask, inheritable=0 if is_root else mask)
    if not is_root:
        for number in kept:
            kernel_calls.raise_ambient(number)


def drop_all() -> None:
    """Have no capability at all."""
    for number in range(_LAST + 1):
        if not kernel_calls.drop_from_bounding_set(number):
            break
    kernel_calls.clear_ambient()
    kernel_calls.set_capabilities(0)
