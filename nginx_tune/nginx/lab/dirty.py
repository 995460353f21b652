"""How much of what was written to a disk may wait in memory: the limit of one device.

``vm.dirty_bytes`` is the whole machine's and none of ours. A block device has a limit of its own
in ``/sys/class/bdi/MAJOR:MINOR`` (Linux 6.2): with ``strict_limit`` its writers wait at
``max_bytes`` as they would at the machine's limit, in ``balance_dirty_pages()``. A loop device
outlives its image, so whoever limits it sees to it that the limit is lifted.
Source: Documentation/ABI/testing/sysfs-class-bdi, mm/page-writeback.c.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from nginx_tune.errors import UndecidedError

BDI = Path("/sys/class/bdi")


def limit_dirty(device: str, most_bytes: int, *, root: Path = BDI) -> None:
    """Have writers to ``MAJOR:MINOR`` wait when so much of theirs is not written yet.

    The kernel keeps the limit as a share of the machine's, in millionths: it rounds down.
    Errors: UndecidedError where the kernel has no such limit.
    """
    directory = root / device
    try:
        (directory / "max_bytes").write_text(str(most_bytes))
        (directory / "strict_limit").write_text("1")
    except OSError as error:
        raise UndecidedError(
            f"writes to an emulated disk cannot be limited: {directory}: {error.strerror}",
            hint="it needs Linux 6.2 and a /sys that can be written; or leave dirty_bytes out",
        ) from None


def lift_dirty_limit(device: str, *, root: Path = BDI) -> None:
    """Take the limit away, if the device is still there."""
    with contextlib.suppress(OSError):
        (root / device / "strict_limit").write_text("0")
        (root / device / "max_ratio").write_text("100")
