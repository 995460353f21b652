"""The shared parts of causes: figures, shares of blocked time, names of code."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nginx_tune.documents.measured_server import DiskUse, LoopTurn, ServerMeasurement
from nginx_tune.documents.observation import CauseEvidence
from nginx_tune.documents.units import percent_text, seconds_text
from nginx_tune.measure.proof.histogram import decode_histogram
from nginx_tune.measure.proof.latency import LatencySample, read_statistic
from nginx_tune.measure.proof.workers import Blocked

ALLOWED_SECONDS = 0.1
"""The allowed time of a turn without an objective; the mean wait of an arrival for its loop may be
a tenth of it."""
ALLOWED_SHARE = 0.1


class CauseWindow(NamedTuple):
    """A window to find causes in."""

    server: ServerMeasurement
    seconds: float
    allowed_seconds: float = ALLOWED_SECONDS

    @property
    def turns(self) -> LoopTurn | None:
        """The traced turns; null without a tracer."""
        return self.server.loop_turn_seconds

    def wait_by(self, part: str) -> float:
        """Mean seconds that an arrival waits for its loop because of this part."""
        return self.turns.arrival_wait_by.get(part, 0.0) if self.turns else 0.0

    @property
    def arrival_wait_seconds(self) -> float | None:
        """The mean wait of an arrival for its loop, over all parts."""
        if self.turns is None:
            return None
        if self.turns.arrival_wait_seconds is not None:
            return self.turns.arrival_wait_seconds
        workers = len(self.server.workers)
        return arrival_wait_seconds(self.turns, workers=workers, duration_seconds=self.seconds)

    @property
    def is_beyond(self) -> bool:
        """True if turns are longer than allowed, or arrivals wait longer for them than allowed."""
        if self.turns is None:
            return False
        wait = self.arrival_wait_seconds or 0.0
        return self.exceeds(wait) or (self.turns.max or 0.0) >= self.allowed_seconds

    def exceeds(self, wait_seconds: float) -> bool:
        """True if a mean wait of arrivals reaches the allowed wait."""
        return wait_seconds >= ALLOWED_SHARE * self.allowed_seconds

    def is_held_by(self, part: str) -> bool:
        """True if this part of the turns makes them exceed the allowed time.

        After a single long turn the mean wait may be small; this part must then be at least half of
        it.
        """
        whole, own = self.arrival_wait_seconds or 0.0, self.wait_by(part)
        if not self.is_beyond or not whole:
            return False
        return own >= whole / 2 or (self.exceeds(own) and own >= whole / 4)


def arrival_wait_seconds(turns: LoopTurn, *, workers: int, duration_seconds: float) -> float | None:
    """The mean wait of an event for its loop, from the histogram of turns; None without one.

    The arrivals during a turn of t seconds wait t / 2 on average. So the mean is half the sum of
    the squared lengths, divided by all time. Source: mean residual life of a renewal process.
    """
    if not turns.histogram or not workers or not turns.traced_ratio:
        return None
    histogram = decode_histogram(turns.histogram)
    middle = histogram.layout.middle_value
    squares = math.fsum((middle(i) / 1e9) ** 2 * n for i, n in histogram.counts.items())
    return squares / 2 / (workers * duration_seconds * turns.traced_ratio)


def read_bytes_per_second(disks: Sequence[DiskUse]) -> float:
    """The read rate of all disks; reads through a disk on top of another count only once."""
    rates = {disk.name: disk.read_bytes_per_second or 0.0 for disk in disks}
    return math.fsum(
        max(0.0, rates[disk.name] - math.fsum(rates.get(above, 0.0) for above in disk.below))
        for disk in disks
    )


_LIBRARIES = {
    "libz": "zlib (compression)",
    "libbrotli": "Brotli (compression)",
    "libzstd": "Zstandard (compression)",
    "libcrypto": "OpenSSL (TLS)",
    "libssl": "OpenSSL (TLS)",
    "libgnutls": "GnuTLS (TLS)",
    "libpcre": "PCRE (regular expressions)",
    "libluajit": "LuaJIT (Lua)",
    "liblua": "Lua",
    "ngx_http_lua_module": "Lua",
    "ngx_stream_lua_module": "Lua",
    "libperl": "Perl",
    "ngx_http_perl_module": "Perl",
    "ngx_http_js_module": "njs",
    "ngx_stream_js_module": "njs",
    "libquickjs": "njs",
    "libgd": "the image filter",
    "libjpeg": "the image filter",
    "libpng": "the image filter",
    "libwebp": "the image filter",
    "libxslt": "XSLT",
    "libxml2": "XSLT",
    "libGeoIP": "GeoIP",
    "libmaxminddb": "GeoIP",
    "libmodsecurity": "ModSecurity",
    "generated code": "generated code (LuaJIT's, or of regular expressions)",
    "kernel": "the kernel",
    "nginx": "nginx itself",
    "libc": "the C library",
}
_FEWEST_SAMPLES = 20
_SHOWN = 0.05


def what_ran(samples: Mapping[str, int]) -> str:
    """The code that ran, such as ``81 % zlib (compression)``; empty with too few samples."""
    total = sum(samples.values())
    if total < _FEWEST_SAMPLES:
        return ""
    by_word: dict[str, int] = {}
    for library, count in samples.items():
        word = _word(library)
        by_word[word] = by_word.get(word, 0) + count
    ordered = sorted(by_word.items(), key=lambda item: -item[1])
    shown = [(word, n / total) for word, n in ordered[:3] if n >= _SHOWN * total]
    return ", ".join(f"{percent_text(share, 2)} {word}" for word, share in shown)


def _word(library: str) -> str:
    for name, word in _LIBRARIES.items():
        # Some names contain a version: libpcre2-8, libpng16, libbrotlienc.
        if library == name or (library.startswith(name) and len(name) > len("libc")):
            return word
    return library


def tail_text(turns: LoopTurn) -> str:
    """The highest measured quantile as text."""
    for name in ("p99", "p90", "p50"):
        value = measured(turns, name)
        if value is not None:
            return f"{name} {seconds_text(value)}, "
    return ""


def longest_text(turns: LoopTurn) -> str:
    """The longest turn as text; ``≥ 2.46 s`` if only a part of it was traced."""
    return f"{'≥ ' if 'max' in turns.at_least else ''}{seconds_text(turns.max)}"


def measured(turns: LoopTurn, name: str) -> float | None:
    """A quantile with enough turns beyond it, which may be a lower bound; otherwise None."""
    return read_statistic([LatencySample(turns)], name).value


def figures(*items: tuple[str, float | None, str]) -> list[CauseEvidence]:
    """The figures whose values are known."""
    return [found for item in items if (found := figure(*item)) is not None]


def figure(metric: str, value: float | None, unit: str) -> CauseEvidence | None:
    """A figure; None for an unknown value."""
    return None if value is None else CauseEvidence(metric=metric, value=float(value), unit=unit)


def turn_figures(window: CauseWindow) -> list[CauseEvidence]:
    """The figures of turns: their lengths, and the waits behind them."""
    turns = window.turns
    if turns is None:
        return []
    parts = [
        (f"of it {_PARTS.get(part, part)}", seconds, "seconds")
        for part, seconds in sorted(turns.arrival_wait_by.items(), key=lambda item: -item[1])
        if seconds >= _SHOWN * (turns.arrival_wait_seconds or 0.0) and seconds
    ]
    return figures(
        ("server.loop_turn_seconds.p50", turns.p50, "seconds"),
        ("server.loop_turn_seconds.p99", measured(turns, "p99"), "seconds"),
        ("server.loop_turn_seconds.max", turns.max, "seconds"),
        ("mean wait of an arrival for its loop", window.arrival_wait_seconds, "seconds"),
        *parts,
    )


_PARTS = {
    "computing": "behind computing",
    "blocked": "behind disks",
    "queued": "behind a wait for a CPU",
    "asleep": "behind a sleep in a call",
    "stopped": "behind a stop",
}


def percent(blocked: Blocked) -> str:
    """The blocked share with its error, and the worst worker's share if that is much higher."""
    worst = (
        f" (worst: {percent_text(blocked.worst)})" if blocked.worst > 1.2 * blocked.ratio else ""
    )
    return percent_text(blocked.ratio, error=blocked.error) + worst


def main_threads(count: int) -> str:
    """The main threads of this number of workers, as the subject of a sentence."""
    return "the worker's main thread" if count == 1 else f"the main threads of {count} workers"
