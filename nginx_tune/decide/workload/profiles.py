"""Typical workloads of each kind of site, which fill the gaps of a measured or declared workload.

Filled-in numbers have the provenance ``assumed``, which lowers the confidence of all decisions that
use them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import msgspec

from nginx_tune.documents.facts import Dataset, Facts
from nginx_tune.documents.site import Site
from nginx_tune.documents.workload import (
    Concurrency,
    ConnectionReuse,
    Kind,
    ObjectSizes,
    Popularity,
    ServedData,
    Workload,
)


def scans_of_caches(datasets: Sequence[Dataset], site: Site) -> list[Dataset]:
    """The scans of the site's cache directories and of directories inside them.

    A caching site serves files too, whose number and sizes do not describe cached responses. A
    cache sized by them would be too small, and nginx's manager would remove objects from it
    (``ngx_http_file_cache_manager()``).

    A scan of a directory above a new cache counts too, unless files are served from there: its
    files are assumed to be the data that will be cached.
    """
    caches = [PurePosixPath(path) for path in site.cache_dirs]
    to_come = [PurePosixPath(path) for path in site.cache_dirs if path not in site.cache_bounds]
    roots = [PurePosixPath(path) for path in site.roots]
    found = []
    for dataset in datasets:
        scanned = PurePosixPath(dataset.path)
        is_inside = any(scanned.is_relative_to(cache) for cache in caches)
        is_around = any(cache.is_relative_to(scanned) for cache in to_come)
        if is_inside or (is_around and not any(r.is_relative_to(scanned) for r in roots)):
            found.append(dataset)
    return found


def bytes_beside_caches(datasets: Sequence[Dataset], site: Site) -> float | None:
    """Bytes of the files that are served from the site's roots; None if not all were counted.

    A missing directory shows nothing about the data to be served.
    """
    kept = {scan.path for scan in scans_of_caches(datasets, site)}
    roots = [PurePosixPath(root) for root in site.roots]
    counted = [
        scan
        for scan in datasets
        if scan.bytes is not None
        and (scan.bytes or scan.directories)
        and scan.path not in kept
        and _overlaps(scan.path, roots)
    ]
    if not counted or not all(scan.complete for scan in counted):
        return None
    return math.fsum(scan.bytes or 0 for scan in counted)


def _overlaps(path: str, roots: Sequence[PurePosixPath]) -> bool:
    """True if a path lies in one of the roots, or one of the roots in the path."""
    place = PurePosixPath(path)
    return any(root.is_relative_to(place) or place.is_relative_to(root) for root in roots)


KIBIBYTE = 1 << 10
MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Profile:
    """Typical numbers of a kind of site."""

    exponent: float
    """Zipf exponent of popularity over objects."""
    object_bytes: int
    """Mean object size without a dataset."""
    mean_concurrency: float
    peak_concurrency: float
    """Requests in flight in the busy hour of a medium-sized site."""
    requests_per_connection: float


PROFILES: dict[Kind, Profile] = {
    # Web objects have exponents of 0.64-0.83 (Breslau et al., INFOCOM 1999).
    "static": Profile(0.8, 32 * KIBIBYTE, 20, 100, 10),
    # Video has a flatter popularity: 0.56 on a campus link (Gill et al., YouTube Traffic
    # Characterization, IMC 2007); the source's own load is flat except for one file. Transfers are
    # long, so many overlap.
    "media": Profile(0.6, 4 * MEBIBYTE, 50, 200, 4),
    # A proxy cache gets requests as on the web, without those that browser caches answer.
    "cache": Profile(0.7, 64 * KIBIBYTE, 50, 200, 10),
    "proxy": Profile(0.8, 16 * KIBIBYTE, 20, 100, 10),
}


_SHORT_SECONDS = 86_400
"""Traffic repeats daily. The objects that a shorter log requests are a lower bound of the data, and
its curve has no requests for the others."""


def workload_for(
    kind: Kind | None, facts: Facts, given: Workload | None = None, *, site: Site | None = None
) -> Workload:
    """``given`` with its gaps filled: the dataset from the facts, the rest from the profile.

    The scanned data also replaces that of a log of less than a day, if it is larger.
    For kind cache only the scans of the caches of ``site`` count, where that is given.
    Shape: all values that decisions use, except request rate and CPU time, which have no typical
           value.
    """
    base = given or Workload()
    chosen = kind or base.kind
    profile = PROFILES[chosen]
    if chosen == "cache" and site is not None:
        kept = scans_of_caches(facts.datasets, site)
        facts = msgspec.structs.replace(facts, datasets=kept)
    base = _beyond_short_log(base, facts, chosen)
    return msgspec.structs.replace(
        base,
        kind=chosen,
        kind_provenance="declared" if kind else base.kind_provenance,
        dataset=_dataset(base.dataset, facts, chosen),
        popularity=_popularity(base.popularity, profile),
        sizes=_sizes(base.sizes, base.dataset, facts, profile),
        concurrency=_concurrency(base.concurrency, profile),
        connection_reuse=_reuse(base.connection_reuse, profile),
    )


def _beyond_short_log(given: Workload, facts: Facts, kind: Kind) -> Workload:
    """The workload with the scanned data, if a short log requests less than that.

    Its popularity is then that of the fitted exponent, for all files.
    """
    data, span = given.dataset, given.log.span_seconds if given.log else _SHORT_SECONDS
    scanned = _dataset(ServedData(requests_by_path=data.requests_by_path), facts, kind)
    is_short = data.provenance == "learnt" and (span or 0) < _SHORT_SECONDS
    # The scan of a cache also counts objects that nobody requests any more.
    if kind == "cache" or not is_short or (scanned.bytes or 0) <= (data.bytes or 0):
        return given
    return msgspec.structs.replace(
        given,
        dataset=msgspec.structs.replace(scanned, short_log_bytes=data.bytes),
        popularity=msgspec.structs.replace(given.popularity, curve=[]),
    )


def _dataset(given: ServedData, facts: Facts, kind: Kind) -> ServedData:
    if given.bytes is not None or kind == "proxy":
        return given
    scanned = [d for d in facts.datasets if d.bytes is not None]
    if not scanned:
        return given
    return ServedData(
        path=scanned[0].path if len(scanned) == 1 else None,
        files=sum(d.files or 0 for d in scanned),
        bytes=sum(d.bytes or 0 for d in scanned),
        requests_by_path=given.requests_by_path,
        provenance="measured",
    )


def _popularity(given: Popularity, profile: Profile) -> Popularity:
    if given.exponent is not None or given.curve:
        return given
    return Popularity(exponent=profile.exponent, provenance="assumed")


def _sizes(given: ObjectSizes, declared: ServedData, facts: Facts, profile: Profile) -> ObjectSizes:
    if given.mean_bytes is not None:
        return given
    if declared.bytes and declared.files:
        mean = declared.bytes / declared.files
        return ObjectSizes(mean_bytes=mean, provenance=declared.provenance)
    scanned: list[Dataset] = [d for d in facts.datasets if d.bytes and d.files]
    if scanned:
        files = sum(d.files or 0 for d in scanned)
        mean = sum(d.bytes or 0 for d in scanned) / files
        return ObjectSizes(mean_bytes=mean, provenance="measured")
    return ObjectSizes(mean_bytes=float(profile.object_bytes), provenance="assumed")


def _concurrency(given: Concurrency, profile: Profile) -> Concurrency:
    if given.peak is not None or given.mean is not None:
        return given
    return Concurrency(
        mean=profile.mean_concurrency,
        peak=profile.peak_concurrency,
        cold_peak=given.cold_peak,
        cold_by_popularity=given.cold_by_popularity,
        client_bytes_per_second=given.client_bytes_per_second,
        clients_keep_pace=given.clients_keep_pace,
        provenance="assumed",
    )


def _reuse(given: ConnectionReuse, profile: Profile) -> ConnectionReuse:
    if given.requests_per_connection is not None:
        return given
    return ConnectionReuse(
        requests_per_connection=profile.requests_per_connection, provenance="assumed"
    )
