"""What the server showed in each variant's runs."""

from msgspec.structs import replace

from nginx_tune.documents.measured_server import ServerMeasurement, WorkerUse
from nginx_tune.documents.measurement import Measurement
from nginx_tune.observe.causes.naming import find_variant_causes

WORKER = WorkerUse(pid=1, state_d_ratio=0.0, state_samples=500, state_d_error=0.0, threads=1)
FREE = ServerMeasurement(pool_overflow=0, workers=[WORKER])


def blocked(ratio: float) -> ServerMeasurement:
    return replace(FREE, workers=[replace(WORKER, state_d_ratio=ratio, state_d_error=0.01)])


def runs(variant: str, *servers: ServerMeasurement) -> list[Measurement]:
    return [
        Measurement(variant=variant, number=number, duration_seconds=10.0, server=server)
        for number, server in enumerate(servers)
    ]


def test_each_variant_has_the_causes_of_most_of_its_runs() -> None:
    found = find_variant_causes(
        runs("candidate", FREE, blocked(0.3), FREE)
        + runs("baseline", blocked(0.4), blocked(0.6), blocked(0.5))
    )
    assert [(one.variant, one.cause.id, one.runs, one.of_runs) for one in found] == [
        ("baseline", "loop-blocked-on-disk", 3, 3),
        ("candidate", "nothing-found", 2, 3),
    ]
    assert "waited for disks 60" in found[0].cause.summary, "the figures are those of one run"


def test_several_causes_of_one_variant_keep_their_order() -> None:
    both = replace(blocked(0.5), pool_overflow=7)
    found = find_variant_causes(runs("baseline", both, both))
    assert [one.cause.id for one in found] == ["pool-queue-overflow", "loop-blocked-on-disk"]


def test_runs_that_differ_are_all_told_and_a_single_one_is_not() -> None:
    found = find_variant_causes(runs("baseline", blocked(0.5), FREE, FREE, blocked(0.5)))
    assert [(one.cause.id, one.runs) for one in found] == [
        ("loop-blocked-on-disk", 2),
        ("nothing-found", 2),
    ]
    found = find_variant_causes(runs("baseline", blocked(0.5), FREE, FREE))
    assert [one.cause.id for one in found] == ["nothing-found"]


def test_a_stand_in_has_no_workers_and_no_causes() -> None:
    assert find_variant_causes(runs("raw-epoll", ServerMeasurement())) == []
    assert find_variant_causes([]) == []
