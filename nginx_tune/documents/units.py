"""Numbers as text, for the reasons of a configuration and for reports."""

import math
from collections.abc import Sequence

_STEPS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_SPEED_STEPS = ((1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"))
_LEAST_PERCENT = 0.01
_WHOLE = 100
_LEAST_ERROR = 1e-6
"""The smallest error that is shown with a percentage."""
_NGINX_STEPS = ((1 << 30, "g"), (1 << 20, "m"), (1 << 10, "k"))


def bytes_text(count: float | None) -> str:
    """A size as text, such as ``1.5 GiB``; ``?`` for an unknown one."""
    if count is None:
        return "?"
    for size, unit in _STEPS:
        if abs(count) >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"


def speed_text(bits_per_second: float | None) -> str:
    """The speed of a link as text, such as ``10 Gbit/s``; ``?`` for an unknown one."""
    if bits_per_second is None:
        return "?"
    for size, unit in _SPEED_STEPS:
        if bits_per_second >= size:
            return f"{bits_per_second / size:g} {unit}"
    return f"{bits_per_second:g} bit/s"


LEAST_SECONDS = 1e-9
"""The shortest time that is shown as a number; it is below the resolution of any clock."""


def seconds_text(seconds: float | None) -> str:
    """A time as text, such as ``1.25 s``, ``3.4 ms``, ``120 µs``, ``< 1 ns``; ``?`` if unknown."""
    if seconds is None:
        return "?"
    if 0 < abs(seconds) < LEAST_SECONDS:
        return "< 1 ns"
    # A number that rounds up to 1000 of a unit is shown in the next one.
    if abs(seconds) >= 0.9995:  # noqa: PLR2004  # a second, at three digits
        return f"{seconds:.2f} s"
    if abs(seconds) >= 0.9995e-3:  # noqa: PLR2004  # a millisecond, at three digits
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds * 1e6:.3g} µs"


_LEAST_NUMBER = 1e-9


def number_text(value: float | None) -> str:
    """A number with three significant digits and thousands separators; ``?`` for an unknown one."""
    if value is None:
        return "?"
    if abs(value) < _LEAST_NUMBER:
        return "0"
    if abs(value) >= 999.5:  # noqa: PLR2004  # would be rounded up to 1e+03
        return f"{value:,.0f}"
    return f"{value:.3g}"


def percent_text(ratio: float | None, digits: int = 3, *, error: float | None = None) -> str:
    """A share as text, such as ``97.2 %``, ``12.5 ± 0.3 %``; ``?`` for an unknown one.

    Only a ratio of exactly 1 is shown as 100 %, and only 0 as 0 %.
    """
    if ratio is None:
        return "?"
    percent = 100 * ratio
    if error and 100 * error >= _LEAST_ERROR:
        return f"{_with_error(percent, 100 * error)} %"
    if 0 < abs(percent) < _LEAST_PERCENT:
        return f"< {_LEAST_PERCENT:g} %"
    text = _percent_number(percent, digits)
    if percent < _WHOLE and text == f"{_WHOLE}":
        # One step below 100 %, with the same number of digits.
        return f"> {_WHOLE - 10.0 ** (2 - digits):g} %"
    return f"{text} %"


def _with_error(value: float, error: float) -> str:
    """A number, rounded to the first digit of its error, without an exponent."""
    first = math.floor(math.log10(abs(error)))
    first = math.floor(math.log10(round(abs(error), -first)))  # 0.96 is 1
    places = max(0, -first)
    return f"{value:.{places}f} ± {round(abs(error), -first):.{places}f}"


def _percent_number(percent: float, digits: int) -> str:
    if abs(percent) >= 10.0 ** (digits - 1) - 0.05:  # would be rounded up to 1e+02
        return f"{percent:,.0f}"
    return f"{percent:.{digits}g}"


def nginx_size(count: int) -> str:
    """A size in nginx's syntax: ``512k``, ``2m``, ``12g``, or plain bytes.

    Source: ngx_parse_offset() in src/core/ngx_parse.c (``g`` is for offsets such as max_size).
    """
    for size, unit in _NGINX_STEPS:
        if count and count % size == 0:
            return f"{count // size}{unit}"
    return str(count)


def listed(names: Sequence[str]) -> str:
    """Names as in a sentence: ``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def plural(count: int, noun: str) -> str:
    """A count with its noun: ``1 disk``, ``2 disks``, ``1,000 disks``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
