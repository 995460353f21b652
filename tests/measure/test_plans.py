"""The pure parts around a run: load plans, places, workloads, emulated facts."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest
from msgspec import structs

from nginx_tune.conf.tree import parse_text
from nginx_tune.decide.model_cache import curve_classes, hit_ratio, zipf_classes
from nginx_tune.documents.facts import Cpu, Dataset, Facts, Memory, Sizes
from nginx_tune.documents.lab import Lab, LabData, LabDisk, LabLink
from nginx_tune.documents.loadplan import Arrivals, Target
from nginx_tune.documents.scenario import Scenario, ScenarioClass
from nginx_tune.documents.workload import Popularity
from nginx_tune.errors import UndecidedError
from nginx_tune.experiment.emulated import emulate
from nginx_tune.experiment.places import plan_places
from nginx_tune.experiment.session import split_cpus
from nginx_tune.experiment.view import plan_view
from nginx_tune.load.classes import ServedFile, default_classes, plan_load
from nginx_tune.scenario.popularity import declare_popularity
from nginx_tune.scenario.workload import plan_workload

FILES = [ServedFile(f"/f{index}", 100 + index) for index in range(4)]


def test_the_hot_file_is_no_part_of_the_random_load() -> None:
    plan = plan_load(
        default_classes(),
        FILES,
        target=Target(port=8080),
        memory_url="/healthz",
    )
    cold, hot, memory = plan.classes
    assert hot.paths.paths == ["/f0"]
    assert cold.paths.paths == ["/f1", "/f2", "/f3"]
    assert cold.paths.bytes == [101, 102, 103], "bodies are checked against the files"
    assert memory.paths.paths == ["/healthz"]
    assert plan.permit.ports == [8080]
    assert plan.permit.live is False


def test_each_file_once_where_a_class_says_so() -> None:
    cold = default_classes()[0]
    plan = plan_load(
        [structs.replace(cold, once=True), structs.replace(cold, name="zipf", exponent=1.1)],
        FILES,
        target=Target(port=8080),
        memory_url=None,
    )
    assert [item.paths.kind for item in plan.classes] == ["once", "zipf"]


def test_a_class_without_anything_to_ask_is_an_error() -> None:
    with pytest.raises(UndecidedError, match="no file to ask for"):
        plan_load(
            default_classes(),
            [],
            target=Target(port=1),
            memory_url="/x",
        )


def test_places_are_what_the_build_and_the_configuration_write_to() -> None:
    flags = [
        "--with-threads",
        "--error-log-path=stderr",
        "--http-log-path=/var/log/nginx/access.log",
        "--pid-path=/run/nginx.pid",
        "--lock-path=/var/lock/nginx.lock",
        "--http-proxy-temp-path=/var/lib/nginx/proxy",
    ]
    written = ["/srv/logs/error.log", "syslog:server=1.2.3.4", "/logs/$host.log", "/dev/null"]
    assert plan_places(flags, written) == [
        "/run",
        "/srv/logs",
        "/var/lib/nginx",
        "/var/lock",
        "/var/log/nginx",
    ]


def test_a_cache_is_written_and_not_shown() -> None:
    """A place that is shown takes no writes, inside of one that does neither."""
    tree = parse_text(
        "events {} http { proxy_cache_path /srv/site/cache keys_zone=small:1m; server {"
        " access_log /srv/logs/site/a.log; location / { proxy_cache small;"
        " proxy_pass http://127.0.0.1:1; } } }",
        file="/srv/site/nginx.conf",
    )
    view = plan_view([tree], [], None, directory="/")
    assert "/srv/site" in view.shown
    assert "/srv/site/cache" not in view.shown
    assert {"/srv/site", "/srv/logs/site"} <= set(view.written)


def test_cpus_are_split_where_there_are_two() -> None:
    assert split_cpus([0, 1], separate=True) == ([0], [1])
    assert split_cpus([3], separate=True) == ([3], [3])
    assert split_cpus([0, 1, 2, 3], separate=False) == ([0, 1, 2, 3], [0, 1, 2, 3])


LAB = Lab(
    name="hdd",
    memory_bytes=192 << 20,
    disks=[LabDisk(name="d", mount="/srv/d", bytes_per_second=80 << 20, reads_per_second=400)],
)


def test_the_emulated_host_is_its_limits() -> None:
    real = Facts(cpu=Cpu(online=2), memory=Memory(total_bytes=24 << 30, available_bytes=20 << 30))
    facts = emulate(real, LAB, cpus=1)
    assert facts.memory.page_cache_limit_bytes == 192 << 20
    assert facts.cpu.effective == 1.0
    assert facts.storage.independent_disk_count == 1
    curve = facts.storage.disks[0].curve
    assert curve is not None
    assert curve.sequential_bytes_per_second == 80 << 20
    assert curve.provenance == "declared"


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


def two_disks() -> Lab:
    disks = [LabDisk(name="a", mount="/srv/a"), LabDisk(name="b", mount="/srv/b")]
    data = [
        LabData(disk="a", files=3, file_bytes=100),
        LabData(disk="b", files=1, file_bytes=100),
    ]
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


def test_classes_of_several_popularities_are_added_by_their_rates() -> None:
    """One in four even over the first hundred files, the others skewed over all of them."""
    few = msgspec.structs.replace(open_class("few", "random", 25), first_files=100)
    skewed = msgspec.structs.replace(open_class("all", "random", 75), exponent=0.8)
    asked = declared(many_files(), few, skewed)
    ratio_of_first = next(p.requests_ratio for p in asked.curve if p.bytes >= 100_000)
    head = zipf_classes(1000.0, 0.8)
    seen, covered = 0.0, 0.0
    for objects, each in head:
        covered += each * max(0.0, min(objects, 100 - seen))
        seen += objects
    assert ratio_of_first == pytest.approx(0.25 + 0.75 * covered, abs=0.03)
    assert asked.curve[-1].requests_ratio == pytest.approx(1.0)


def test_of_a_block_that_starts_full_the_requests_count() -> None:
    even = open_class("a", "random", 50)
    asked = declared(many_files(), even, starts="full", warmup_seconds=1, duration_seconds=4)
    assert (asked.requests_seen, asked.began_full) == (150, True)
    cold = declared(many_files(), even, warmup_seconds=1, duration_seconds=4)
    assert not cold.began_full


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


def test_a_link_of_the_lab_is_one_of_its_host() -> None:
    lab = Lab(name="l", topology="link", link=LabLink(bits_per_second=200_000_000))
    assert [x.speed_bits_per_second for x in emulate(Facts(), lab, cpus=1).network.links] == [2e8]
    assert emulate(Facts(), LAB, cpus=1).network.links == []


def test_slow_clients_are_said_and_asked_for() -> None:
    slow = msgspec.structs.replace(open_class("a", "random", 5), read_bytes_per_second=50_000)
    scenario = Scenario(
        name="n", title="t", lab=many_files(), primary_metric="a.p99", classes=[slow]
    )
    assert plan_workload(scenario, Facts()).concurrency.client_bytes_per_second == 50_000
    files = [ServedFile("/a", 10), ServedFile("/b", 10)]
    plan = plan_load(
        [slow],
        files,
        target=Target(port=1),
        memory_url=None,
    )
    assert plan.classes[0].read_bytes_per_second == 50_000


def open_class(name: str, source: Literal["random", "hot"], rate: float) -> ScenarioClass:
    arrivals = Arrivals(kind="poisson", rate_per_second=rate)
    return ScenarioClass(name=name, source=source, connections=8, arrivals=arrivals)
