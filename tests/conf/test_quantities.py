"""Sizes, times and counts as nginx reads them."""

from rows import each_row

from nginx_tune.conf.values import parameter, parse_bytes, parse_count, parse_seconds


@each_row(
    ("text", "size"),
    [
        ("0", 0),
        ("512k", 524_288),
        ("1M", 1_048_576),
        ("2g", 2_147_483_648),
        ("", None),
        ("-1", None),
        ("1kb", None),
        ("$size", None),
        ("9" * 40, None),
    ],
)
def test_sizes(text: str, size: int | None) -> None:
    assert parse_bytes(text) == size


@each_row(
    ("text", "seconds"),
    [
        ("60", 60),
        ("1m30s", 90),
        ("1h 30m", 5400),
        ("30ms", 0.03),
        ("1M", 2_592_000),
        ("", None),
        ("x", None),
        ("off", None),
        ("1" * 4000 + "x", None),
    ],
)
def test_times(text: str, seconds: float | None) -> None:
    assert parse_seconds(text) == seconds


def test_counts_and_parameters() -> None:
    assert parse_count("1024") == 1024
    assert parse_count("1k") is None
    assert parse_count("²") is None
    assert parameter(("max=1", "inactive=5m", "max=2"), "max") == "2"
    assert parameter(("maxi=1",), "max") is None
