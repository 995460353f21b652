"""Parts that the causes share: figures, shares of blocked time, whose code ran."""

from __future__ import annotations

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
"""The time that a turn may take where no objective says more; an arrival may wait a tenth of it for
its loop on average."""
ALLOWED_SHARE = 0.1


class CauseWindow(NamedTuple):
    """The window that causes are looked for in."""

    server: ServerMeasurement
    seconds: float
    allowed_seconds: float = ALLOWED_SECONDS

    @property
    def turns(self) -> LoopTurn | None:
        """The turns as traced; null when nothing traced them."""
        return self.server.loop_turn_seconds

    def wait_by(self, part: str) -> float:
        """Seconds that an arrival waits for its loop on average for this."""
        return self.turns.arrival_wait_by.get(part, 0.0) if self.turns else 0.0

    @property
    def arrival_wait_seconds(self) -> float | None:
        """The mean wait of an arrival, of all parts together."""
        if self.turns is None:
            return None
        if self.turns.arrival_wait_seconds is not None:
            return self.turns.arrival_wait_seconds
        workers = len(self.server.workers)
        return arrival_wait_seconds(self.turns, workers=workers, duration_seconds=self.seconds)

    @property
    def is_beyond(self) -> bool:
        """True when turns, or waits for them, are longer than is allowed."""
        if self.turns is None:
            return False
        wait = self.arrival_wait_seconds or 0.0
        return self.exceeds(wait) or (self.turns.max or 0.0) >= self.allowed_seconds

    def exceeds(self, wait_seconds: float) -> bool:
        """True for a mean wait of arrivals that is more than is allowed."""
        return wait_seconds >= ALLOWED_SHARE * self.allowed_seconds

    def is_held_by(self, part: str) -> bool:
        """True when this part of the turns is what is beyond the allowed.

        A single long turn may have a small mean wait: then the part must be most of it.
        """
        whole, own = self.arrival_wait_seconds or 0.0, self.wait_by(part)
        if not self.is_beyond or not whole:
            return False
        return own >= whole / 2 or (self.exceeds(own) and own >= whole / 4)


def arrival_wait_seconds(turns: LoopTurn, *, workers: int, duration_seconds: float) -> float | None:
    """The mean wait for its loop of an event that arrives at a random moment.

    A turn of t seconds meets t seconds' worth of arrivals, who wait half of it: the sum of half
    the squares over all time.
    Source: mean residual life of a renewal process.
    """
    if not turns.histogram or not workers or not turns.traced_ratio:
        return None
    histogram = decode_histogram(turns.histogram)
    middle = histogram.layout.middle_value
    squares = math.fsum((middle(i) / 1e9) ** 2 * n for i, n in histogram.counts.items())
    return squares / 2 / (workers * duration_seconds * turns.traced_ratio)


def read_bytes_per_second(disks: Sequence[DiskUse]) -> float:
    """The rate of all disks; what one that stands on another asks for counts once."""
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
    """``81 % zlib (compression), 12 % the kernel``; empty with too few samples to tell."""
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
        # Some names have a version in them: libpcre2-8, libpng16, libbrotlienc.
        if library == name or (library.startswith(name) and len(name) > len("libc")):
            return word
    return library


def tail_text(turns: LoopTurn) -> str:
    """The highest quantile with turns enough beyond it."""
    for name in ("p99", "p90", "p50"):
        value = measured(turns, name)
        if value is not None:
            return f"{name} {seconds_text(value)}, "
    return ""


def longest_text(turns: LoopTurn) -> str:
    """``≥ 2.46 s`` where the longest turn was not seen whole."""
    return f"{'≥ ' if 'max' in turns.at_least else ''}{seconds_text(turns.max)}"


def measured(turns: LoopTurn, name: str) -> float | None:
    """A quantile with turns enough beyond it; a lower bound is one too."""
    return read_statistic([LatencySample(turns)], name).value


def figures(*items: tuple[str, float | None, str]) -> list[CauseEvidence]:
    """Those of the figures that are known."""
    return [one for item in items if (one := figure(*item)) is not None]


def figure(metric: str, value: float | None, unit: str) -> CauseEvidence | None:
    """A figure; None when it is not known."""
    return None if value is None else CauseEvidence(metric=metric, value=float(value), unit=unit)


def turn_figures(window: CauseWindow) -> list[CauseEvidence]:
    """The figures of turns: what they took, and what they waited for."""
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
    """The share with its error, and with the worst worker where that is another figure."""
    worst = (
        f" (worst: {percent_text(blocked.worst)})" if blocked.worst > 1.2 * blocked.ratio else ""
    )
    return percent_text(blocked.ratio, error=blocked.error) + worst


def main_threads(count: int) -> str:
    """The main threads as the subject of a sentence."""
    return "the worker's main thread" if count == 1 else f"the main threads of {count} workers"
