"""What stays small however long a log is: samples by hash, and counts of the most popular.

The Rust reader (probes/src/learn/) has the same ones; both give the same numbers.
"""

from __future__ import annotations

from nginx_tune.documents.learning import Objects, Sample, SampledRequest

MOST_TEXT_BYTES = 32 << 20
"""Of the paths in a sample of requests."""
MOST_CONNECTIONS = 1 << 13
"""Standard error of the count past it: 1.2 / sqrt(8192), 1.3 %."""
_MASK = (1 << 64) - 1


def mix(number: int) -> int:
    """A 64-bit hash of a number.

    Source: SplitMix64: Steele, Lea, Flood, Fast Splittable Pseudorandom Number Generators,
            OOPSLA 2014.
    """
    z = (number + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


class ObjectTable:
    """Requests and sizes of objects: of all while they fit, then of a sample and of the heaviest.

    The sample holds the objects whose hash is below a threshold that halves whenever they are
    too many: each of them is counted exactly, and stands for 2^level objects.
    Source: Waldspurger et al., Efficient MRC Construction with SHARDS, FAST 2015.

    The heaviest are counted by Misra and Gries: whenever there are twice too many, the count of
    the first that is too many is taken from all, so that a count lacks at most N / most_heavy.
    Source: Misra, Gries, Finding Repeated Elements, 1982; Agarwal et al., Mergeable Summaries,
            PODS 2012.
    """

    def __init__(self, most_objects: int, most_heavy: int) -> None:
        self._most_objects = most_objects
        self._most_heavy = most_heavy
        self._level = 0
        self._counts: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self._heavy: dict[int, int] = {}
        self._heavy_sizes: dict[int, int] = {}
        self._heavy_error = 0

    def add(self, key: int, size: int) -> None:
        """Count a request for an object that is at least so large."""
        if self._level:
            count = self._heavy.get(key, 0)
            self._heavy[key] = count + 1
            if not count or size > self._heavy_sizes[key]:
                self._heavy_sizes[key] = size
            if not count and len(self._heavy) >= 2 * self._most_heavy:
                self._thin_heavy()
            if key >> (64 - self._level):
                return
        count = self._counts.get(key, 0)
        self._counts[key] = count + 1
        if not count or size > self._sizes[key]:
            self._sizes[key] = size
        if not count and len(self._counts) > self._most_objects:
            self._thin()

    def result(self) -> Objects:
        """The objects in the order of their hashes."""
        counts, heavy = self._counts, self._heavy
        return Objects(
            level=self._level,
            sampled=[(key, counts[key], self._sizes[key]) for key in sorted(counts)],
            heavy=[(key, heavy[key], self._heavy_sizes[key]) for key in sorted(heavy)],
            heavy_error=self._heavy_error,
        )

    def _thin(self) -> None:
        if not self._level:
            self._heavy, self._heavy_sizes = dict(self._counts), dict(self._sizes)
            if len(self._heavy) >= 2 * self._most_heavy:
                self._thin_heavy()
        while len(self._counts) > self._most_objects:
            self._level += 1
            shift = 64 - self._level
            self._counts = {key: n for key, n in self._counts.items() if not key >> shift}
        self._sizes = {key: self._sizes[key] for key in self._counts}

    def _thin_heavy(self) -> None:
        taken = sorted(self._heavy.values(), reverse=True)[self._most_heavy]
        self._heavy = {key: n - taken for key, n in self._heavy.items() if n > taken}
        self._heavy_sizes = {key: self._heavy_sizes[key] for key in self._heavy}
        self._heavy_error += taken


class DistinctNumbers:
    """How many different numbers were seen: exact to a bound, then from a sample by hash.

    Source: Flajolet, On Adaptive Sampling, Computing 34, 1990; standard error 1.2 / sqrt(bound).
    """

    def __init__(self, most: int = MOST_CONNECTIONS) -> None:
        self._most = most
        self._hashes: set[int] = set()
        self.level = 0

    def add(self, number: int) -> None:
        """See a number."""
        key = mix(number)
        if key >> (64 - self.level):
            return
        self._hashes.add(key)
        while len(self._hashes) > self._most:
            self.level += 1
            self._hashes = {key for key in self._hashes if not key >> (64 - self.level)}

    def __len__(self) -> int:
        """Those of the sample."""
        return len(self._hashes)


class RequestSample:
    """Requests chosen by the hash of their line's number: evenly, and the same each time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._requests: list[SampledRequest] = []
        self._text_bytes = 0
        self._level = 0

    def wants(self, number: int) -> bool:
        """Whether the request on this line is kept."""
        return self._most > 0 and not mix(number) >> (64 - self._level)

    def add(self, request: SampledRequest) -> None:
        """Keep a request."""
        self._requests.append(request)
        self._text_bytes += _text_bytes(request)
        while len(self._requests) > self._most or self._text_bytes > MOST_TEXT_BYTES:
            self._level += 1
            shift = 64 - self._level
            self._requests = [r for r in self._requests if not mix(r.number) >> shift]
            self._text_bytes = sum(map(_text_bytes, self._requests))

    def result(self) -> Sample:
        """The requests in the order of their lines."""
        return Sample(level=self._level, requests=self._requests)


def _text_bytes(request: SampledRequest) -> int:
    return len(request.server.encode()) + len(request.path.encode())
