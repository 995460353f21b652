"""A manifest as a lab can answer it: the files that it asks for, and the requests for these."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from nginx_tune.documents.manifest import Manifest, ManifestRequest, encode_manifest
from nginx_tune.errors import UndecidedError, UsageError
from nginx_tune.validate.replayed_files import Placing, plan_files

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
    files = plan_files(_requests(manifest), placing, scale)
    kept: list[ManifestRequest] = []
    count = 0
    for request in _requests(manifest):
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
    path = directory / "manifest.jsonl"
    path.write_bytes(encode_manifest(Manifest(requests=len(kept), paths="kept"), kept))
    path.chmod(0o644)
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
    return Replay(str(path), files.sizes, files.share, notes)


def _requests(manifest: Path) -> Iterator[ManifestRequest]:
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
