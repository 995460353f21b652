"""Logs and partial results by URL: in object storage, on web servers, or wherever fsspec reads.

fsspec is an extra (``nginx-tune[s3]``), imported with the first URL. Access to a storage is
configured in fsspec and in the storage's own library (``AWS_PROFILE``, ``AWS_ENDPOINT_URL``, …).
"""

import contextlib
import io
import os
import re
import stat
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple, cast

from nginx_tune.errors import MissingToolError, UndecidedError, UsageError
from nginx_tune.host.paths import check_writable

_URL = re.compile(r"[a-z][a-z0-9+.-]*://")
_PATTERN = re.compile(r"[*?\[]")
_BLOCK_BYTES = 8 << 20
_BLOCKS = 3
"""The number of an object's blocks in memory. The next block is fetched while the current one is
decompressed."""
_VERSIONS = ("ETag", "etag", "generation", "md5Hash", "Last-Modified", "LastModified", "mtime")
"""The fields by which storages identify the state of an object, the most exact first."""


class UnreachableError(UndecidedError):
    """The error for an object that could not be read at this time."""


class StoredLog(NamedTuple):
    """A log, and the state in which it was found."""

    name: str
    """A URL, a path, or ``-``."""
    size: int | None
    """Size in bytes, as stored; null if the size is not known in advance."""
    version: str
    """Text that differs for different contents; empty if nothing shows when the log changes."""


def is_url(name: str) -> bool:
    """True for a URL that fsspec reads; a path that looks like a URL needs ``./`` before it."""
    return _URL.match(name) is not None


def find_logs(names: Sequence[str]) -> list[StoredLog]:
    """The logs for names and URL patterns; the matches of a pattern are sorted by name.

    Errors: UsageError for a URL without an object; UnreachableError; MissingToolError without
    fsspec or the library of the storage.
    """
    found: list[StoredLog] = []
    for name in names:
        found.extend(
            _matching(name) if is_url(name) and _PATTERN.search(name) else [find_log(name)]
        )
    return found


def find_log(name: str) -> StoredLog:
    """The log of one name, which is not a pattern; errors as for ``find_logs``."""
    if not is_url(name):
        return _local_log(name)
    system, path = _system_of(name)
    with _failures(f"{name}: cannot read"):
        info = system.info(path)
    if info.get("type") != "file":
        raise UsageError(f"{name}: a directory", hint=f"name its objects, '{name.rstrip('/')}/*'")
    return _stored(name, info)


def _local_log(path: str) -> StoredLog:
    with contextlib.suppress(OSError):
        status = os.stat(path)  # noqa: PTH116
        if stat.S_ISREG(status.st_mode):
            return StoredLog(path, status.st_size, f"{status.st_size} {status.st_mtime_ns}")
    return StoredLog(path, None, "")


def _matching(pattern: str) -> list[StoredLog]:
    system, path = _system_of(pattern)
    with _failures(f"{pattern}: cannot read"):
        system.invalidate_cache()  # in a long-lived process, it may be old
        listed = system.glob(path, detail=True)
    files = [info for _, info in sorted(listed.items()) if info.get("type") == "file"]
    if not files:
        raise UsageError(f"{pattern}: cannot read: no object of this name")
    return [_stored(system.unstrip_protocol(info["name"]), info) for info in files]


def _stored(url: str, info: dict[str, Any]) -> StoredLog:
    size = info.get("size")
    state = next((f"{info[name]}" for name in _VERSIONS if info.get(name)), "")
    return StoredLog(url, size, f"{size} {state}" if state else "")


@contextlib.contextmanager
def open_object(url: str) -> Iterator[io.BufferedReader]:
    """Open an object for reading; one block is fetched ahead.

    Errors: UnreachableError, also while it is read; UsageError for one that does not exist.
    """
    system, path = _system_of(url)
    kept = {"cache_type": "background", "cache_options": {"maxblocks": _BLOCKS}}
    with _failures(f"{url}: cannot read"):
        file = system.open(path, "rb", block_size=_BLOCK_BYTES, **kept)
    with io.BufferedReader(_ObjectFile(url, file), 1 << 20) as reader:
        yield cast("io.BufferedReader", reader)


class _ObjectFile(io.RawIOBase):
    """A file of fsspec; the different errors of the storages all become one."""

    def __init__(self, url: str, file: Any) -> None:
        self._url, self._file = url, file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _failures(f"{self._url}: cannot read"):
            data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def read_object(name: str) -> bytes:
    """The whole contents of a file or an object.

    Errors: UsageError if there is no such file or object, or the file cannot be read;
            UnreachableError for an object that may exist.
    """
    if is_url(name):
        system, path = _system_of(name)
        with _failures(f"{name}: cannot read"):
            data: bytes = system.cat_file(path)
        return data
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise UsageError(f"{name}: cannot read: {error.strerror}") from None


class Folder:
    """A directory, or a prefix of object storage, whose files are written whole or not at all."""

    def __init__(self, place: str) -> None:
        """``place`` is a path or a URL; a missing directory is created, private to its owner."""
        self.place = place.removeprefix("file://").rstrip("/")
        self._system: Any = None
        self._path = ""
        if is_url(self.place):
            self._system, self._path = _system_of(self.place)
        else:
            check_writable(Path(self.place))
            try:
                Path(self.place).mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise UsageError(f"{place}: cannot write: {error.strerror}") from None

    def names(self) -> set[str]:
        """The names of its files.

        Errors: UnreachableError.
        """
        with _failures(f"{self.place}: cannot read"):
            if self._system is None:
                return set(os.listdir(self.place))  # noqa: PTH208
            try:
                listed = self._system.ls(self._path, detail=False, refresh=True)
            except FileNotFoundError:  # nothing was written there yet
                listed = []
        return {str(name).rpartition("/")[2] for name in listed}

    def name_of(self, file: str) -> str:
        """The full path or URL of a file in this place."""
        return f"{self.place}/{file}"

    def write(self, file: str, data: bytes) -> None:
        """Write a file, or replace it.

        Errors: UnreachableError.
        """
        with _failures(f"{self.name_of(file)}: cannot write"):
            if self._system is None:
                _replace(Path(self.place, file), data)
            else:  # storages show an object only once it is complete
                self._system.pipe_file(f"{self._path}/{file}", data)


def _replace(path: Path, data: bytes) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def _system_of(url: str) -> tuple[Any, str]:
    """The fsspec file system of a URL, and the path in it."""
    try:
        from fsspec.core import url_to_fs  # noqa: PLC0415  # an extra
    except ImportError:
        raise MissingToolError(
            f"{url}: URLs are read by fsspec, which is not installed",
            hint="pip install 'nginx-tune[s3]'",
        ) from None
    if "::" in url:
        raise UsageError(f"{url}: URLs chained with '::' are not supported")
    try:
        system, path = url_to_fs(url)
    except (ImportError, ValueError) as error:  # a protocol's library, or no such protocol
        raise MissingToolError(f"{url}: {_reason(error)}") from None
    return system, path


@contextlib.contextmanager
def _failures(what: str) -> Iterator[None]:
    """Turn every failure into one kind of error, since each storage's library has its own."""
    try:
        yield
    except Exception as error:  # noqa: BLE001
        cause = error.__cause__
        if isinstance(error, FileNotFoundError):  # also raised for other failures of a web server
            if (
                not isinstance(cause, OSError)
                and getattr(cause, "status", 404) == HTTPStatus.NOT_FOUND
            ):
                raise UsageError(f"{what}: no object of this name") from None
            error = cause if isinstance(cause, Exception) else error
        raise UnreachableError(f"{what}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    lines = str(getattr(error, "strerror", None) or error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
