from collections.abc import Callable, Sequence

import msgspec
import pytest
from rows import each_row

from nginx_tune.documents.base import Unknown
from nginx_tune.documents.measured_class import ClassMeasurement, Latency
from nginx_tune.documents.measured_server import LoopTurn, ServerMeasurement, WorkerUse
from nginx_tune.documents.measurement import Generator, Measurement
from nginx_tune.errors import UsageError
from nginx_tune.measure.proof.latency import LatencySample, Reading, read_statistic
from nginx_tune.measure.proof.metrics import default_metrics, find_metric, metric_names

MakeLatency = Callable[[Sequence[float]], Latency]


@pytest.fixture(scope="module")
def runs(latency: MakeLatency) -> list[Measurement]:
    def run(number: int, rate: float, slow: float) -> Measurement:
        hot = ClassMeasurement(
            requests=1000, requests_per_second=rate, bytes_per_second=rate * 100,
            truncated=number, errors={"reset": 2, "truncated": number}, max_pending=number,
            response_seconds=latency([0.001] * 980 + [slow] * 20),
            ttfb_seconds=latency([0.0005] * 1000),
        )  # fmt: skip
        server = ServerMeasurement(
            pool_overflow=number, cpu_seconds=2.0,
            loop_turn_seconds=LoopTurn(**msgspec.structs.asdict(latency([slow] * 1000))),
        )  # fmt: skip
        generator = Generator(cpu_ratio=0.25, lateness_seconds=latency([5e-5] * 2000))
        memory = ClassMeasurement(requests=10, requests_per_second=1.0)
        return Measurement(
            number=number, classes={"hot": hot, "memory": memory}, server=server,
            generator=generator, unknown=[Unknown(path="/server/listen_drops", reason="no root")],
        )  # fmt: skip

    return [run(1, 100.0, 0.2), run(3, 300.0, 0.4)]


@each_row(
    ("name", "value"),
    [
        ("hot.requests_per_second", 200.0),
        ("hot.requests", 2000.0),
        ("hot.truncated", 4.0),
        ("hot.errors", 8.0),
        ("hot.errors.reset", 4.0),
        ("hot.errors.timeout", 0.0),
        ("hot.max_pending", 3.0),
        ("hot.max", 0.4),
        ("hot.mean", 0.98 * 0.001 + 0.02 * 0.3),
        ("hot.p50", 0.001),
        ("hot.p99", 0.2),
        ("hot.response_seconds.p99", 0.2),
        ("hot.ttfb.p99", 0.0005),
        ("total.requests_per_second", 201.0),
        ("total.truncated", 4.0),
        ("total.errors", 8.0),
        ("server.pool_overflow", 4.0),
        ("server.cpu_seconds", 4.0),
        ("server.loop_turn_seconds.p99", 0.4),
        ("generator.cpu_ratio", 0.25),
        ("generator.lateness.p99", 5e-5),
    ],
)
def test_values_of_a_variant(runs: list[Measurement], name: str, value: float) -> None:
    metric = find_metric(name, ["hot", "memory"])
    # Below a millisecond the probe's counters are 0.5 µs wide, above it 0.1 %.
    assert metric.read(runs).value == pytest.approx(value, rel=2e-3, abs=6e-7)


def test_turns_stand_beside_what_clients_wait_for(latency: MakeLatency) -> None:
    def run(turns: list[float], waits: list[float]) -> Measurement:
        turn = msgspec.convert(msgspec.structs.asdict(latency(turns)), LoopTurn)
        part = ClassMeasurement(ttfb_seconds=latency(waits))
        return Measurement(classes={"hot": part}, server=ServerMeasurement(loop_turn_seconds=turn))

    half = run([0.001] * 900 + [0.02] * 100, [0.04] * 1000)
    metric = find_metric("hot.loop_turn_per_ttfb.p99", ["hot"])
    assert metric.unit == "ratio"
    assert metric.read([half]).value == pytest.approx(0.5, rel=0.02)
    assert metric.read([half, half]).value == pytest.approx(0.5, rel=0.02)
    few = run([0.02] * 100, [0.04] * 1000)
    assert "p99 not measured" in metric.read([few]).reason
    assert "p99 not measured" in metric.read([run([0.02] * 1000, [0.04] * 10)]).reason
    assert "no loop turns" in metric.read([Measurement(classes=half.classes)]).reason
    assert "no class 'hot'" in metric.read([Measurement(server=half.server)]).reason


@each_row(
    ("opens", "blocked", "traced", "value", "said"),
    [
        (Latency(count=10, mean=0.03), 0.4, 1.0, 0.75, ""),
        (Latency(count=10, mean=0.03), 0.2, 0.5, 0.75, ""),
        (Latency(), 0.2, 1.0, 0.0, ""),
        (Latency(count=10, mean=0.03), 0.0, 1.0, None, "no loop waited for a disk"),
        (None, 0.4, 1.0, None, "the calls of open() were not counted"),
        (Latency(), None, 1.0, None, "the loop turns were not traced"),
    ],
)
def test_open_is_set_against_what_blocked_the_loop(
    opens: Latency | None, blocked: float | None, traced: float, value: float | None, said: str
) -> None:
    turns = LoopTurn(blocked_seconds=blocked, traced_ratio=traced)
    one = Measurement(server=ServerMeasurement(open_seconds=opens, loop_turn_seconds=turns))
    for runs in ([one], [one, one]):
        reading = find_metric("server.open_per_blocked").read(runs)
        assert reading.value == (None if value is None else pytest.approx(value))
        assert reading.reason == said
    if opens is not None:
        count = find_metric("server.open_seconds.count").read([one, one])
        assert count.value == 2 * opens.count


def test_a_spread_of_runs_is_pooled(latency: MakeLatency) -> None:
    both = latency([0.001] * 50 + [0.003] * 50)
    halves = [latency([0.001] * 50), latency([0.003] * 50)]
    pooled = read_statistic([LatencySample(half) for half in halves], "stdev")
    assert pooled.value == pytest.approx(both.stdev, rel=2e-3)


@each_row(
    ("count", "censored", "measured"),
    [(999, 0, False), (1000, 0, True), (1000, 1, False), (1100, 1, True), (0, 0, False)],
)
def test_a_tail_needs_ten_samples_beyond_it(
    latency: MakeLatency, count: int, censored: int, measured: bool
) -> None:
    reading = read_statistic([LatencySample(latency([0.01] * count), censored)], "p99")
    assert (reading.value is not None) is measured
    assert bool(reading.reason) is not measured


@each_row(("youngest", "known"), [(0.5, True), (0.02, True), (0.005, False)])
def test_a_tail_is_known_below_the_age_of_what_was_cut_off(
    latency: MakeLatency, youngest: float, known: bool
) -> None:
    sample = LatencySample(latency([0.001] * 900 + [0.01] * 100 + [youngest] * 5), 5, youngest)
    reading = read_statistic([sample], "p99")
    assert (reading.value is not None) is known
    assert known or reading.reason == "p99 not measured: at least 0.01 s, 5 unfinished"
    assert reading.at_least == (None if known else pytest.approx(0.01, rel=1e-3))


def test_ten_beyond_may_come_from_several_runs(latency: MakeLatency) -> None:
    few = LatencySample(latency([0.01] * 250))
    assert read_statistic([few], "p99").value is None
    assert read_statistic([few] * 4, "p99").value == pytest.approx(0.01, rel=2e-3)


def test_without_histograms_runs_have_no_tail_together() -> None:
    sample = LatencySample(Latency(count=5000, p99=0.5))
    assert read_statistic([sample], "p99") == Reading(0.5)
    assert "no histogram" in read_statistic([sample, sample], "p99").reason


def test_what_is_unknown_says_why(runs: list[Measurement]) -> None:
    assert find_metric("server.listen_drops").read(runs) == Reading(None, "no root")
    assert "run 1" in find_metric("server.listen_overflows").read(runs).reason
    assert "run 1 has no class" in find_metric("cold.p99").read(runs).reason
    half = [runs[0], msgspec.structs.replace(runs[1], server=ServerMeasurement())]
    assert find_metric("server.pool_overflow").read(half).value is None
    assert find_metric("server.pool_overflow").read([]).value is None


@each_row(
    ("name", "near"),
    [
        ("hot.p98", "hot.p99"),
        ("hott.p99", "hot.p99"),
        ("hot.request_per_second", "hot.requests_per_second"),
        ("server.pool_overflows", "server.pool_overflow"),
        ("hot.errors.timout", "hot.errors.timeout"),
        ("cold.p99", "hot.p99"),
        ("p99", "near it: hot.p99, memory.p99, "),
        ("p99.9", "hot.p999"),
        ("overflow", "server.pool_overflow"),
    ],
)
def test_a_misspelt_metric_gets_its_neighbours(name: str, near: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_metric(name, ["hot", "memory"])
    assert near in caught.value.hint


@each_row("name", ["", ".", "hot", "hot.", ".p99", "hot..p99", "total.p99"])
def test_half_names_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="unknown metric"):
        find_metric(name, ["hot"])


def test_every_listed_metric_can_be_found_and_read(runs: list[Measurement]) -> None:
    for name in metric_names(["hot", "memory", "dotted.class"]):
        metric = find_metric(name, ["hot", "memory", "dotted.class"])
        assert metric.name == name
        metric.read(runs)


def test_defaults_show_each_class_and_what_the_server_has(runs: list[Measurement]) -> None:
    names = default_metrics(runs)
    assert {"hot.p99", "memory.requests_per_second", "server.pool_overflow"} <= set(names)
    assert "server.listen_overflows" not in names


def test_the_busiest_workers_shares_are_added_by_rank() -> None:
    """New processes in each run: the busiest of one is another one than that of the next."""

    def run(told: dict[str, int], seconds: Sequence[float | None]) -> Measurement:
        workers = [WorkerUse(pid=n, cpu_seconds=used) for n, used in enumerate(seconds)]
        part = ClassMeasurement(workers=told)
        server = ServerMeasurement(workers=workers)
        return Measurement(classes={"a": part, "b": part}, server=server)

    two = [run({"1": 30, "2": 10}, [0.5, 1.5]), run({"8": 10, "9": 50}, [3.0, 1.0])]
    assert find_metric("server.busiest_worker_request_ratio").read(two).value == pytest.approx(0.8)
    assert find_metric("server.busiest_worker_cpu_ratio").read(two).value == pytest.approx(0.75)
    for untold, name in [
        (run({}, [1.0]), "server.busiest_worker_request_ratio"),
        (run({}, [1.0, None]), "server.busiest_worker_cpu_ratio"),
        (run({}, [0.0, 0.0]), "server.busiest_worker_cpu_ratio"),
    ]:
        runs = [*two, untold] if name.endswith("request_ratio") else [untold]
        reading = find_metric(name).read(runs)
        assert reading.value is None, name
        assert reading.reason, name
