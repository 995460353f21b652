"""Reading the files that a command line names; every fault is a usage error with one line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, TypeVar

from nginx_tune.documents.base import Document, decode
from nginx_tune.errors import UsageError

D = TypeVar("D", bound=Document)


def read_bytes(path: str) -> bytes:
    """The bytes of a file, or of standard input for ``-``."""
    if path == "-" and sys.stdin is None:
        raise UsageError("standard input is closed", hint="name a file instead of -")
    try:
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot read: {error.strerror}") from None


def read_document(kind: type[D], path: str) -> D:
    """The document in a JSON file (``-``: standard input)."""
    return decode(kind, read_bytes(path), source="standard input" if path == "-" else path)


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    if sys.version_info >= (3, 11):
        import tomllib  # noqa: PLC0415  # most calls read no TOML
    else:
        import tomli as tomllib  # noqa: PLC0415
    try:
        return tomllib.loads(read_bytes(str(path)).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not TOML: {error}") from None
    except RecursionError:
        raise UsageError(f"{path}: not TOML: nested too deeply") from None
