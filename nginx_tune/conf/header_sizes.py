"""How large the headers of a request may be, over HTTP/1.1 and over HTTP/2.

Over HTTP/1.1 a header comes into ``client_header_buffer_size``. What does not fit goes on in
``large_client_header_buffers``, whose buffers each hold a line whole. Over HTTP/2 a field may have
``http2_max_field_size`` as it is sent, and all of a request ``http2_max_header_size`` unpacked:
4 KiB and 16 KiB, where HTTP/1.1 takes 8 KiB and 33 KiB. Beyond that nginx ends the connection, with
all requests on it. Since 1.19.7 ``large_client_header_buffers`` stands for both.

Source: ngx_http_alloc_large_header_buffer(), ngx_http_v2_state_field_len(),
ngx_http_v2_state_process_header(), ngx_http_v2_merge_srv_conf(); nginx change log, 1.19.7.
"""

from __future__ import annotations

from typing import NamedTuple

from nginx_tune.conf.quantities import parse_bytes, parse_count
from nginx_tune.conf.scopes import Scope

ONE_LIMIT_SINCE = (1, 19, 7)
"""The first version whose HTTP/2 goes by ``large_client_header_buffers``."""
FIELD_SIZE = "http2_max_field_size"
HEADER_SIZE = "http2_max_header_size"
FIRST_BUFFER = "client_header_buffer_size"
LARGE_BUFFERS = "large_client_header_buffers"
_FIRST_BYTES = 1 << 10
_LARGE = (4, 8 << 10)
"""nginx's defaults. Source: ngx_http_core_merge_srv_conf()."""
_PSEUDO_FIELDS_BYTES = 34
"""``:method``, ``:path``, ``:scheme``, ``https`` and ``:authority``: HTTP/1.1 is without them."""
_STEP_BYTES = 1 << 10


class HeaderBuffers(NamedTuple):
    """What HTTP/1.1 reads the headers of a request into."""

    first_bytes: int = _FIRST_BYTES
    large_count: int = _LARGE[0]
    large_bytes: int = _LARGE[1]

    @property
    def as_http2_sizes(self) -> dict[str, int]:
        """The least of HTTP/2's limits under which it takes all that HTTP/1.1 takes; whole KiB."""
        most = self.first_bytes + self.large_count * self.large_bytes + _PSEUDO_FIELDS_BYTES
        return {
            FIELD_SIZE: max(self.first_bytes, self.large_bytes),
            HEADER_SIZE: -(-most // _STEP_BYTES) * _STEP_BYTES,
        }


def header_buffers(scope: Scope) -> HeaderBuffers:
    """The buffers that hold in a server; nginx's own for what is not said or cannot be read."""
    first = scope.effective(FIRST_BUFFER)
    first_bytes = None if first is None else parse_bytes(first.value)
    large = scope.effective(LARGE_BUFFERS)
    words = ("", "") if large is None else (*large.args, "", "")[:2]
    count, each = parse_count(words[0]), parse_bytes(words[1])
    return HeaderBuffers(
        _FIRST_BYTES if first_bytes is None else first_bytes,
        *(_LARGE if count is None or each is None else (count, each)),
    )
