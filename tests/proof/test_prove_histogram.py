import base64
import struct
import tracemalloc
import zlib
from pathlib import Path

import pytest
from fuzzing import changed, fuzzed
from hdr_reference import plain_text, recorded
from hdrh.histogram import HdrHistogram
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import each_row
from tiers import draws

from nginx_tune.documents.base import decode
from nginx_tune.documents.measurement import Measurement
from nginx_tune.errors import UsageError
from nginx_tune.measure.proof.histogram import (
    Histogram,
    decode_histogram,
    encode_histogram,
    merge_histograms,
    rank_of,
)

HEADER = ">IIIIQQd"
NANOSECONDS = st.integers(min_value=1, max_value=60_000_000_000)
BOUNDS = st.sampled_from([(1_000, 3), (1_000, 2), (1, 2), (1_024, 1)])


def packed(payload: bytes, **header: float) -> str:
    fields = {
        "cookie": 0x1C849313, "length": len(payload), "offset": 0, "digits": 3,
        "lowest": 1_000, "highest": 60_000_000_000, "conversion": 1.0,
    } | header  # fmt: skip
    return base64.b64encode(struct.pack(HEADER, *fields.values()) + payload).decode()


@settings(max_examples=draws(25, 50), deadline=None)
@given(values=st.lists(NANOSECONDS, min_size=1, max_size=200), bounds=BOUNDS)
def test_agrees_with_the_reference_implementation(
    values: list[int], bounds: tuple[int, int]
) -> None:
    reference = recorded(values, *bounds)
    for text in (plain_text(reference), reference.encode().decode()):
        ours = decode_histogram(text)
        assert ours.total == len(values)
        assert ours.mean() == pytest.approx(reference.get_mean_value(), rel=1e-9)
        for rank in {1, len(values) // 2 or 1, len(values)}:
            # The reference rounds ranks to the nearest; in the middle of one, both agree.
            percent = 100 * (rank - 0.25) / len(values)
            assert ours.value_at(percent / 100) == reference.get_value_at_percentile(percent)


@settings(max_examples=draws(30, 60), deadline=None)
@given(parts=st.lists(st.lists(NANOSECONDS, max_size=50), min_size=1, max_size=5))
def test_adding_gives_what_recording_everything_gives(parts: list[list[int]]) -> None:
    merged = merge_histograms(decode_histogram(plain_text(recorded(part))) for part in parts)
    assert merged == decode_histogram(plain_text(recorded([v for part in parts for v in part])))


def _read(data: bytes) -> None:
    try:
        histogram = decode_histogram(base64.b64encode(data).decode())
    except UsageError:
        return
    assert decode_histogram(encode_histogram(histogram)) == histogram
    histogram.mean()
    for quantile in (0.0, 0.5, 1.0):
        histogram.value_at(quantile)
    merge_histograms([histogram, histogram])


SEEDS = [base64.b64decode(encode_histogram(decode_histogram(plain_text(recorded(values)))))
         for values in ([], [5_000], [*range(1_000, 90_000, 300)] * 3)]  # fmt: skip
PLAIN = [
    base64.b64decode(plain_text(recorded(values))) for values in ([], [5_000], [7_000_000] * 9)
]


@fuzzed
@settings(max_examples=draws(50, 500))
@given(changed([*SEEDS, *PLAIN]))
def test_a_changed_histogram_is_read_or_refused(data: bytes) -> None:
    _read(data)


@given(value=NANOSECONDS)
def test_a_value_lies_in_its_counter(value: int) -> None:
    layout = decode_histogram(plain_text(recorded([]))).layout
    index = layout.index_of(value)
    assert layout.lowest_value(index) <= value <= layout.highest_value(index)
    assert layout.highest_value(index) + 1 == layout.lowest_value(index + 1)


def test_quantiles_and_counts_of_a_known_set() -> None:
    histogram = decode_histogram(plain_text(recorded([v * 1_000_000 for v in range(1, 1001)])))
    assert histogram.value_at(0.99) == pytest.approx(990e6, rel=1e-3)
    assert histogram.value_at(0.999) == pytest.approx(999e6, rel=1e-3)
    assert histogram.value_at(1.0) == pytest.approx(1000e6, rel=1e-3)
    assert histogram.value_at(0.0) == pytest.approx(1e6, rel=1e-3)
    assert histogram.count_above(900_500_000) == 100


def test_an_empty_histogram_has_no_quantile_and_no_mean() -> None:
    empty = decode_histogram(plain_text(recorded([])))
    assert (empty.total, empty.value_at(0.5), empty.mean()) == (0, None, None)
    assert merge_histograms([]) is None


@each_row(
    ("quantile", "total", "rank"),
    [(0.5, 1, 1), (0.99, 100, 99), (0.99, 101, 100), (0.999, 3000, 2997), (0, 7, 1), (1, 7, 7)],
)
def test_ranks(quantile: float, total: int, rank: int) -> None:
    assert rank_of(quantile, total) == rank


def test_a_quantile_outside_zero_to_one_is_refused() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        rank_of(99, 100)


def test_histograms_of_different_precision_do_not_add() -> None:
    with pytest.raises(UsageError, match="different precision"):
        merge_histograms(
            decode_histogram(plain_text(recorded([5_000], digits=digits))) for digits in (2, 3)
        )


@each_row(
    ("text", "why"),
    [
        ("", "not version 2"),
        ("not base64!", "not base64"),
        ("ÿ", "not base64"),
        (base64.b64encode(b"\x1c\x84\x93\x13").decode(), "ends inside the header"),
        (packed(b"\x02", cookie=0x1C849301), "not version 2"),
        (packed(b"\x02", length=9), "promises 9 bytes, 1 follow"),
        (packed(b"\x80"), "ends inside a counter"),
        (packed(b"\x02", digits=6), "impossible range or precision"),
        (packed(b"\x02", lowest=0), "impossible range or precision"),
        (packed(b"\x02", highest=1_500), "impossible range or precision"),
        (packed(b"\x02", highest=1 << 63), "impossible range or precision"),
        (packed(b"\x02", offset=1), "shifted"),
        (packed(b"\x02", conversion=2.0), "shifted"),
        # A run of 2^62 empty counters, then one count.
        (packed(b"\xff" * 8 + b"\x7f" + b"\x02"), "beyond the range"),
        (base64.b64encode(b"\x1c\x84\x93\x14").decode(), "ends inside the header"),
        (base64.b64encode(struct.pack(">II", 0x1C849314, 3) + b"abc").decode(), "damaged"),
        (base64.b64encode(struct.pack(">II", 0x1C849314, 9) + b"abc").decode(), "9 bytes, 3"),
        ("A" * (17 << 20), "more than any probe writes"),
    ],
)  # fmt: skip
def test_malformed_text_is_a_clear_error(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        decode_histogram(text)


def test_a_deflated_bomb_is_not_inflated() -> None:
    packed_zeros = zlib.compress(bytes(200 << 20), 1)
    text = base64.b64encode(struct.pack(">II", 0x1C849314, len(packed_zeros)) + packed_zeros)
    tracemalloc.start()
    with pytest.raises(UsageError, match="enormous"):
        decode_histogram(text.decode())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50 << 20


@settings(max_examples=draws(50, 300), deadline=None)
@given(payload=st.binary(max_size=60), digits=st.integers(0, 5))
def test_any_payload_decodes_or_is_refused(payload: bytes, digits: int) -> None:
    try:
        histogram = decode_histogram(packed(payload, digits=digits))
    except UsageError:
        return
    assert all(count > 0 for count in histogram.counts.values())
    value = histogram.value_at(0.99)
    assert value is None or value < 1 << 64


@settings(max_examples=draws(50, 100), deadline=None)
@given(data=st.binary(max_size=80))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    for head in (b"", b"\x1c\x84\x93\x13", b"\x1c\x84\x93\x14"):
        try:
            decode_histogram(base64.b64encode(head + data).decode())
        except UsageError:
            continue


def test_reads_what_the_load_probe_wrote() -> None:
    """A measurement of the load probe: its own quantiles and mean come out of its histograms."""
    file = Path(__file__).parent / "data" / "probe-measurement.json"
    measurement = decode(Measurement, file.read_bytes())
    hot = measurement.classes["hot"]
    for latency in (
        hot.response_seconds, hot.ttfb_seconds, hot.service_seconds,
        measurement.generator.lateness_seconds,
    ):  # fmt: skip
        histogram = decode_histogram(latency.histogram)
        assert histogram.total == latency.count == 6000
        assert histogram.mean() == pytest.approx((latency.mean or 0) * 1e9)
        for quantile, seconds in (
            (0.5, latency.p50), (0.9, latency.p90), (0.99, latency.p99), (0.999, latency.p999),
        ):  # fmt: skip
            assert histogram.value_at(quantile) == pytest.approx((seconds or 0) * 1e9)


@settings(max_examples=draws(30, 60), deadline=None)
@given(values=st.lists(NANOSECONDS, max_size=200), bounds=BOUNDS, copies=st.integers(1, 1 << 40))
def test_what_is_encoded_reads_back_here_and_in_the_public_library(
    values: list[int], bounds: tuple[int, int], copies: int
) -> None:
    ours = decode_histogram(plain_text(recorded(values, *bounds)))
    ours = Histogram(ours.layout, {i: n * copies for i, n in ours.counts.items()})
    text = encode_histogram(ours)
    assert decode_histogram(text) == ours
    publicly = HdrHistogram.decode(text)
    assert publicly.get_total_count() == ours.total
    assert publicly.get_max_value() == (ours.value_at(1.0) or 0)


def test_an_encoded_histogram_needs_no_header_that_it_came_from() -> None:
    read = decode_histogram(plain_text(recorded([5_000, 7_000_000])))
    bare = Histogram(read.layout, read.counts)
    assert decode_histogram(encode_histogram(bare)) == bare
    assert HdrHistogram.decode(encode_histogram(Histogram(read.layout))).get_total_count() == 0
