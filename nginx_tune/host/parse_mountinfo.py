"""``/proc/PID/mountinfo``: the mounts of a process and which one holds a path."""

from __future__ import annotations

import re
from typing import NamedTuple

_OCTAL = re.compile(r"\\([0-7]{3})")
_FIELDS_BEFORE_DASH = 6
_FIELDS_AFTER_DASH = 2


class Mount(NamedTuple):
    """One mount."""

    mount_id: int
    parent_id: int
    device: str
    """``MAJOR:MINOR``; major 0 is anonymous: no block device of its own."""
    root: str
    """The directory of the file system that is mounted; not ``/`` for bind mounts."""
    mount_point: str
    filesystem: str
    source: str
    options: dict[str, str]
    """Options of the file system, e.g. ``upperdir``; flags have an empty value."""


def parse_mountinfo(text: str) -> list[Mount]:
    """Every mount whose line can be read, in the kernel's order.

    Source: proc_pid_mountinfo(5).
    """
    return [mount for mount in map(_parse_line, text.splitlines()) if mount is not None]


def _parse_line(line: str) -> Mount | None:
    before, separator, after = line.partition(" - ")
    head, tail = before.split(" "), after.split(" ")
    if not separator or len(head) < _FIELDS_BEFORE_DASH or len(tail) < _FIELDS_AFTER_DASH:
        return None
    if not (head[0].isdecimal() and head[1].isdecimal() and len(head[0] + head[1]) < 40):  # noqa: PLR2004
        return None
    if not re.fullmatch(r"[0-9]{1,9}:[0-9]{1,9}", head[2]) or not head[4].startswith("/"):
        return None
    options = tail[2] if len(tail) > _FIELDS_AFTER_DASH else ""
    return Mount(
        mount_id=int(head[0]),
        parent_id=int(head[1]),
        device=head[2],
        root=_plain(head[3]),
        mount_point=_plain(head[4]),
        filesystem=_plain(tail[0]),
        source=_plain(tail[1]),
        options=_parse_options(options),
    )


def _plain(text: str) -> str:
    """Blanks and backslashes are printed in octal (fs/seq_file.c mangle_path())."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)


def _parse_options(text: str) -> dict[str, str]:
    found = {}
    # overlayfs prints a comma inside a path as "\," (fs/overlayfs/params.c).
    for option in re.split(r"(?<!\\),", text):
        name, _, value = option.partition("=")
        if name:
            found[name] = _plain(value)
    return found


def is_inside(path: str, directory: str) -> bool:
    """Whether a path is the directory or lies under it (both normal and absolute)."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def mount_of(mounts: list[Mount], path: str) -> Mount | None:
    """The mount that holds ``path`` (absolute, links resolved).

    Later mounts hide earlier ones, also those below the new mount point: the tree is walked
    from the root along parent ids. Where the list has no root (cut off, odd namespace) the
    longest mount point wins, the last of equals.
    """
    ids = {mount.mount_id for mount in mounts}
    current = next(
        (m for m in mounts if m.mount_point == "/" and m.parent_id not in ids - {m.mount_id}), None
    )
    if current is None:
        around = [mount for mount in mounts if is_inside(path, mount.mount_point)]
        return max(reversed(around), key=lambda m: len(m.mount_point), default=None)
    passed = {current.mount_id}
    while True:
        below = [
            mount
            for mount in mounts
            if mount.parent_id == current.mount_id
            and mount.mount_id not in passed
            and is_inside(path, mount.mount_point)
        ]
        if not below:
            return current
        # As the kernel walks a path: the first mount point on the way wins, and a sibling
        # further down the path is hidden behind it.
        current = min(reversed(below), key=lambda mount: len(mount.mount_point))
        passed.add(current.mount_id)
