"""Recorded requests that a lab can answer: the files of a manifest, and their requests.

Paths become file names below a root, with sizes. If there are too many, a share is kept.
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
from msgspec.structs import replace

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.locations import LocationMatcher
from nginx_tune.conf.scopes import scopes
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.upstreams import passes
from nginx_tune.conf.variables import Variables
from nginx_tune.documents.learning import Manifest, ManifestRequest, encode_manifest
from nginx_tune.documents.loadplan import LoadClass
from nginx_tune.documents.scenario import ScenarioClass
from nginx_tune.errors import UndecidedError, UsageError
from nginx_tune.experiment.validate.site import SitePair
from nginx_tune.nginx.lab.sandbox import Sandbox


class Replay(NamedTuple):
    """Requests, with the files that answer them."""

    manifest: str
    """The file of the kept requests."""
    sizes: dict[str, int]
    """Bytes by file name below the root."""
    share: float
    """The share of objects that is kept."""
    notes: list[str]


def make_replay(
    manifest: Path, directory: Path, placing: Placing, *, scale: float | None
) -> Replay:
    """The replay of a manifest, with its requests in a file of the directory.

    Errors: UsageError for a manifest that cannot be read, UndecidedError if nothing is left.
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
            f"--manifest: none of its {count:,} requests is for a file of the site",
            hint=f"the site's files are at {placing.url_prefix or '/'}",
        )
    path = _write(kept, directory)
    total = sum(files.sizes.values())
    notes = [
        f"{len(files.sizes):,} files of {total:,} bytes in all, with the sizes of the manifest"
    ]
    if files.share < 1:
        notes.append(
            f"{files.share:.3g} of the manifest's objects, which are {len(kept):,} of its "
            f"{count:,} requests"
        )
    elif len(kept) < count:
        notes.append(f"{count - len(kept):,} of {count:,} requests are not for files of the site")
    return Replay(path, files.sizes, files.share, notes)


def without_foreign_lengths(manifest: Path, directory: Path, passes: Passes) -> str:
    """A manifest without the lengths of requests that are passed on and answered by a stub.

    Shape: the manifest's own path if nothing is passed on.
    """
    if not any(passes(request.path) for request in requests_of(manifest)):
        return str(manifest)
    kept = [
        msgspec.structs.replace(r, bytes=None, range=None) if passes(r.path) else r
        for r in requests_of(manifest)
    ]
    return _write(kept, directory)


def _write(requests: list[ManifestRequest], directory: Path) -> str:
    path = directory / "manifest.jsonl"
    path.write_bytes(encode_manifest(Manifest(requests=len(requests), paths="kept"), requests))
    path.chmod(0o644)
    return str(path)


def expected_lengths(item: LoadClass) -> Iterator[tuple[str, int | None]]:
    """The paths of a class with the lengths that it expects; None for an unknown length."""
    paths = item.paths
    if paths.manifest is not None:
        for request in requests_of(Path(paths.manifest)):
            yield request.path, None if request.range else request.bytes
    else:
        yield from zip_longest(paths.paths, paths.bytes or [])


def requests_of(manifest: Path) -> Iterator[ManifestRequest]:
    """The requests of a manifest.

    Errors: UsageError for a manifest that cannot be read.
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
"""Bytes of all files by default, which take some seconds to make."""
_MOST_FILES = 50_000
_USUAL_FILE_BYTES = 64 << 10
"""The size of files if no request has a size."""
_LONGEST_NAME_BYTES = 255
_ESCAPED = re.compile(rb"%([0-9A-Fa-f]{2})")
Passes = Callable[[str], bool]
"""True for a path whose requests are passed on to another server."""


class Files(NamedTuple):
    """The requested files below the root."""

    sizes: dict[str, int]
    share: float
    """The share of objects that is kept."""


class Placing(NamedTuple):
    """Maps URL paths to file names below a root."""

    url_prefix: str
    index_file: str
    """The file for a directory."""
    hashed: bool
    passes: Passes

    def url(self, path: str) -> str:
        """The URL of a path; a hashed path is a file name below the root."""
        return f"{self.url_prefix}{path}" if self.hashed else path

    def name(self, path: str) -> str | None:
        """The file name below the root; None for a path that cannot be a file."""
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
    """The files that the requests need, or a share of them.

    The kept objects depend on their names only, so they are the same in all variants and runs.
    """
    sizes: dict[str, int] = {}
    for request in requests:
        name = None if placing.passes(request.path) else placing.name(request.path)
        if name is not None:
            sizes[name] = max(sizes.get(name, -1), _size(request))
    known = [size for size in sizes.values() if size >= 0]
    usual = sum(known) // len(known) if known else _USUAL_FILE_BYTES
    sizes = {name: size if size >= 0 else usual for name, size in sizes.items()}
    total = sum(sizes.values())
    share = scale or min(1.0, USUAL_BYTES / total if total else 1.0)
    share = min(share, _MOST_FILES / len(sizes) if sizes else 1.0)
    kept = {name: size for name, size in sizes.items() if is_kept(name, share)}
    return Files(_without_directories(kept), share)


def is_kept(name: str, share: float) -> bool:
    """True if an object belongs to the kept share."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2**64


def passes_of(tree: ConfTree, server: Directive) -> Passes:
    """A function that is true for paths that a server passes on to another one."""
    matcher = LocationMatcher(tree)
    passing = {passed.scope.own for passed in passes(scopes(tree), Variables(tree))}
    return lambda path: matcher.location_of(server, path.partition("?")[0]) in passing


def _size(request: ManifestRequest) -> int:
    """The size of the requested object; -1 if unknown."""
    if request.bytes is not None:
        return request.bytes
    return -1 if request.range is None else request.range[1] + 1


def _without_directories(sizes: dict[str, int]) -> dict[str, int]:
    """The files, without those whose name is also a directory of another file."""
    directories = {name[:at] for name in sizes for at, letter in enumerate(name) if letter == "/"}
    return {name: size for name, size in sizes.items() if name not in directories}


def open_replay(
    sandbox: Sandbox, site: SitePair, *, has_lab: bool, scale: float | None
) -> Replay | None:
    """The requests of a manifest, for files in the lab; None to replay them as recorded."""
    load, entry = site.load, site.entry
    if not load.manifest or not has_lab or entry.root is None:
        if load.hashed:
            raise UsageError(
                f"{load.manifest}: its paths are hashed, so no server has them",
                hint="use --lab, which makes files of those sizes, or record it with --keep-paths",
            )
        return None
    placing = Placing(
        entry.url_prefix,
        entry.index_file,
        load.hashed,
        (lambda _: False) if load.hashed else passes_of(site.trees[1], entry.server),
    )
    return make_replay(Path(load.manifest), sandbox.directory, placing, scale=scale)


def replayed_classes(site: SitePair, replay: Replay | None, directory: Path) -> list[ScenarioClass]:
    """The classes, with the requests of a manifest that can be replayed."""
    manifest = site.load.manifest
    if replay:
        manifest = replay.manifest
    elif manifest:
        passes = [
            passes_of(tree, entry.server)
            for tree, entry in zip(site.trees, site.entries, strict=True)
        ]
        manifest = without_foreign_lengths(
            Path(manifest), directory, lambda path: any(is_passed(path) for is_passed in passes)
        )
    return [replace(item, manifest=manifest) if item.manifest else item for item in site.classes]
