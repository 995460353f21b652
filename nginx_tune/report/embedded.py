"""Documents inside of an HTML page, so that the page carries its evidence and is read back.

Small ones stand as JSON that no HTML parser can leave; large ones as base64 of
bzip2: a third smaller than zlib where a run has its seconds, in the same time.
"""

from __future__ import annotations

import base64
import binascii
import bz2
import re
from collections.abc import Sequence

from nginx_tune.errors import UsageError

COMPRESSED_FROM_BYTES = 16_384
LIMIT_BYTES = 256 << 20
"""No page's documents are unpacked beyond this: a page may come from anybody."""

_JSON = "json"
_BZIP2 = "x-bzip2-base64"
_HIDDEN = [*range(0x7F, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A)]
"""Controls and bidi overrides, which JSON takes as they are: the page's source shows them."""
_ESCAPES = {code: f"\\u{code:04x}" for code in [*map(ord, "<>&"), *_HIDDEN]}
_ELEMENT = re.compile(
    r'<script type="application/(json|x-bzip2-base64)" class="document">([^<]*)</script>'
)


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
        data = content.encode() if kind == _JSON else _unpacked(content, left_bytes, source)
        left_bytes -= len(data)
        found.append(data)
    if not found:
        raise UsageError(f"{source}: no document in this page", hint="give a page of report")
    return found


def _element(document: bytes) -> str:
    if len(document) < COMPRESSED_FROM_BYTES:
        kind, content = _JSON, document.decode().translate(_ESCAPES)
    else:
        kind, content = _BZIP2, base64.b64encode(bz2.compress(document, 9)).decode()
    return f'<script type="application/{kind}" class="document">{content}</script>'


def _unpacked(content: str, limit_bytes: int, source: str) -> bytes:
    unpacker = bz2.BZ2Decompressor()
    try:
        data = unpacker.decompress(base64.b64decode(content, validate=True), max(1, limit_bytes))
    except (binascii.Error, OSError, EOFError, ValueError) as error:
        raise UsageError(f"{source}: a document in this page is damaged: {error}") from None
    if not unpacker.eof:
        raise UsageError(f"{source}: a document in this page is cut off or too large")
    return data
