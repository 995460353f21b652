"""The disks that are watched under some paths, and which of them stand on which others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from nginx_tune.host.door import Host
from nginx_tune.host.storage import read_storage


def watched_disks(
    host: Host, paths: Sequence[str], *, nginx_pid: int | None = None
) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """The block devices under the paths, and of each those that stand right on it.

    A loop device shows what its file system waits for, and the disk with its file need not: it
    is watched as a disk of its own. What it asks for is asked of the disk below too.
    ``nginx_pid`` names an nginx in another mount namespace, whose paths they are.

    Shape: names in order; {disk: disks on it}, only for those that have some.
    """
    if not paths:
        return (), {}
    tops, bottoms = (
        read_storage(
            host, paths, loop_is_leaf=leaf, nginx_pid=nginx_pid, nginx_first=nginx_pid is not None
        )[0].paths[: len(paths)]
        for leaf in (True, False)
    )
    watched = {name for path in tops for name in path.leaf_disks}
    on: dict[str, set[str]] = {}
    for path in bottoms:
        # Members of an array stand beside each other, all at the bottom.
        upper = [n for n in path.stack if n in watched and n not in path.leaf_disks]
        for above, name in pairwise(upper):
            on.setdefault(name, set()).add(above)
        for name in watched.intersection(path.leaf_disks) if upper else ():
            on.setdefault(name, set()).add(upper[-1])
    return tuple(sorted(watched)), {name: tuple(sorted(above)) for name, above in on.items()}
