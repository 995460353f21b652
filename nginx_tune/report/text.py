"""Text that is safe to print: nothing from outside may steer a terminal."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")

_STEPS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def plain(text: str) -> str:
    """``text`` with control characters (escapes, bidi overrides) made visible."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", text)


def bytes_text(count: float | None) -> str:
    """``1.5 GiB``; ``?`` when not known."""
    if count is None:
        return "?"
    for size, unit in _STEPS:
        if abs(count) >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"


def seconds_text(seconds: float | None) -> str:
    """``1.25 s``, ``3.4 ms``, ``120 µs``; ``?`` when not known."""
    if seconds is None:
        return "?"
    if abs(seconds) >= 1:
        return f"{seconds:.2f} s"
    if abs(seconds) >= 1e-3:  # noqa: PLR2004  # one millisecond
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds * 1e6:.3g} µs"


def number_text(value: float | None) -> str:
    """Three significant digits with thousands separators; ``?`` when not known."""
    if value is None:
        return "?"
    if abs(value) >= 1000:  # noqa: PLR2004
        return f"{value:,.0f}"
    return f"{value:.3g}"
