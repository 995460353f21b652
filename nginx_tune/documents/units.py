"""Numbers as people read them; used by the reasons in a configuration and by every report."""

from __future__ import annotations

_STEPS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_NGINX_STEPS = ((1 << 30, "g"), (1 << 20, "m"), (1 << 10, "k"))


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
    # What would be rounded up to 1000 of a unit is said in the next one.
    if abs(seconds) >= 0.9995:  # noqa: PLR2004  # a second, at three digits
        return f"{seconds:.2f} s"
    if abs(seconds) >= 0.9995e-3:  # noqa: PLR2004  # a millisecond, at three digits
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds * 1e6:.3g} µs"


def number_text(value: float | None) -> str:
    """Three significant digits with thousands separators; ``?`` when not known."""
    if value is None:
        return "?"
    if abs(value) >= 999.5:  # noqa: PLR2004  # would be rounded up to 1e+03
        return f"{value:,.0f}"
    return f"{value:.3g}"


def nginx_size(count: int) -> str:
    """A size as nginx reads it: ``512k``, ``2m``, ``12g``, or plain bytes.

    Source: ngx_parse_offset() in src/core/ngx_parse.c (``g`` is for offsets such as max_size).
    """
    for size, unit in _NGINX_STEPS:
        if count and count % size == 0:
            return f"{count // size}{unit}"
    return str(count)


def plural(count: int, noun: str) -> str:
    """``1 disk``, ``2 disks``, ``1,000 disks``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
