"""Text that is safe to print: nothing from outside may steer a terminal."""

from __future__ import annotations

import re

from nginx_tune.documents.units import bytes_text, number_text, seconds_text

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """``text`` with control characters (escapes, bidi overrides) made visible."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", text)


__all__ = ["bytes_text", "number_text", "plain", "seconds_text"]
