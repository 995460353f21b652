"""The workload and the popularity that a scenario declares."""

from typing import Any, Literal

import msgspec
import pytest

from nginx_tune.decide.model.cache import curve_classes, hit_ratio, zipf_classes
from nginx_tune.documents.facts import Dataset, Facts, Sizes
from nginx_tune.documents.lab import Lab, LabData, LabDisk
from nginx_tune.documents.loadplan import Arrivals, Target
from nginx_tune.documents.scenario import Scenario, ScenarioClass
from nginx_tune.documents.workload import Popularity
from nginx_tune.experiment.scenario.workload import declare_popularity, plan_workload
from nginx_tune.measure.load.classes import ServedFile, plan_load

LAB = Lab(
    name="hdd",
    memory_bytes=192 << 20,
    disks=[LabDisk(name="d", mount="/srv/d", bytes_per_second=80 << 20, reads_per_second=400)],
)


def test_the_workload_of_a_scenario_tells_cold_from_hot() -> None:
    scenario = Scenario(
        name="n",
        title="t",
        kind="media",
        lab=LAB,
        primary_metric="hot.p99",
        classes=[
            ScenarioClass(
                name="cold",
                source="random",
                connections=20,
                arrivals=Arrivals(kind="closed", users=20),
            ),
            ScenarioClass(
                name="hot", source="hot", connections=4, arrivals=Arrivals(kind="closed", users=4)
            ),
            ScenarioClass(
                name="memory",
                source="memory",
                connections=8,
                arrivals=Arrivals(kind="poisson", rate_per_second=200),
            ),
        ],
    )
    workload = plan_workload(scenario, Facts(datasets=[Dataset(path="/srv/d", files=9, bytes=9)]))
    assert workload.concurrency.peak == 24
    assert workload.concurrency.cold_peak == 20
    assert workload.rate.mean_per_second is None, "the memory class reads no file"
    assert workload.dataset.files == 9
    assert workload.popularity.exponent == 0
    assert workload.popularity.curve == [], "who waits for answers has no rate"


def test_the_workload_of_several_disks_is_all_of_their_data() -> None:
    scenario = Scenario(
        name="n",
        title="t",
        kind="static",
        lab=two_disks(),
        primary_metric="hot.p99",
        classes=[open_class("cold", "random", 30), open_class("hot", "hot", 90)],
    )
    sizes = Sizes(mean_bytes=100.0, p50_bytes=100, p90_bytes=100, p99_bytes=100, max_bytes=100)
    datasets = [
        Dataset(path="/srv/a", files=3, bytes=300, sizes=sizes),
        Dataset(path="/srv/b", files=1, bytes=100, sizes=sizes),
    ]
    workload = plan_workload(scenario, Facts(datasets=datasets))
    assert (workload.dataset.files, workload.dataset.bytes) == (4, 400)
    assert workload.sizes.mean_bytes == 100
    shares = [(point.requests_ratio, point.bytes) for point in workload.popularity.curve]
    assert shares[0] == (0.75, 100), "three requests in four are for one file"
    assert shares[-1] == (1.0, 400)


def test_how_often_each_disk_is_asked_is_said_where_all_come_by_themselves() -> None:
    scenario = Scenario(
        name="n",
        title="t",
        kind="static",
        lab=two_disks(),
        primary_metric="hot.p99",
        classes=[
            open_class("cold", "random", 30),
            msgspec.structs.replace(open_class("seldom", "random", 3), disk="b"),
            open_class("hot", "hot", 90),
        ],
    )
    mounts = [disk.mount for disk in scenario.lab.disks]
    asked = plan_workload(scenario, Facts()).dataset.requests_by_path
    assert asked == dict(zip(mounts, (30, 3), strict=True))
    waiting = ScenarioClass(
        name="waiting", source="random", connections=4, arrivals=Arrivals(kind="closed", users=4)
    )
    scenario = msgspec.structs.replace(scenario, classes=[*scenario.classes, waiting])
    assert plan_workload(scenario, Facts()).dataset.requests_by_path == {}


def two_disks() -> Lab:
    disks = [LabDisk(name="a", mount="/srv/a"), LabDisk(name="b", mount="/srv/b")]
    data = [LabData(disk="a", files=3, file_bytes=100), LabData(disk="b", files=1, file_bytes=100)]
    return Lab(name="two", disks=disks, data=data)


def declared(lab: Lab, *classes: ScenarioClass, **other: Any) -> Popularity:
    scenario = Scenario(
        name="n", title="t", lab=lab, primary_metric="a.p99", classes=list(classes), **other
    )
    return declare_popularity(scenario)


def many_files(files: int = 1001) -> Lab:
    disk = LabDisk(name="a", mount="/srv/a")
    return Lab(name="m", disks=[disk], data=[LabData(disk="a", files=files, file_bytes=1000)])


def test_the_exponent_of_a_class_is_in_its_popularity() -> None:
    skewed = msgspec.structs.replace(open_class("a", "random", 50), exponent=1.1)
    asked = declared(many_files(), skewed)
    classes = curve_classes([(p.requests_ratio, float(p.bytes)) for p in asked.curve], 1e3, 1.001e6)
    expected = hit_ratio(zipf_classes(1000.0, 1.1), 300.0)
    assert hit_ratio(classes, 300.0) == pytest.approx(expected, abs=0.01)


def test_classes_of_several_popularities_are_added_by_their_rates_or_users() -> None:
    """One in four even over the first hundred files, the others skewed over all of them."""
    few = msgspec.structs.replace(open_class("few", "random", 25), first_files=100)
    skewed = msgspec.structs.replace(open_class("all", "random", 75), exponent=0.8)
    head = zipf_classes(1000.0, 0.8)
    seen, covered = 0.0, 0.0
    for objects, each in head:
        covered += each * max(0.0, min(objects, 100 - seen))
        seen += objects
    waiting = [
        msgspec.structs.replace(one, arrivals=Arrivals(kind="closed", users=users))
        for one, users in ((few, 25), (skewed, 75))
    ]
    for classes in ([few, skewed], waiting):
        asked = declared(many_files(), *classes)
        ratio_of_first = next(p.requests_ratio for p in asked.curve if p.bytes >= 100_000)
        assert ratio_of_first == pytest.approx(0.25 + 0.75 * covered, abs=0.03)
        assert asked.curve[-1].requests_ratio == pytest.approx(1.0)


def test_of_a_block_that_starts_full_the_requests_count() -> None:
    even = open_class("a", "random", 50)
    asked = declared(many_files(), even, starts="full", warmup_seconds=1, duration_seconds=4)
    assert (asked.requests_seen, asked.began_full) == (150, True)
    cold = declared(many_files(), even, warmup_seconds=1, duration_seconds=4)
    assert not cold.began_full


def test_a_hot_file_that_clients_wait_for_hides_no_cold_start() -> None:
    """drawn-4201-004: 32 files that fit in memory, of which none is there as a block starts."""
    hot = ScenarioClass(
        name="hot", source="hot", connections=4, arrivals=Arrivals(kind="closed", users=4)
    )
    even = open_class("a", "random", 50)
    asked = declared(many_files(), even, hot, warmup_seconds=1, duration_seconds=4)
    assert asked.requests_seen == 150
    waiting = ScenarioClass(
        name="b", source="random", connections=4, arrivals=Arrivals(kind="closed", users=4)
    )
    asked = declared(many_files(), even, waiting, warmup_seconds=1, duration_seconds=4)
    assert asked.requests_seen is None
    assert asked.began_empty
    assert not declared(many_files(), even, waiting, starts="warm").began_empty


def test_who_waits_for_answers_is_counted_by_users_of_random_files() -> None:
    def closed(name: str, source: Literal["random", "hot"], users: int, **other: Any) -> Any:
        return ScenarioClass(
            name=name,
            source=source,
            connections=users,
            arrivals=Arrivals(kind="closed", users=users),
            **other,
        )

    asked = declared(many_files(), closed("a", "random", 8), closed("h", "hot", 4))
    assert (asked.exponent, asked.curve) == (0.0, [])
    skewed = closed("a", "random", 8, exponent=1.0)
    assert declared(many_files(), skewed, closed("h", "hot", 4)).curve
    assert declared(many_files(), closed("a", "random", 8, once=True)).once


def test_users_who_pause_between_random_files_are_a_rate() -> None:
    pausing = ScenarioClass(
        name="a",
        source="random",
        connections=100,
        arrivals=Arrivals(kind="closed", users=100, think_seconds=0.25, gaps="poisson"),
    )
    scenario = Scenario(
        name="n", title="t", lab=many_files(), primary_metric="a.p99", classes=[pausing]
    )
    workload = plan_workload(scenario, Facts())
    assert workload.rate.mean_per_second == 400
    assert workload.concurrency.cold_peak is None, "few of them wait for a disk at once"


def test_slow_clients_are_said_and_asked_for() -> None:
    slow = msgspec.structs.replace(open_class("a", "random", 5), read_bytes_per_second=50_000)
    scenario = Scenario(
        name="n", title="t", lab=many_files(), primary_metric="a.p99", classes=[slow]
    )
    assert plan_workload(scenario, Facts()).concurrency.client_bytes_per_second == 50_000
    files = [ServedFile("/a", 10), ServedFile("/b", 10)]
    plan = plan_load([slow], files, target=Target(port=1), memory_url=None)
    assert plan.classes[0].read_bytes_per_second == 50_000


def open_class(name: str, source: Literal["random", "hot"], rate: float) -> ScenarioClass:
    arrivals = Arrivals(kind="poisson", rate_per_second=rate)
    return ScenarioClass(name=name, source=source, connections=8, arrivals=arrivals)


def test_requests_without_a_file_beside_those_for_files_are_told_apart() -> None:
    scenario = Scenario(
        name="n",
        title="t",
        lab=LAB,
        primary_metric="mixed.p90",
        classes=[
            ScenarioClass(
                name="mixed",
                source="random",
                once=True,
                beside_memory=19,
                connections=1,
                arrivals=Arrivals(kind="poisson", rate_per_second=200.0),
            )
        ],
    )
    workload = plan_workload(scenario, Facts(datasets=[Dataset(path="/srv/d", files=9, bytes=9)]))
    assert workload.rate.mean_per_second == 10
    assert workload.rate.without_file_per_second == 190
    assert workload.popularity.once
