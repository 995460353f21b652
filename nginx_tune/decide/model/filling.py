"""How much an empty page cache has been filled by clients that wait for their answers.

Nobody can count their requests beforehand: they ask as fast as they are answered, and that is as
fast as what they ask for is read.
"""

from __future__ import annotations

from dataclasses import replace

from nginx_tune.decide.model.cache import objects_asked
from nginx_tune.decide.model.inputs import BlockingInputs, CacheAge

_BISECTIONS = 60
_ALL = 0.999
"""Share of the objects from which all count as asked for: the last ones take for ever."""


def since_empty(i: BlockingInputs) -> BlockingInputs:
    """The inputs with the requests that were made of a page cache which was empty at first.

    Each read from the disk brings an object that nobody had asked for; requests are as many as ask
    for so many objects. The same inputs where clients do not wait, where nobody knows since when
    they come, and where all was asked for by now.
    """
    if i.since_seconds is None or i.rate_per_second is not None or i.asked.requests is not None:
        return i
    read = i.since_seconds * _objects_per_second(i)
    if read >= _ALL * i.objects:
        return i
    return replace(i, asked=CacheAge(_requests_for(i, read), once=i.asked.once))


def _objects_per_second(i: BlockingInputs) -> float:
    """Objects that loops without pools read, one at a time each, and the clients take."""
    each = i.holds_per_miss * i.disk.read_seconds(i.hold_bytes)
    read = min(float(i.workers), i.disk.heads) / each
    way = i.way_bytes_per_second
    return read if way is None else min(read, way / i.object_bytes)


def _requests_for(i: BlockingInputs, objects: float) -> float:
    """The requests that ask for so many objects, some of them more than once."""
    low = high = objects
    while objects_asked(i.classes, high) < objects:
        low, high = high, 2 * high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if objects_asked(i.classes, middle) < objects:
            low = middle
        else:
            high = middle
    return high
