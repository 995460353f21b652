"""``validate --search``: the whole contest with a bench that is not nginx, then with nginx."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from rows import each_row
from unprivileged import let_all_see

from nginx_tune.documents.base import decode
from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measured_server import ServerMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.plan import Plan, SearchAnswer
from nginx_tune.experiment.experiment import GoesOn
from nginx_tune.experiment.validate.search import (
    Contest,
    answer_of,
    candidates_of,
    hold_contest,
    new_contest,
)
from nginx_tune.measure.proof.search import RECOMMENDED, TODAY, Rung

RunCli = Callable[..., subprocess.CompletedProcess[str]]
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
    assert f"{option} does not go with --search" in result.stderr


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
