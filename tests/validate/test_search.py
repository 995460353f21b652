"""``validate --search``, ``--max-time`` and ``--objective``: pretended runs first, then nginx."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from command_line import RunCli
from rows import each_row
from unprivileged import let_all_see

from nginx_tune.documents.base import decode
from nginx_tune.documents.loadplan import Arrivals, LoadClass, LoadPlan, Paths, Target
from nginx_tune.documents.measured_class import ClassMeasurement, Latency
from nginx_tune.documents.measured_server import ServerMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.plan import Plan, SearchAnswer
from nginx_tune.documents.verdict import Verdict
from nginx_tune.errors import UsageError
from nginx_tune.experiment.experiment import Experiment, GoesOn, search_variants
from nginx_tune.experiment.operations import Variant
from nginx_tune.experiment.session import Session
from nginx_tune.experiment.validate.search import (
    Contest,
    answer_of,
    candidates_of,
    hold_contest,
    new_contest,
)
from nginx_tune.experiment.validate.site_load import with_extra_classes
from nginx_tune.experiment.validate.validation import Deadline, Looking
from nginx_tune.measure.load.classes import ServedFile, default_classes, for_seconds, plan_load
from nginx_tune.measure.proof.search import RECOMMENDED, TODAY, Rung

Rates = Mapping[str, float]


class FakeBench:
    """Gives each variant its rate, with noise; the short runs may have other rates."""

    metric = "hot.requests_per_second"

    def __init__(self, short: Rates, proof: Rates, *, noise: float = 0.01, seed: int = 1) -> None:
        self._short, self._proof, self._noise = short, proof, noise
        self._dice = random.Random(seed)
        self.used_seconds = 0.0
        self.dear: frozenset[str] = frozenset()
        """Variants that take twice the CPU time."""

    def has(self, seconds: float, *, share: float = 1.0) -> bool:
        return self.used_seconds + seconds <= share * 100

    def screen(self, rung: Rung, step: int) -> list[Measurement]:
        rounds = (self._round(self._short, rung.names, n) for n in range(rung.rounds))
        return [run for one in rounds for run in one]

    def confirm(self, names: Sequence[str], goes_on: GoesOn, into: list[Measurement]) -> None:
        while goes_on(into):
            into += self._round(self._proof, names, len(into) // len(names))

    def _round(self, rates: Rates, names: Sequence[str], number: int) -> list[Measurement]:
        self.used_seconds += len(names)
        return [
            Measurement(
                variant=name,
                number=number * len(names) + place,
                classes={"hot": self._part(rates.get(name, 100.0))},
                server=ServerMeasurement(
                    cpu_seconds_per_request=2e-4 if name in self.dear else 1e-4
                ),
            )
            for place, name in enumerate(names)
        ]

    def _part(self, rate: float) -> ClassMeasurement:
        seen = rate * (1 + self._dice.gauss(0, self._noise))
        return ClassMeasurement(requests=1000, requests_per_second=seen)


def hold(bench: FakeBench, names: Sequence[str]) -> tuple[Contest, SearchAnswer]:
    contest = new_contest(names)
    hold_contest(contest, bench, bench, first_pairs=6, progress=lambda _: None)
    verdicts = {match: contest.judge(match) for match in contest.lookings}
    return contest, answer_of(contest, verdicts)


ALL = [TODAY, RECOMMENDED, "a", "b", "c"]
BOTH = {TODAY: 50.0, RECOMMENDED: 100.0}


@each_row(
    "what, names, short, proof, answer, contender",
    [
        ("a is better than both", ALL, BOTH | {"a": 150.0}, BOTH | {"a": 150.0}, "candidate", "a"),
        ("a was lucky", ALL, BOTH | {"a": 200.0}, BOTH, "recommendation", "a"),
        ("a was lucky, and is worse", ALL, BOTH | {"a": 200.0}, BOTH | {"a": 70.0},
         "recommendation", "a"),
        ("better than the recommendation alone", ALL, {RECOMMENDED: 50.0, "a": 150.0},
         {RECOMMENDED: 50.0}, "today", "a"),
        ("the recommendation is the best", ALL, BOTH, BOTH, "recommendation", None),
        ("today's is the best", ALL, {TODAY: 200.0}, {TODAY: 200.0}, "today", None),
        ("all are equal", ALL, {}, {}, "today", None),
        ("nothing is recommended, b is better", [TODAY, "a", "b"], {"b": 150.0}, {"b": 150.0},
         "candidate", "b"),
        ("nothing is recommended, all are equal", [TODAY, "a", "b"], {}, {}, "today", "any"),
    ],
)  # fmt: skip
def test_the_answer_is_what_holds_on_fresh_seeds(
    what: str,
    names: list[str],
    short: Rates,
    proof: Rates,
    answer: SearchAnswer,
    contender: str | None,
) -> None:
    contest, found = hold(FakeBench(short, proof), names)
    assert found == answer, what
    assert contender in {"any", contest.contender}, what
    assert len(contest.runs) >= 7 * len(contest.finalists), what


@each_row(
    "what, rate, dear",
    [
        ("faster, and it costs twice as much", 150.0, {"a"}),
        ("as fast, and the others cost twice as much", 100.0, {TODAY, RECOMMENDED}),
    ],
)
def test_the_cost_takes_a_winner_away_and_makes_none(
    what: str, rate: float, dear: set[str]
) -> None:
    bench = FakeBench(BOTH | {"a": 150.0}, BOTH | {"a": rate})
    bench.dear = frozenset(dear)
    assert hold(bench, ALL)[1] == "recommendation", what


def test_the_time_bounds_a_search_and_what_was_left_out_is_still_listed() -> None:
    bench = FakeBench(BOTH, BOTH, noise=0.5)
    names = [*ALL, *(f"x{n}" for n in range(5))]
    contest, _ = hold(bench, names)
    assert bench.used_seconds <= 100
    listed = candidates_of(contest, [])
    assert {one.name for one in listed} == {"today", *names[1:]}
    assert listed[0].regret_ratio == 1.0
    assert all(one.rounds >= 1 for one in listed)


@pytest.mark.thorough
def test_equal_candidates_seldom_yield_a_winner() -> None:
    names = [TODAY, RECOMMENDED, *(f"c{n}" for n in range(8))]
    answers = [hold(FakeBench({}, {}, noise=0.15, seed=n), names)[1] for n in range(200)]
    assert answers.count("candidate") <= 10


CONF = """
user root;  # so that the rights of the shared temporary directory do not matter
worker_processes 1;
events {{ worker_connections 256; }}
http {{
    access_log off;
    server {{
        listen 8080;
        location / {{ {location} }}
    }}
}}
"""
SHORT = ("--duration", "200ms", "--warmup", "100ms", "--no-store", "--accept-inconclusive")


def write(tmp_path: Path, location: str) -> Path:
    conf = tmp_path / "nginx.conf"
    conf.write_text(CONF.format(location=location))
    let_all_see(tmp_path)
    return conf


@pytest.mark.needs("root", "nginx", "probe")
def test_the_answer_is_a_plan_with_its_proof(run_cli: RunCli, tmp_path: Path) -> None:
    """Of a proxy there is little to try; time is up after the first round of the proof."""
    conf = write(tmp_path, "proxy_pass http://127.0.0.1:8081;")
    result = run_cli("validate", conf, "--search", *SHORT, "--max-time", "1s", "-f", "json")
    assert result.returncode in {0, 1, 4}, result.stderr
    plan = decode(Plan, result.stdout.encode())
    assert plan.proof is not None
    assert plan.conf_path == str(conf)
    assert (plan.proof.answer == "today") is (not plan.files)
    names = {one.name for one in plan.proof.candidates}
    assert {"today", "recommended"} < names
    assert all(f"candidate {name}: " in result.stderr for name in names - {"today"})
    assert plan.proof.against_today.outcome in {"inconclusive", "invalid", "worse"}


@each_row(
    "option, value",
    [
        ("--against", "other.conf"),
        ("--objective", "hot.p99 <= 50ms"),
        ("--self-check", ""),
        ("--dry-run", ""),
    ],
)
def test_what_does_not_go_with_a_search(run_cli: RunCli, option: str, value: str) -> None:
    result = run_cli("validate", "x.conf", "--search", *filter(None, (option, value)))
    assert result.returncode == 2
    assert f"{option} cannot be combined with --search" in result.stderr


LAB = """
name = "hdd"
memory_bytes = 268435456
cold_names = true
[[disks]]
name = "disk1"
class_name = "hdd"
kind = "modelled"
[[data]]
disk = "disk1"
files = 3000
file_bytes = 46005
"""


@pytest.mark.needs("root", "nginx", "probe", "fuse")
@pytest.mark.thorough
@pytest.mark.alone
def test_what_the_model_takes_for_memory_is_found_to_be_a_cold_disk(
    run_cli: RunCli, tmp_path: Path
) -> None:
    """All data fits in memory, so nothing is recommended for disks; after a boot they decide."""
    conf = write(tmp_path, "root /srv/files; } location = /healthz { return 200 ok;")
    lab, best = tmp_path / "lab.toml", tmp_path / "best.json"
    lab.write_text(LAB)
    result = run_cli(
        "-q", "validate", conf, "--search", "--lab", lab, "--starts", "cold", "--no-store",
        "--primary", "memory.mean", "--duration", "4s", "--warmup", "1s", "-f", f"json={best}",
        timeout=900,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    plan = decode(Plan, best.read_bytes())
    assert plan.proof is not None
    assert plan.proof.answer == "candidate"
    assert b"aio threads" in plan.files[0].content
    assert plan.proof.against_recommended is not None
    assert plan.proof.against_recommended.outcome == plan.proof.against_today.outcome == "better"
    # Other configurations would be other proofs.
    kept = run_cli("apply", best, "--no-reload", "--dry-run", "--trust", "-f", "json")
    assert kept.returncode == 0, kept.stderr


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
