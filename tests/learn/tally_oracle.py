"""The arithmetic of a tally in Python, over requests whose lines need no reading.

It works by definition where the executable works by rows: samples of the whole log at the least
level that fits, time in flight by the overlap of each request with each second.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, groupby
from typing import Any

from nginx_tune.documents.learning import LearnPlan

FORMAT = (
    '$msec $request_time "$request" $status $body_bytes_sent $connection $connection_requests '
    "$ssl_protocol"
)
_MASK = (1 << 64) - 1
_PAUSE = 1 << 17
_HEAD_LINES = 16


@dataclass(frozen=True)
class Asked:
    """A request of a host's log; one without an end is a line that is none."""

    host: str
    end: int
    duration: int | None
    path: str
    status: int = 200
    method: str = "GET"
    sent: int = 0
    connection: int = 1
    nth: int = 1

    @property
    def line(self) -> str:
        if self.end < 0:
            return f"nothing {self.path}"
        took = (
            "-" if self.duration is None else f"{self.duration // 1000}.{self.duration % 1000:03}"
        )
        return (
            f'{self.end // 1000}.{self.end % 1000:03} {took} "{self.method} {self.path} HTTP/1.1" '
            f"{self.status:03} {self.sent} {self.connection} {self.nth} -"
        )

    @property
    def is_data(self) -> bool:
        return self.method == "GET" and self.status == 200


@lru_cache(1 << 12)
def siphash(key: bytes, data: bytes) -> int:
    """SipHash-2-4. Source: Aumasson, Bernstein, INDOCRYPT 2012."""
    first, second = (int.from_bytes(key[at : at + 8], "little") for at in (0, 8))
    a, b = first ^ 0x736F6D6570736575, second ^ 0x646F72616E646F6D
    c, d = first ^ 0x6C7967656E657261, second ^ 0x7465646279746573
    padded = data + bytes(-(len(data) + 1) % 8) + bytes([len(data) % 256])
    words = [int.from_bytes(padded[at : at + 8], "little") for at in range(0, len(padded), 8)]
    for word, rounds in [*((word, 2) for word in words), (0, 4)]:
        if rounds == 4:  # the end
            c ^= 0xFF
        d ^= word
        for _ in range(rounds):
            a, c = a + b & _MASK, c + d & _MASK
            b, d = (b << 13 & _MASK | b >> 51) ^ a, (d << 16 & _MASK | d >> 48) ^ c
            a = (a << 32 & _MASK | a >> 32) + d & _MASK
            c = c + b & _MASK
            d, b = (d << 21 & _MASK | d >> 43) ^ a, (b << 17 & _MASK | b >> 47) ^ c
            c = c << 32 & _MASK | c >> 32
        a ^= word
    return a ^ b ^ c ^ d


def tally_of(asked: Sequence[Asked], plan: LearnPlan) -> dict[str, Any]:
    """The tally of the requests, in any order, as its JSON has it."""
    key = bytes.fromhex(plan.key)
    good = [one for one in asked if one.end >= 0]
    data = [one for one in good if one.is_data]
    path = {one: one.path.partition("?")[0] for one in good}
    objects = {one: siphash(key, path[one].encode()) for one in data}
    lines = {one: siphash(key, one.line.encode()) for one in good}
    times = Counter(lines[one] for one in good)
    timed = [one.duration for one in good if one.duration is not None]
    nth = Counter(one.nth for one in good)
    requests = Counter(objects.values() if plan.with_query else (objects[one] for one in data))
    connections = {
        siphash(key, one.connection.to_bytes(8, "little") + one.host.encode()) for one in good
    }
    level, kept = _least(requests, plan.most_objects)
    line_level, kept_lines = _least({lines[one] for one in data}, plan.most_lines)
    connection_level, kept_connections = _least(connections, 1 << 13)
    object_of = {lines[one]: (objects[one], one.sent) for one in data}
    largest = {hashed: max(one.sent for one in data if objects[one] == hashed) for hashed in kept}
    return {
        "counts": {
            "lines": len(asked),
            "refused": {"format": len(asked) - len(good)} if len(asked) > len(good) else {},
            "requests": len(good),
            "unreadable_requests": 0,
            "methods": dict(sorted(Counter(one.method for one in good).items())),
            "statuses": {str(code): count for code, count in
                         sorted(Counter(one.status for one in good).items())},
            "protocols": {"1.1": len(good)} if good else {},
            "tls": {"none": len(good)} if good else {},
            "cache_statuses": {},
            "upstream_requests": 0,
            "sent_bytes": sum(one.sent for one in good),
            "data_requests": len(data),
            "data_bytes": sum(one.sent for one in data),
            "partial_requests": 0,
            "timed_requests": len(timed),
            "busy_milliseconds": sum(timed),
            "numbered_requests": len(good),
            "nth_requests": [nth[at] for at in range(1, max(nth, default=0) + 1)],
            "later_requests": 0,
            "round_trips": {},
        },
        "seconds": seconds_of(good, plan.most_seconds),
        "connections": {"level": connection_level, "gaps": _gaps(kept_connections)},
        "objects": {
            "level": level, "gaps": _gaps(kept), "requests": [requests[one] for one in kept],
            "sizes": [largest[one] for one in kept],
        },
        "data_lines": {
            "level": line_level, "gaps": _gaps(kept_lines),
            "times": [times[one] for one in kept_lines],
            "objects": [object_of[one][0] for one in kept_lines],
            "sizes": [object_of[one][1] for one in kept_lines],
        },
        "manifest": _whole(data, lines, objects, times, plan.most_requests,
                           path if plan.keeps_paths else {}),
    }  # fmt: skip


def places_of(asked: Sequence[Asked], plan: LearnPlan) -> dict[str, Any]:
    """The requests by whose paths locations are found."""
    key = bytes.fromhex(plan.key)
    good = [one for one in asked if one.end >= 0]
    path = {one: one.path.partition("?")[0] for one in good}
    lines = {one: siphash(key, one.line.encode()) for one in good}
    objects = {one: siphash(key, path[one].encode()) if one.is_data else 0 for one in good}
    times = Counter(lines[one] for one in good)
    return _whole(good, lines, objects, times, plan.most_places, path)


def popularity_of(tally: dict[str, Any]) -> dict[str, Any]:
    """The objects of a tally by their requests; a head is one that many of the lines ask for."""
    objects, lines = tally["objects"], tally["data_lines"]
    keys = accumulate(objects["gaps"])
    sample = dict(zip(keys, zip(objects["requests"], objects["sizes"], strict=True), strict=True))
    is_whole, data_requests = objects["level"] == 0, tally["counts"]["data_requests"]
    heads: dict[int, tuple[int, int]] = {}
    for key, count in Counter(lines["objects"]).items():
        if count >= _HEAD_LINES and not is_whole:
            columns = zip(lines["objects"], lines["times"], lines["sizes"], strict=True)
            own = [(times, size) for other, times, size in columns if other == key]
            seen = sum(times for times, _ in own) << lines["level"], max(size for _, size in own)
            heads[key] = sample.get(key, seen)
    known = list(sample.values()) if is_whole else list(heads.values())
    others = [] if is_whole else [one for key, one in sample.items() if key not in heads]
    in_sample = sum(requests for requests, _ in others)
    left = max(data_requests - sum(requests for requests, _ in known), in_sample)
    weight = Fraction(left, in_sample or 1)
    sizes = sorted([*((size, Fraction(requests)) for requests, size in known),
                    *((size, requests * weight) for requests, size in others)])  # fmt: skip
    total = sum(requests for _, requests in sizes)

    def quantile(percent: int) -> int:
        sums = accumulate(requests for _, requests in sizes)
        reached = (at for at, below in enumerate(sums) if 100 * below >= percent * total)
        return sizes[next(reached)][0]

    return {
        "known": _alike(known), "sampled": _alike(others), "other_requests": left,
        "known_from_requests": 0 if is_whole else 2 * _HEAD_LINES << lines["level"],
        "size_quantiles": [quantile(percent) for percent in (50, 90, 99)] if sizes else None,
    }  # fmt: skip


def _alike(objects: Sequence[tuple[int, int]]) -> list[list[int]]:
    by_requests = groupby(sorted(objects, reverse=True), key=lambda one: one[0])
    groups = [(requests, [size for _, size in group]) for requests, group in by_requests]
    return [[requests, len(sizes), sum(sizes)] for requests, sizes in groups]


def _whole(
    asked: Sequence[Asked], lines: dict[Asked, int], objects: dict[Asked, int],
    times: Counter[int], most: int, path: dict[Asked, str],
) -> dict[str, Any]:  # fmt: skip
    by_line = {lines[one]: one for one in asked} if most else {}
    level, kept = _least(by_line, most)
    rows = []
    for hashed in kept:
        one = by_line[hashed]
        rows.append([hashed, {
            "times": times[hashed], "end": one.end, "duration": one.duration or 0,
            "object": objects[one], "sent": one.sent,
            "size": one.sent if one.is_data else -1, "range": None, "server": "",
            "path": path.get(one, ""),
        }])  # fmt: skip
    return {"level": level, "requests": rows}


def _least(hashes: Iterable[int], most: int) -> tuple[int, list[int]]:
    """The least level at which no more are kept, and those."""
    kept, level = sorted(hashes), 0
    while len(kept) > most:
        level += 1
        kept = [one for one in kept if one >> (64 - level) == 0]
    return level, kept


def _gaps(keys: Sequence[int]) -> list[int]:
    return [key - before for key, before in zip(keys, [0, *keys], strict=False)]


def seconds_of(asked: Sequence[Asked], most: int) -> dict[str, Any]:
    """The rows of the least level whose blocks of 64 are no more than fit."""
    rows: dict[int, list[int]] = {}  # requests, changes, partials

    def add(second: int, requests: int, change: int, partial: int) -> None:
        row = rows.setdefault(second, [0, 0, 0])
        for at, more in enumerate((requests, change, partial)):
            row[at] += more

    for one in asked:
        start = max(one.end - (one.duration or 0), 0)
        first, second = start // 1000, one.end // 1000
        if first == second:
            add(second, 1, 0, one.end - start)
            continue
        add(first, 0, 0, (first + 1) * 1000 - start)
        if first + 1 < second:
            add(first + 1, 0, 1, 0)
        add(second, 1, -1 if first + 1 < second else 0, one.end % 1000)
    level = 0
    while len({second >> level >> 6 for second in rows}) > -(-most // 64):
        level += 1
    wide: dict[int, list[int]] = {}
    for second, (requests, change, partial) in rows.items():
        row = wide.setdefault(second >> level, [0, 0, 0])
        row[0] += requests
        row[1] += change
        row[2] += partial - 1000 * (second % (1 << level)) * change
    keys = sorted(wide)
    columns = zip(*(wide[key] for key in keys), strict=True) if keys else ([], [], [])
    named = dict(zip(("requests", "changes", "partials"), map(list, columns), strict=True))
    return {"level": level, "gaps": _gaps(keys), **named}


def timeline_of(asked: Sequence[Asked], level: int) -> dict[str, Any]:
    """Stretches and peaks, where so many seconds are counted together."""
    width = 1 << level
    ends = Counter(one.end // 1000 // width * width for one in asked if one.end >= 0)
    firsts = sorted(ends)
    starts = [at for at, before in zip(firsts, [-_PAUSE, *firsts], strict=False)
              if at - before - (width - 1) > _PAUSE or at == firsts[0]]  # fmt: skip
    groups = [list(group) for _, group in
              groupby(firsts, key=lambda at: sum(start <= at for start in starts))]  # fmt: skip
    sums = [sum(ends[at] for at in group) for group in groups]
    most = max(sums, default=0)
    fewest = min(most, max(8, most // 1000))
    kept = [group for group, count in zip(groups, sums, strict=True) if count >= fewest]
    busy: Counter[int] = Counter()
    for one in asked:
        start = max(one.end - (one.duration or 0), 0)
        for second in range(start // 1000, one.end // 1000 + 1) if one.end >= 0 else ():
            within = min(one.end, second * 1000 + 1000) - max(start, second * 1000)
            busy[second // width * width] += within
    inside = [at for at in busy if any(group[0] <= at <= group[-1] for group in kept)]

    def peak(seconds: int) -> int | None:
        if seconds % width:
            return None
        most = 0
        for group in kept:
            for at in group:
                stop = min(at + seconds, group[-1] + 1)
                most = max(most, sum(ends[one] for one in range(at, stop, width)))
        return most

    return {
        "stretches": [[group[0], group[-1] + width - 1] for group in kept],
        "requests": sum(count for count in sums if count >= fewest),
        "stray_lines": sum(count for count in sums if count < fewest),
        "peak_1s": peak(1), "peak_10s": peak(10), "peak_60s": peak(60),
        "busy_peak_milliseconds": max((busy[at] // width for at in inside), default=0),
    }  # fmt: skip
