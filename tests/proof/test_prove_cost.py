"""What the same requests cost, beside the primary metric."""

import random
from collections.abc import Mapping

import pytest
from msgspec.structs import replace
from rows import each_row

from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measured_server import ServerMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.verdict import MetricVerdict, Verdict
from nginx_tune.errors import ExitStatus
from nginx_tune.measure.proof.comparison import COST
from nginx_tune.measure.proof.verdict import judge, verdict_status

RATE = "hot.requests_per_second"
SECONDS = 8.0
SEED = 20_261_122

Rates = Mapping[str, float]


def run(number: int, variant: str, rates: Rates, costs: Rates, noise: float) -> Measurement:
    """A run in which every request of a class costs what it does, and then some."""
    requests = {name: round(rate * SECONDS) for name, rate in rates.items()}
    cpu = sum(count * costs[name] for name, count in requests.items()) * (1 + noise)
    return Measurement(
        variant=variant,
        number=number,
        classes={
            name: ClassMeasurement(
                requests=count, requests_per_second=count / SECONDS, bytes=1000 * count
            )
            for name, count in requests.items()
        },
        server=ServerMeasurement(
            cpu_seconds=cpu, cpu_seconds_per_request=cpu / sum(requests.values())
        ),
    )


def judged(
    before: tuple[Rates, Rates], after: tuple[Rates, Rates], *, pairs: int = 6, noise: float = 0.01
) -> Verdict:
    """Each variant as rates and costs by class."""
    chance = random.Random(SEED)
    runs = []
    for pair in range(pairs):
        for half, (variant, (rates, costs)) in enumerate(
            (("baseline", before), ("candidate", after))
        ):
            runs.append(run(2 * pair + half, variant, rates, costs, chance.uniform(-noise, noise)))
    return judge(runs, primary_metric=RATE)


def cost_of(verdict: Verdict) -> MetricVerdict:
    return next(one for one in verdict.metrics if one.name == COST)


STEADY = {"hot": 195.0, "cold": 980.0, "memory": 200.0}
CHEAP = {"hot": 20e-6, "cold": 20e-6, "memory": 10e-6}


def test_a_candidate_that_costs_twice_as_much_is_worse_though_no_client_sees_it() -> None:
    dear = {name: 2.22 * value for name, value in CHEAP.items()}
    verdict = judged((STEADY, CHEAP), (STEADY, dear))
    assert verdict.metrics[0].outcome == "no_difference"
    assert verdict.outcome == "worse"
    assert verdict.reason.startswith(f"{COST}: 2.2")
    assert verdict_status(verdict) == ExitStatus.FOUND
    cheaper = judged((STEADY, dear), (STEADY, CHEAP))
    assert (cheaper.outcome, verdict_status(cheaper)) == ("better", ExitStatus.OK)


def test_equal_variants_do_not_differ_and_noise_settles_nothing() -> None:
    assert judged((STEADY, CHEAP), (STEADY, CHEAP)).outcome == "no_difference"
    noisy = judged((STEADY, CHEAP), (STEADY, CHEAP), noise=0.12)
    assert noisy.outcome == "inconclusive"
    assert noisy.reason.startswith(COST)
    assert verdict_status(noisy) == ExitStatus.UNDECIDED


def test_a_faster_class_is_no_harm_by_its_own_weight() -> None:
    """Thread pools: 4 large files a second become 900, and the CPU time a request grows."""
    costs = {"hot": 900e-6, "cold": 900e-6, "memory": 10e-6}
    before = {"hot": 4.0, "cold": 20.0, "memory": 200.0}
    verdict = judged((before, costs), ({**before, "hot": 900.0}, costs))
    cost = cost_of(verdict)
    assert (cost.candidate or 0) > 5 * (cost.baseline or 1)
    assert (cost.outcome, cost.judged) == ("inconclusive", False)
    assert "with the candidate 225 × the requests of hot, 1 × the requests of " in cost.reason
    assert verdict.outcome == "better"


@each_row("factor", [1.0, 1.3, 4.0])
def test_what_the_mix_cannot_explain_is_seen_and_no_more_is_said(factor: float) -> None:
    costs = {"hot": 100e-6, "memory": 10e-6}
    before, after = {"hot": 100.0, "memory": 200.0}, {"hot": 150.0, "memory": 200.0}
    dear = {name: factor * value for name, value in costs.items()}
    cost = cost_of(judged((before, costs), (after, dear)))
    assert cost.outcome == ("worse" if factor > 1 else "inconclusive")
    assert cost.judged is (factor > 1)
    if factor > 1:
        assert 1.1 < (cost.ratio or 0) < factor * 1.02
    else:
        assert cost.ratio is None


def test_a_class_that_one_variant_never_answered_leaves_the_cost_unknown() -> None:
    both = {"hot": 100.0, "memory": 200.0}
    costs = {"hot": 1e-4, "memory": 1e-5}
    cost = cost_of(judged(({**both, "hot": 0.0}, costs), (both, costs)))
    assert (cost.outcome, cost.judged) == ("inconclusive", False)


def test_what_rises_while_everything_gets_better_is_shown_and_not_judged() -> None:
    runs = [
        Measurement(
            variant="candidate" if index % 2 else "baseline",
            number=index,
            classes={"hot": ClassMeasurement(requests_per_second=400.0 if index % 2 else 100.0)},
            server=ServerMeasurement(block_io_delay_seconds=50.0 if index % 2 else 5.0),
        )
        for index in range(12)
    ]
    verdict = judge(runs, primary_metric=RATE)
    waiting = next(one for one in verdict.metrics if one.name == "server.block_io_delay_seconds")
    assert (waiting.ratio, waiting.judged) == (pytest.approx(10), False)
    assert verdict.outcome == "better"
    alone = judge(runs, primary_metric="server.block_io_delay_seconds")
    assert alone.outcome == "worse"


@each_row("lacking", [0, 1, 5])
def test_a_run_without_cpu_time_is_said_and_breaks_nothing(lacking: int) -> None:
    runs = [
        run(2 * pair + half, variant, STEADY, CHEAP, 0.0)
        for pair in range(6)
        for half, variant in enumerate(("baseline", "candidate"))
    ]
    without = replace(runs[lacking].server, cpu_seconds=None, cpu_seconds_per_request=None)
    runs[lacking] = replace(runs[lacking], server=without)
    verdict = judge(runs, primary_metric=RATE)
    assert cost_of(verdict).outcome == "inconclusive"
    assert "1 of 6 pairs lack it" in cost_of(verdict).reason
