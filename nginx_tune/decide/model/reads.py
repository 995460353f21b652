"""Reads of a file's body: their size by protocol, and their number for one file.

Sendfile needs cleartext and a body that no filter changes; other bodies are read through buffers
into nginx's memory. In both cases, one read is one system call on the loop, or one task of a pool.

Source: ngx_output_chain_as_is() in src/core/ngx_output_chain.c, ngx_linux_sendfile_chain(),
        ngx_http_v2_send_chain().
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from nginx_tune.documents.facts import SizeBucket

CHUNK_BYTES = 512 << 10
"""``sendfile_max_chunk`` of the baseline of source row A3."""
SENDFILE_CHUNK_BYTES = 2 << 20
"""nginx's default of ``sendfile_max_chunk`` from 1.21.4 on, the most bytes that one ``sendfile()``
to a fast client reads from the disk in a row. Older versions have no bound."""
BUFFER_BYTES = 32 << 10
"""``output_buffers 2 32k``, without sendfile (ngx_output_chain_as_is())."""
SOCKET_BYTES = 4 << 20
"""Bytes that an empty client socket accepts. Without sendfile, a file is read and sent until the
socket is full; each pass has only two buffers, so no ``sendfile_max_chunk`` ends it.
Source: ngx_output_chain(), ngx_http_write_filter(); the kernel's default of net.ipv4.tcp_wmem."""
HTTP2_FRAME_BYTES = 8 << 10
"""``http2_chunk_size``: cleartext HTTP/2 sends a file frame by frame (ngx_http_v2_send_chain())."""
USUAL_READ_AHEAD_BYTES = 128 << 10
"""``read_ahead_kb`` of most devices (block/blk-settings.c)."""

PathName = Literal["sendfile", "buffers", "http2_frames"]


class ReadPath(NamedTuple):
    """The way of a file's bytes from the page cache to the client."""

    name: PathName
    task_bytes: int
    """Bytes of one read, which is one system call, or one task of a pool. Measured: 245 reads for
    8 MB over TLS, 977 over HTTP/2."""
    goes_on_bytes: int = 0
    """Bytes that a loop without pools reads before it serves other transfers; 0 for one read."""

    def window_bytes(self, read_ahead_bytes: int) -> int:
        """Bytes of one request to the disk, which also serves the small reads after it.

        At most a chunk: the rest of a longer window is read while the chunk is sent, without a
        wait.
        Source: Linux mm/readahead.c, page_cache_sync_ra().
        """
        ahead = read_ahead_bytes or USUAL_READ_AHEAD_BYTES
        return max(self.task_bytes, min(ahead, CHUNK_BYTES))


def read_path(
    *, tls: bool, http_version: str, gzip: bool = False, sendfile: bool = True
) -> ReadPath:
    """The path of a body, without kernel TLS."""
    if gzip or not sendfile or http_version == "3" or tls:
        return ReadPath("buffers", BUFFER_BYTES, goes_on_bytes=SOCKET_BYTES)
    if http_version == "2":
        return ReadPath("http2_frames", HTTP2_FRAME_BYTES)
    return ReadPath("sendfile", CHUNK_BYTES)


def turn_bytes(read_ahead_bytes: int) -> int:
    """Bytes of one file that the disk reads in one piece, before reads of other files.

    These are two windows: the first page of a window, once read, already requests the next window.
    Source: Linux mm/readahead.c, page_cache_async_ra() and the PG_readahead mark.
    """
    return 2 * (read_ahead_bytes or USUAL_READ_AHEAD_BYTES)


class SizeGroup(NamedTuple):
    """Files of about one size."""

    share: float
    """Share of all files."""
    over_mean: float
    """Size of these files, relative to the mean of all files."""


class Pieces(NamedTuple):
    """Sizes of the pieces in which files are read."""

    mean_bytes: float
    spread: float
    """Coefficient of variation of the time of one piece."""


def size_groups(buckets: Sequence[SizeBucket]) -> tuple[SizeGroup, ...]:
    """The sizes of a scan, relative to their mean; empty if all files have one size."""
    found = [b for b in buckets if b.files > 0 and b.bytes > 0]
    files, total = sum(b.files for b in found), sum(b.bytes for b in found)
    if len(found) <= 1:
        return ()
    mean = total / files
    return tuple(SizeGroup(b.files / files, b.bytes / b.files / mean) for b in found)


def mean_pieces(object_bytes: float, groups: Sequence[SizeGroup], piece_bytes: float) -> float:
    """Mean number of pieces of a file, at least one.

    Even the smallest file is one piece. So files of several sizes have more pieces than as many
    files of their mean size. Sizes vary within a group, so the number need not be whole.
    """
    if not groups:
        return max(1.0, object_bytes / piece_bytes)
    return sum(g.share * max(1.0, g.over_mean * object_bytes / piece_bytes) for g in groups)


def piece_sizes(
    object_bytes: float, groups: Sequence[SizeGroup], piece_bytes: float, *, latency_bytes: float
) -> Pieces:
    """The pieces of files, weighted by their time.

    ``latency_bytes`` are the bytes that the disk transfers in the time of its latency. A few large
    files among small files are few pieces, but take most of the time.
    """
    counted = squares = total = 0.0
    for group in groups or (SizeGroup(1.0, 1.0),):
        size = group.over_mean * object_bytes
        pieces = max(1.0, size / piece_bytes)
        each = latency_bytes + size / pieces
        counted += group.share * pieces
        total += group.share * pieces * each
        squares += group.share * pieces * each**2
    mean = total / counted
    varies = max(0.0, squares / counted / mean**2 - 1.0)
    return Pieces(mean - latency_bytes, math.sqrt(varies))
