"""The search for a capacity, on response curves whose answer is known."""

import random
import re
from collections.abc import Callable

import pytest
from rows import each_row

from nginx_tune.documents.measured_class import ClassMeasurement, Latency
from nginx_tune.documents.measurement import CapacityStep, Generator, LimitedBy, Measurement
from nginx_tune.errors import UsageError
from nginx_tune.measure.proof.objective import (
    Bounds,
    SearchOutcome,
    check_objectives,
    judge_run,
    next_rate,
    parse_objective,
    settle,
)

Curve = Callable[[float], LimitedBy | None]

BOUNDS = Bounds(first=100, lowest=1, highest=200_000)


def search(curve: Curve, bounds: Bounds = BOUNDS) -> tuple[SearchOutcome, list[CapacityStep]]:
    steps: list[CapacityStep] = []
    while (rate := next_rate(steps, bounds)) is not None:
        limit = curve(rate)
        steps.append(
            CapacityStep(rate_per_second=rate, met=limit is None, limited_by=limit, reason="r")
        )
        assert len(steps) <= bounds.most_steps
    return settle(steps, bounds), steps


def below(capacity: float, limit: LimitedBy = "objective") -> Curve:
    return lambda rate: None if rate <= capacity else limit


@each_row("capacity", [1.3, 3, 99, 100, 101, 777, 12_345, 150_000])
def test_the_capacity_is_found_within_the_precision(capacity: float) -> None:
    answer, steps = search(below(capacity))
    assert answer.capacity_per_second is not None
    assert answer.missed_per_second is not None
    assert capacity / 1.051 <= answer.capacity_per_second <= capacity < answer.missed_per_second
    assert answer.limited_by == "objective"
    held = [s for s in steps if s.rate_per_second == answer.capacity_per_second]
    missed = [s for s in steps if s.rate_per_second == answer.missed_per_second]
    assert len(held) == len(missed) == 2
    assert len(steps) <= 30


@each_row("limit", ["probe", "connections", "samples"])
def test_what_is_not_the_servers_limit_is_no_capacity(limit: LimitedBy) -> None:
    answer, _ = search(below(1000, limit))
    assert answer.capacity_per_second is None
    assert answer.at_least_per_second is not None
    assert answer.at_least_per_second <= 1000
    assert answer.limited_by == limit
    assert "not the server" in answer.reason


def test_a_bound_that_is_reached_is_no_capacity() -> None:
    answer, steps = search(below(1e9), BOUNDS._replace(highest=5000))
    assert answer.capacity_per_second is None
    assert (answer.at_least_per_second, answer.limited_by) == (5000, "bound")
    assert [s.rate_per_second for s in steps][-2:] == [5000, 5000]


def test_an_objective_that_never_holds_ends_at_the_lowest_rate() -> None:
    answer, steps = search(lambda _: "objective")
    assert answer == SearchOutcome(None, None, 1, "objective", "it does not hold even at 1/s: r")
    assert len(steps) < 20


def test_a_server_that_answers_nothing_well_is_soon_known() -> None:
    """Nobody listens, or all is 404: four runs, not one after another down to the lowest rate."""

    def tried(capacity: float) -> tuple[SearchOutcome, list[float]]:
        steps: list[CapacityStep] = []
        while (rate := next_rate(steps, BOUNDS)) is not None:
            met = rate <= capacity
            steps.append(CapacityStep(
                rate_per_second=rate, met=met, limited_by=None if met else "failures",
                good_requests=9 if met else 0,
            ))  # fmt: skip
        return settle(steps, BOUNDS), [step.rate_per_second for step in steps]

    answer, rates = tried(0)
    assert (rates, answer.limited_by) == ([100, 100, 1, 1], "failures")
    answer, _ = tried(3)
    assert answer.capacity_per_second == pytest.approx(3, rel=0.06)


@each_row("text", ["p99 >= 20ms", "a.mean > 1s", "a.truncated >= 1"])
def test_an_objective_that_slowness_meets_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is met by a slow or failing server") as refused:
        parse_objective([text], ["a"])
    assert "upper bound: <" in refused.value.hint
    assert parse_objective(["a.requests_per_second >= 5"], ["a"]).texts


@each_row("text", ["p99", "p99 < = 50ms", "a.p99 <= 5 bananas", "ratio(a.p99) <= 0.5", "no!"])
def test_an_objective_that_cannot_be_read_gets_one_as_its_example(text: str) -> None:
    for check in (lambda: parse_objective([text], ["a"]), lambda: check_objectives([text])):
        with pytest.raises(UsageError) as caught:
            check()
        examples = re.findall(r"'([^']+)'", caught.value.hint or "")
        assert parse_objective(examples, ["hot"]).texts == tuple(examples) != ()
        column = re.search(r"column (\d+)", caught.value.message)
        assert column is None or int(column[1]) <= len(text) + 1


def test_a_run_that_fails_says_how() -> None:
    part = ClassMeasurement(errors={"refused": 2, "status": 3}, statuses={"404": 2, "503": 1})
    step = judge_run(parse_objective(["p50 <= 1s"], ["a"]), Measurement(classes={"a": part}), 9.0)
    assert (step.limited_by, step.good_requests) == ("failures", 0)
    assert "a: 5 failed (status 404 503, refused), 0 unanswered" in step.reason


def test_one_bad_run_is_forgiven_and_one_good_run_is_not_believed() -> None:
    tried: list[float] = []

    def hiccup(rate: float) -> LimitedBy | None:
        tried.append(rate)
        first = tried.count(rate) == 1
        if rate <= 1000:
            return "objective" if first and rate > 300 else None
        return None if first and rate < 1100 else "objective"

    answer, _ = search(hiccup)
    assert answer.capacity_per_second is not None
    assert 1000 / 1.051 <= answer.capacity_per_second <= 1000


@each_row("seed", range(40))
def test_noise_around_the_edge_moves_the_answer_a_little(seed: int) -> None:
    """Each run sees the capacity 10 % off (standard deviation), and one in twenty is spoilt."""
    chance = random.Random(seed)

    def noisy(rate: float) -> LimitedBy | None:
        spoilt = chance.random() < 0.05
        return "objective" if spoilt or rate > 1000 * chance.lognormvariate(0, 0.1) else None

    answer, steps = search(noisy)
    assert len(steps) <= BOUNDS.most_steps
    assert answer.at_least_per_second is not None
    assert 600 < answer.at_least_per_second < 1300
    if answer.capacity_per_second is not None:
        held = [s.met for s in steps if s.rate_per_second == answer.capacity_per_second]
        assert sum(held) >= 2


def test_the_majority_names_what_limits() -> None:
    tried: list[float] = []

    def mixed(rate: float) -> LimitedBy | None:
        tried.append(rate)
        if rate <= 500:
            return None
        return "probe" if tried.count(rate) == 1 else "objective"

    answer, _ = search(mixed)
    # One of each: the later, and a probe that got out of the way does not spoil the answer.
    assert answer.limited_by == "objective"


def run(
    *, p99: float = 0.01, count: int = 10_000, flags: list[str] | None = None, **part: object
) -> Measurement:
    latency = Latency(count=count, mean=p99, stdev=0, p50=p99, p90=p99, p99=p99, p999=p99, max=p99)
    service = Latency(count=count, mean=0.01, stdev=0, p50=0.01, p90=0.01, p99=0.01, max=0.01)
    fields: dict[str, object] = {
        "requests": count,
        "intended": count,
        "response_seconds": latency,
        "service_seconds": service,
        **part,
    }
    return Measurement(
        classes={"hot": ClassMeasurement(**fields)},  # type: ignore[arg-type]
        generator=Generator(),
        flags=flags or [],
    )


HOT = parse_objective(["p99 <= 50ms"], ["hot"])


@each_row(
    ("measurement", "limit"),
    [
        pytest.param(run(), None, id="met"),
        pytest.param(run(p99=0.06), "objective", id="missed"),
        pytest.param(run(errors={"reset": 1}), "failures", id="failed"),
        pytest.param(run(censored=1, censored_from_seconds=1), "failures", id="unanswered"),
        pytest.param(run(p99=0.06, flags=["lateness: x"]), "probe", id="late"),
        pytest.param(run(p99=0.06, flags=["generator_cpu: x"]), "probe", id="busy"),
        pytest.param(run(errors={"local_ports": 9}, flags=["local_ports: x"]), "probe", id="ports"),
        pytest.param(run(flags=["generator_cpu: x"]), None, id="busy and met all the same"),
        pytest.param(
            run(errors={"status": 9}, flags=["lateness: x"]), "failures", id="late and refused"
        ),
        pytest.param(run(flags=["not_sent: x"]), "probe", id="not offered"),
        pytest.param(run(flags=["stopped: the cap"]), "probe", id="stopped"),
        pytest.param(run(p99=0.06, at_cap=9), "connections", id="waits for connections"),
        pytest.param(run(count=500), "samples", id="few samples"),
    ],
)
def test_a_run_says_what_is_in_the_way(measurement: Measurement, limit: LimitedBy | None) -> None:
    step = judge_run(HOT, measurement, 100)
    assert step.limited_by == limit, step.reason
    assert step.met is (limit is None)
    assert step.met or step.reason


@each_row(
    ("text", "words"),
    [
        ("p98 <= 50ms", "unknown metric"),
        ("ratio(hot.p99) <= 2", "cannot be an objective of a single run"),
        ("cold.p99 <= 50ms", "unknown metric"),
        ("p99 <= 5 MB", "unit does not fit"),
        ("fast", "column"),
    ],
)
def test_what_is_no_objective_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_objective([text], ["hot"])
