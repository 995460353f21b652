from collections.abc import Callable

import msgspec
import pytest
from rows import each_row

from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.verdict import Environment
from nginx_tune.errors import UsageError
from nginx_tune.measure.proof.gates import judge_gates
from nginx_tune.measure.proof.runs import pair_runs, schedule_runs
from nginx_tune.measure.proof.verdict import judge

MakeRuns = Callable[..., list[Measurement]]
RATE = "hot.requests_per_second"


@each_row("pairs", [0, 1, 2, 5, 6, 7, 20])
def test_the_order_is_abba_or_baab(pairs: int) -> None:
    for seed in range(20):
        order = schedule_runs(pairs, seed)
        assert order == schedule_runs(pairs, seed)
        assert len(order) == 2 * pairs
        for start in range(0, 2 * pairs, 4):
            group = order[start : start + 4]
            assert group[0] != group[1]
            assert group in ([*group[:2], *group[1::-1]], group[:2])


def test_the_order_depends_on_the_seed_and_favours_no_variant() -> None:
    firsts = [schedule_runs(2, seed)[0] for seed in range(400)]
    assert 160 < firsts.count("baseline") < 240


def test_a_flag_discards_both_halves_and_is_counted(make_runs: MakeRuns) -> None:
    runs = make_runs([(100.0, 200.0)] * 8)
    runs[3] = msgspec.structs.replace(runs[3], flags=["the probe was late"])
    verdict = judge(runs, primary_metric=RATE, environment=Environment(lab="hdd"))
    assert verdict.environment == Environment(lab="hdd", pairs=7, discarded_pairs=1)
    assert verdict.metrics[0].pairs == 7
    assert pair_runs(runs).discarded[0].reason == "run 3 (candidate): the probe was late"


def test_flags_that_a_slow_server_raises_warn_and_discard_nothing(make_runs: MakeRuns) -> None:
    runs = make_runs([(100.0, 200.0)] * 6)
    for index in (0, 3):
        flags = [
            f"at_cap: hot: {index + 1} of 99 arrivals waited for a connection of the probe",
            "censored: hot: 5 of 99 arrivals were unanswered at the end",
            "not_steady: hot: went to 0.5× from its first to its last third: a longer warm-up",
            "foreign_cpu: others used 40 % of it: too much",
        ]
        runs[index] = msgspec.structs.replace(runs[index], variant="baseline", flags=flags)
    flags = ["foreign_cpu: others used 50 % of it: too much"]
    runs[2] = msgspec.structs.replace(runs[2], variant="candidate", flags=flags)
    verdict = judge(runs, primary_metric=RATE)
    assert verdict.environment.discarded_pairs == 0
    assert verdict.warnings == [
        ("hot: 1 of 99 arrivals waited for a connection of the probe (baseline: 2 of 6 runs)"),
        ("hot: 5 of 99 arrivals were unanswered at the end (baseline: 2 of 6 runs)"),
        (
            "hot: went to 0.5× from its first to its last third: a longer warm-up "
            "(baseline: 2 of 6 runs)"
        ),
        ("others used 40 % of it: too much (baseline: 2 of 6 runs, candidate: 1 of 6 runs)"),
    ]


def test_a_missing_half_is_discarded(make_runs: MakeRuns) -> None:
    paired = pair_runs(make_runs([(1.0, 2.0)] * 3)[:-1])
    assert len(paired.pairs) == 2
    assert "no partner" in paired.discarded[0].reason


def test_runs_that_make_no_pairs_are_refused(make_runs: MakeRuns) -> None:
    runs = make_runs([(1.0, 2.0)])
    with pytest.raises(UsageError, match="twice"):
        pair_runs([*runs, runs[0]])
    with pytest.raises(UsageError, match="of the same variant"):
        pair_runs([msgspec.structs.replace(run, variant="baseline") for run in runs])
    with pytest.raises(UsageError, match="not baseline or candidate"):
        pair_runs([msgspec.structs.replace(runs[0], variant="A")])


def two_classes(flags: dict[int, list[str]], pairs: int = 8) -> list[Measurement]:
    """Blocks of a class hot that the candidate serves twice as fast, and one that is equal."""
    runs = []
    for number in range(2 * pairs):
        candidate = number % 2
        jitter = 1 + 0.01 * (number % 5)
        rates = {"hot": 100.0 * jitter * (1 + candidate), "cold": 10.0 * jitter}
        runs.append(
            Measurement(
                variant="candidate" if candidate else "baseline",
                number=number,
                flags=flags.get(number, []),
                classes={
                    name: ClassMeasurement(requests_per_second=rate) for name, rate in rates.items()
                },
            )
        )
    return runs


LATE = "lateness: cold: the probe released arrivals up to 3.00 ms late (p99)"


def test_lateness_in_one_class_discards_its_pairs_for_that_class_alone() -> None:
    verdict = judge(two_classes({2: [LATE], 5: [LATE]}), primary_metric="hot.requests_per_second")
    counted = {m.name: (m.pairs, m.discarded_pairs) for m in verdict.metrics}
    assert counted["hot.requests_per_second"] == (8, 0)
    assert counted["cold.requests_per_second"] == (6, 2)
    assert verdict.outcome == "better"
    total = judge(two_classes({2: [LATE]}), primary_metric="total.requests_per_second")
    assert (total.metrics[0].pairs, total.metrics[0].discarded_pairs) == (7, 1)


def test_lateness_in_the_class_that_decides_makes_it_invalid() -> None:
    verdict = judge(
        two_classes({number: [LATE] for number in range(0, 10, 2)}),
        primary_metric="cold.requests_per_second",
    )
    assert verdict.outcome == "invalid"
    assert "cold" in verdict.reason


def test_lateness_in_the_only_class_discards_the_pair() -> None:
    alone = [
        msgspec.structs.replace(run, classes={"cold": run.classes["cold"]})
        for run in two_classes({2: [LATE]})
    ]
    assert len(pair_runs(alone).discarded) == 1


def test_wrong_answers_count_however_late_they_were_asked_for() -> None:
    """A late probe cuts no body; whether it kept a connection from being made is not known."""
    runs = []
    for run in two_classes({number: [LATE] for number in range(20)}):
        cold = ClassMeasurement(truncated=2, errors={"truncated": 2, "reset": 1})
        classes = {**run.classes, "cold": cold}
        runs.append(msgspec.structs.replace(run, classes=classes))
    gates = judge_gates(
        ["cold.truncated == 0", "total.errors.truncated == 0", "cold.errors.reset <= 100"],
        pair_runs(runs),
    )
    assert [(gate.measured, gate.passed) for gate in gates] == [
        (2.0 * len(runs) / 2, False),
        (2.0 * len(runs) / 2, False),
        (None, False),
    ]
