"""Parser of ``log_format`` strings.

Source: ngx_http_log_compile_format in src/http/modules/ngx_http_log_module.c.
"""

import re
from typing import NamedTuple

import msgspec

from nginx_tune.documents.learning import Escape, JsonKey, LineFormat, Segment, Slot
from nginx_tune.errors import UsageError

COMBINED = (
    '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent '
    '"$http_referer" "$http_user_agent"'
)
"""nginx's predefined format."""

_SLOTS: dict[str, Slot] = {
    "msec": "msec",
    "time_iso8601": "time_iso8601",
    "time_local": "time_local",
    "request": "request",
    "request_method": "method",
    "request_uri": "request_uri",
    "uri": "uri",
    "document_uri": "uri",
    "server_protocol": "protocol",
    "http3": "http3",
    "status": "status",
    "body_bytes_sent": "bytes",
    "bytes_sent": "bytes",
    "request_time": "request_time",
    "hostname": "host",
    "connection": "connection",
    "connection_requests": "connection_requests",
    "ssl_protocol": "ssl_protocol",
    "scheme": "scheme",
    "upstream_cache_status": "cache_status",
    "http_range": "range",
    "sent_http_content_range": "content_range",
    "gzip_ratio": "gzip_ratio",
    "server_name": "server",
    "host": "server",
    "http_host": "server",
    "upstream_addr": "upstream",
    "upstream_status": "upstream",
    "upstream_response_time": "upstream",
    "tcpinfo_rtt": "round_trip",
    "http_user_agent": "user_agent",
}
"""Slots by variable; of several variables with the same slot the first is preferred."""

_TIMES: tuple[Slot, ...] = ("msec", "time_iso8601", "time_local")

_COMMON_KEYS: tuple[tuple[str, Slot], ...] = (
    ("time", "time"),
    ("@timestamp", "time"),
    ("timestamp", "time"),
    ("method", "method"),
    ("path", "request_uri"),
    ("url", "request_uri"),
    ("protocol", "protocol"),
    ("bytes", "bytes"),
    ("body_bytes", "bytes"),
    ("size", "bytes"),
    ("cache_status", "cache_status"),
    ("user_agent", "user_agent"),
    ("agent", "user_agent"),
)
"""Slots by JSON keys of log shippers that are not names of variables."""

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))", re.ASCII)


class _Piece(NamedTuple):
    before: str
    names: tuple[str, ...]
    """Names of adjacent variables, with no text between them."""


def parse_log_format(text: str, *, name: str = "given", escape: Escape = "default") -> LineFormat:
    """The line format of a ``log_format`` string.

    Errors: UsageError when it has neither a time nor a request.
    """
    pieces, after = _pieces(text)
    if not pieces:
        raise UsageError(
            f"log format '{name}' has no variable",
            hint="give a name with -c CONF, or the string of a log_format directive",
        )
    form = _json_format(text, name) if escape == "json" else None
    if form is None:
        slots = [_slot_of(piece.names) for piece in pieces]
        kept = _without_doubles(slots, pieces)
        segments = [
            Segment(before=piece.before, slot=slot, is_list=any(map(_is_list, piece.names)))
            for piece, slot in zip(pieces, kept, strict=True)
        ]
        form = LineFormat(name=name, escape=escape, segments=segments, after=after)
    check_format(form)
    return form


def check_format(form: LineFormat) -> None:
    """Raise UsageError when a format has neither a time nor a request."""
    if not form.slots & {"time", *_TIMES, "request", "request_uri", "uri"}:
        raise UsageError(
            f"log format '{form.name}' has neither a time nor a request",
            hint="log $time_local and $request at least",
        )


def json_format() -> LineFormat:
    """The format of JSON lines with names of variables or common names as keys."""
    keys = [JsonKey(key=name, slot=slot) for name, slot in _SLOTS.items()]
    keys += [JsonKey(key=key, slot=slot) for key, slot in _COMMON_KEYS]
    return LineFormat(name="json", escape="json", keys=keys)


def _pieces(text: str) -> tuple[list[_Piece], str]:
    pieces: list[_Piece] = []
    end = 0
    for match in _VARIABLE.finditer(text):
        before = text[end : match.start()]
        variable = (match[1] or match[2]).lower()
        if pieces and not before:
            pieces[-1] = _Piece(pieces[-1].before, (*pieces[-1].names, variable))
        else:
            pieces.append(_Piece(before, (variable,)))
        end = match.end()
    return pieces, text[end:]


def _slot_of(names: tuple[str, ...]) -> Slot | None:
    if len(names) == 1:
        return _SLOTS.get(names[0])
    path = [name for name in names if name not in {"is_args", "args", "query_string"}]
    if path in (["uri"], ["document_uri"]) and names[0] == path[0]:
        return "request_uri"
    return None  # without text between them, the values cannot be separated


def _without_doubles(slots: list[Slot | None], pieces: list[_Piece]) -> list[Slot | None]:
    """The slots without duplicates; the preferred variable and the most precise time stay."""
    order = list(_SLOTS)
    best: dict[Slot, int] = {}
    for at, slot in enumerate(slots):
        if slot is None:
            continue
        held = best.get(slot)
        name = pieces[at].names[0]
        if held is None or order.index(name) < order.index(pieces[held].names[0]):
            best[slot] = at
    clocks = [slot for slot in _TIMES if slot in best]
    for slot in clocks[1:]:
        del best[slot]
    return [slot if slot and best.get(slot) == at else None for at, slot in enumerate(slots)]


def _is_list(name: str) -> bool:
    return name.startswith("upstream_") and not name.startswith(
        ("upstream_cache_", "upstream_http_", "upstream_cookie_", "upstream_trailer_")
    )


def _json_format(text: str, name: str) -> LineFormat | None:
    """The format as JSON keys; None if the format is not a single JSON object."""
    quoted = _VARIABLE.sub(lambda match: f"${match[1] or match[2]}", text)
    for candidate in (quoted, re.sub(r"(?<=[:\[,\s])(\$\w+)(?=\s*[,}\]])", r'"\1"', quoted)):
        try:
            whole = msgspec.json.decode(candidate)
        except msgspec.DecodeError:
            continue
        if not isinstance(whole, dict):
            return None
        found = [
            (value[1:].lower(), key)
            for key, value in whole.items()
            if isinstance(value, str) and value[:1] == "$" and value[1:].lower() in _SLOTS
        ]
        keys = [
            JsonKey(key=key, slot=slot)
            for variable, slot in _SLOTS.items()
            for named, key in found
            if named == variable
        ]
        return LineFormat(name=name, escape="json", keys=keys)
    return None
