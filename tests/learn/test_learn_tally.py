"""Tallies of parts add up to the tally of the whole, in any order and grouping."""

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pytest
from tally_oracle import FORMAT, Asked, places_of, popularity_of, siphash, tally_of, timeline_of
from tiers import dice, draws

from nginx_tune.decide.workload.learnt import learnt_workload, manifest_of
from nginx_tune.decide.workload.log_format import parse_log_format
from nginx_tune.documents.base import Part, encode
from nginx_tune.documents.learning import LearnPlan, LogReading, Tally, encode_manifest
from nginx_tune.observe.access_logs import LogFrame, read_frames

pytestmark = pytest.mark.needs("probe")

_DAY = 86_400
_START = 1_790_000_000


def drawn_plan(rng: random.Random) -> LearnPlan:
    """Bounds that some logs pass and others keep."""
    return LearnPlan(
        format=parse_log_format(FORMAT),
        most_objects=rng.choice([3, 20, 1 << 20]),
        most_lines=rng.choice([5, 40, 1 << 20]),
        most_seconds=rng.choice([64, 256, 1 << 24]),
        most_requests=rng.choice([0, 10, 1000]),
        most_places=rng.choice([0, 15, 1000]),
        keeps_paths=rng.random() < 0.5,
        key=rng.randbytes(16).hex(),
    )


def drawn_log(rng: random.Random) -> list[Asked]:
    """Requests of some hosts, far apart in time or side by side, some lines more than once."""
    days = rng.choice([[0], [0, 0.001], [0, 3], [0, 1, 40]])
    asked = []
    for _ in range(rng.choice([0, 1, 30, 300])):
        end = int((_START + rng.choice(days) * _DAY) * 1000) + rng.randrange(
            rng.choice([10, 90_000])
        )
        duration = rng.choice([None, 0, rng.randrange(300), rng.randrange(20_000)])
        asked.append(
            Asked(
                host=rng.choice(["a", "b"]), end=end if rng.random() < 0.95 else -1,
                duration=duration, path=f"/{int(rng.paretovariate(0.7))}{rng.choice(['', '?q'])}",
                status=rng.choice([200, 200, 404]), method=rng.choice(["GET", "GET", "HEAD"]),
                sent=rng.randrange(5000), connection=rng.randrange(1, 9), nth=rng.randrange(1, 4),
            )
        )  # fmt: skip
    return asked + rng.choices(asked, k=len(asked) // 10)


def frames_of(asked: Iterable[Asked]) -> Iterator[LogFrame]:
    by_host: dict[str, list[str]] = defaultdict(list)
    for one in asked:
        by_host[one.host].append(f"{one.line}\n")
    for host, lines in by_host.items():
        yield LogFrame("L", host.encode())
        yield LogFrame("B", "".join(lines).encode())


def frame_of(reading: LogReading) -> LogFrame:
    places = msgspec.json.encode(reading.places)
    return LogFrame("T", b'{"tally":%b,"places":%b}' % (bytes(reading.tally), places))


def merged(rng: random.Random, asked: list[Asked], plan: LearnPlan) -> LogReading:
    """The same through parts by chance, by time, by host, or line by line, and a tree of merges."""
    count = rng.randint(1, 5)
    match rng.choice(["chance", "time", "host"]):
        case "chance":
            shards = {one: rng.randrange(count) for one in asked}
        case "time":
            shards = {one: one.end * count // (_START * 2000) for one in asked}
        case _:
            shards = {one: one.host == "a" for one in asked}
    parts: dict[int, list[Asked]] = defaultdict(list)
    for one in rng.sample(asked, len(asked)):
        parts[shards[one]].append(one)
    readings = [read_frames(frames_of(part), plan) for part in parts.values()]
    while len(readings) > 1:
        rng.shuffle(readings)
        taken = [readings.pop() for _ in range(rng.randint(2, len(readings)))]
        readings.append(read_frames(map(frame_of, taken), plan))
    return readings[0] if readings else read_frames([], plan)


def plain(part: Part) -> Any:
    return msgspec.json.decode(msgspec.json.encode(part))


def check(seed: object) -> None:
    rng = dice(seed)
    plan, asked = drawn_plan(rng), drawn_log(rng)
    whole, parts = read_frames(frames_of(asked), plan), merged(rng, asked, plan)
    assert bytes(parts.tally) == bytes(whole.tally), seed
    assert (parts.timeline, parts.places) == (whole.timeline, whole.places), seed
    assert parts.popularity == whole.popularity, seed
    found = msgspec.json.decode(whole.tally)
    expected = tally_of(asked, plan)
    for name, part in expected.items():
        assert found[name] == part, (seed, name)
    assert plain(whole.popularity) == popularity_of(expected), seed
    assert plain(whole.places) == places_of(asked, plan), seed
    level = expected["seconds"]["level"]
    assert plain(whole.timeline) == timeline_of(asked, level), seed
    assert results_of(parts, plan) == results_of(whole, plan), seed


def results_of(reading: LogReading, plan: LearnPlan) -> tuple[bytes, bytes]:
    tally = msgspec.json.decode(reading.tally, type=Tally)
    workload = learnt_workload(tally, reading.timeline, reading.popularity, plan)
    return encode(workload), encode_manifest(*manifest_of(tally, reading.timeline, plan))


def test_parts_add_up_to_the_whole_and_to_what_their_definition_says() -> None:
    for number in range(draws(10, 500)):
        check(number)


def test_the_hash_is_that_of_its_paper() -> None:
    assert siphash(bytes(range(16)), bytes(range(15))) == 0xA129CA6149BE45E5


def test_an_object_with_enough_sampled_lines_stands_for_itself() -> None:
    """By its own count where it is in the sample of objects; a line that comes often is one."""
    plan = LearnPlan(format=parse_log_format(FORMAT))
    tally = tally_of([], plan)
    asked = {7: [(1, 9)] * 40, 99: [(1, 20)] * 15 + [(1, 30)], 98: [(1, 30)] * 15, 97: [(1000, 5)]}
    rows = [(key, times, size) for key, seen in asked.items() for times, size in seen]
    keys, times, sizes = map(list, zip(*rows, strict=True))
    tally["data_lines"] = {
        "level": 3, "gaps": [1] * len(rows), "times": times, "objects": keys, "sizes": sizes
    }  # fmt: skip
    tally["objects"] = {"level": 2, "gaps": [7, 1], "requests": [300, 10], "sizes": [10, 40]}
    tally["counts"]["data_requests"] = 500
    whole = {"tally": tally, "places": places_of([], plan)}
    reading = read_frames([LogFrame("T", msgspec.json.encode(whole))], plan)
    assert plain(reading.popularity) == popularity_of(tally)
    assert plain(reading.popularity) == {
        "known": [[300, 1, 10], [16 << 3, 1, 30]], "sampled": [[10, 1, 40]], "other_requests": 72,
        "known_from_requests": 32 << 3, "size_quantiles": [10, 40, 40],
    }  # fmt: skip
