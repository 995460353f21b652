"""A manifest as a lab can answer it: the files that it asks for, and the requests for these."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import msgspec

from nginx_tune.documents.loadplan import LoadClass
from nginx_tune.documents.manifest import Manifest, ManifestRequest, encode_manifest
from nginx_tune.errors import UndecidedError, UsageError
from nginx_tune.experiment.validate.replayed_files import Passes, Placing, plan_files

_SAID = "--manifest"


class Replay(NamedTuple):
    """Requests, and the files that answer them."""

    manifest: str
    """The file of the requests that are left."""
    sizes: dict[str, int]
    """Bytes of each file by its name below the root."""
    share: float
    """Of the objects that are kept."""
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
    """What a class asks for, with the length that it expects where it knows one."""
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
