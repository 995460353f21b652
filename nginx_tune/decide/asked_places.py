"""How often each directory is asked, and how often what is asked of it is read from its disks.

Where one directory is asked far more often than another, memory holds its files and hardly any of
the other's: of the reads that a slow disk with an archive gets, the share of requests says little.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from nginx_tune.decide.model.cache import PopularityClass, missed_shares, zipf_classes
from nginx_tune.decide.model.inputs import BlockingInputs, usable_objects
from nginx_tune.decide.storage import DataPath
from nginx_tune.documents.facts import Dataset


class AskedPlace(NamedTuple):
    """A directory with what clients want of it."""

    disks: tuple[str, ...]
    requests: float
    """In proportion to those of the other directories."""
    bytes: float
    """Of its files."""


def asked_places(
    places: Sequence[DataPath], requests: Mapping[str, float], datasets: Sequence[Dataset]
) -> tuple[AskedPlace, ...]:
    """The directories that are asked, each with its data.

    Shape: empty unless there are several, and somebody knows how often each is asked and how much
           lies in it.
    """
    asked = [place for place in places if requests.get(place.path)]
    known = {place.path: _bytes_in(place, places, datasets) for place in asked}
    if len(asked) < 2 or not all(known.values()):  # noqa: PLR2004  # nothing to tell apart
        return ()
    return tuple(
        AskedPlace(place.leaf_disks, requests[place.path], known[place.path]) for place in asked
    )


def _bytes_in(place: DataPath, places: Sequence[DataPath], datasets: Sequence[Dataset]) -> float:
    """What was scanned at or below a directory, and not below another one inside of it."""
    return math.fsum(
        dataset.bytes or 0
        for dataset in datasets
        if _nearest(dataset.path, places) == PurePosixPath(place.path)
    )


def _nearest(path: str, places: Sequence[DataPath]) -> PurePosixPath | None:
    wanted = PurePosixPath(path)
    roots = [PurePosixPath(place.path) for place in places]
    above = [root for root in roots if wanted.is_relative_to(root)]
    return max(above, key=lambda one: len(one.parts), default=None)


def classes_of_places(
    places: Sequence[AskedPlace], objects: float, exponent: float
) -> tuple[PopularityClass, ...]:
    """Popularity of so many objects, skewed in each directory by itself."""
    return tuple(one for group in _groups(places, objects, exponent) for one in group)


def requests_by_disk(places: Sequence[DataPath], requests: Mapping[str, float]) -> dict[str, float]:
    """Requests for files on each disk, in proportion; empty where nobody knows."""
    found: dict[str, float] = {}
    for place in places:
        share = requests.get(place.path, 0.0)
        for name in place.leaf_disks:
            found[name] = found.get(name, 0.0) + share / len(place.leaf_disks)
    return found


def reads_by_disk(places: Sequence[AskedPlace], i: BlockingInputs) -> dict[str, float]:
    """The same of those requests alone that memory does not answer; empty where it answers all.

    Within a directory all files count as equally popular: what is compared is one with the other.
    """
    if i.asked.once:
        missed = [place.requests for place in places]
    else:
        missed = missed_shares(
            _groups(places, i.objects, 0.0),
            usable_objects(i),
            i.asked.requests,
            began_full=i.asked.began_full,
        )
    found: dict[str, float] = {}
    for place, share in zip(places, missed, strict=True):
        for name in place.disks:
            found[name] = found.get(name, 0.0) + share / len(place.disks)
    return found if sum(found.values()) > 0 else {}


def _groups(
    places: Sequence[AskedPlace], objects: float, exponent: float
) -> list[tuple[PopularityClass, ...]]:
    """The classes of each directory; probabilities are of all requests."""
    data = math.fsum(place.bytes for place in places)
    requests = math.fsum(place.requests for place in places)
    return [
        tuple(
            PopularityClass(one.objects, one.probability_each * place.requests / requests)
            for one in zipf_classes(max(1.0, objects * place.bytes / data), exponent)
        )
        for place in places
    ]
