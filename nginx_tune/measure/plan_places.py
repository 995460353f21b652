"""Which directories nginx writes to: inside the walls they are covered with empty ones; pure."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

_BUILD_FILES = ("--error-log-path", "--http-log-path", "--pid-path", "--lock-path")
_BUILD_DIRECTORIES = (
    "--http-client-body-temp-path",
    "--http-proxy-temp-path",
    "--http-fastcgi-temp-path",
    "--http-uwsgi-temp-path",
    "--http-scgi-temp-path",
)
_ALWAYS = ("/run",)


def plan_places(flags: Iterable[str], written: Iterable[str] = ()) -> list[str]:
    """Directories to cover: where the build and the configuration put logs, pids, temp files.

    ``flags`` are configure arguments, ``written`` files that a configuration names. A directory
    inside another that is covered is left out; so are ``stderr``, ``syslog:`` and variables.
    """
    places = set(_ALWAYS)
    for flag in flags:
        name, _, value = flag.partition("=")
        if name in _BUILD_FILES or name in _BUILD_DIRECTORIES:
            places |= _parent(value)
    for path in written:
        places |= _parent(path)
    return sorted(
        place
        for place in places
        if not any(other != place and _inside(place, other) for other in places)
    )


def _parent(path: str) -> set[str]:
    if not path.startswith("/") or "$" in path:
        return set()
    parent = PurePosixPath(path).parent
    # /var/run is a link to /run, and /dev holds devices; neither wants a cover of its own.
    known = {PurePosixPath("/"), PurePosixPath("/dev"), PurePosixPath("/var/run")}
    return set() if parent in known else {str(parent)}


def _inside(place: str, other: str) -> bool:
    return PurePosixPath(other) in PurePosixPath(place).parents
