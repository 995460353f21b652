"""From recorded requests to the files that answer them: names, sizes, a share of them; pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.locations import LocationMatcher
from nginx_tune.conf.scopes import scopes
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.upstreams import passes
from nginx_tune.conf.variables import Variables
from nginx_tune.documents.manifest import ManifestRequest

USUAL_BYTES = 1 << 30
"""Of all files, when no share is asked for: made in some seconds."""
_MOST_FILES = 50_000
_USUAL_FILE_BYTES = 64 << 10
"""Where no request tells the size of any file."""
_LONGEST_NAME_BYTES = 255
_ESCAPED = re.compile(rb"%([0-9A-Fa-f]{2})")

Passes = Callable[[str], bool]
"""Whether the requests for a path are passed on to another server."""


class Files(NamedTuple):
    """What the requests ask for, as files below the root."""

    sizes: dict[str, int]
    share: float
    """Of the objects that are kept."""
    unusable: int
    """Objects whose names can be no files."""


class Placing(NamedTuple):
    """How paths become names below a root."""

    url_prefix: str
    index_file: str
    """What stands for a directory."""
    hashed: bool
    passes: Passes

    def url(self, path: str) -> str:
        """What is asked for: a hash is a name below the root."""
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

    Which objects are kept is told by their names alone, so both arms and every run have the same.
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
    """Whether an object is one of the share."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2**64


def passes_of(tree: ConfTree, server: Directive) -> Passes:
    """Which paths a server passes on."""
    matcher = LocationMatcher(tree)
    passing = {one.scope.own for one in passes(scopes(tree), Variables(tree))}
    return lambda path: matcher.location_of(server, path.partition("?")[0]) in passing


def _size(request: ManifestRequest) -> int:
    """Of the object; -1 when the request does not tell."""
    if request.bytes is not None:
        return request.bytes
    return -1 if request.range is None else request.range[1] + 1


def _without_directories(sizes: dict[str, int]) -> dict[str, int]:
    """Those that are no directory of another."""
    directories = {name[:at] for name in sizes for at, letter in enumerate(name) if letter == "/"}
    return {name: size for name, size in sizes.items() if name not in directories}
