"""Uploads that are passed on as they come, which HTTP/2 would hold to a small window.

A body that nginx buffers has a window without end. Of one that it passes on at once no more is
under way than the upstream has taken: 64 KiB in a round trip, so 0.8 MB/s at 80 ms, where over
HTTP/1.1 the whole window of TCP is. Source: ngx_http_v2_read_request_body (``no_flow_control`` is
of buffered bodies alone), ngx_http_v2_read_unbuffered_request_body.

``grpc_pass`` never buffers, but its clients speak HTTP/2 or are not served at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.quantities import parse_bytes
from nginx_tune.conf.scopes import Scope

ENOUGH_BYTES = 512 << 10
"""6 MB/s at 80 ms: more than most clients have to send by."""
_PREREAD_BYTES = 64 << 10
"""``http2_body_preread_size``. Source: ngx_http_v2_module.c."""
_BUFFER_BYTES = 16 << 10
"""``client_body_buffer_size`` of 64-bit machines."""
_MOST_BYTES = 1 << 20
"""``client_max_body_size``."""
_MODULES = ("proxy", "fastcgi", "uwsgi", "scgi")


class HeldUpload(NamedTuple):
    """The line that has bodies passed on as they come, and how much of one is under way."""

    line: Directive
    window_bytes: int


def held_uploads(found: Iterable[Scope]) -> Iterator[HeldUpload]:
    """The places whose uploads would wait for one window after another."""
    for scope in found:
        line = _unbuffered(scope)
        if line is None:
            continue
        window = max(
            _size(scope, "http2_body_preread_size", _PREREAD_BYTES),
            _size(scope, "client_body_buffer_size", _BUFFER_BYTES),
        )
        most = _size(scope, "client_max_body_size", _MOST_BYTES)
        if window < ENOUGH_BYTES and (most > window or most == 0):
            yield HeldUpload(line, window)


def _unbuffered(scope: Scope) -> Directive | None:
    """The line by which a place takes bodies so; none where it makes up its own, or sends none.

    Source: ngx_http_proxy_handler and its kin (``request_body_no_buffering``).
    """
    for module in _MODULES:
        line = scope.effective(f"{module}_request_buffering")
        if line is None or line.value.lower() != "off" or scope.sets(f"{module}_pass") is None:
            continue
        is_passed = scope.value(f"{module}_pass_request_body", "on") == "on"
        if is_passed and not (module == "proxy" and scope.effective("proxy_set_body")):
            return line
    return None


def _size(scope: Scope, name: str, default: int) -> int:
    line = scope.effective(name)
    size = None if line is None else parse_bytes(line.value)
    return default if size is None else size
