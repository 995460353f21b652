"""The files that a site serves: those below a root, or those of the lab's disks; as URLs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote_from_bytes

from nginx_tune.errors import UndecidedError
from nginx_tune.experiment.session import Session
from nginx_tune.measure.load.classes import ServedFile
from nginx_tune.nginx.lab.check import is_below

_MOST_FILES = 20_000
"""Files of one root that a load asks for."""


def served_files(root: str) -> list[ServedFile]:
    """Files below a root, the largest of the most common kind first; paths on disk."""
    found: list[ServedFile] = []
    for files in _by_directory(root):
        found += files
        if len(found) >= _MOST_FILES:
            break
    # The hot file is a typical one, so that the hot load is not the easiest of all.
    typical = sorted(found, key=lambda file: file.bytes)[len(found) // 2] if found else None
    return [typical, *(f for f in found if f != typical)] if typical else []


def has_files(root: str) -> bool:
    """Whether there are any."""
    return any(_by_directory(root))


def _by_directory(root: str) -> Iterator[list[ServedFile]]:
    pending = [Path(root)]
    while pending:
        try:
            entries = sorted(os.scandir(pending.pop()), key=lambda entry: entry.name)
        except OSError:
            continue
        found = []
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                pending.append(Path(entry.path))
            elif entry.is_file(follow_symlinks=False) and not entry.name.startswith("."):
                size = entry.stat().st_size
                if size and entry.stat().st_mode & 0o004:
                    found.append(ServedFile(entry.path, size))
        yield found


def lab_files(session: Session, root: str) -> list[ServedFile]:
    """What the lab's disks hold below the root that is served.

    Errors: UndecidedError when none of them is mounted there.
    """
    found = [file for files in session.files.values() for file in files]
    served = [file for file in found if is_below(file.url, root)]
    if not served:
        mounts = ", ".join(shown(disk.mount) for disk in session.lab.disks)
        raise UndecidedError(
            f"{shown(root)} is served, and the lab's disks are at {mounts}",
            hint="leave the lab's mount out, or name the root",
        )
    return served


def as_url(file: ServedFile, *, root: str, url_prefix: str) -> ServedFile:
    """A file below a root by its URL."""
    name = quote_from_bytes(os.fsencode(os.path.relpath(file.url, root)))
    return ServedFile(f"{url_prefix}/{name}", file.bytes)


def shown(path: str) -> str:
    """A path as it can be printed: names may hold bytes that are no UTF-8."""
    return os.fsencode(path).decode(errors="backslashreplace")
