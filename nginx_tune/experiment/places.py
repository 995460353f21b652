"""Which directories nginx writes to: inside the walls they are covered with empty ones; pure."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable
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


_DEFAULT_LOGS = "logs"
_DEFAULT_DIRECTORIES = {
    "--http-client-body-temp-path": "client_body_temp",
    "--http-proxy-temp-path": "proxy_temp",
    "--http-fastcgi-temp-path": "fastcgi_temp",
    "--http-uwsgi-temp-path": "uwsgi_temp",
    "--http-scgi-temp-path": "scgi_temp",
}
"""Below the prefix, where the build does not say otherwise. Source: auto/options, auto/init."""


def plan_places(
    flags: Iterable[str], written: Iterable[str] = (), *, prefix: str | None = None
) -> list[str]:
    """Directories to cover: where the build and the configuration put logs, pids, temp files.

    ``prefix`` is nginx's, on which relative names stand; null where it is not known.
    ``flags`` are configure arguments, ``written`` files that a configuration names. A directory
    inside another that is covered is left out; so are ``stderr``, ``syslog:`` and variables.
    """
    return outermost(written_places(flags, written, prefix=prefix))


def outermost(places: Collection[str]) -> list[str]:
    """Those that lie inside none of the others, in order."""
    return sorted(
        place
        for place in places
        if not any(other != place and _inside(place, other) for other in places)
    )


def written_places(
    flags: Iterable[str], written: Iterable[str] = (), *, prefix: str | None = None
) -> set[str]:
    """All of those, the inner ones too."""
    places = set(_ALWAYS)
    flags = list(flags)
    places |= _defaults(flags, prefix) if prefix else set()
    for flag in flags:
        name, _, value = flag.partition("=")
        if name in _BUILD_FILES or name in _BUILD_DIRECTORIES:
            places |= _parent(value)
    for path in written:
        places |= _parent(path)
    return places


def required_directories(written: Iterable[str]) -> list[str]:
    """Directories that must be there before nginx starts: those of files that it writes.

    Of a temporary or cache path it makes the last directory itself. Source: ngx_create_paths.
    """
    # A directory that nginx makes ends with "/.": the one that it makes it in must be there.
    files = (path.removesuffix("/.") for path in written)
    return sorted({place for path in files for place in _parent(path)})


def _defaults(flags: list[str], prefix: str) -> set[str]:
    """What the build leaves where nginx itself has it, or names by a relative path."""
    given = {flag.partition("=")[0]: flag.partition("=")[2] for flag in flags}
    found = set()
    for option in _BUILD_FILES:
        value = given.get(option, f"{_DEFAULT_LOGS}/x")
        if not value.startswith("/") and "/" in value:
            found |= _parent(f"{prefix.rstrip('/')}/{value}")
    for option, default in _DEFAULT_DIRECTORIES.items():
        value = given.get(option, default)
        if not value.startswith("/"):
            found.add(f"{prefix.rstrip('/')}/{value}")
    return found


def _parent(path: str) -> set[str]:
    if not path.startswith("/") or "$" in path:
        return set()
    parent = PurePosixPath(posixpath.dirname(path))  # of "/a/." it is /a: paths drop the dot
    # /var/run is a link to /run, and /dev holds devices; neither wants a cover of its own.
    known = {PurePosixPath("/"), PurePosixPath("/dev"), PurePosixPath("/var/run")}
    return set() if parent in known else {str(parent)}


def _inside(place: str, other: str) -> bool:
    return PurePosixPath(other) in PurePosixPath(place).parents
