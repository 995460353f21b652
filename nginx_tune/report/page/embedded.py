"""Documents inside of an HTML page, so that the page carries its evidence and is read back.

Small ones stand as JSON that no HTML parser can leave; large ones in two parts by bzip2, a third
smaller than zlib where a run has its seconds: the JSON, and the bytes of its histograms, which are
base64 there and hardly to be compressed. Both are written in base 85: a quarter longer than the
bytes, not a third.
"""

from __future__ import annotations

import base64
import binascii
import bz2
import re
from collections.abc import Callable, Sequence

from nginx_tune.errors import UsageError

COMPRESSED_FROM_BYTES = 16_384
LIMIT_BYTES = 256 << 20
"""No page's documents are unpacked beyond this: a page may come from anybody."""

_JSON = "json"
_BZIP2 = "x-bzip2-base85"
_BASE64 = "x-bzip2-base64"
"""What pages had before: the JSON alone."""
_TO_MARKUP = bytes.maketrans(b"<>&", b"[].")
"""Three digits of base 85 mean something in markup."""
_FROM_MARKUP = bytes.maketrans(b"[].<>&", b"<>&[].")
_HIDDEN = [*range(0x7F, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A)]
"""Controls and bidi overrides, which JSON takes as they are: the page's source shows them."""
_ESCAPES = {code: f"\\u{code:04x}" for code in [*map(ord, "<>&"), *_HIDDEN]}
_ELEMENT = re.compile(
    r'<script type="application/(json|x-bzip2-base64|x-bzip2-base85)" class="document">'
    r"([^<]*)</script>"
)
_HISTOGRAM = re.compile(rb'"histogram":"([A-Za-z0-9+/]+=*)"')
_TAKEN = re.compile(rb'"histogram":\0(\d{1,9})\0')
"""Where a histogram was, with the length of its bytes: no JSON has a NUL."""


def embed(documents: Sequence[bytes]) -> str:
    """The script elements that hold these documents (each JSON in UTF-8), in their order."""
    return "".join(_element(document) for document in documents)


def embedded_documents(page: str, *, source: str) -> list[bytes]:
    """The documents in a page that :func:`embed` wrote, as JSON that decodes to the same values.

    Errors: UsageError that names ``source`` when there is none, or one that cannot be unpacked.
    """
    found = []
    left_bytes = LIMIT_BYTES
    for kind, content in _ELEMENT.findall(page):
        if kind == _JSON:
            data = content.encode()
        elif kind == _BASE64:
            data = _unpacked(_of_base64, content, left_bytes, source)
        else:
            data = _joined(content, left_bytes, source)
        left_bytes -= len(data)
        found.append(data)
    if not found:
        raise UsageError(f"{source}: no document in this page", hint="give a page of report")
    return found


def _element(document: bytes) -> str:
    if len(document) < COMPRESSED_FROM_BYTES:
        kind, content = _JSON, document.decode().translate(_ESCAPES)
    else:
        kind, content = _BZIP2, " ".join(map(_packed, _parted(document)))
    return f'<script type="application/{kind}" class="document">{content}</script>'


def _parted(document: bytes) -> tuple[bytes, bytes]:
    """The JSON without its histograms, and the bytes of these, one after another."""
    taken: list[bytes] = []

    def take(found: re.Match[bytes]) -> bytes:
        text = found[1]
        try:
            data = base64.b64decode(text, validate=True)
        except binascii.Error:
            return found[0]
        if base64.b64encode(data) != text:
            return found[0]  # another way to write it, which would not come back
        taken.append(data)
        return b'"histogram":\0%d\0' % len(data)

    return _HISTOGRAM.sub(take, document), b"".join(taken)


def _joined(content: str, limit_bytes: int, source: str) -> bytes:
    """What :func:`_parted` parted."""
    first, _, second = content.partition(" ")
    left = _unpacked(_of_base85, first, limit_bytes, source)
    histograms = _unpacked(_of_base85, second, limit_bytes - len(left), source)
    at = 0

    def put(found: re.Match[bytes]) -> bytes:
        nonlocal at
        at += int(found[1])
        return b'"histogram":"%b"' % base64.b64encode(histograms[at - int(found[1]) : at])

    document = _TAKEN.sub(put, left)
    if at != len(histograms):
        raise UsageError(f"{source}: a document in this page is damaged: its histograms are others")
    return document


def _packed(data: bytes) -> str:
    return base64.b85encode(bz2.compress(data, 9)).translate(_TO_MARKUP).decode()


def _of_base64(content: str) -> bytes:
    return base64.b64decode(content, validate=True)


def _of_base85(content: str) -> bytes:
    return base64.b85decode(content.encode().translate(_FROM_MARKUP))


def _unpacked(read: Callable[[str], bytes], content: str, limit_bytes: int, source: str) -> bytes:
    unpacker = bz2.BZ2Decompressor()
    try:
        data = unpacker.decompress(read(content), max(1, limit_bytes))
    except (binascii.Error, OSError, EOFError, ValueError) as error:
        raise UsageError(f"{source}: a document in this page is damaged: {error}") from None
    if not unpacker.eof:
        raise UsageError(f"{source}: a document in this page is cut off or too large")
    return data
