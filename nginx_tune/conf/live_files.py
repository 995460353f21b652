"""What in a configuration says that files are replaced or removed while clients ask for them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.tree import ConfTree

_WRITES = frozenset(
    {
        "dav_methods", "dav_ext_methods", "create_full_put_path", "proxy_store", "fastcgi_store",
        "uwsgi_store", "scgi_store", "upload_store", "upload_pass", "hls", "dash", "hls_path",
        "dash_path", "record_path", "push_stream_store_messages",
    }
)  # fmt: skip
"""Directives by which nginx itself writes files, or makes playlists. The last ones are of
nginx-rtmp-module and nginx-upload-module."""
_OWN_TYPES = 20
"""Media types that somebody writes by hand; nginx's own list has playlists for everybody."""
_PLAYLISTS = frozenset({"m3u8", "mpd"})
_PATH = re.compile(r"m3u8|\bmpd\b|(^|[/^(|])(hls|dash|live|dav|webdav)([/$)|]|$)", re.IGNORECASE)
"""What playlists of live streams and shares of WebDAV are called."""


def is_live_path(path: str) -> bool:
    """Whether a directory or a location is called as live streams or shares are."""
    return _PATH.search(path) is not None


def live_signs(tree: ConfTree) -> list[str]:
    """The lines that say it, each with its place; empty where nothing does.

    Shape: ``/etc/nginx/nginx.conf:12 dav_methods PUT DELETE``.
    """
    found = (f"{line.file}:{line.line} {line}" for line in _lines(tree))
    return list(dict.fromkeys(found))


def _lines(tree: ConfTree) -> Iterator[Directive]:
    for line in tree.main.walk():
        if line.name in _WRITES:
            if line.value.lower() != "off":
                yield line
        elif line.name == "location" and line.args and is_live_path(line.args[-1]):
            yield line
        elif line.name == "types" and line.block is not None:
            inner = line.block.directives
            if len(inner) <= _OWN_TYPES:
                yield from (one for one in inner if _PLAYLISTS & {*one.args})
