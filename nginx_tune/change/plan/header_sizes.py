"""HTTP/2 in a configuration that stands: no header that HTTP/1.1 takes is to be refused.

A session, a token or a search may need a header of more than 4 KiB, which ``conf.header_sizes``
says how HTTP/2 meets. The limits written are those of the server that takes most: a browser sends
requests for other names of a certificate over the connection that it has, under that one's limits.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from nginx_tune.conf.header_sizes import (
    FIELD_SIZE,
    FIRST_BUFFER,
    HEADER_SIZE,
    LARGE_BUFFERS,
    ONE_LIMIT_SINCE,
    header_buffers,
)
from nginx_tune.conf.quantities import parse_bytes
from nginx_tune.conf.scopes import Scope
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.units import nginx_size


def why_headers_refused(new: Sequence[Scope], version: tuple[int, ...] | None) -> str:
    """Which line has HTTP/2 refuse what HTTP/1.1 takes, in servers that are to speak it.

    Empty for none. Limits that are only nginx's own are none: they are written (``with_sizes``).
    """
    for scope in _servers(new):
        buffers = header_buffers(scope)
        if version is None or version >= ONE_LIMIT_SINCE:
            first = scope.effective(FIRST_BUFFER)
            if first is not None and buffers.first_bytes > buffers.large_bytes:
                size = nginx_size(buffers.first_bytes)
                return (
                    f"{first.file}:{first.line} {first} lets longer headers pass over HTTP/1.1 "
                    f"than HTTP/2 takes, which goes by {LARGE_BUFFERS} (4 {size} there would do)"
                )
            continue
        for name, wanted in buffers.as_http2_sizes.items():
            line = scope.effective(name)
            have = None if line is None else parse_bytes(line.value)
            if line is not None and have is not None and have < wanted:
                return (
                    f"{line.file}:{line.line} {line} has HTTP/2 end connections whose request "
                    f"headers HTTP/1.1 takes ({nginx_size(wanted)} there would do)"
                )
    return ""


def with_sizes(decision: Decision, new: Sequence[Scope]) -> Decision:
    """The decision with the limits that its servers need, where they have none of their own."""
    settings = []
    for one in decision.settings:
        if one.directive not in (FIELD_SIZE, HEADER_SIZE):
            settings.append(one)
            continue
        lacking = [scope for scope in _servers(new) if scope.effective(one.directive) is None]
        if lacking:
            sizes = [header_buffers(s).as_http2_sizes[one.directive] for s in lacking]
            settings.append(replace(one, args=[nginx_size(max(sizes))]))
    return replace(decision, settings=settings)


def _servers(new: Sequence[Scope]) -> list[Scope]:
    return [scope for scope in new if scope.kind == "server"]
