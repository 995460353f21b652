"""File sizes as they come by: powers of two, quantiles, and a sample that stays small."""

from __future__ import annotations

from typing import NamedTuple

from nginx_tune.documents.facts import SizeBucket, Sizes

_MOST_SIZES = 1 << 16
"""Different sizes that are told apart to the byte; a few megabytes of memory."""
_BITS = 9
"""Of a size when there are more: it is known to 0.2 % then."""


class SizeCounter:
    """Counts sizes into buckets ``(le/2, le]``; empty files have the bucket 0."""

    def __init__(self) -> None:
        self.files = 0
        self.bytes = 0
        self.squares = 0
        """Sum of the squared sizes."""
        self._max_bytes = 0
        self._buckets: dict[int, list[int]] = {}
        self._by_size: dict[int, int] = {}
        """Files by their size, or by the middle of a span of sizes when these are too many."""
        self._is_exact = True

    def add(self, size_bytes: int) -> None:
        """One more file."""
        self.files += 1
        self.bytes += size_bytes
        self.squares += size_bytes * size_bytes
        self._max_bytes = max(self._max_bytes, size_bytes)
        known = size_bytes if self._is_exact else _middle(size_bytes)
        self._by_size[known] = self._by_size.get(known, 0) + 1
        if len(self._by_size) > _MOST_SIZES and self._is_exact:
            self._coarsen()
        # (size - 1).bit_length() is the exponent of the least power of two not below size.
        exponent = (size_bytes - 1).bit_length() if size_bytes else -1
        bucket = self._buckets.get(exponent)
        if bucket is None:
            bucket = self._buckets[exponent] = [0, 0]
        bucket[0] += 1
        bucket[1] += size_bytes

    def sizes(self, scale: float = 1.0) -> Sizes | None:
        """The distribution; a quantile is the size that so many files do not exceed.

        ``scale`` is how many files each one that was counted stands for.
        """
        if not self.files:
            return None
        buckets = [
            SizeBucket(
                le_bytes=1 << exponent if exponent >= 0 else 0,
                files=round(files * scale),
                bytes=round(size * scale),
            )
            for exponent, (files, size) in sorted(self._buckets.items())
        ]
        return Sizes(
            mean_bytes=self.bytes / self.files,
            p50_bytes=self._quantile(0.5),
            p90_bytes=self._quantile(0.9),
            p99_bytes=self._quantile(0.99),
            max_bytes=self._max_bytes,
            buckets=buckets,
        )

    def _coarsen(self) -> None:
        self._is_exact = False
        exact, self._by_size = self._by_size, {}
        for size, files in exact.items():
            middle = _middle(size)
            self._by_size[middle] = self._by_size.get(middle, 0) + files

    def _quantile(self, share: float) -> int:
        seen = 0
        for size, files in sorted(self._by_size.items()):
            seen += files
            if seen >= share * self.files:
                return min(size, self._max_bytes)
        return self._max_bytes


def _middle(size_bytes: int) -> int:
    """The middle of the sizes that begin with the same bits."""
    rest = max(0, size_bytes.bit_length() - _BITS)
    return (size_bytes >> rest << rest) + (1 << rest >> 1)


class Sampled(NamedTuple):
    """A file that is to be asked about."""

    path: str
    size_bytes: int
    start_bytes: int
    """Where its bytes begin when all files are laid end to end."""


class ByteSample:
    """A sample of files of which any byte of the tree is as likely as any other.

    All files are laid end to end; the files that hold a multiple of the stride are kept. The
    stride is 0 (all files) until the sample is full and doubles each time it is full again,
    so the tree is walked once and its size need not be known.
    """

    def __init__(self, capacity: int) -> None:
        self.files: list[Sampled] = []
        self.stride_bytes = 0
        self._capacity = capacity
        self._end_bytes = 0

    def add(self, directory: str, name: str, size_bytes: int) -> None:
        """One more file; empty ones have no bytes to ask about."""
        start = self._end_bytes
        self._end_bytes += size_bytes
        if size_bytes and self._holds_mark(start, size_bytes):
            self.files.append(Sampled(directory + name, size_bytes, start))
            while len(self.files) > self._capacity:
                self._thin()

    def _thin(self) -> None:
        self.stride_bytes = 2 * self.stride_bytes or max(1, 2 * self._end_bytes // self._capacity)
        self.files = [
            file for file in self.files if self._holds_mark(file.start_bytes, file.size_bytes)
        ]

    def _holds_mark(self, start_bytes: int, size_bytes: int) -> bool:
        stride = self.stride_bytes
        if not stride:
            return True
        # Marks lie in the middle of each stride, so that the first file is nothing special.
        first = start_bytes + stride // 2
        return -(-first // stride) * stride < first + size_bytes

    def weight_bytes(self, file: Sampled) -> int:
        """Bytes of the tree that a sampled file stands for: itself, or a stride if smaller."""
        return max(file.size_bytes, self.stride_bytes)
