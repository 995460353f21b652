"""Reads what a load asks for: a list of paths, or a manifest of recorded requests."""

from __future__ import annotations

import contextlib
import gzip
import json
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import msgspec

from nginx_tune.documents.loadplan import LoadClass, LoadPlan
from nginx_tune.errors import UsageError

MANIFEST_SCHEMA = "nginx-tune/manifest/1"

_SAFE = "/%:@!$&'()*+,;=~-._?"

_MOST_BYTES = 256 << 20
_HEAD_BYTES = 1 << 16


def read_manifest_head(file: Path) -> dict[str, Any] | None:
    """The first line of a manifest, plain or gzip; None when the file is something else.

    Errors: UsageError when it cannot be read.
    """
    try:
        with _opened(file) as stream:
            line = stream.readline(_HEAD_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(file, error) from None
    try:
        head = json.loads(line)
    except ValueError:
        return None
    known = isinstance(head, dict) and head.get("schema") == MANIFEST_SCHEMA
    return head if known else None


def read_paths(file: Path) -> list[str]:
    """The paths of a list: one a line, of URLs only the path; empty lines and # comments not.

    Errors: UsageError when it cannot be read, is no text or has no path.
    """
    try:
        with _opened(file) as stream:
            text = stream.read(_MOST_BYTES).decode()
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(file, error) from None
    except UnicodeDecodeError:
        raise UsageError(f"{file}: not UTF-8 text") from None
    paths = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        if "://" in line:
            parts = urlsplit(line)
            line = parts.path + (f"?{parts.query}" if parts.query else "") or "/"
        if not line.startswith("/"):
            raise UsageError(f"{file}:{number}: a path begins with /")
        paths.append(quote(line, safe=_SAFE))
    if not paths:
        raise UsageError(f"{file}: no path in it")
    return paths


def find_files(root: Path, paths: Sequence[str]) -> tuple[list[int], list[str]]:
    """Size and name of the file below a document root for each path.

    Errors: UsageError when one is not there: the list and the root do not belong together.
    """
    base = root.resolve()
    sizes, files = [], []
    for path in paths:
        file = (base / unquote(urlsplit(path).path).lstrip("/")).resolve()
        if not file.is_relative_to(base) or not file.is_file():
            raise UsageError(f"{path}: no such file below {root}")
        sizes.append(file.stat().st_size)
        files.append(str(file))
    return sizes, files


@contextlib.contextmanager
def plain_manifests(plan: LoadPlan) -> Iterator[LoadPlan]:
    """The plan with manifests that the probe can read: those in gzip are unpacked meanwhile.

    Errors: UsageError when one cannot be read.
    """
    with contextlib.ExitStack() as stack:
        classes = [_with_plain_manifest(item, stack) for item in plan.classes]
        yield msgspec.structs.replace(plan, classes=classes)


def _with_plain_manifest(item: LoadClass, stack: contextlib.ExitStack) -> LoadClass:
    name = item.paths.manifest
    if name is None or not name.endswith(".gz"):
        return item
    directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="nginx-tune-manifest-"))
    plain = Path(directory) / "manifest.jsonl"
    try:
        with gzip.open(name) as packed, plain.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked)
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(Path(name), error) from None
    return msgspec.structs.replace(
        item, paths=msgspec.structs.replace(item.paths, manifest=str(plain))
    )


def _opened(file: Path) -> contextlib.AbstractContextManager[Any]:
    return gzip.open(file) if file.name.endswith(".gz") else file.open("rb")


def _unreadable(file: Path, error: Exception) -> UsageError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return UsageError(f"cannot read {file}: {reason}")
