"""Paths with ``..``: up from where a link leads to, as the kernel goes, not back along its name."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable


def absolute_path(path: str) -> str:
    """A path of this host from the root on, without ``..``; links stay but where ``..`` follows."""
    if ".." not in path.split("/"):
        return os.path.abspath(path)  # noqa: PTH100  # links stay
    return climbed(posixpath.join(os.getcwd(), path), os.path.realpath)  # noqa: PTH109


def climbed(path: str, real_path: Callable[[str], str]) -> str:
    """An absolute path with ``..`` as one without; what follows the last one stays as named."""
    parts = path.split("/")
    below = len(parts) - parts[::-1].index("..")
    return posixpath.normpath(posixpath.join(real_path("/".join(parts[:below])), *parts[below:]))
