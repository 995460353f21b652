"""What was measured in scenarios and cells on a real nginx, beside what is predicted for them.

Read from README.md, benchmarks/README.md and runs before them; kernel 6.18, nginx 1.22.1.
"""

from typing import NamedTuple


class Measured(NamedTuple):
    """A figure, and the name of the scenario or cell that it comes from."""

    name: str
    metric: str
    value: float


HITS = "page_cache.hit_ratio"
BLOCKED = "server.loop_blocked_ratio without pools"
RATE = "ratio(hot.requests_per_second)"
MEAN = "ratio(hot.mean)"
COLD = "ratio(cold.bytes_per_second)"
CPU = "ratio(server.cpu_seconds_per_request)"
TOTAL = "ratio(total.bytes_per_second)"

MEASURED = (
    Measured("thread-pools", RATE, 37.4),
    Measured("thread-pools", RATE, 33.9),
    Measured("thread-pools", MEAN, 0.0086),
    Measured("thread-pools", COLD, 1.05),
    Measured("thread-pools", TOTAL, 5.99),
    Measured("thread-pools", TOTAL, 5.98),
    Measured("thread-pools", BLOCKED, 0.99),
    Measured("thread-pools-cold-heavy", RATE, 93.8),
    Measured("thread-pools-cold-heavy", RATE, 111.0),
    Measured("thread-pools-cold-heavy", RATE, 68.8),
    Measured("thread-pools-cold-heavy", MEAN, 0.0033),
    Measured("thread-pools-cold-heavy", COLD, 0.66),
    Measured("thread-pools-cold-heavy", TOTAL, 8.07),
    Measured("thread-pools-cold-heavy", BLOCKED, 1.0),
    Measured("cold-open", BLOCKED, 0.452),
    Measured("cold-open", BLOCKED, 0.217),  # blocks of 4 KiB
    Measured("page-cache-fits", CPU, 1.71),
    Measured("small-files-ssd", CPU, 1.43),
    Measured("small-files-ssd", BLOCKED, 0.0062),
    Measured("loop-blocked", BLOCKED, 0.130),
    Measured("01-hdd-cold", HITS, 0.109),
    Measured("01-hdd-cold", BLOCKED, 0.963),
    Measured("01-hdd-cold", RATE, 27.0),
    Measured("02-fits-in-memory", HITS, 0.998),
    Measured("02-fits-in-memory", BLOCKED, 0.0),
    Measured("03-ssd-small-files", HITS, 0.377),
    Measured("03-ssd-small-files", BLOCKED, 0.071),
    Measured("04-ssd-with-stalls", HITS, 0.330),
    Measured("04-ssd-with-stalls", BLOCKED, 0.137),
    Measured("05-one-slow-disk", HITS, 0.254),
    Measured("05-one-slow-disk", BLOCKED, 1.0),
    Measured("06-tls-large-files", HITS, 0.161),
    Measured("06-tls-large-files", BLOCKED, 0.943),
    Measured("06-tls-large-files", RATE, 7.61),
    Measured("07-mixed-hot-cold", HITS, 0.850),
    Measured("07-mixed-hot-cold", BLOCKED, 0.148),
    Measured("07-mixed-hot-cold", MEAN, 1 / 2.29),
    Measured("08-cpu-heavy-short-connections", BLOCKED, 0.001),
    Measured("09-long-keepalive", HITS, 0.998),
    Measured("09-long-keepalive", BLOCKED, 0.0),
    # 11-large-files-over-tls (0.034): the few reads of its slow disk leave a range wider than ten.
    Measured("12-slow-disk-nothing-in-memory", BLOCKED, 0.995),
    Measured("drawn-4201-000", BLOCKED, 0.0103),
    Measured("drawn-4201-002", BLOCKED, 0.172),
    # 009 (0.00658): what may be said of it is wider than ten, and so no prediction.
    Measured("drawn-4201-010", HITS, 0.648),
    Measured("drawn-4201-010", BLOCKED, 0.0200),
    Measured("drawn-4201-013", BLOCKED, 0.0270),
)
