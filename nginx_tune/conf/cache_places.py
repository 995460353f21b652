"""Where a cache may not be: nginx's loader deletes whatever else lies there.

Source: ngx_http_file_cache_loader(), ngx_http_file_cache_manage_file().
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from nginx_tune.conf.tree import ConfTree

_OF_THE_SYSTEM = frozenset(
    f"/{name}"
    for name in (
        "", "bin", "boot", "dev", "etc", "home", "lib", "lib64", "opt", "proc", "root", "run",
        "sbin", "sys", "tmp", "usr", "usr/lib", "usr/local", "usr/share", "var", "var/cache",
        "var/lib", "var/log", "var/spool", "var/tmp", "var/www",
    )
)  # fmt: skip
"""Source: hier(7)."""
_SERVED = ("root", "alias")
_KEPT = ("access_log", "error_log", "pid", "ssl_certificate", "ssl_certificate_key",
         "auth_basic_user_file")  # fmt: skip
_NO_FILE = ("off", "stderr")


def why_no_place(
    path: str, *, served: Iterable[str] = (), kept: Iterable[str] = (), caches: Sequence[str] = ()
) -> str:
    """Why no cache may be at a path; empty for none.

    ``served`` are directories of files, ``kept`` files that must stay: a cache may not be around
    them. ``caches`` are all directories of caches, of which none may be in another.
    """
    place = _pure(path)
    if not path.startswith("/"):
        return "is no absolute path: nginx would have it below its prefix"
    if str(place) in _OF_THE_SYSTEM:
        return "is the system's: nginx deletes what lies there"
    for other in served:
        if _pure(other).is_relative_to(place):
            return f"holds {other}, which is served: nginx would delete it"
    for other in kept:
        if _pure(other).is_relative_to(place):
            return f"holds {other}, which nginx would delete"
    for other in caches:
        if other != path and _pure(other).is_relative_to(place):
            return f"holds {other}, another cache: each would delete what is the other's"
    return ""


def places_of(tree: ConfTree) -> tuple[list[str], list[str]]:
    """The directories of files that a configuration serves, and files that must stay.

    What holds a variable is left out, and a log that is no file.
    """
    served: list[str] = []
    kept = [*tree.files]
    for line in tree.main.walk():
        if line.name not in (*_SERVED, *_KEPT) or not line.args or line.value in _NO_FILE:
            continue
        path = None if "$" in line.value or ":" in line.value else tree.full_path(line.value)
        if path is not None:
            (served if line.name in _SERVED else kept).append(path)
    return served, kept


def _pure(path: str) -> PurePosixPath:
    # Two slashes at the beginning are one to Linux, and stay two for POSIX.
    return PurePosixPath(posixpath.normpath(f"/{path.lstrip('/')}"))
