"""``validate --max-time`` and ``--objective``: when pairs end, and what each variant can bear."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from nginx_tune.documents.base import decode
from nginx_tune.documents.loadplan import Arrivals, LoadClass, LoadPlan, Paths, Target
from nginx_tune.documents.measured_class import ClassMeasurement, Latency
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.verdict import Verdict
from nginx_tune.errors import UsageError
from nginx_tune.experiment.experiment import Experiment, search_variants
from nginx_tune.experiment.operations import Variant
from nginx_tune.experiment.session import Session
from nginx_tune.experiment.validate.site_load import with_extra_classes
from nginx_tune.experiment.validate.validation import Deadline, Looking
from nginx_tune.measure.load.classes import ServedFile, default_classes, for_seconds, plan_load

RunCli = Callable[..., "subprocess.CompletedProcess[str]"]
RATE = "hot.requests_per_second"
VARIANTS = [Variant(name=name, conf_path="/x.conf") for name in ("baseline", "candidate")]
PLAN = for_seconds(
    plan_load(
        default_classes(),
        [ServedFile("/a", 1000), ServedFile("/b", 1000)],
        target=Target(address="127.0.0.1", port=8080),
        memory_url="/healthz",
    ),
    warmup=0.1,
    duration=1.0,
)


class PretendSession:
    """Arms whose p99 passes 50 ms at a known rate."""

    def __init__(self, **capacities: float) -> None:
        self._capacities = capacities
        self.asked: list[tuple[str, float, list[str]]] = []

    def run(self, variant: Variant, number: int, plan: LoadPlan) -> Measurement:
        rates = {item.name: item.arrivals.rate_per_second for item in plan.classes}
        rate = sum(one or 0.0 for one in rates.values())
        self.asked.append((variant.name, rate, list(rates)))
        slow = rate > self._capacities[variant.name]
        latency = Latency(count=10_000, p99=0.3 if slow else 0.01)
        classes = {name: ClassMeasurement(response_seconds=latency) for name in rates}
        return Measurement(classes=classes)


def search(
    session: PretendSession, *objectives: str, steps: int = 1000, plan: LoadPlan = PLAN
) -> Any:
    left = iter(range(steps))
    return search_variants(
        cast("Session", session),
        Experiment(VARIANTS, {variant.name: plan for variant in VARIANTS}),
        objectives or ("hot.p99 <= 50ms",),
        seed=1,
        has_time=lambda: next(left, None) is not None,
        progress=lambda _: None,
    )


def test_each_variant_has_its_own_capacity() -> None:
    found = search(PretendSession(baseline=310.0, candidate=2900.0))
    assert found["baseline"].capacity_per_second == pytest.approx(310, rel=0.06)
    assert found["candidate"].capacity_per_second == pytest.approx(2900, rel=0.06)
    assert {found[variant.name].limited_by for variant in VARIANTS} == {"objective"}


def test_a_class_of_another_place_can_be_what_is_searched() -> None:
    """It alone is at a rate then; what has a rate beside it is left out."""
    other = LoadClass(
        name="api",
        arrivals=Arrivals(kind="closed", users=2),
        paths=Paths(kind="fixed", paths=["/api"]),
        connections=2,
    )
    plan = with_extra_classes(PLAN, [other])
    session = PretendSession(baseline=1000.0, candidate=1000.0)
    for objective, asked in (("api.p99 <= 50ms", "api"), ("hot.p99 <= 50ms", "hot")):
        session.asked.clear()
        search(session, objective, plan=plan, steps=2)
        (_, rate, names), *_ = session.asked
        assert (rate, set(names)) == (100.0, {"cold", "hot", "api"}), asked


def test_the_variants_take_turns_and_the_other_classes_stay() -> None:
    session = PretendSession(baseline=1000.0, candidate=1000.0)
    search(session)
    names = [name for name, _, _ in session.asked]
    assert names[:4] == ["baseline", "candidate", "candidate", "baseline"]
    assert names.count("baseline") == names.count("candidate")
    # memory has a rate of its own, which the search would change
    assert {tuple(classes) for _, _, classes in session.asked} == {("cold", "hot")}


def test_an_objective_without_a_class_is_meant_of_each() -> None:
    session = PretendSession(baseline=1000.0, candidate=1000.0)
    search(session, "p99 <= 50ms")
    assert set(session.asked[0][2]) == {"cold", "hot", "memory"}


def test_what_is_known_when_time_is_up_is_no_capacity() -> None:
    for steps in (0, 1, 5):
        session = PretendSession(baseline=310.0, candidate=2900.0)
        found = search(session, steps=steps)
        assert len(session.asked) == steps
        assert all(one.capacity_per_second is None for one in found.values()), steps
        assert all("time was up" in one.reason for one in found.values()), steps


def test_no_such_class_is_wrong_usage() -> None:
    with pytest.raises(UsageError):
        search(PretendSession(baseline=1.0, candidate=1.0), "gone.p99 <= 50ms")


def blocks(pairs: int, ratio: float) -> list[Measurement]:
    return [
        Measurement(
            variant="candidate" if number % 2 else "baseline",
            number=number,
            classes={
                "hot": ClassMeasurement(
                    requests_per_second=(100.0 + number % 3) * (ratio if number % 2 else 1.0)
                )
            },
        )
        for number in range(2 * pairs)
    ]


def run(ratio: float, *, most_pairs: int) -> tuple[int, Looking]:
    """Pairs until enough; time for ``most_pairs``."""
    deadline = Deadline(None)
    looking = Looking(RATE, deadline, first_pairs=6, share=1.0)
    pairs = 0
    while looking.wants_more(blocks(pairs, ratio)):
        pairs += 1
        if pairs == most_pairs:
            looking._deadline = Deadline(-1.0)  # time goes by
    return pairs, looking


def test_pairs_end_with_the_first_look_that_settles_it() -> None:
    pairs, looking = run(1.5, most_pairs=100)
    assert (pairs, looking.is_over) == (7, True)
    assert looking.look is not None
    assert looking.look.alpha < 0.05


def test_pairs_end_with_the_time_and_are_looked_at_then() -> None:
    pairs, looking = run(1.06, most_pairs=9)
    assert pairs <= 9
    assert looking.look is not None
    assert looking.look.pairs == pairs


def test_too_few_pairs_for_any_outcome_settle_nothing() -> None:
    pairs, looking = run(1.5, most_pairs=2)
    assert (pairs, looking.is_over) == (2, False)


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    root = tmp_path / "www"
    root.mkdir()
    for index in range(3):
        (root / f"f{index}").write_bytes(bytes(5000))
    path = tmp_path / "free.conf"
    path.write_text(
        "user root; events { worker_connections 1024; } http { access_log off;"
        f" server {{ listen 18084; root {root}; }} }}"
    )
    limited = path.read_text().replace(
        "access_log off;",
        "access_log off; limit_req_zone $server_port zone=z:1m rate=50r/s; limit_req zone=z;",
    )
    (tmp_path / "limited.conf").write_text(limited)
    return path


@pytest.mark.needs("root", "nginx", "probe")
def test_the_capacity_of_two_real_variants(run_cli: RunCli, conf: Path) -> None:
    """The baseline refuses what is above 50 a second, whatever the machine does."""
    run = run_cli(
        "-q", "validate", conf, "--against", conf.with_name("limited.conf"), "--pairs", "1",
        "--duration", "300ms", "--warmup", "100ms", "--max-time", "12s",
        "--objective", "hot.p50 <= 10s", "-f", "json", "--no-store",
    )  # fmt: skip
    verdict = decode(Verdict, run.stdout.encode())
    assert run.stderr == ""
    assert set(verdict.capacities) == {"baseline", "candidate"}
    above = [s for s in verdict.capacities["baseline"].steps if s.rate_per_second > 100]
    assert not any(step.met for step in above)
    assert verdict.stopped in {"time", "settled"}
