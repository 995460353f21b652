"""What scans of the data directories found, in the model's terms."""

from __future__ import annotations

from collections.abc import Sequence

from nginx_tune.decide.model.inputs import HALF_PAGE_BYTES, PAGE_BYTES
from nginx_tune.decide.model.sizes import SizeGroup, size_groups
from nginx_tune.documents.facts import Dataset


def scanned_sizes(datasets: Sequence[Dataset]) -> tuple[SizeGroup, ...]:
    """Sizes of the files about their mean."""
    scanned = [d.sizes.buckets for d in datasets if d.sizes is not None]
    return size_groups([bucket for buckets in scanned for bucket in buckets])


def directories_of(datasets: Sequence[Dataset]) -> float | None:
    """Directories that the files lie in, where all scans counted them."""
    counts = [d.directories for d in datasets if d.files]
    return float(sum(counts)) if counts and all(counts) else None


def page_waste_bytes(datasets: Sequence[Dataset], mean_bytes: float) -> float:
    """What a file's last page leaves free: known where a scan found one size alone."""
    scanned = [d.sizes for d in datasets if d.sizes is not None]
    if scanned and all(sizes.mean_bytes == sizes.max_bytes for sizes in scanned):
        return float(-round(mean_bytes) % PAGE_BYTES)
    return max(HALF_PAGE_BYTES, PAGE_BYTES - mean_bytes)
