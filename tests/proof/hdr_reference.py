"""Histograms recorded and written by the reference implementation for Python."""

import base64
import struct
import zlib
from collections import Counter
from collections.abc import Iterable

from hdrh.histogram import HdrHistogram


def recorded(values: Iterable[int], lowest: int = 1_000, digits: int = 3) -> HdrHistogram:
    """A histogram with the bounds of the load probe."""
    histogram = HdrHistogram(lowest, 60_000_000_000, digits)
    for value, count in Counter(values).items():
        assert histogram.record_value(value, count)
    return histogram


def plain_text(histogram: HdrHistogram) -> str:
    """Its plain V2 text; the reference only writes the deflated form around it."""
    deflated = base64.b64decode(histogram.encode())
    _, length = struct.unpack_from(">II", deflated)
    return base64.b64encode(zlib.decompress(deflated[8 : 8 + length])).decode()
