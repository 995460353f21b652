"""How the files of a site become the classes of a load plan."""

import pytest
from msgspec import structs

from nginx_tune.documents.loadplan import Arrivals, Http3, Target
from nginx_tune.errors import UndecidedError
from nginx_tune.measure.load.classes import ServedFile, default_classes, plan_load

FILES = [ServedFile(f"/f{index}", 100 + index) for index in range(4)]


def test_the_hot_file_is_no_part_of_the_random_load() -> None:
    plan = plan_load(default_classes(), FILES, target=Target(port=8080), memory_url="/healthz")
    cold, hot, memory = plan.classes
    assert hot.paths.paths == ["/f0"]
    assert cold.paths.paths == ["/f1", "/f2", "/f3"]
    assert cold.paths.bytes == [101, 102, 103], "bodies are checked against the files"
    assert memory.paths.paths == ["/healthz"]
    assert memory.status == [200, 204], "it may be 'return 204'"
    assert hot.status == cold.status == [200]
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
    with pytest.raises(UndecidedError, match="no file to request"):
        plan_load(default_classes(), [], target=Target(port=1), memory_url="/x")


def test_requests_without_a_file_go_over_the_connections_of_those_for_files() -> None:
    item = structs.replace(
        default_classes()[0],
        once=True,
        beside_memory=3,
        http3=Http3(streams=7),
        arrivals=Arrivals(kind="poisson", rate_per_second=8.0),
    )
    plan = plan_load([item], FILES, target=Target(port=8080), memory_url="/healthz")
    (mixed,) = plan.classes
    assert mixed.http3 == Http3(streams=7)
    assert mixed.paths.kind == "once"
    assert sorted(mixed.paths.paths) == sorted(["/f1", "/f2", "/f3", *["/healthz"] * 9])
    assert mixed.paths.bytes is None, "nobody said how long the page without a file is"
