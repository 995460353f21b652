"""Histogram logs added up, beside the reference implementation for Python."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest
from hdr_reference import recorded
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rows import each_row
from tiers import draws

from nginx_tune.errors import UsageError
from nginx_tune.measure.proof.histogram import (
    LogFile,
    decode_histogram,
    is_histogram_log,
    merge_histogram_logs,
)

Line = tuple[str, float, float, list[int]]
"""Tag, begin, length, values."""

VALUES = st.lists(st.integers(min_value=1_000, max_value=60_000_000_000), min_size=1, max_size=20)
LINES = st.lists(
    st.tuples(
        st.sampled_from(["hot.response", "hot.ttfb", "cold.response", ""]),
        st.integers(min_value=0, max_value=30).map(float),
        st.sampled_from([0.3, 1.0, 1.5]),
        VALUES,
    ),
    min_size=1,
    max_size=12,
)


def log_text(lines: Sequence[Line], start: float = 1_790_000_000.25, *, base: bool = True) -> str:
    """A log as the load probe writes it, its histograms by the reference implementation."""
    text = [
        "#[Histogram log format version 1.3]",
        f"#[StartTime: {start:.3f} (seconds since epoch)]",
        *([f"#[BaseTime: {start:.3f} (seconds since epoch)]"] if base else []),
        '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"',
    ]
    for tag, begin, length, values in lines:
        head = f"Tag={tag}," if tag else ""
        histogram = recorded(values).encode().decode()
        text.append(f"{head}{begin:.3f},{length:.3f},{max(values) / 1e6:.3f},{histogram}")
    return "\n".join(text) + "\n"


def merge(*texts: str) -> str:
    files = [LogFile(f"{number}.hlog", text) for number, text in enumerate(texts)]
    return merge_histogram_logs(files).text


def read_back(path: Path, text: str) -> list[HdrHistogram]:
    """The intervals of a log as the reference implementation reads them."""
    path.write_text(text)
    reader = HistogramLogReader(str(path), HdrHistogram(1_000, 3_600_000_000_000, 3))
    intervals = []
    while (interval := reader.get_next_interval_histogram()) is not None:
        intervals.append(interval)
    reader.close()
    return intervals


@settings(max_examples=draws(15, 60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(logs=st.lists(LINES, min_size=2, max_size=3, unique_by=str))
def test_the_reference_reads_the_counts_of_all_under_their_tags(
    tmp_path: Path, logs: list[list[Line]]
) -> None:
    wanted: dict[str, Counter[int]] = defaultdict(Counter)
    for lines in logs:
        for tag, _, _, values in lines:
            text = recorded(values).encode().decode()
            wanted[tag].update(decode_histogram(text).counts)
    merged = merge(*map(log_text, logs))
    got: dict[str, HdrHistogram] = {}
    for interval in read_back(tmp_path / "all.hlog", merged):
        total = got.setdefault(interval.get_tag() or "", HdrHistogram(1_000, 3_600_000_000_000, 3))
        total.add(interval)
    assert got.keys() == wanted.keys()
    for tag, counts in wanted.items():
        assert decode_histogram(got[tag].encode().decode()).counts == dict(sorted(counts.items()))
    # What was merged can be merged again.
    again = merge(merged, log_text([("hot.response", 0.0, 1.0, [5_000])], start=1.0))
    total = merge_histogram_logs([LogFile("again", again)]).totals["hot.response"].total
    assert total == sum(wanted["hot.response"].values()) + 1


def test_intervals_beside_each_other_become_one(tmp_path: Path) -> None:
    hosts = [
        log_text(
            [("hot.response", k + 0.3, 1.0, [1_000_000 * (host + 1)]) for k in range(3)], start
        )
        for host, start in enumerate((1_790_000_000.0, 1_790_000_000.05, 1_790_000_000.4))
    ]
    merged = merge(*hosts)
    intervals = read_back(tmp_path / "all.hlog", merged)
    assert [interval.get_total_count() for interval in intervals] == [3, 3, 3]
    starts = [interval.get_start_time_stamp() for interval in intervals]
    assert starts == [pytest.approx(1_790_000_000_300 + 1_000 * k) for k in range(3)]
    lengths = [i.get_end_time_stamp() - i.get_start_time_stamp() for i in intervals]
    assert lengths == [pytest.approx(1_400, abs=1)] * 3
    maxima = [line.split(",")[3] for line in merged.splitlines() if line.startswith("Tag=")]
    assert maxima == ["3.000"] * 3


def test_loads_one_after_the_other_stay_apart(tmp_path: Path) -> None:
    one = log_text([("c.ttfb", 0.0, 1.0, [4_000])])
    later = log_text([("c.ttfb", 0.0, 1.0, [5_000])], start=1_790_000_600.25)
    intervals = read_back(tmp_path / "all.hlog", merge(later, one))
    starts = [interval.get_start_time_stamp() / 1e3 for interval in intervals]
    assert starts == [pytest.approx(1_790_000_000.25), pytest.approx(1_790_000_600.25)]


def test_times_may_count_from_1970_or_from_the_start() -> None:
    relative = log_text([("a", 2.0, 1.0, [4_000])], start=1_790_000_000.0, base=False)
    absolute = log_text([("a", 1_790_000_002.0, 1.0, [5_000])], start=1_790_000_000.0, base=False)
    lines = [line for line in merge(relative, absolute).splitlines() if line.startswith("Tag=")]
    assert len(lines) == 1
    assert lines[0].startswith("Tag=a,0.000,1.000,")


GOOD = recorded([5_000]).encode().decode()


@each_row(
    ("line", "why"),
    [
        ("1.0,1.0", "an interval is its begin"),
        (f"Tag=a,1.0,x,1.0,{GOOD}", "is no number"),
        (f"Tag=a,nan,1.0,1.0,{GOOD}", "is no number"),
        (f"Tag=a,-1,1.0,1.0,{GOOD}", "is no number"),
        (f"Tag=a,1e999,1.0,1.0,{GOOD}", "is no number"),
        ("Tag=a,1.0,1.0,1.0,HISTFAAA", "malformed latency histogram"),
        ("Tag=a,1.0,1.0,1.0,", "malformed latency histogram"),
        ("#[StartTime: soon (seconds since epoch)]", "is no number"),
    ],
)
def test_what_is_malformed_is_named_with_its_line(line: str, why: str) -> None:
    with pytest.raises(UsageError, match=rf"^1\.hlog:2: .*{why}"):
        merge(log_text([("a", 0.0, 1.0, [4_000])]), f"# a log\n{line}\n")


def test_a_log_without_an_interval_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^0\.hlog: no histogram log: not one interval"):
        merge("#[Histogram log format version 1.3]\n")


def test_the_same_log_under_two_names_is_refused() -> None:
    text = log_text([("a", 0.0, 1.0, [4_000])])
    with pytest.raises(UsageError, match=r"0\.hlog and 1\.hlog are the same log"):
        merge(text, text)


def test_another_precision_is_refused() -> None:
    coarse = recorded([5_000], digits=2).encode().decode()
    with pytest.raises(UsageError, match="different precision"):
        merge(log_text([("a", 0.0, 1.0, [4_000])]), f"Tag=a,0.0,1.0,1.0,{coarse}\n")


def test_a_log_is_told_from_a_measurement() -> None:
    assert is_histogram_log(log_text([("a", 0.0, 1.0, [4_000])]).encode())
    assert is_histogram_log(f"Tag=a,0.0,1.0,1.0,{GOOD}\n".encode())
    assert not is_histogram_log(b'{"schema": "nginx-tune/measurement/1"}')
    assert not is_histogram_log(b"")
