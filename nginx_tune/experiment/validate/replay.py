"""Recorded requests as a lab can answer them: the files of a manifest, and the requests for these.

Paths become names below a root, with sizes; where there are too many, a share of them is kept.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import msgspec

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.locations import LocationMatcher
from nginx_tune.conf.scopes import scopes
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.upstreams import passes
from nginx_tune.conf.variables import Variables
from nginx_tune.documents.learning import Manifest, ManifestRequest, encode_manifest
from nginx_tune.documents.loadplan import LoadClass
from nginx_tune.errors import UndecidedError, UsageError

_SAID = "--manifest"


class Replay(NamedTuple):
    """Requests, and the files that answer them."""

    manifest: str
    """The file of the requests that are left."""
    sizes: dict[str, int]
    """Bytes of each file by its name below the root."""
    share: float
    """The share of objects that are kept."""
    notes: list[str]


def make_replay(
    manifest: Path, directory: Path, placing: Placing, *, scale: float | None
) -> Replay:
    """The replay of a manifest; its requests are written into the directory.

    Errors: UsageError for a manifest that cannot be read, UndecidedError when nothing is left.
    """
    files = plan_files(requests_of(manifest), placing, scale)
    kept: list[ManifestRequest] = []
    count = 0
    for request in requests_of(manifest):
        count += 1
        if placing.passes(request.path):
            kept.append(msgspec.structs.replace(request, bytes=None, range=None))
            continue
        name = placing.name(request.path)
        if name in files.sizes:
            size, span = files.sizes[name], request.range
            if span is not None and span[0] < size:
                span = (span[0], min(span[1], size - 1))
            kept.append(
                ManifestRequest(
                    offset_seconds=request.offset_seconds,
                    path=placing.url(request.path),
                    bytes=size,
                    range=span,
                )
            )
    if not kept:
        raise UndecidedError(
            f"{_SAID}: none of its {count:,} requests is for a file of the site",
            hint=f"the site's files are at {placing.url_prefix or '/'}",
        )
    path = _write(kept, directory)
    total = sum(files.sizes.values())
    notes = [
        f"{len(files.sizes):,} files of {total:,} bytes in all, as large as the manifest tells"
    ]
    if files.share < 1:
        notes.append(
            f"{files.share:.3g} of the manifest's objects, and so {len(kept):,} of its {count:,} "
            "requests"
        )
    elif len(kept) < count:
        notes.append(f"{count - len(kept):,} of {count:,} requests are for no file of the site")
    return Replay(path, files.sizes, files.share, notes)


def without_foreign_lengths(manifest: Path, directory: Path, passes: Passes) -> str:
    """The requests, without the lengths of what is passed on: a stub answers that.

    Shape: the manifest's own path where nothing of it is passed on.
    """
    if not any(passes(one.path) for one in requests_of(manifest)):
        return str(manifest)
    kept = [
        msgspec.structs.replace(one, bytes=None, range=None) if passes(one.path) else one
        for one in requests_of(manifest)
    ]
    return _write(kept, directory)


def _write(requests: list[ManifestRequest], directory: Path) -> str:
    path = directory / "manifest.jsonl"
    path.write_bytes(encode_manifest(Manifest(requests=len(requests), paths="kept"), requests))
    path.chmod(0o644)
    return str(path)


def asked_of(item: LoadClass) -> Iterator[tuple[str, int | None]]:
    """The requests of a class, with the length that it expects where it knows one."""
    paths = item.paths
    if paths.manifest is not None:
        for one in requests_of(Path(paths.manifest)):
            yield one.path, None if one.range else one.bytes
    else:
        yield from zip_longest(paths.paths, paths.bytes or [])


def requests_of(manifest: Path) -> Iterator[ManifestRequest]:
    """Each request of a manifest.

    Errors: UsageError for one that cannot be read.
    """
    decoder = msgspec.json.Decoder(ManifestRequest)
    number = 0
    try:
        with gzip.open(manifest) if manifest.name.endswith(".gz") else manifest.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if number > 1 and line.strip():
                    yield decoder.decode(line)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{manifest}:{number}: {error}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"cannot read {manifest}: {error}") from None


USUAL_BYTES = 1 << 30
"""Bytes of all files, when no share is asked for: made in some seconds."""
_MOST_FILES = 50_000
_USUAL_FILE_BYTES = 64 << 10
"""The size where no request tells the size of any file."""
_LONGEST_NAME_BYTES = 255
_ESCAPED = re.compile(rb"%([0-9A-Fa-f]{2})")
Passes = Callable[[str], bool]
"""Tells whether the requests for a path are passed on to another server."""


class Files(NamedTuple):
    """The files that requests ask for, below the root."""

    sizes: dict[str, int]
    share: float
    """The share of objects that are kept."""
    unusable: int
    """Objects whose names can be no files."""


class Placing(NamedTuple):
    """Names below a root for paths."""

    url_prefix: str
    index_file: str
    """The name for a directory."""
    hashed: bool
    passes: Passes

    def url(self, path: str) -> str:
        """The URL that is asked for: a hash is a name below the root."""
        return f"{self.url_prefix}{path}" if self.hashed else path

    def name(self, path: str) -> str | None:
        """The file below the root; None for what can be none."""
        if self.hashed:
            return path.removeprefix("/")
        raw = path.partition("?")[0].encode("utf-8", "surrogateescape")
        decoded = _ESCAPED.sub(lambda match: bytes([int(match[1], 16)]), raw)
        prefix = f"{self.url_prefix}/".encode()
        if not decoded.startswith(prefix) or b"\0" in decoded:
            return None
        parts = decoded[len(prefix) :].split(b"/")
        parts[-1] = parts[-1] or self.index_file.encode()
        kept = [part for part in parts if part not in {b"", b"."}]
        if b".." in kept or any(len(part) > _LONGEST_NAME_BYTES for part in kept):
            return None
        return b"/".join(kept).decode("utf-8", "surrogateescape")


def plan_files(requests: Iterable[ManifestRequest], placing: Placing, scale: float | None) -> Files:
    """The files that the requests need; a share of the objects, and with them of the requests.

    Which objects are kept is told by their names alone, so both variants and every run have the
    same.
    """
    found: dict[str, int] = {}
    for request in requests:
        name = None if placing.passes(request.path) else placing.name(request.path)
        if name is not None:
            found[name] = max(found.get(name, -1), _size(request))
    known = [size for size in found.values() if size >= 0]
    usual = sum(known) // len(known) if known else _USUAL_FILE_BYTES
    found = {name: size if size >= 0 else usual for name, size in found.items()}
    total = sum(found.values())
    share = scale or min(1.0, USUAL_BYTES / total if total else 1.0)
    share = min(share, _MOST_FILES / len(found) if found else 1.0)
    kept = {name: size for name, size in found.items() if is_kept(name, share)}
    usable = _without_directories(kept)
    return Files(usable, share, len(kept) - len(usable))


def is_kept(name: str, share: float) -> bool:
    """True if an object is one of the share."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2**64


def passes_of(tree: ConfTree, server: Directive) -> Passes:
    """The test whether a server passes a path on."""
    matcher = LocationMatcher(tree)
    passing = {one.scope.own for one in passes(scopes(tree), Variables(tree))}
    return lambda path: matcher.location_of(server, path.partition("?")[0]) in passing


def _size(request: ManifestRequest) -> int:
    """The size of the object; -1 when the request does not tell."""
    if request.bytes is not None:
        return request.bytes
    return -1 if request.range is None else request.range[1] + 1


def _without_directories(sizes: dict[str, int]) -> dict[str, int]:
    """Those that are no directory of another."""
    directories = {name[:at] for name in sizes for at, letter in enumerate(name) if letter == "/"}
    return {name: size for name, size in sizes.items() if name not in directories}
