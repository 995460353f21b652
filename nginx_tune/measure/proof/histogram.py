"""HdrHistograms as the load probe writes them: decoding, addition, quantiles, encoding.

The wire form (version 2) is a fixed header and a zig-zag LEB128 number per counter, in order: a
positive number is a count, a negative one a number of empty counters. The first ``2 * half``
counters are one unit wide, and each further ``half`` counters are twice as wide as those before.
Only counters that are not empty are kept, so a header with an enormous range costs nothing.

Values are whole numbers (nanoseconds in a measurement).

Source: HdrHistogram, AbstractHistogram.encodeIntoByteBuffer and ZigZagEncoding.
"""

import base64
import binascii
import math
import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from nginx_tune.errors import UsageError

_PLAIN_COOKIE = 0x1C849303
_DEFLATED_COOKIE = 0x1C849304
_WORD_SIZE = 0x10
_COOKIE_MASK = 0xFFFFFF0F
"""Mask without the word size, which is constant in version 2."""

_HEADER = struct.Struct(">IIIIQQd")
_OUTER_HEADER = struct.Struct(">II")

_MAX_TEXT_CHARACTERS = 16 << 20
_MAX_PAYLOAD_BYTES = 8 << 20
_MAX_DIGITS = 5
_MAX_VALUE = (1 << 63) - 1
_MAX_COUNTER_BYTES = 9
"""Maximum number of bytes of a counter. The ninth byte of a LEB128 number holds eight bits, so nine
bytes carry 64."""


@dataclass(frozen=True)
class Layout:
    """The mapping of values to counters. Histograms with the same layout add up exactly."""

    unit_bits: int
    """Exponent of the unit: values below ``2 ** unit_bits`` share a counter."""
    half_bits: int
    """Exponent of the precision: each doubling has ``2 ** half_bits`` counters."""

    def lowest_value(self, index: int) -> int:
        """The smallest value in a counter."""
        shift, position = self._place(index)
        return position << (shift + self.unit_bits)

    def highest_value(self, index: int) -> int:
        """The largest value in a counter, which HdrHistogram reports for a quantile."""
        shift, position = self._place(index)
        return ((position + 1) << (shift + self.unit_bits)) - 1

    def middle_value(self, index: int) -> int:
        """The value at the middle of a counter, for computing means."""
        lowest = self.lowest_value(index)
        return lowest + (self.highest_value(index) - lowest + 1) // 2

    def index_of(self, value: int) -> int:
        """The counter of a value."""
        units = value >> self.unit_bits
        shift = max(units.bit_length() - self.half_bits - 1, 0)
        return (shift << self.half_bits) + (units >> shift)

    def _place(self, index: int) -> tuple[int, int]:
        half = 1 << self.half_bits
        shift = max((index >> self.half_bits) - 1, 0)
        return shift, index - shift * half


@dataclass(frozen=True)
class Histogram:
    """Counts of values.

    Shape: ``counts`` has an entry per counter that is not empty, in ascending order.
    """

    layout: Layout
    counts: dict[int, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """The number of recorded values."""
        return sum(self.counts.values())

    def value_at(self, quantile: float) -> int | None:
        """The value that a share ``quantile`` of the values does not exceed; None when empty.

        Errors: ValueError for a quantile outside 0 to 1.
        """
        rank = rank_of(quantile, self.total)
        seen = 0
        for index, count in self.counts.items():
            seen += count
            if seen >= rank:
                return self.layout.highest_value(index)
        return None

    def mean(self) -> float | None:
        """The mean, with each value at the middle of its counter; None when empty."""
        total = self.total
        if not total:
            return None
        middle = self.layout.middle_value
        return sum(middle(index) * count for index, count in self.counts.items()) / total

    def count_above(self, value: int) -> int:
        """The number of values in counters entirely above ``value``."""
        return sum(
            count for index, count in self.counts.items() if self.layout.lowest_value(index) > value
        )


def rank_of(quantile: float, total: int) -> int:
    """The rank, from 1, of a quantile among ``total`` values.

    Errors: ValueError for a quantile outside 0 to 1.
    """
    if not 0 <= quantile <= 1:
        raise ValueError(f"a quantile is between 0 and 1, not {quantile}")
    # Without the slack the rank would be one too high: 0.999 * 3000 is 2997.0000000000005.
    exact = quantile * total
    return max(math.ceil(exact - exact * 1e-12), 1)


def merge_histograms(histograms: Iterable[Histogram]) -> Histogram | None:
    """The sum of histograms; None if there are none.

    Errors: UsageError for different layouts, whose sum would not be exact.
    """
    layout: Layout | None = None
    counts: Counter[int] = Counter()
    for histogram in histograms:
        if layout is not None and histogram.layout != layout:
            raise UsageError("histograms of different precision cannot be added")
        layout = histogram.layout
        counts.update(histogram.counts)
    return None if layout is None else Histogram(layout, dict(sorted(counts.items())))


def decode_histogram(text: str) -> Histogram:
    """The histogram in base64 text, version 2, plain or deflated.

    Errors: UsageError with the fault of the text.
    """
    if len(text) > _MAX_TEXT_CHARACTERS:
        raise _malformed(f"{len(text)} characters are more than any probe writes")
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _malformed("not base64") from None
    if _cookie(data) == _DEFLATED_COOKIE:
        data = _inflate(data)
    if _cookie(data) != _PLAIN_COOKIE:
        raise _malformed("not version 2 of the encoding")
    layout, highest, payload = _split(data)
    last = layout.index_of(highest)
    counts = {}
    for index, count in _counters(payload):
        if index > last:
            raise _malformed("counters beyond the range in its header")
        counts[index] = count
    return Histogram(layout, counts)


def encode_histogram(histogram: Histogram) -> str:
    """The histogram as base64 text, version 2, deflated, as every HdrHistogram library reads it.

    Errors: ValueError for a layout that corresponds to no number of decimal digits.
    """
    layout = histogram.layout
    digits = math.floor(math.log10(1 << layout.half_bits))
    if _half_bits(digits) != layout.half_bits:
        raise ValueError(f"no number of digits has {layout.half_bits + 1} bits")
    payload = bytearray()
    position = 0
    for index, count in sorted(histogram.counts.items()):
        if index > position:
            payload += _number(position - index)
        payload += _number(count)
        position = index + 1
    lowest = 1 << layout.unit_bits
    highest = max(layout.highest_value(max(position - 1, 0)), 2 * lowest)
    header = _HEADER.pack(_PLAIN_COOKIE | _WORD_SIZE, len(payload), 0, digits, lowest, highest, 1.0)
    packed = zlib.compress(header + payload)
    outer = _OUTER_HEADER.pack(_DEFLATED_COOKIE | _WORD_SIZE, len(packed))
    return base64.b64encode(outer + packed).decode("ascii")


def _number(value: int) -> bytes:
    """Encode a number as zig-zag LEB128."""
    left = (value << 1) ^ (value >> 63)
    out = bytearray()
    while left > 0x7F and len(out) < _MAX_COUNTER_BYTES - 1:  # noqa: PLR2004  # seven bits a byte
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def _half_bits(digits: int) -> int:
    """The ``half_bits`` that keep this number of decimal digits."""
    return max(math.ceil(math.log2(2 * 10**digits)) - 1, 0)


def _malformed(why: str) -> UsageError:
    return UsageError(f"malformed latency histogram: {why}")


def _cookie(data: bytes) -> int:
    return int.from_bytes(data[:4], "big") & _COOKIE_MASK


def _inflate(data: bytes) -> bytes:
    if len(data) < _OUTER_HEADER.size:
        raise _malformed("it ends inside the header")
    _, length = _OUTER_HEADER.unpack_from(data)
    packed = data[_OUTER_HEADER.size :]
    if length != len(packed):
        raise _malformed(f"the header promises {length} bytes, {len(packed)} follow")
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(packed, _MAX_PAYLOAD_BYTES)
    except zlib.error:
        raise _malformed("its deflated part is damaged") from None
    if not inflater.eof:
        raise _malformed("its deflated part is cut short or enormous")
    return inflated


def _split(data: bytes) -> tuple[Layout, int, bytes]:
    if len(data) < _HEADER.size:
        raise _malformed("it ends inside the header")
    _, length, offset, digits, lowest, highest, conversion = _HEADER.unpack_from(data)
    payload = data[_HEADER.size :]
    if length != len(payload):
        raise _malformed(f"the header promises {length} bytes, {len(payload)} follow")
    if offset or conversion != 1.0:
        raise _malformed("shifted and scaled histograms are not supported")
    if digits > _MAX_DIGITS or not 1 <= lowest <= highest // 2 or highest > _MAX_VALUE:
        raise _malformed("its header names an impossible range or precision")
    return Layout(lowest.bit_length() - 1, _half_bits(digits)), highest, payload


def _counters(payload: bytes) -> Iterator[tuple[int, int]]:
    """The counters that are not empty, as (index, count)."""
    index = position = 0
    while position < len(payload):
        number = shift = 0
        for used in range(1, _MAX_COUNTER_BYTES + 1):
            if position >= len(payload):
                raise _malformed("it ends inside a counter")
            byte = payload[position]
            position += 1
            if used == _MAX_COUNTER_BYTES:
                number |= byte << shift
                break
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:  # noqa: PLR2004  # the bit that says "more follows"
                break
        value = (number >> 1) ^ -(number & 1)
        if value > 0:
            yield index, value
        index += -value if value < 0 else 1
