"""Times of whole answers, against a simulation; and that more hardware never makes them slower."""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from rows import each_row
from simulation import Clock, Station, gamma, mean, poisson, quantile
from tiers import REPEAT, dice, draws

from nginx_tune.decide.model.answers import AnswerGoal, Server, Statistic, best_server
from nginx_tune.decide.model.cache import zipf_classes
from nginx_tune.decide.model.disk import TYPICAL, ModelDisk, disks_together
from nginx_tune.decide.model.inputs import BlockingInputs
from nginx_tune.decide.model.reads import SizeGroup
from nginx_tune.documents.facts import DiskClass

MEBIBYTE = 1 << 20
HDD = ModelDisk(0.008, 120e6, heads=1, spread=0.6)


def inputs(**other: object) -> BlockingInputs:
    """4,000 files of 64 KiB, half of them in memory, all asked for alike."""
    parts: dict[str, object] = {
        "workers": 4,
        "page_cache_bytes": 140 * MEBIBYTE,
        "dataset_bytes": 250.0 * MEBIBYTE,
        "object_bytes": 64.0 * 1024,
        "classes": zipf_classes(4000.0, 0.0),
        "disk": HDD,
        "read_bytes": 512.0 * 1024,
    }
    return BlockingInputs(**{**parts, **other})  # type: ignore[arg-type]


def simulate(i: BlockingInputs, rate: float, seconds: float) -> list[float]:
    """Times of answers whose misses queue at one of the disks, and all of them at the link."""
    clock, rng = Clock(), random.Random(41)
    parts = [disk for _, disk in i.disk.parts] or [i.disk]
    disks = [Station(clock, round(disk.heads)) for disk in parts]
    wire, found = Station(clock, 1), list[float]()

    def ask() -> None:
        began = clock.now

        def send() -> None:
            wire.work(i.object_bytes / (i.link_bytes_per_second or math.inf), finish)

        def finish() -> None:
            found.append(clock.now - began)

        if rng.random() < i.miss_ratio:
            number = rng.randrange(len(disks))
            read = gamma(rng, parts[number].read_seconds(i.object_bytes), parts[number].spread)
            disks[number].work(read, send)
        else:
            send()

    poisson(clock, rng, rate, ask)
    clock.run(seconds)
    return found


@each_row(("disks", "heads"), [(1, 1), (3, 1), (2, 4)])
@each_row("use", [0.3, 0.8])
def test_answers_take_as_long_as_simulated(disks: int, heads: int, use: float) -> None:
    disk = disks_together([replace(HDD, heads=heads)] * disks)
    i = inputs(disk=disk, link_bytes_per_second=1e9)
    server = Server(i, pools=True)
    rate = use * server.bounds["disks"]
    answers = server.answers_at(rate)
    assert answers is not None
    times = simulate(i, rate, 15_000 / rate)
    assert answers.seconds("mean") == pytest.approx(mean(times), rel=0.2, abs=0.5e-3)
    assert answers.seconds("p99") == pytest.approx(quantile(times, 0.99), rel=0.25)
    assert answers.binding(AnswerGoal("p99", answers.seconds("p99"))) == "disks"


@each_row(("bound", "name"), [(6e6, "link"), (None, "disks")])
def test_what_is_carried_is_just_within_the_goal(bound: float | None, name: str) -> None:
    goal = AnswerGoal("p99", 0.1)
    server = Server(inputs(link_bytes_per_second=bound), pools=True)
    most = server.carries(goal)
    within, beyond = server.answers_at(0.99 * most), server.answers_at(1.01 * most)
    assert within is not None
    assert within.meet(goal)
    assert beyond is None or not beyond.meet(goal)
    assert within.binding(goal) == name


def drawn(rng: random.Random) -> BlockingInputs:
    """A host and its files, far ends included."""
    memory, mean_bytes = 2 ** rng.uniform(27, 40), 2 ** rng.uniform(10, 30)
    data = max(mean_bytes, memory * 2 ** rng.uniform(-4, 5))
    names: list[DiskClass] = ["hdd", "ssd", "nvme", "network", "virtual", "card", "unknown"]
    disks = [TYPICAL[rng.choice(names)]] * rng.choice([1, 1, 2, 3, 12])
    if rng.random() < 0.3:
        disks = [*disks, HDD]
    return inputs(
        workers=rng.choice([1, 2, 4, 16, 64]),
        page_cache_bytes=memory,
        dataset_bytes=data,
        object_bytes=mean_bytes,
        classes=zipf_classes(data / mean_bytes, rng.uniform(0, 1.3)),
        disk=disks_together(disks),
        read_bytes=rng.choice([8192.0, 32768.0, 512.0 * 1024]),
        window_bytes=131072.0,
        turn_bytes=262144.0,
        goes_on_bytes=rng.choice([0.0, 4.0 * MEBIBYTE]),
        others_per_second=rng.choice([0.0, 100.0]),
        rate_per_second=rng.choice([None, 50.0]),
        link_bytes_per_second=rng.choice([None, 12.5e6, 125e6, 1.25e9, 12.5e9]),
        client_bytes_per_second=rng.choice([None, None, 1e6]),
        clients_keep_pace=rng.random() < 0.3,
        encrypts=rng.random() < 0.3,
        sizes=rng.choice([(), (SizeGroup(0.9, 0.2), SizeGroup(0.1, 8.2))]),
    )


def _twice_the_disks(i: BlockingInputs) -> BlockingInputs:
    shared = i.disk.parts or ((1.0, i.disk),)
    disks = [disk for _, disk in shared] * 2
    return replace(i, disk=disks_together(disks, [share for share, _ in shared] * 2))


def _twice_the_link(i: BlockingInputs) -> BlockingInputs:
    link = i.link_bytes_per_second
    return replace(i, link_bytes_per_second=None if link is None else 2 * link)


MORE: dict[str, Callable[[BlockingInputs], BlockingInputs]] = {
    "memory": lambda i: replace(i, page_cache_bytes=2 * i.page_cache_bytes),
    "disks": _twice_the_disks,
    "faster disks": lambda i: replace(i, disk=i.disk.scaled(0.5)),
    "link": _twice_the_link,
    "CPUs": lambda i: replace(i, workers=2 * i.workers),
}


def ways(i: BlockingInputs) -> Iterator[Server]:
    """The ways in which a host may be run."""
    yield Server(i, pools=True)
    for workers in {i.workers, *(1 << n for n in range(i.workers.bit_length()))}:
        yield Server(replace(i, workers=workers), pools=False)


def seconds_at(i: BlockingInputs, rate: float, statistic: Statistic) -> float:
    """The statistic at a rate, whichever way is best."""
    found = (server.answers_at(rate) for server in ways(i))
    return min((one.seconds(statistic) for one in found if one is not None), default=math.inf)


def test_loops_do_not_count_on_a_slow_link() -> None:
    """The kernel reads ahead of what it takes; counted on, a faster link would block loops more."""
    i = inputs(object_bytes=440_000.0, disk=TYPICAL["nvme"], window_bytes=131072.0,
               turn_bytes=262144.0, read_bytes=32768.0)  # fmt: skip
    found = [
        Server(replace(i, link_bytes_per_second=link), pools=False).answers_at(500.0)
        for link in (0.5e9, 2.5e9)
    ]
    slow, fast = (one.uses["loops"] for one in found if one is not None)
    assert slow == pytest.approx(fast)
    assert slow > 0


def test_where_one_answer_in_ten_is_large_p90_is_the_time_of_the_others() -> None:
    """Whichever way the shares of hits and misses round."""
    sizes = (SizeGroup(0.9, 0.2), SizeGroup(0.1, 8.2))
    found = [
        Server(
            inputs(page_cache_bytes=memory * 16.0 * MEBIBYTE, sizes=sizes,
                   client_bytes_per_second=1e6),
            pools=True,
        ).answers_at(0.5)
        for memory in range(1, 60)
    ]  # fmt: skip
    times = [answers.seconds("p90") for answers in found if answers is not None]
    assert times == sorted(times, reverse=True)
    assert len(times) > 1


@pytest.mark.long
def test_more_hardware_is_never_slower_and_never_carries_less() -> None:
    """The law, at a stated rate: who waits for answers asks for more the faster they come."""
    rng = dice("more hardware")
    broken: list[str] = []
    carrying = 0
    for number in range(draws(40, 2000)):
        i = drawn(rng)
        statistic: Statistic = rng.choice(["mean", "p50", "p90", "p99", "p999"])
        rate = Server(i, pools=True).most_per_second * rng.uniform(0.01, 0.95)
        before = seconds_at(i, rate, statistic)
        goal = AnswerGoal(statistic, 1.5 * before, hits=rng.random() < 0.2)
        most = best_server(Server(i, pools=True), goal)[1] if math.isfinite(before) else 0.0
        carrying += most > 0
        for name, more in MORE.items():
            moved = more(i)
            after = seconds_at(moved, rate, statistic)
            if after > before * (1 + 1e-3):
                broken.append(f"{number}: more {name}: {statistic} {before:.4g} → {after:.4g} s")
            if most and not any(one.carries(goal, over=0.99 * most) for one in ways(moved)):
                broken.append(f"{number}: more {name}: less than {most:.4g}/s")
    assert not broken, "\n".join([REPEAT, *broken[:20]])
    assert carrying > draws(40, 2000) / 4
