"""One line of an access log, taken apart.

The Rust reader (probes/src/learn/line.rs, format.rs, values.rs) does the same to the byte; what
one refuses the other refuses too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from nginx_tune.documents.learning import Escape, LineFormat, Segment, Slot

MOST_BRACKETS = 500
"""In a line of JSON, so that none is nested deeper than a reader's stack."""
_LIST_GOES_ON = rb"(?<![,:])(?! : )"
"""A space that ends a list: nginx writes ``, `` between servers and `` : `` between groups."""


class LineReader:
    """Finds the fields of a line in a format.

    A field ends where the text after it first occurs, so that reading takes linear time. What
    comes after the format's end is more fields, when a space stands before it.
    """

    def __init__(self, form: LineFormat) -> None:
        self._keys = [(key.key, key.slot) for key in form.keys]
        pattern = b""
        self._slots: list[Slot] = []
        for segment, after in _with_after(form):
            pattern += _pattern(segment, after)
            if segment.slot is not None:
                self._slots.append(segment.slot)
        first = form.segments[0].before.encode() if form.segments else b""
        self._pattern = re.compile(re.escape(first) + pattern + rb"(?: .*)?\Z", re.DOTALL)
        self._unescape = UNESCAPE[form.escape]
        self.is_json = bool(form.keys)

    def fields(self, line: bytes) -> dict[Slot, bytes] | None:
        """The fields as they stand in the line; None when it is not in the format."""
        if self.is_json:
            return self._json_fields(line)
        match = self._pattern.match(line)
        return None if match is None else dict(zip(self._slots, match.groups(), strict=True))

    def text(self, value: bytes) -> bytes:
        """A field without the escapes of the log."""
        return self._unescape(value) if b"\\" in value else value

    def _json_fields(self, line: bytes) -> dict[Slot, bytes] | None:
        if line.count(b"[") + line.count(b"{") > MOST_BRACKETS:
            return None
        try:
            line.decode()
        except UnicodeDecodeError:
            line = line.decode(errors="replace").encode()
        before, brace, _ = line.partition(b"{")
        if not brace or b'"' in before:
            return None
        line = line[len(before) :]  # what syslog writes before it
        try:
            whole = _JSON.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        found: dict[Slot, bytes] = {}
        for key, slot in self._keys:
            raw = whole.get(key)
            if raw is None or slot in found:
                continue
            value = bytes(raw)
            if value[:1] == b'"':
                found[slot] = value[1:-1]
            elif value[:1] not in b"[{n":  # null is nothing
                found[slot] = value
        return found


_JSON = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _with_after(form: LineFormat) -> list[tuple[Segment, bytes]]:
    afters = [segment.before.encode() for segment in form.segments[1:]] + [form.after.encode()]
    return list(zip(form.segments, afters, strict=True)) if form.segments else []


def _pattern(segment: Segment, after: bytes) -> bytes:
    if not after:
        body, end = rb".*", b""
    elif segment.is_list and after.startswith(b" "):
        end = _LIST_GOES_ON + re.escape(after)
        body = rb"(?:(?!" + end + rb").)*"
    else:
        head, rest = re.escape(after[:1]), re.escape(after[1:])
        body = rb"[^" + head + rb"]*"
        if rest:
            body += rb"(?:" + head + rb"(?!" + rest + rb")" + body + rb")*"
        end = head + rest
    opening = b"(" if segment.slot is not None else b"(?:"
    return opening + body + b")" + end


_HEX = re.compile(rb"\\x([0-9A-Fa-f]{2})")
_JSON_ESCAPE = re.compile(
    rb'\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(["\\/bfnrt]))'
)
_JSON_SINGLE = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}


def _unescape_json(value: bytes) -> bytes:
    return _JSON_ESCAPE.sub(_json_character, value)


def _json_character(match: re.Match[bytes]) -> bytes:
    high, low, unit, single = match.groups()
    if single is not None:
        return _JSON_SINGLE.get(single, single)
    if high is not None:
        code = 0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00
        return chr(code).encode()
    return (
        chr(int(unit, 16)).encode(errors="surrogatepass") if _is_scalar(unit) else b"\xef\xbf\xbd"
    )


def _is_scalar(unit: bytes) -> bool:
    return unit[:1] not in b"dD" or unit[1:2] not in b"89abcdefABCDEF"


UNESCAPE: dict[Escape, Callable[[bytes], bytes]] = {
    "default": lambda value: _HEX.sub(lambda match: bytes([int(match[1], 16)]), value),
    "json": _unescape_json,
    "none": lambda value: value,
}
"""Source: ngx_http_log_escape, ngx_escape_json."""


class RequestLine(NamedTuple):
    """``$request``."""

    method: bytes
    target: bytes
    protocol: bytes


_REQUEST = re.compile(rb"([A-Z_-]{1,32}) (.+)", re.DOTALL)


def split_request(text: bytes) -> RequestLine | None:
    """Method, target and protocol; None for what is no request line.

    Source: ngx_http_parse_request_line; without a protocol it is HTTP/0.9. Older versions take
            spaces in a target.
    """
    match = _REQUEST.fullmatch(text)
    if match is None:
        return None
    method, rest = match.groups()
    target, space, protocol = rest.rpartition(b" ")
    if space and protocol.startswith(b"HTTP/"):
        return RequestLine(method, target, protocol) if target else None
    return RequestLine(method, rest, b"HTTP/0.9")


def path_of(target: bytes, *, with_query: bool) -> bytes | None:
    """The path of a request target; None for ``*`` and what names no object."""
    if not target.startswith(b"/"):
        scheme, separator, rest = target.partition(b"://")
        if not separator or not scheme:
            return None
        target = b"/" + rest.partition(b"/")[2]
    target = target.partition(b"#")[0]
    return target if with_query else target.partition(b"?")[0]


_DECIMAL = re.compile(rb"(\d{1,12})(?:\.(\d*))?")
_NUMBER = re.compile(rb"\d{1,18}")
_STATUS = re.compile(rb"\d{3}")


def milliseconds(text: bytes) -> int | None:
    """Milliseconds of decimal seconds, what is finer cut off; None for anything else."""
    match = _DECIMAL.fullmatch(text)
    if match is None:
        return None
    whole, fraction = match.groups()
    return int(whole) * 1000 + int(((fraction or b"") + b"000")[:3])


def number(text: bytes) -> int | None:
    """A whole number; None for anything else."""
    return int(text) if _NUMBER.fullmatch(text) else None


def status_code(text: bytes) -> int | None:
    """A status; nginx writes 000 when it sent none."""
    return int(text) if _STATUS.fullmatch(text) else None


class Range(NamedTuple):
    """``Content-Range`` or ``Range``."""

    first: int
    last: int | None
    total: int | None


_CONTENT_RANGE = re.compile(rb"bytes (\d{1,18})-(\d{1,18})/(\*|\d{1,18})")
_RANGE = re.compile(rb"bytes=(\d{1,18})-(\d{1,18}|)")


def content_range(text: bytes) -> Range | None:
    """What a response was of; None for none."""
    match = _CONTENT_RANGE.fullmatch(text)
    if match is None:
        return None
    total = None if match[3] == b"*" else int(match[3])
    return Range(int(match[1]), int(match[2]), total)


def requested_range(text: bytes) -> Range | None:
    """What was asked for, of one range with a start; None for any other."""
    match = _RANGE.fullmatch(text)
    return (
        None if match is None else Range(int(match[1]), int(match[2]) if match[2] else None, None)
    )
